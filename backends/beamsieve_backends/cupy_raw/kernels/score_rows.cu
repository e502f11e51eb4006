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

// What a candidate is: its beam and its token.
constexpr u32 TOKEN_BITS = 20, TOKEN_MASK = (1u << TOKEN_BITS) - 1u;

// Rows up to so many candidates: each candidate adds up its row for itself.
constexpr u32 TINY = 8;
// Else a thread adds up a row of up to SHORT candidates, a warp up to LONG, and the block beyond.
constexpr u32 SHORT = 16, LONG = 1024;

struct Rows {
    const Step& step;
    i64 first_beam;
    const u32* offset;   // [M + 1]: where a beam's candidates begin
    const i64* first;    // [M]: its row's first entry, -1 for a finished beam
    const u64* pairs;    // the workspace's first part: logits (low) and what they belong to (high)
    u32* names;          // the high halves in shared memory, null where they do not fit
    float* keys;         // logits, then keys: in the workspace's second part, or in shared memory
    u32 total;

    // The beam of a candidate, before any block has written it down.
    __device__ __forceinline__ int beam_of(u32 candidate) const {
        int low = 0, high = step.beams - 1;  // the last beam that begins at or before the candidate
#pragma unroll 1
        while (low < high) {
            const int middle = (low + high + 1) >> 1;
            if (offset[middle] <= candidate) low = middle;
            else high = middle - 1;
        }
        return low;
    }
    __device__ __forceinline__ u32 name_of(u32 candidate) const {
        return names != nullptr ? names[candidate] : static_cast<u32>(__ldcg(pairs + candidate) >> 32);
    }
    __device__ __forceinline__ bool eligible(int m, u32 candidate, u32 token) const {
        return is_eligible(step, first_beam + m, is_listed(step) ? candidate - offset[m] : token);
    }
    // Turns a logit into its key.
    __device__ __forceinline__ float key(int m, u32 candidate, u32 token, float beam_score, float logit, float2 mass) const {
        if (!eligible(m, candidate, token)) return never();
        return key_of_score(step, score_of(step, beam_score, logit, mass, first_beam + m, token), first_beam + m, token);
    }
    template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < ((total + 31) & ~31u); i += THREADS) {
            const float key = i < total ? keys[i] : never();
            f(key > never(), rank_number(key, i));
        }
    }
};

// The logs of the masses of the rows with more than `tiny` candidates, into `mass`.
__device__ __noinline__ void add_up_rows(const Rows& rows, u32 tiny, float2* mass, u32* words) {
    const int beams = rows.step.beams;
    const bool by_block = beams < WARPS;  // few rows: the whole block for each
    const u32 by_thread = tiny > 0 ? tiny : SHORT;
    bool longer = false;
#pragma unroll 1
    for (int m = threadIdx.x; m < beams; m += THREADS) {
        const u32 start = rows.offset[m], degree = rows.offset[m + 1] - start;
        longer |= degree > by_thread;
        if (degree > tiny && degree <= by_thread) mass[m] = mass_of(rows.keys + start, 0, degree, 1).log();
    }
    if (!__syncthreads_or(longer)) return;
    longer = false;
#pragma unroll 1
    for (int m = warp_id(); m < beams; m += WARPS) {
        const u32 start = rows.offset[m], degree = rows.offset[m + 1] - start;
        longer |= degree > LONG;
        if (degree <= by_thread || degree > LONG || by_block) continue;
        const float2 own = mass_of(rows.keys + start, lane_id(), degree, 32).across_warp().log();
        if (lane_id() == 0) mass[m] = own;
    }
    longer = __syncthreads_or(longer);
#pragma unroll 1
    for (int m = longer || by_block ? 0 : beams; m < beams; ++m) {
        const u32 start = rows.offset[m], degree = rows.offset[m + 1] - start;
        if (degree <= by_thread || (degree <= LONG && !by_block)) continue;
        const float2 own = across_block(mass_of(rows.keys + start, threadIdx.x, degree, THREADS).across_warp(), reinterpret_cast<float*>(words)).log();
        if (threadIdx.x == 0) mass[m] = own;
    }
    __syncthreads();
}

// The lane's part of a product of `size` numbers; four such products are taken together.
template <class T> __device__ __forceinline__ void lane_products(const T* const (&a)[4], const T* const (&b)[4], int size, bool aligned, float (&sum)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[k] = 0.0f;
    if (!aligned) {
#pragma unroll 1
        for (int i = lane_id(); i < size; i += 32)
#pragma unroll 1
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
    float* const staged_keys = carver.take<float>(step.staged);
    u32* const staged_names = carver.take<u32>(step.staged);

    // Degrees, and where each beam's candidates begin.
    const int count = static_cast<int>(step.in_count[b]);
    const int each = (beams + THREADS - 1) / THREADS;
    u32 mine = 0, widest = 0, total;
#pragma unroll 1
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
        mass[m].x = step.in_scores[first_beam + m];  // asked for now, needed by the last block
        offset[m] = degree;
        mine += degree;
        widest = max(widest, degree);
    }
    u32 running = block_scan(mine, chooser.words, total);
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
    total = static_cast<u32>(min(static_cast<i64>(total), step.scratch_stride));
    if (threadIdx.x == 0) offset[beams] = total;
    const bool all_tiny = !__syncthreads_or(widest > TINY);

    u64* const pairs = reinterpret_cast<u64*>(step.scratch) + b * step.scratch_stride;
    float* const workspace = reinterpret_cast<float*>(reinterpret_cast<u64*>(step.scratch) + gridDim.y * step.scratch_stride) + b * step.scratch_stride;
    const bool fits = total <= static_cast<u32>(step.staged);
    Rows rows{step, first_beam, offset, first, pairs, fits ? staged_names : nullptr, fits ? staged_keys : workspace, total};

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
                const T* states[4];
                const T* weights[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    states[k] = hidden + static_cast<i64>(__shfl_sync(EVERY_LANE, m, lane + k)) * step.hidden_size;
                    weights[k] = head + static_cast<i64>(__shfl_sync(EVERY_LANE, token, lane + k)) * step.hidden_size;
                }
                lane_products(states, weights, step.hidden_size, step.aligned, sum);
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

    constexpr u32 AHEAD = 4;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < total; base += AHEAD * THREADS) {
        u64 pair[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) pair[k] = base + k * THREADS < total ? __ldcg(pairs + base + k * THREADS) : 0;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            if (base + k * THREADS >= total) break;
            rows.keys[base + k * THREADS] = __int_as_float(static_cast<int>(pair[k]));
            if (fits) staged_names[base + k * THREADS] = static_cast<u32>(pair[k] >> 32);
        }
    }
    __syncthreads();

    // Logits become keys. Where all candidates fit among the survivors the keys go there, the dead
    // with the rest, for they come last in order; else they take the logits' places.
    const bool all_fit = total <= chooser.capacity;
    const u32 tiny = all_fit && step.nudge == nullptr && step.mass == nullptr ? TINY : 0;
    if (step.mass == nullptr && !(all_tiny && tiny == TINY)) add_up_rows(rows, tiny, mass, chooser.words);
    float high = never(), low = -never();
    u32 alive = 0;
    int known = -1;  // the beam that these are of: one row is looked up once
    bool finished = false;
    float beam_score = 0.0f;
    float2 own;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < total; i += THREADS) {
        const u32 name = rows.name_of(i);
        const int m = static_cast<int>(name >> TOKEN_BITS);
        if (m != known) {
            known = m;
            finished = first[m] < 0;
            const u32 start = offset[m], degree = offset[m + 1] - start;
            if (degree <= tiny) {
                beam_score = mass[m].x;
                own = mass_of(rows.keys + start, 0, degree, 1).log();
            } else {
                beam_score = step.in_scores[first_beam + m];
                own = step.mass != nullptr ? __ldcg(step.mass + first_beam + m) : mass[m];
            }
        }
        const float key = finished ? or_dead(beam_score) : rows.key(m, i, name & TOKEN_MASK, beam_score, rows.keys[i], own);
        if (all_fit) chooser.survivors[i] = rank_number(key, i);
        else rows.keys[i] = key;
        if (key > never()) {
            high = fmaxf(high, key);
            low = fminf(low, key);
            ++alive;
        }
    }
    alive = block_summary(high, low, alive, chooser.words);
    u32 found = total;
    if (!all_fit) found = alive == 0 ? 0 : narrow(rows, chooser, step.width, high, low);
    const u32 wanted = min(alive, static_cast<u32>(step.width));
    const u32 kept = choose(chooser, wanted == 0 ? 0 : found, high, low, wanted, [&](u32 place, u64 number) {
        const u32 candidate = slot_of(number), name = rows.name_of(candidate);
        const int m = static_cast<int>(name >> TOKEN_BITS);
        const float key = key_of(number);
        if (first[m] < 0) {
            write_beam(step, b, place, m, -1, key, key, step.in_rows[first_beam + m], 1);
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
        write_beam(step, b, place, m, static_cast<int>(token), score, key, row, finished);
    });
    write_padding(step, b, kept);
}
