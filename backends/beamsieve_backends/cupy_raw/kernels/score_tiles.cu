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

// One pass over the warp's tiles of a live beam. Both return the lane's part of the mass, and leave the
// tiles' largest candidate logits in `best`.
//
// The usual case, at the speed of memory: bitmap layout, tiles of 128, whole vectors, no bias, and a
// denominator of valid or of eligible tokens. The warp shares one running maximum, which changes
// seldom once a few tiles were seen; an invalid token is -inf, and exp makes it 0.
template <class T, bool AllKept>
__device__ __forceinline__ Mass quick_tiles(const Step& step, const T* logits, i64 row, i64 beam, int part, float* best) {
    const u8* const valid_bits = reinterpret_cast<const u8*>(step.table.bitmap + row * step.table.words);
    const u8* const kept_bits = reinterpret_cast<const u8*>(step.eligible + beam * step.eligible_words);
    const bool narrowed = step.normalize == NORMALIZE_ELIGIBLE;
    const int share = step.warps_per_beam, tiles = step.tiles;
    const u32 vocabulary = step.vocabulary;
    constexpr float LOG2_E = 1.4426950408889634f;
    constexpr int AHEAD = 4;
    Mass mass;  // `largest` is the same in all lanes
#pragma unroll 1
    for (int t = part; t < tiles; t += share * AHEAD) {
        float x[AHEAD][4];
        u32 valid[AHEAD], kept[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const u32 p = static_cast<u32>(t + k * share) * 128 + lane_id() * 4;
            valid[k] = kept[k] = 0;
            if (p < vocabulary) {
                load4(logits + p, x[k]);
                valid[k] = valid_bits[p >> 3] >> (p & 4);
                if (!AllKept) kept[k] = kept_bits[p >> 3] >> (p & 4);
            }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            if (t + k * share >= tiles) break;
            const u32 kept_here = AllKept ? valid[k] : valid[k] & kept[k];
            const u32 counts = narrowed ? kept_here : valid[k];
            float largest = never(), candidate = never();
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // fmaxf makes NaN -inf
                if (!AllKept) candidate = fmaxf(candidate, kept_here & 1u << i ? x[k][i] : never());
                x[k][i] = fmaxf(counts & 1u << i ? x[k][i] : never(), never());
                largest = fmaxf(largest, x[k][i]);
            }
            largest = warp_max(largest);
            if (!AllKept) candidate = warp_max(candidate);
            if (largest == -never()) {  // seldom: +inf counts as -inf, so look again
                largest = candidate = never();
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    x[k][i] = or_dead(x[k][i]);
                    largest = fmaxf(largest, x[k][i]);
                    if (!AllKept && (kept_here & 1u << i)) candidate = fmaxf(candidate, x[k][i]);
                }
                largest = warp_max(largest);
                if (!AllKept) candidate = warp_max(candidate);
            }
            if (AllKept) candidate = largest;
            if (lane_id() == 0) best[t + k * share] = candidate;
            if (largest > mass.largest) {
                mass.sum *= quick_exp2((mass.largest - largest) * LOG2_E);
                mass.largest = largest;
            }
            if (mass.largest > never()) {
                const float offset = -mass.largest * LOG2_E;
#pragma unroll
                for (int i = 0; i < 4; ++i) mass.sum += quick_exp2(fmaf(x[k][i], LOG2_E, offset));
            }
        }
    }
    return mass;
}

template <class T>
__device__ __forceinline__ Mass read_tiles(const Step& step, i64 beam, i64 row, i64 start, u32 size, int part, float* best) {
    const T* const logits = static_cast<const T*>(step.logits) + beam * step.vocabulary;
    const int tile = step.tile, tiles = step.tiles, share = step.warps_per_beam;
    const bool listed = is_listed(step);
    const bool whole = step.normalize == NORMALIZE_ALL, narrowed = step.normalize == NORMALIZE_ELIGIBLE;
    if (!listed && !whole && step.aligned && tile == 128 && step.bias == nullptr) {
        if (step.eligible == nullptr) return quick_tiles<T, true>(step, logits, row, beam, part, best);
        return quick_tiles<T, false>(step, logits, row, beam, part, best);
    }
    Mass sum;
    if (listed && whole) {
        for (u32 v = part * 32 + lane_id(); v < static_cast<u32>(step.vocabulary); v += share * 32)
            sum.add(or_dead(number(logits[v]) + bias_of(step, v)));
    }
    const int filled = min(tiles, static_cast<int>((size + tile - 1) / tile));
    for (int t = filled + lane_id(); t < tiles; t += 32)
        if (t % share == part) best[t] = never();
#pragma unroll 1
    for (int t = part; t < filled; t += share) {
        Seen seen;
        for (int i = lane_id(); i < tile; i += 32) {
            const u32 p = static_cast<u32>(t) * tile + i;
            if (p >= size) break;
            const u32 v = listed ? token_at(step.table, start + p) : p;
            const bool valid = listed || (is_valid(step.table, row, p));
            const bool kept = valid && is_eligible(step, beam, p);
            const bool counts = whole ? !listed : (narrowed ? kept : valid);
            seen.add(or_dead(number(logits[v]) + bias_of(step, v)), counts, kept);
        }
        __syncwarp();
        sum.add(seen.mass);
        const float largest = warp_max(seen.largest);
        if (lane_id() == 0) best[t] = largest;
    }
    return sum;
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) score_tiles(const __grid_constant__ Step step) {
    await_kernel_before();
    const bool guided = step.bonus != nullptr || step.nudge != nullptr;
    const bool listed = is_listed(step);
    const int b = blockIdx.y;
    const int beams = step.beams, tiles = step.tiles, tile = step.tile, share = step.warps_per_beam;
    const i64 first_beam = static_cast<i64>(b) * beams;

    Carver carver;
    u32* const histogram = carver.take<u32>(BINS);
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    float* const largest_of = reinterpret_cast<float*>(words);      // [WARPS]
    float* const sum_of = reinterpret_cast<float*>(words) + WARPS;  // [WARPS]

    const int count = static_cast<int>(step.in_count[b]);
    const int part = warp_id() % share, at_once = gridDim.x * (WARPS / share);
    float high = never(), low = -never();
    for (int from = blockIdx.x * (WARPS / share); from < beams; from += at_once) {
        const int m = from + warp_id() / share;
        const bool there = m < beams;
        const i64 beam = first_beam + m;
        float* const best = step.scratch + b * step.scratch_stride + static_cast<i64>(m) * tiles;
        const bool live = there && m < count && !step.in_finished[beam];
        i64 row = 0, start = 0;
        u32 size = 0;
        Mass sum;
        if (live) {
            row = step.in_rows[beam];
            size = step.vocabulary;
            if (listed) {
                const Range range = range_of(step.table.starts, row);
                start = range.begin;
                size = range.size();
            }
            sum = read_tiles<T>(step, beam, row, start, size, part, best).across_warp();
        } else if (there) {
            const float key = m < count ? or_dead(step.in_scores[beam]) : never();
            for (int t = part * 32 + lane_id(); t < tiles; t += share * 32) best[t] = t == 0 ? key : never();
            if (key > never()) {
                high = fmaxf(high, key);
                low = fminf(low, key);
            }
        }
        if (share > 1) {  // the parts of a beam's mass, in a fixed order
            if (lane_id() == 0) {
                largest_of[warp_id()] = sum.largest;
                sum_of[warp_id()] = sum.sum;
            }
            __syncthreads();
            sum = Mass();
            for (int i = 0; i < share; ++i) {
                Mass other;
                other.largest = largest_of[warp_id() / share * share + i];
                other.sum = sum_of[warp_id() / share * share + i];
                sum.add(other);
            }
            __syncthreads();
        }
        if (!live) continue;
        const float2 mass = sum.log();
        const float beam_score = step.in_scores[beam];
        if (part == 0 && lane_id() == 0) step.masses[beam] = mass;
        __syncwarp();
        if (!guided) {  // a lane to a tile; the tiles are those that this warp wrote
            for (int t = part + share * lane_id(); t < tiles; t += share * 32) {
                const float key = or_dead(beam_score + log_probability(best[t], mass));
                best[t] = key;
                if (key > never()) {
                    high = fmaxf(high, key);
                    low = fminf(low, key);
                }
            }
        } else {
            for (int t = part; t < tiles; t += share) {
                float largest = never();
                for (int i = lane_id(); i < tile; i += 32) {
                    const u32 p = static_cast<u32>(t) * tile + i;
                    if (p < size) largest = fmaxf(largest, position_key<T>(step, beam, listed ? start : row, p, mass, beam_score));
                }
                largest = warp_max(largest);
                if (lane_id() == 0) best[t] = largest;
                if (largest > never()) {
                    high = fmaxf(high, largest);
                    low = fminf(low, largest);
                }
            }
        }
    }
    __syncthreads();
    meet_range(step.meetings + b, high, low, words);
    if (!arrived_last(&step.meetings[b].arrived, gridDim.x, words)) return;
    const Bound bound = find_bound(step.meetings + b, step.scratch + b * step.scratch_stride, static_cast<u32>(beams) * tiles, step.width, histogram, words);
    if (threadIdx.x == 0) step.bounds[b] = bound;
}
