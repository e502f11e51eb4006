// The candidates of opened tiles, as open_tiles and pool_tiles look into them.

__device__ __forceinline__ Seen seen_of(const Step& step, i64 beam) {
    const uint4* const from = reinterpret_cast<const uint4*>(step.seen + beam);
    const uint4 low = __ldcg(from), high = __ldcg(from + 1);
    Seen seen;
    seen.base = static_cast<i64>(low.x | static_cast<u64>(low.y) << 32);
    seen.mass = make_float2(__int_as_float(static_cast<int>(low.z)), __int_as_float(static_cast<int>(low.w)));
    seen.score = __int_as_float(static_cast<int>(high.x));
    seen.size = high.y;
    seen.beam = high.z;
    return seen;
}

// The keys of positions p[k] of a beam each, without bonus, nudge or bias: -inf where there is
// no candidate. All loads are on their way before the first use.
template <class T, class See>
__device__ __forceinline__ void simple_keys(const Step& step, i64 first_beam, const u32 (&p)[4], See seen_at, float (&key)[4]) {
    const bool lists = is_listed(step), scaled = step.left_units != nullptr;
    const T* const logits = static_cast<const T*>(step.logits);
    u32 v[4], bits[4];
    float x[4], unit[4];
#pragma unroll
    for (u32 k = 0; k < 4; ++k) v[k] = p[k] < seen_at(k).size ? p[k] : 0;  // something that is there, so that no load waits for a branch
    if (lists) {
        TokenWords words[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) words[k] = words_at(step.table, seen_at(k).base + v[k]);
#pragma unroll
        for (u32 k = 0; k < 4; ++k) v[k] = token_of(step.table, words[k]);
    }
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        const i64 beam = first_beam + seen_at(k).beam;
        bits[k] = lists ? ~0u : reinterpret_cast<const u32*>(step.table.bitmap + seen_at(k).base * step.table.words)[v[k] >> 5];
        if (step.eligible != nullptr && p[k] < seen_at(k).size) {  // numbered by position, as the bitmap is by token
            const u32 word = step.eligible[beam * step.eligible_words + (p[k] >> 5)];
            bits[k] = lists ? (word >> (p[k] & 31) & 1u) << (v[k] & 31) : bits[k] & word;
        }
        x[k] = number(logits[beam * step.vocabulary + v[k]]);
        unit[k] = scaled ? step.left_units[beam] * step.right_units[v[k]] : 1.0f;
    }
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        x[k] = settled(x[k]);
        bits[k] = settled(bits[k]);
    }
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        const Seen& seen = seen_at(k);
        const float logit = or_dead(scaled ? x[k] * unit[k] : x[k]);
        key[k] = or_dead(seen.score + log_probability(logit, seen.mass));
        if (p[k] >= seen.size || !(bits[k] >> (v[k] & 31) & 1u)) key[k] = never();
        if (seen.size == 0 && p[k] == 0) key[k] = or_dead(seen.score);  // a finished beam
    }
}
