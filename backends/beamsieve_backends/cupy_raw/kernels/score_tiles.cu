// The first pass of a step whose beams have many candidates each, over their logits:
//
//     for b, m: mass[m] = log-sum-exp of the beam's denominator                  # spread over the blocks
//               best[m, tile] = score[m] + (largest candidate logit in tile - mass[m])
//     for b:    bound[b] = the interval that holds the width-th best tile        # the block that ends last
//
// open_tiles is the second pass. Grid (blocks per request, B); `warps_per_beam` warps share a beam, a
// block has WARPS of them. A tile is `tile` positions of one beam: tokens in the bitmap layout,
// entries in the list layout. With bonus or nudge the tiles are read twice: the best of a tile is
// then known only after `mass`. Workspace: scratch_stride >= M * tiles floats per request; `masses`
// [B, M]; `bounds` [B]. M * tiles * tile < 2^32.

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
    u32* const histogram = carver.take<u32>(BINS);
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    float* const largest_of = reinterpret_cast<float*>(words);      // [WARPS]
    float* const sum_of = reinterpret_cast<float*>(words) + WARPS;  // [WARPS]

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
    float high = never(), low = -never();
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
            for (int t = part + share * lane_id(); t < tiles; t += share * 32) {
                const float key = or_dead(beam_score + log_probability(best[t], mass_here));
                best[t] = key;
                if (key > never()) {
                    high = fmaxf(high, key);
                    low = fminf(low, key);
                }
            }
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
                if (largest > never()) {
                    high = fmaxf(high, largest);
                    low = fminf(low, largest);
                }
            }
        }
    } else if (there && m < count && part == 0) {
        const float key = or_dead(step.in_scores[beam]);
        if (key > never()) high = low = key;
    }
    __syncthreads();
    meet_range(step.meetings + b, high, low, words);

    if (!arrived_last(&step.meetings[b].arrived, gridDim.x, words)) return;
    const Bound bound = find_bound(step.meetings + b, step.scratch + b * step.scratch_stride, static_cast<u32>(beams) * tiles, step.width, histogram, words);
    if (threadIdx.x == 0) step.bounds[b] = bound;
}
