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
// of any M different rows: a candidate's logit and what it is, side by side, and behind all of these
// the keys. M * widest row < 2^32, M <= 4096, V <= 2^20.

// The lane's part of four products of `size` numbers, those of row m[k] of `a` with row v[k] of `b`.
template <class T> __device__ __forceinline__ void lane_products(const T* a, const T* b, const u32 (&m)[4], const u32 (&v)[4], u32 size, bool aligned, float (&sum)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[k] = 0.0f;
    if (!aligned) {
#pragma unroll 1
        for (u32 i = lane_id(); i < size; i += 32)
#pragma unroll
            for (int k = 0; k < 4; ++k) sum[k] = fmaf(number(a[static_cast<u64>(m[k]) * size + i]), number(b[static_cast<u64>(v[k]) * size + i]), sum[k]);
        return;
    }
    constexpr int TOGETHER = sizeof(T) == 4 ? 2 : 4;  // as many as fit in registers
#pragma unroll 1
    for (u32 i = lane_id() * 8; i < size; i += 256) {
#pragma unroll
        for (int from = 0; from < 4; from += TOGETHER) {
            Eight<T> x[TOGETHER], y[TOGETHER];
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                x[k].load(a + (static_cast<u64>(m[from + k]) * size + i));
                y[k].load(b + (static_cast<u64>(v[from + k]) * size + i));
            }
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                x[k].settle();
                y[k].settle();
            }
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                float left[8], right[8];
                x[k].numbers(left);
                y[k].numbers(right);
#pragma unroll
                for (int n = 0; n < 8; ++n) sum[from + k] = fmaf(left[n], right[n], sum[from + k]);
            }
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
    float* const staged_keys = carver.take<float>(step.staged);
    u32* const staged_names = carver.take<u32>(step.staged);

    after_kernels_ahead();
    // Degrees, and where each beam's candidates begin.
    // A beam that is not there or has finished is looked up as row 0, so that no load waits for a branch.
    const int count = static_cast<int>(step.in_count[b]);
    const int each = (beams + THREADS - 1) / THREADS;
    u32 mine = 0, widest = 0;
#pragma unroll 1
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        const i64 row = step.in_rows[first_beam + m];
        const bool finished = step.in_finished[first_beam + m];
        mass[m].x = step.in_scores[first_beam + m];  // the last block needs it
        const bool live = m < count && !finished;
        const Range range = step.single > 0 ? Range{0, step.single} : range_of(step.table.starts, live ? row : 0);
        const u32 degree = live ? range.size() : m < count;
        first[m] = live ? range.begin : -1;
        offset[m] = degree;
        mine += degree;
        widest = max(widest, degree);
    }
    const Scan scan = block_scan(mine, chooser.words);
    u32 running = scan.before;
#pragma unroll 1
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        const u32 degree = offset[m];
        offset[m] = static_cast<u32>(min(static_cast<i64>(running), step.scratch_stride));
        running += degree;
    }
    // Rows of one request differ, so the workspace is never too small; should a caller repeat rows,
    // nothing is written past it.
    const u32 total = static_cast<u32>(min(static_cast<i64>(scan.total), step.scratch_stride));
    if (threadIdx.x == 0) offset[beams] = total;
    const bool all_tiny = !__syncthreads_or(widest > TINY);

    u64* const pairs = reinterpret_cast<u64*>(step.scratch) + b * step.scratch_stride;
    float* const workspace = reinterpret_cast<float*>(reinterpret_cast<u64*>(step.scratch) + gridDim.y * step.scratch_stride) + b * step.scratch_stride;
    const bool fits = total <= static_cast<u32>(step.staged);
    Rows rows{step, first_beam, offset, first, pairs, fits ? staged_names : nullptr, fits ? staged_keys : workspace};

    // The logits: each warp takes as many candidates in a row, of which it can do `at_once` at no more cost
    // than one. Few candidates go to a few warps of each block, which then wait for each other less.
    constexpr u32 at_once = Projected ? 4 : 32;
    const u32 warps = gridDim.x * WARPS;
    const u32 share = (total + warps * at_once - 1) / (warps * at_once) * at_once;
    const u32 begin = min(total, (warp_id() * gridDim.x + blockIdx.x) * share);
    const u32 end = min(total, begin + share);
#pragma unroll 1
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
                token = token_in(step, first_beam + m, first[m], candidate - offset[m]);
                wanted = step.normalize != NORMALIZE_ELIGIBLE || rows.eligible(m, candidate, token);
            }
        }
        if (Projected) {
            const T* const hidden = static_cast<const T*>(step.hidden) + first_beam * step.hidden_size;
            const T* const head = static_cast<const T*>(step.head);
            const u32 mask = __ballot_sync(EVERY_LANE, wanted);
            const int there = static_cast<int>(min(32u, end - base));
#pragma unroll 1
            for (int lane = 0; lane < there; lane += 4) {
                if ((mask >> lane & 15u) == 0) continue;
                float sum[4];
                u32 states[4], weights[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    states[k] = static_cast<u32>(__shfl_sync(EVERY_LANE, m, lane + k));
                    weights[k] = __shfl_sync(EVERY_LANE, token, lane + k);
                }
                lane_products(hidden, head, states, weights, static_cast<u32>(step.hidden_size), step.aligned, sum);
                const int own = lane_id() - lane;  // the product that is this lane's
                const float product = __shfl_sync(EVERY_LANE, four_sums(sum), own * 8);
                if (own >= 0 && own < 4 && wanted) logit = product;
            }
            if (wanted) logit = or_dead(logit + bias_of(step, token));
        } else if (wanted) {
            logit = logit_of<T>(step, first_beam + m, token);
        }
        const u64 name = static_cast<u32>(m) << TOKEN_BITS | token;
        if (candidate < end) pairs[candidate] = name << 32 | static_cast<u32>(__float_as_int(logit));
    }

    if (!arrived_last(&step.meetings[b].arrived, gridDim.x, chooser.words)) return;
    kernel_behind_may_start();

    u32 alive = 0;
    const Gathered gathered = many_rows(rows, chooser, total, all_tiny, mass, alive);
    const u32 kept = choose(chooser, gathered, min(alive, static_cast<u32>(step.width)), [&](u32 place, u64 number) {
        const u32 candidate = slot_of(number), name = rows.name_of(candidate);
        const int m = static_cast<int>(name >> TOKEN_BITS);
        const float key = key_of(number);
        const Ancestors ancestors = ancestors_of(step, first_beam + m);
        if (first[m] < 0) {
            write_beam(step, b, place, m, ancestors, -1, key, key, step.in_rows[first_beam + m], 1);
            return;
        }
        const u32 token = name & TOKEN_MASK;
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr) {
            const float logit = __int_as_float(static_cast<int>(__ldcg(pairs + candidate)));
            score = score_of(step, step.in_scores[first_beam + m], logit, step.mass != nullptr ? __ldcg(step.mass + first_beam + m) : mass[m], first_beam + m, token);
        }
        u8 finished;
        const i64 row = settle(step, first[m] + candidate - offset[m], finished);
        write_beam(step, b, place, m, ancestors, static_cast<int>(token), score, key, row, finished);
    });
    write_padding(step, b, kept);
}
