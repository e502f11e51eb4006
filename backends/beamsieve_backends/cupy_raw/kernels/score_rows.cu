// A step whose beams have few candidates each: all of a request's candidates, one after another.
//
//     for b in requests:
//         numbers = [logit(m, v) for m in beams for v in children(row[m])]   # spread over the blocks
//         best = choose(score[m] + (numbers - log-sum-exp of beam m))        # the block that ends last
//
// Grid (blocks per request, B). Every block adds up the degrees of its request's beams, so that the
// warps of all blocks share the candidates evenly: one wide row costs what its children cost.
// Projected: a logit is hidden[b, m] . head[v] in float32, a warp to a product, head rows read in
// place. Otherwise logits[b, m, v] is gathered. A finished beam is one candidate with its own score.
// Workspace: 2 * scratch_stride floats per request, scratch_stride at least the sum of the degrees
// of any M different rows; candidates, then keys. M * widest row < 2^32.

struct Rows {
    const Step& step;
    int b;
    const u32* offset;   // [M + 1]: where a beam's candidates begin
    const i64* first;    // [M]: its row's first entry, -1 for a finished beam
    float2* mass;        // [M]
    float* keys;         // the workspace's second half, or shared memory when it fits
    u32 total;
    static constexpr bool single = true;

    __device__ __forceinline__ int beam_of(u32 candidate) const {
        int low = 0, high = step.beams - 1;  // the last beam that begins at or before the candidate
        while (low < high) {
            const int middle = (low + high + 1) >> 1;
            if (offset[middle] <= candidate) low = middle;
            else high = middle - 1;
        }
        return low;
    }
    __device__ __forceinline__ i64 row_of(int m) const { return step.in_rows[static_cast<i64>(b) * step.beams + m]; }
    __device__ __forceinline__ u32 token_of(int m, u32 j) const { return token_in(step, row_of(m), first[m], j); }
    __device__ __forceinline__ bool eligible(int m, u32 j) const {
        if (step.eligible == nullptr) return true;
        return is_eligible(step, static_cast<i64>(b) * step.beams + m, step.bitmap == nullptr ? j : token_of(m, j));
    }
    __device__ __forceinline__ float logit(u32 candidate) const {
        return __ldcg(step.scratch + b * step.scratch_stride * 2 + candidate);
    }
    template <class F> __device__ __forceinline__ void each_group(F f) const {
        for (u32 i = threadIdx.x; i < ((total + 31) & ~31u); i += THREADS) f(i < total ? keys[i] : never());
    }
    template <class Open, class F> __device__ __forceinline__ void each_candidate(Open, F f) const {
        for (u32 i = threadIdx.x; i < ((total + 31) & ~31u); i += THREADS) f(i < total, i < total ? keys[i] : never(), i);
    }
};

template <class T> __device__ __forceinline__ float lane_product(const T* a, const T* b, int size, bool aligned) {
    float sum = 0.0f;
    if (aligned) {
        for (int i = lane_id() * 8; i < size; i += 256) {
            float x[8], y[8];
            load8(a + i, x);
            load8(b + i, y);
#pragma unroll
            for (int k = 0; k < 8; ++k) sum = fmaf(x[k], y[k], sum);
        }
    } else {
        for (int i = lane_id(); i < size; i += 32) sum = fmaf(number(a[i]), number(b[i]), sum);
    }
    return sum;
}

template <class T, bool Projected>
__global__ void __launch_bounds__(THREADS) score_rows(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    const int beams = step.beams;
    const i64 first_beam = static_cast<i64>(b) * beams;

    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    u32* const offset = carver.take<u32>(beams + 1);
    i64* const first = carver.take<i64>(beams);
    float2* const mass = carver.take<float2>(beams);
    float* const staged = carver.take<float>(step.staged);

    // Degrees, and where each beam's candidates begin.
    const int count = static_cast<int>(step.in_count[b]);
    const int each = (beams + THREADS - 1) / THREADS;
    u32 mine = 0, total;
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        u32 degree = 0;
        i64 start = 0;
        if (m < count) {
            degree = 1;
            start = -1;
            if (!step.in_finished[first_beam + m]) {
                const i64 row = step.in_rows[first_beam + m];
                start = row_start(step, row);
                degree = static_cast<u32>(row_start(step, row + 1) - start);
            }
        }
        first[m] = start;
        offset[m] = degree;
        mine += degree;
    }
    u32 running = block_scan(mine, chooser.words, total);
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        const u32 degree = offset[m];
        offset[m] = static_cast<u32>(min(static_cast<i64>(running), step.scratch_stride));
        running += degree;
    }
    // Rows of one request differ, so the workspace is never too small; should a caller repeat rows,
    // nothing is written past it.
    total = static_cast<u32>(min(static_cast<i64>(total), step.scratch_stride));
    if (threadIdx.x == 0) offset[beams] = total;
    __syncthreads();

    Rows rows{step, b, offset, first, mass, nullptr, total};
    float* const numbers = step.scratch + b * step.scratch_stride * 2;

    // The logits: each warp of the grid takes as many candidates in a row.
    const u32 warps = gridDim.x * WARPS;
    const u32 share = (total + warps - 1) / warps;
    const u32 begin = min(total, (blockIdx.x * WARPS + warp_id()) * share);
    const u32 end = min(total, begin + share);
    for (u32 base = begin; base < end; base += 32) {
        const u32 candidate = base + lane_id();
        int m = 0;
        u32 token = 0;
        bool wanted = false;
        float logit = never();
        if (candidate < end) {
            m = rows.beam_of(candidate);
            if (first[m] < 0) {
                logit = 0.0f;
            } else {
                const u32 j = candidate - offset[m];
                token = rows.token_of(m, j);
                wanted = step.normalize != NORMALIZE_ELIGIBLE || rows.eligible(m, j);
            }
        }
        if (Projected) {
            const T* const hidden = static_cast<const T*>(step.hidden) + first_beam * step.hidden_size;
            const T* const head = static_cast<const T*>(step.head);
            const u32 mask = __ballot_sync(EVERY_LANE, wanted);
            const int there = static_cast<int>(min(32u, end - base));
            for (int lane = 0; lane < there; lane += 4) {
                if ((mask >> lane & 15u) == 0) continue;
                float sum[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const i64 v = __shfl_sync(EVERY_LANE, token, lane + k);
                    const i64 place = __shfl_sync(EVERY_LANE, m, lane + k);
                    sum[k] = lane_product(hidden + place * step.hidden_size, head + v * step.hidden_size, step.hidden_size, step.aligned);
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const float product = warp_sum(sum[k]);
                    if (lane_id() == lane + k && wanted) logit = product;
                }
            }
        } else if (wanted) {
            logit = number(static_cast<const T*>(step.logits)[(first_beam + m) * step.vocabulary + token]);
        }
        if (wanted) logit = or_dead(logit + bias_of(step, token));
        if (candidate < end) numbers[candidate] = logit;
    }

    if (!arrived_last(step.arrived + b, gridDim.x, chooser.words)) return;

    // Denominators: a thread to a short row, a warp to a long one.
    constexpr u32 SHORT = 16;
    if (step.mass != nullptr) {
        for (int m = threadIdx.x; m < beams; m += THREADS) mass[m] = __ldcg(step.mass + first_beam + m);
    } else {
        for (int m = threadIdx.x; m < beams; m += THREADS) {
            const u32 start = offset[m], degree = offset[m + 1] - start;
            if (degree > SHORT) continue;
            Mass sum;
            for (u32 j = 0; j < degree; ++j) sum.add(rows.logit(start + j));
            mass[m] = sum.log();
        }
        for (int m = warp_id(); m < beams; m += WARPS) {
            const u32 start = offset[m], degree = offset[m + 1] - start;
            if (degree <= SHORT) continue;
            Mass sum;
            for (u32 j = lane_id(); j < degree; j += 32) sum.add(rows.logit(start + j));
            const Mass all = sum.across_warp();
            if (lane_id() == 0) mass[m] = all.log();
        }
    }
    __syncthreads();

    rows.keys = total <= static_cast<u32>(step.staged) ? staged : numbers + step.scratch_stride;
    for (u32 i = threadIdx.x; i < total; i += THREADS) {
        const int m = rows.beam_of(i);
        float key = never();
        if (first[m] < 0) {
            key = or_dead(step.in_scores[first_beam + m]);
        } else if (rows.eligible(m, i - offset[m])) {
            const bool guided = step.bonus != nullptr || step.nudge != nullptr;
            const u32 token = guided ? rows.token_of(m, i - offset[m]) : 0;
            const float score = score_of(step, step.in_scores[first_beam + m], rows.logit(i), mass[m], first_beam + m, token);
            key = key_of_score(step, score, first_beam + m, token);
        }
        rows.keys[i] = key;
    }
    __syncthreads();

    const u32 kept = choose(rows, chooser, step.width);
    for (u32 place = threadIdx.x; place < kept; place += THREADS) {
        const u64 number = chooser.survivors[place];
        const u32 candidate = slot_of(number);
        const int m = rows.beam_of(candidate);
        const float beam_score = step.in_scores[first_beam + m];
        if (first[m] < 0) {
            write_beam(step, b, place, m, -1, beam_score, key_of(number), rows.row_of(m), 1);
            continue;
        }
        const u32 token = rows.token_of(m, candidate - offset[m]);
        const float score = score_of(step, beam_score, rows.logit(candidate), mass[m], first_beam + m, token);
        u8 finished;
        const i64 row = settle(step, first[m] + candidate - offset[m], finished);
        write_beam(step, b, place, m, static_cast<int>(token), score, key_of(number), row, finished);
    }
    write_padding(step, b, kept);
}
