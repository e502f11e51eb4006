// The choice of a step of one beam over a table of one row (see choose_row.cu).
//
// Keys stay in registers. One histogram of them says how many are better than each interval; the
// candidates of those that begin before the width-th best are written down side by side and find their
// places by counting within the interval. A crowded one is left to `choose` (select.cuh), which is exact
// for any number of equal keys. A finished beam is the one candidate of its request.

constexpr u32 FULL_INTERVAL = 128;      // candidates in one interval from which counting costs more than sorting
constexpr float WIDEST_SCALE = 64.0f;   // keys this much below the best share the last interval
constexpr u32 NOWHERE = 0xffffffffu;

// Where a chosen candidate leads.
struct Lead {
    u32 token;
    i64 row;
    u8 finished;
};
__device__ __forceinline__ Lead lead_of(const Step& step, u32 slot) {
    Lead lead;
    lead.token = token_in_row(step, slot);
    lead.row = settle(step, slot, lead.finished);
    return lead;
}

// Intervals are counted from the best key downwards, as `Scale` has them, to the nearest rather than to the
// one below: a sum with 2^23 leaves the number in the lowest bits, where a conversion would wait its turn.
__device__ __forceinline__ u32 interval_of(const Scale& scale, float key) {
    constexpr float INTEGERS = 8388608.0f;
    const float sum = fminf(fmaf(scale.high - key, scale.per_key, INTEGERS), INTEGERS + static_cast<float>(BINS - 1));
    return static_cast<u32>(__float_as_int(sum)) & (BINS - 1);
}

// What is known of the beam, asked for ahead of its use.
struct RowBeam {
    i64 count;
    float2 mass;
    float score;
    bool finished;
};
__device__ __forceinline__ RowBeam beam_on_row(const Step& step, int b) {
    RowBeam beam;
    beam.count = step.in_count[b];
    beam.mass = step.mass != nullptr ? step.mass[b] : make_float2(0.0f, 0.0f);
    beam.score = step.in_scores[b];
    beam.finished = step.in_finished[b];
    return beam;
}

// A key above its slot, as they are: few are ever compared.
__device__ __forceinline__ u64 named(float key, u32 slot) { return static_cast<u64>(static_cast<u32>(__float_as_int(key))) << 32 | slot; }
__device__ __forceinline__ float key_in(u64 named) { return __int_as_float(static_cast<int>(named >> 32)); }

// A number that another block may be about to write.
__device__ __forceinline__ float shared_number(const float* from) {
#ifdef __CUDA_ARCH__
    float x;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
#else
    return *from;
#endif
}

// The score of a chosen candidate whose key is nudged.
template <class T> __device__ __noinline__ float score_again(const Step& step, int b, u32 token, float beam_score, float2 mass) {
    return score_of(step, beam_score, logit_of<T>(step, b, token), mass, b, token);
}
template <class T>
__device__ __forceinline__ void write_choice(const Step& step, int b, u32 to, float key, const Lead& lead, const Ancestors& ancestors, float beam_score, float2 mass) {
    float score = key;  // without a nudge they are one
    if (step.nudge != nullptr) score = score_again<T>(step, b, lead.token, beam_score, mass);
    write_beam(step, b, to, 0, ancestors, static_cast<int>(lead.token), score, key, lead.row, lead.finished);
}

// The choice from all keys, in scratch.
template <class T>
__device__ __noinline__ void choose_crowded(const Step& step, const Chooser chooser, int b, u32 kept, float beam_score, float2 mass) {
    const Keys keys{step.scratch + static_cast<i64>(b) * step.scratch_stride, static_cast<u32>(step.single)};
    choose(chooser, gather(keys, chooser, static_cast<u32>(step.width)), kept, [&](u32 to, u64 number) {
        write_choice<T>(step, b, to, key_of(number), lead_of(step, slot_of(number)), ancestors_of(step, b), beam_score, mass);
    });
}

// Everything that happens to request b once there are logits, or, where they are `Awaited`, as they come: a
// place that is zero has none yet, and is made zero again. Candidate k of a thread is threadIdx.x + k * THREADS;
// in a short row nothing is done for a k that no thread has.
template <class T, bool Long, bool Awaited>
__device__ __forceinline__ void choose_in_row(const Step& step, int b, const RowBeam& beam) {
    constexpr u32 EACH = Long ? 16 : 4, BINS_EACH = BINS / THREADS;
    const u32 total = static_cast<u32>(step.single), width = static_cast<u32>(step.width);
    const i64 first = static_cast<i64>(b) * step.vocabulary;
    auto any = [total](u32 k) { return Long || k * THREADS < total; };

    // All that is there is asked for at once.
    u32 token[EACH];
    if (has_all_tokens(step)) {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) token[k] = min(threadIdx.x + k * THREADS, total - 1);
    } else {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) token[k] = token_in_list(step, min(threadIdx.x + k * THREADS, total - 1));
    }
    T given[EACH];
    if constexpr (Awaited) {
        T* const logits = static_cast<T*>(const_cast<void*>(step.logits)) + first;
        bool missing = true;
        while (missing) {
            missing = false;
#pragma unroll
            for (u32 k = 0; k < EACH; ++k)
                if (threadIdx.x + k * THREADS < total) given[k] = shared_number(logits + token[k]);
#pragma unroll
            for (u32 k = 0; k < EACH; ++k) missing |= threadIdx.x + k * THREADS < total && __float_as_int(given[k]) == 0;
        }
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (threadIdx.x + k * THREADS < total) logits[token[k]] = 0.0f;
    } else {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (any(k)) given[k] = static_cast<const T*>(step.logits)[first + token[k]];
    }
    // Bits, one for each: which candidates there are, which targeting allows, which the mass counts.
    const u32 there = settled((1u << ((total + THREADS - 1 - min(threadIdx.x, total + THREADS - 1)) / THREADS)) - 1u);
    u32 allowed = there;
    if (step.eligible != nullptr) {
        allowed = 0;
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) allowed |= static_cast<u32>(is_eligible(step, b, min(threadIdx.x + k * THREADS, total - 1))) << k;
        allowed &= there;
    }
    const u32 counted = settled(step.normalize == NORMALIZE_ELIGIBLE ? allowed : there);

    Carver carver;
    const Chooser chooser = make_chooser(carver, step.capacity);
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    u32 *const begins = chooser.histogram, *const last = words + 60, *const last_end = words + 61, *const crowded = words + 62;
#pragma unroll
    for (u32 k = 0; k < BINS_EACH; ++k) begins[threadIdx.x * BINS_EACH + k] = 0;
    if (threadIdx.x == 0) {
        *last = BINS - 1;
        *crowded = 0;
    }

    const float beam_score = or_dead(beam.score);
    const bool live = beam.count > 0;
    if (!live || beam.finished) {
        const bool kept = live && beam_score > never();
        if (kept && threadIdx.x == 0) write_beam(step, b, 0, 0, ancestors_of(step, b), -1, beam_score, beam_score, step.in_rows[b], 1);
        write_padding(step, b, kept);
        return;
    }

    // The logits, and their mass: each warp's own first, then everyone's in every warp.
    float key[EACH], high = never(), low = -never(), sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) key[k] = any(k) ? number(given[k]) : never();
    if (step.left_units != nullptr) {
        const float left_unit = step.left_units[b];
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) key[k] *= left_unit * step.right_units[token[k]];
    }
    if (step.bias != nullptr) {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) key[k] += bias_of(step, token[k]);
    }
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        if (!any(k)) continue;
        const bool counts = (counted >> k & 1u) != 0 && is_finite(key[k]);
        if (!Long) low = fminf(low, counts ? key[k] : -never());
        key[k] = counts ? key[k] : never();
        high = fmaxf(high, key[k]);
    }
    if (Long) {  // the best of so many groups of lanes that the width-th best of all is no less than the least of these
        low = width <= THREADS ? high : never();
#pragma unroll 1
        for (u32 by = 1; 2 * by * ((width + WARPS - 1) / WARPS) <= 32; by *= 2) low = fmaxf(low, __shfl_xor_sync(EVERY_LANE, low, by));
    }
    high = warp_max(high);
    low = -warp_max(-low);
    if (step.mass == nullptr && high > never()) {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (any(k)) sum += quick_exp(key[k] - high);
        sum = warp_sum(sum);
    }
    float2 mass = beam.mass;
    float* const places = reinterpret_cast<float*>(words);
    if (lane_id() == 0) {
        places[warp_id()] = high;
        places[WARPS + warp_id()] = sum;
        places[2 * WARPS + warp_id()] = low;
    }
    __syncthreads();
    Mass all;
    if (lane_id() < WARPS) {
        all.largest = places[lane_id()];
        all.sum = places[WARPS + lane_id()];
    }
    low = -warp_max(-places[2 * WARPS + lane_id() % WARPS]);
    all = all.across_warp();
    if (step.mass == nullptr) mass = all.log();

    // The keys, and their scale: a key rises with its logit, unless more is added to it.
    high = beam_score + log_probability(all.largest, mass);
    low = beam_score + log_probability(low, mass);
#pragma unroll
    for (u32 k = 0; k < EACH; ++k)
        if (any(k)) key[k] = beam_score + log_probability(key[k], mass);
    if (allowed != counted) {
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (!(allowed >> k & 1u)) key[k] = never();
    }
    if (step.bonus != nullptr || step.nudge != nullptr || (Long && step.eligible != nullptr)) {
        high = never();
        low = -never();
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) {
            if (step.bonus != nullptr) key[k] = or_dead(key[k] + step.bonus[first + token[k]]);
            key[k] = key_of_score(step, key[k], b, token[k]);
            high = fmaxf(high, key[k]);
            low = fminf(low, key[k] > never() ? key[k] : -never());
        }
        const Extent extent = block_extent(high, low, chooser.words);
        high = extent.high;
        low = extent.low;
    }
    const Scale scale(high, fmaxf(low, high - WIDEST_SCALE));
    low = low > never() ? low : -3.402823466e38f;  // what is below is dead, or beaten by the width-th best

    // How many are in each interval, and the candidate's number among them. Nothing waits for one answer
    // before it asks for the next; the dead add nothing, each in a place of its own.
    u32 bin[EACH], at[EACH];
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        bin[k] = NOWHERE;
        if (!any(k)) continue;
        const bool lives = key[k] >= low;
        const u32 interval = lives ? interval_of(scale, key[k]) : threadIdx.x;
        at[k] = atomicAdd(&begins[interval], lives ? 1u : 0u);
        if (lives) bin[k] = interval;
    }
    __syncthreads();
    u32 mine[BINS_EACH], count = 0;
#pragma unroll
    for (u32 k = 0; k < BINS_EACH; ++k) {
        mine[k] = begins[threadIdx.x * BINS_EACH + k];
        count += mine[k];
    }
    const u32 upto = warp_scan(count);
    if (lane_id() == 31) words[warp_id()] = upto;
    __syncthreads();
    const u32 counts = lane_id() < WARPS ? words[lane_id()] : 0;
    const u32 alive = __reduce_add_sync(EVERY_LANE, counts);
    u32 running = __reduce_add_sync(EVERY_LANE, lane_id() < warp_id() ? counts : 0) + upto - count;
#pragma unroll
    for (u32 k = 0; k < BINS_EACH; ++k) {
        const u32 interval = threadIdx.x * BINS_EACH + k, end = running + mine[k];
        begins[interval] = running;
        if (running < width && mine[k] > FULL_INTERVAL) *crowded = 1;
        if (running < width && end >= width) {
            *last = interval;
            *last_end = end;
        }
        running = end;
    }
    __syncthreads();

    const u32 kept = min(alive, width);
    if (*crowded != 0) {
        float* const keys = step.scratch + static_cast<i64>(b) * step.scratch_stride;
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (threadIdx.x + k * THREADS < total) keys[threadIdx.x + k * THREADS] = key[k];
        __syncthreads();
        choose_crowded<T>(step, chooser, b, kept, beam_score, mass);
    } else {
        const u32 last_bin = *last, survivors = alive < width ? alive : *last_end;
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) at[k] += bin[k] <= last_bin ? begins[bin[k]] : 0u;
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            if (bin[k] <= last_bin) chooser.sorted[at[k]] = named(key[k], threadIdx.x + k * THREADS);
        const Ancestors ancestors = ancestors_of(step, b);
        __syncthreads();
#pragma unroll 1
        for (u32 i = threadIdx.x; i < survivors; i += THREADS) {
            const u64 own = chooser.sorted[i];
            const Lead lead = lead_of(step, slot_of(own));  // asked for before it counts
            const float own_key = key_in(own);
            const u32 interval = interval_of(scale, own_key), begin = begins[interval];
            const u32 end = interval + 1 < BINS ? begins[interval + 1] : alive;
            u32 to = begin;
#pragma unroll 1
            for (u32 from = begin; from < end; from += 4) {  // most intervals have no more
                u64 other[4];
#pragma unroll
                for (u32 k = 0; k < 4; ++k) other[k] = chooser.sorted[min(from + k, end - 1)];
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    const bool tied = (key_in(other[k]) == own_key) & (slot_of(other[k]) < slot_of(own));
                    to += ((key_in(other[k]) > own_key) | tied) & (from + k < end);
                }
            }
            if (to < width) write_choice<T>(step, b, to, own_key, lead, ancestors, beam_score, mass);
        }
    }
    write_padding(step, b, kept);
}
