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
// Workspace: 3 * scratch_stride words per request, scratch_stride at least the sum of the degrees
// of any M different rows; logits, then keys, then tokens. M * widest row < 2^32.

struct Rows {
    const Step& step;
    i64 first_beam;
    const u32* offset;   // [M + 1]: where a beam's candidates begin
    const i64* first;    // [M]: its row's first entry, -1 for a finished beam
    u32* tokens;         // the workspace's last third
    float* keys;         // its second third, or shared memory when it fits
    u32 total;

    __device__ __forceinline__ int beam_of(u32 candidate) const {
        int low = 0, high = step.beams - 1;  // the last beam that begins at or before the candidate
        while (low < high) {
            const int middle = (low + high + 1) >> 1;
            if (offset[middle] <= candidate) low = middle;
            else high = middle - 1;
        }
        return low;
    }
    __device__ __forceinline__ bool eligible(int m, u32 j, u32 token) const {
        return is_eligible(step, first_beam + m, is_listed(step) ? j : token);
    }
    // Turns the logit of the beam's candidate j into its key; all blocks' tokens are there.
    __device__ __forceinline__ float key(int m, u32 j, float logit, float2 mass, float beam_score) const {
        u32 token = 0;
        if (step.eligible != nullptr || step.bonus != nullptr || step.nudge != nullptr) token = __ldcg(tokens + offset[m] + j);
        if (!eligible(m, j, token)) return never();
        return key_of_score(step, score_of(step, beam_score, logit, mass, first_beam + m, token), first_beam + m, token);
    }
    template <class F> __device__ __forceinline__ void each(F f) const {
        for (u32 i = threadIdx.x; i < ((total + 31) & ~31u); i += THREADS) {
            const float key = i < total ? keys[i] : never();
            f(key > never(), rank_number(key, i));
        }
    }
};

// The lane's part of a product of `size` numbers; four such products are taken together.
template <class T> __device__ __forceinline__ void lane_products(const T* const (&a)[4], const T* const (&b)[4], int size, bool aligned, float (&sum)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[k] = 0.0f;
    if (!aligned) {
        for (int i = lane_id(); i < size; i += 32)
            for (int k = 0; k < 4; ++k) sum[k] = fmaf(number(a[k][i]), number(b[k][i]), sum[k]);
        return;
    }
#pragma unroll 1
    for (int i = lane_id() * 8; i < size; i += 256) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float x[8], y[8];
            load8(a[k] + i, x);
            load8(b[k] + i, y);
#pragma unroll
            for (int n = 0; n < 8; ++n) sum[k] = fmaf(x[n], y[n], sum[k]);
        }
    }
}

template <class T, bool Projected>
__global__ void __launch_bounds__(THREADS, 2) score_rows(const __grid_constant__ Step step) {
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
        const i64 row = step.in_rows[first_beam + m];
        const bool finished = step.in_finished[first_beam + m];
        u32 degree = 0;
        i64 start = -1;
        if (m < count) {
            degree = 1;
            if (!finished) {
                const Range range = range_of(step.table.starts, row);
                start = range.begin;
                degree = range.size();
            }
        }
        first[m] = start;
        mass[m].x = step.in_scores[first_beam + m];  // until the mass is known
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

    float* const numbers = step.scratch + b * step.scratch_stride * 3;
    u32* const tokens = reinterpret_cast<u32*>(numbers + 2 * step.scratch_stride);
    Rows rows{step, first_beam, offset, first, tokens, nullptr, total};

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
                token = token_in(step, first_beam + m, first[m], j);
                wanted = step.normalize != NORMALIZE_ELIGIBLE || rows.eligible(m, j, token);
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
                const T* states[4];
                const T* weights[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    states[k] = hidden + static_cast<i64>(__shfl_sync(EVERY_LANE, m, lane + k)) * step.hidden_size;
                    weights[k] = head + static_cast<i64>(__shfl_sync(EVERY_LANE, token, lane + k)) * step.hidden_size;
                }
                lane_products(states, weights, step.hidden_size, step.aligned, sum);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const float product = warp_sum(sum[k]);
                    if (lane_id() == lane + k && wanted) logit = product;
                }
            }
        } else if (wanted) {
            logit = logit_of<T>(step, first_beam + m, token);
        }
        if (Projected && wanted) logit = or_dead(logit + bias_of(step, token));
        if (candidate < end) {
            numbers[candidate] = logit;
            tokens[candidate] = token;
        }
    }

    if (!arrived_last(&step.meetings[b].arrived, gridDim.x, chooser.words)) return;

    // Logits become keys in place: in shared memory where they fit.
    float* keys = numbers;
    if (total <= static_cast<u32>(step.staged)) keys = staged;
    else keys = numbers + step.scratch_stride;
    constexpr u32 AHEAD = 8;
    for (u32 base = threadIdx.x; base < total; base += AHEAD * THREADS) {
        float logit[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) logit[k] = base + k * THREADS < total ? __ldcg(numbers + base + k * THREADS) : 0.0f;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k)
            if (base + k * THREADS < total) keys[base + k * THREADS] = logit[k];
    }
    __syncthreads();
    rows.keys = keys;

    // A thread to a short row, a warp to a long one, the block to a very long one. Where all candidates
    // fit among the survivors they go there at once; the dead come last in their order.
    constexpr u32 SHORT = 16, LONG = 1024;
    const bool all_fit = total <= chooser.capacity;
    float high = never(), low = -never();
    u32 living = 0, widest = 0;
    const auto settle_key = [&](u32 place, float key) {
        if (all_fit) chooser.survivors[place] = rank_number(key, place);
        else keys[place] = key;
        if (key > never()) {
            high = fmaxf(high, key);
            low = fminf(low, key);
            ++living;
        }
    };
    for (int m = threadIdx.x; m < beams; m += THREADS) {
        const u32 start = offset[m], degree = offset[m + 1] - start;
        widest = max(widest, degree);
        if (degree == 0 || degree > SHORT) continue;
        const float beam_score = mass[m].x;
        if (first[m] < 0) {
            settle_key(start, or_dead(beam_score));
            continue;
        }
        const float2 own = step.mass != nullptr ? __ldcg(step.mass + first_beam + m) : mass_of(keys + start, 0, degree, 1).log();
        mass[m] = own;
        for (u32 j = 0; j < degree; ++j) settle_key(start + j, rows.key(m, j, keys[start + j], own, beam_score));
    }
    const bool any_long = __syncthreads_or(widest > LONG), any_middling = __syncthreads_or(widest > SHORT);
    for (int m = any_middling ? warp_id() : beams; m < beams; m += WARPS) {
        const u32 start = offset[m], degree = offset[m + 1] - start;
        if (degree <= SHORT || degree > LONG) continue;
        const float beam_score = mass[m].x;
        const float2 own = step.mass != nullptr ? __ldcg(step.mass + first_beam + m) : mass_of(keys + start, lane_id(), degree, 32).across_warp().log();
        __syncwarp();
        if (lane_id() == 0) mass[m] = own;
        for (u32 j = lane_id(); j < degree; j += 32) settle_key(start + j, rows.key(m, j, keys[start + j], own, beam_score));
    }
    for (int m = any_long ? 0 : beams; m < beams; ++m) {
        const u32 start = offset[m], degree = offset[m + 1] - start;
        if (degree <= LONG) continue;
        const float beam_score = mass[m].x;
        __syncthreads();
        float2 own;
        if (step.mass != nullptr) own = __ldcg(step.mass + first_beam + m);
        else own = across_block(mass_of(keys + start, threadIdx.x, degree, THREADS).across_warp(), reinterpret_cast<float*>(chooser.words)).log();
        if (threadIdx.x == 0) mass[m] = own;
        for (u32 j = threadIdx.x; j < degree; j += THREADS) settle_key(start + j, rows.key(m, j, keys[start + j], own, beam_score));
    }
    __syncthreads();

    u32 alive;
    block_range(high, low, chooser.words);
    block_scan(living, chooser.words, alive);
    u32 found = total;
    if (!all_fit) found = alive == 0 ? 0 : narrow(rows, chooser, step.width, high, low);
    const u32 wanted = min(alive, static_cast<u32>(step.width));
    const u32 kept = choose(chooser, wanted == 0 ? 0 : found, high, low, wanted, [&](u32 place, u64 number) {
        const u32 candidate = slot_of(number);
        const int m = rows.beam_of(candidate);
        const float key = key_of(number);
        if (first[m] < 0) {
            write_beam(step, b, place, m, -1, key, key, step.in_rows[first_beam + m], 1);
            return;
        }
        const u32 token = __ldcg(tokens + candidate);
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr)
            score = score_of(step, step.in_scores[first_beam + m], __ldcg(numbers + candidate), mass[m], first_beam + m, token);
        u8 finished;
        const i64 row = settle(step, first[m] + candidate - offset[m], finished);
        write_beam(step, b, place, m, static_cast<int>(token), score, key, row, finished);
    });
    write_padding(step, b, kept);
}
