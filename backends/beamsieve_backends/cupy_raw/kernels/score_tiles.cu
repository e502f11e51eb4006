// A step whose beams have many candidates each, from logits: one pass over them, and a few back.
//
//     for b, m: mass[m] = log-sum-exp of the beam's denominator                  # spread over the blocks
//               best[m, tile] = score[m] + (largest candidate logit in tile - mass[m])
//     for b:    open the tiles whose best reaches the width-th best tile,        # the block that ends last
//               and choose among their candidates
//
// Grid (blocks per request, B); `warps_per_beam` warps share a beam, a block has WARPS of them. A
// tile is `tile` positions of one beam: tokens in the bitmap layout, entries in the list layout.
// With bonus or nudge the tiles are read twice: the best of a tile is then known only after `mass`.
// Workspace: scratch_stride >= M * tiles floats per request; `masses` [B, M]. M * tiles * tile < 2^32.

// The score of token v after a live beam, and the key of a position of it, which is less than the
// beam's number of positions; -inf when there is no candidate.
template <class T>
__device__ __forceinline__ float token_score(const Step& step, i64 beam, u32 v, float2 mass, float beam_score) {
    const float logit = number(static_cast<const T*>(step.logits)[beam * step.vocabulary + v]);
    return score_of(step, beam_score, or_dead(logit + bias_of(step, v)), mass, beam, v);
}
template <class T>
__device__ __forceinline__ float position_key(const Step& step, i64 beam, i64 base, u32 p, float2 mass, float beam_score) {
    u32 v = p;
    if (step.bitmap == nullptr) v = static_cast<u32>(integer_at(step.tokens, step.token_bytes, base + p));
    else if (!(step.bitmap[base * step.words + (p >> 6)] >> (p & 63) & 1)) return never();
    if (!is_eligible(step, beam, p)) return never();
    return key_of_score(step, token_score<T>(step, beam, v, mass, beam_score), beam, v);
}

template <class T>
struct Tiles {
    const Step& step;
    int b;
    const i64* base;       // [M]: row (bitmap layout) or first entry (list layout); -1 for a finished beam
    const u32* positions;  // [M]: how many positions the beam has; 0 where there is no beam
    const float2* mass;    // [M]
    const float* score;    // [M]
    static constexpr bool single = false;

    __device__ __forceinline__ u32 groups() const { return static_cast<u32>(step.beams) * step.tiles; }
    __device__ __forceinline__ float best(u32 group) const {
        return group < groups() ? __ldcg(step.scratch + b * step.scratch_stride + group) : never();
    }
    template <class F> __device__ __forceinline__ void each_group(F f) const {
        const u32 end = (groups() + 31) & ~31u;
        u32 i = threadIdx.x;
        for (; i + 3 * THREADS < end; i += 4 * THREADS) {  // four loads in flight
            float key[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) key[k] = best(i + k * THREADS);
#pragma unroll
            for (int k = 0; k < 4; ++k) f(key[k]);
        }
        for (; i < end; i += THREADS) f(best(i));
    }
    __device__ __forceinline__ i64 beam(int m) const { return static_cast<i64>(b) * step.beams + m; }
    __device__ __forceinline__ float key_at(int m, u32 p) const {
        if (p >= positions[m]) return never();
        if (base[m] < 0) return p == 0 ? score[m] : never();
        return position_key<T>(step, beam(m), base[m], p, mass[m], score[m]);
    }
    template <class Open, class F> __device__ __forceinline__ void each_candidate(Open open, F f) const {
        const u32 tile = step.tile;
        for (u32 base_group = warp_id() * 32; base_group < groups(); base_group += THREADS) {
            u32 mask = __ballot_sync(EVERY_LANE, open(best(base_group + lane_id())));
            while (mask != 0) {
                u32 group[4];
                int opened = 0;
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    group[k] = 0;
                    if (mask != 0) {
                        group[k] = base_group + __ffs(static_cast<int>(mask)) - 1;
                        mask &= mask - 1;
                        opened = k + 1;
                    }
                }
                for (u32 i = lane_id(); i < tile; i += 32) {
                    float key[4];
                    u32 slot[4];
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        const int m = group[k] / step.tiles;
                        const u32 p = (group[k] - m * step.tiles) * tile + i;
                        slot[k] = group[k] * tile + i;
                        key[k] = k < opened ? key_at(m, p) : never();
                    }
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        if (k < opened) f(key[k] > never(), key[k], slot[k]);
                }
            }
        }
    }
};

// What the lanes of a warp see of one tile: `valid` positions count for the denominator, `kept` ones
// are candidates.
struct Seen {
    Mass mass;
    float largest = never();
    __device__ __forceinline__ void add(float logit, bool counts, bool kept) {
        if (counts) mass.add(logit);
        if (kept) largest = fmaxf(largest, logit);
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) score_tiles(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    const int beams = step.beams, tiles = step.tiles, tile = step.tile, share = step.warps_per_beam;
    const i64 first_beam = static_cast<i64>(b) * beams;

    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    i64* const base = carver.take<i64>(beams);
    u32* const positions = carver.take<u32>(beams);
    float2* const mass = carver.take<float2>(beams);
    float* const score = carver.take<float>(beams);
    float* const largest_of = reinterpret_cast<float*>(chooser.words);      // [WARPS]
    float* const sum_of = reinterpret_cast<float*>(chooser.words) + WARPS;  // [WARPS]

    const int count = static_cast<int>(step.in_count[b]);
    const int m = blockIdx.x * (WARPS / share) + warp_id() / share;
    const int part = warp_id() % share;
    const bool there = m < beams;
    const i64 beam = first_beam + m;
    float* const best = step.scratch + b * step.scratch_stride + static_cast<i64>(m) * tiles;

    const bool live = there && m < count && !step.in_finished[beam];
    const bool guided = step.bonus != nullptr || step.nudge != nullptr;
    const bool whole = step.normalize == NORMALIZE_ALL;
    const bool narrowed = step.normalize == NORMALIZE_ELIGIBLE;
    const bool listed = step.bitmap == nullptr;
    i64 row = 0, start = 0;
    u32 size = 0;
    Mass sum;
    if (live) {
        row = step.in_rows[beam];
        if (listed) {
            start = row_start(step, row);
            size = static_cast<u32>(row_start(step, row + 1) - start);
        } else {
            size = step.vocabulary;
        }
        const T* const logits = static_cast<const T*>(step.logits) + beam * step.vocabulary;
        if (listed && whole) {
            for (u32 v = part * 32 + lane_id(); v < static_cast<u32>(step.vocabulary); v += share * 32)
                sum.add(or_dead(number(logits[v]) + bias_of(step, v)));
        }
        for (int t = part; t < tiles; t += share) {
            Seen seen;
            if (static_cast<u32>(t) * tile < size) {
                if (listed) {
                    for (int i = lane_id(); i < tile; i += 32) {
                        const u32 p = static_cast<u32>(t) * tile + i;
                        if (p >= size) break;
                        const u32 v = static_cast<u32>(integer_at(step.tokens, step.token_bytes, start + p));
                        const bool kept = is_eligible(step, beam, p);
                        seen.add(or_dead(number(logits[v]) + bias_of(step, v)), !whole && (kept || !narrowed), kept);
                    }
                } else if (step.aligned && tile == 128) {
                    const u32 p = static_cast<u32>(t) * 128 + lane_id() * 4;
                    if (p < size) {  // the vocabulary is a multiple of four here
                        float four[4];
                        load4(logits + p, four);
                        const u32 valid = static_cast<u32>(step.bitmap[row * step.words + (p >> 6)] >> (p & 63)) & 15u;
                        u32 kept = valid;
                        if (step.eligible != nullptr)
                            kept &= step.eligible[beam * step.eligible_words + (p >> 5)] >> (p & 31);
#pragma unroll
                        for (int k = 0; k < 4; ++k)
                            seen.add(or_dead(four[k] + bias_of(step, p + k)), whole || ((narrowed ? kept : valid) >> k & 1), kept >> k & 1);
                    }
                } else {
                    for (int i = lane_id(); i < tile; i += 32) {
                        const u32 p = static_cast<u32>(t) * tile + i;
                        if (p >= size) break;
                        const bool valid = step.bitmap[row * step.words + (p >> 6)] >> (p & 63) & 1;
                        const bool kept = valid && is_eligible(step, beam, p);
                        seen.add(or_dead(number(logits[p]) + bias_of(step, p)), whole || (narrowed ? kept : valid), kept);
                    }
                }
            }
            __syncwarp();
            sum.add(seen.mass);
            const float largest = warp_max(seen.largest);
            if (lane_id() == 0) best[t] = largest;
        }
        sum = sum.across_warp();
    } else if (there) {
        const bool finished = m < count;
        for (int t = part * 32 + lane_id(); t < tiles; t += share * 32)
            best[t] = finished && t == 0 ? or_dead(step.in_scores[beam]) : never();
    }

    // The parts of a beam's mass, in a fixed order.
    if (lane_id() == 0) {
        largest_of[warp_id()] = sum.largest;
        sum_of[warp_id()] = sum.sum;
    }
    __syncthreads();
    Mass all;
    for (int i = 0; i < share; ++i) {
        Mass other;
        other.largest = largest_of[warp_id() / share * share + i];
        other.sum = sum_of[warp_id() / share * share + i];
        all.add(other);
    }
    const float2 mass_here = all.log();
    if (live) {
        if (part == 0 && lane_id() == 0) step.masses[beam] = mass_here;
        const float beam_score = step.in_scores[beam];
        if (!guided) {  // a lane to a tile; the tiles are those that this warp wrote
            for (int t = part + share * lane_id(); t < tiles; t += share * 32)
                best[t] = or_dead(beam_score + log_probability(best[t], mass_here));
        } else {
            const i64 place = listed ? start : row;
            for (int t = part; t < tiles; t += share) {
                float largest = never();
                for (int i = lane_id(); i < tile; i += 32) {
                    const u32 p = static_cast<u32>(t) * tile + i;
                    if (p < size) largest = fmaxf(largest, position_key<T>(step, beam, place, p, mass_here, beam_score));
                }
                largest = warp_max(largest);
                if (lane_id() == 0) best[t] = largest;
            }
        }
    }

    if (!arrived_last(step.arrived + b, gridDim.x, chooser.words)) return;

    for (int i = threadIdx.x; i < beams; i += THREADS) {
        i64 place = 0;
        u32 length = 0;
        if (i < count) {
            place = -1;
            length = 1;
            if (!step.in_finished[first_beam + i]) {
                place = step.in_rows[first_beam + i];
                length = step.vocabulary;
                if (listed) {
                    const i64 begin = row_start(step, place);
                    length = static_cast<u32>(row_start(step, place + 1) - begin);
                    place = begin;
                }
            }
        }
        base[i] = place;
        positions[i] = length;
        mass[i] = __ldcg(step.masses + first_beam + i);
        score[i] = or_dead(step.in_scores[first_beam + i]);
    }
    __syncthreads();

    const Tiles<T> source{step, b, base, positions, mass, score};
    const u32 kept = choose(source, chooser, step.width);
    for (u32 place = threadIdx.x; place < kept; place += THREADS) {
        const u64 number = chooser.survivors[place];
        const u32 slot = slot_of(number);
        const u32 each = static_cast<u32>(tiles) * tile;
        const int parent = slot / each;
        const u32 p = slot - parent * each;
        if (base[parent] < 0) {
            write_beam(step, b, place, parent, -1, score[parent], key_of(number), step.in_rows[first_beam + parent], 1);
            continue;
        }
        const u32 token = listed ? static_cast<u32>(integer_at(step.tokens, step.token_bytes, base[parent] + p)) : p;
        const i64 entry = listed ? base[parent] + p : entry_of(step, base[parent], p);
        u8 finished;
        const i64 next = settle(step, entry, finished);
        write_beam(step, b, place, parent, static_cast<int>(token), token_score<T>(step, first_beam + parent, token, mass[parent], score[parent]), key_of(number), next, finished);
    }
    write_padding(step, b, kept);
}
