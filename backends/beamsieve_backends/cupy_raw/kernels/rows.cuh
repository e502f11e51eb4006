// The candidates of a request's rows, one after another, and how their logits become keys.

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
};

// The logs of the masses of the rows with more than `tiny` candidates, into `mass`: row m has the logits
// keys[offset[m]] to keys[offset[m + 1] - 1].
__device__ __noinline__ void add_up_rows(const float* keys, const u32* offset, int beams, u32 tiny, float2* mass, u32* words) {
    const bool by_block = beams < WARPS;  // few rows: the whole block for each
    const u32 by_thread = tiny > 0 ? tiny : SHORT;
    bool longer = false;
#pragma unroll 1
    for (int m = threadIdx.x; m < beams; m += THREADS) {
        const u32 start = offset[m], degree = offset[m + 1] - start;
        longer |= degree > by_thread;
        if (degree > tiny && degree <= by_thread) mass[m] = mass_of(keys + start, 0, degree, 1).log();
    }
    if (!__syncthreads_or(longer)) return;
    longer = false;
#pragma unroll 1
    for (int m = warp_id(); m < beams; m += WARPS) {
        const u32 start = offset[m], degree = offset[m + 1] - start;
        longer |= degree > LONG;
        if (degree <= by_thread || degree > LONG || by_block) continue;
        const float2 own = mass_of(keys + start, lane_id(), degree, 32).across_warp().log();
        if (lane_id() == 0) mass[m] = own;
    }
    longer = __syncthreads_or(longer);
#pragma unroll 1
    for (int m = longer || by_block ? 0 : beams; m < beams; ++m) {
        const u32 start = offset[m], degree = offset[m + 1] - start;
        if (degree <= by_thread || (degree <= LONG && !by_block)) continue;
        const float2 own = across_block(mass_of(keys + start, threadIdx.x, degree, THREADS).across_warp(), reinterpret_cast<float*>(words)).log();
        if (threadIdx.x == 0) mass[m] = own;
    }
    __syncthreads();
}

// The end of a step, for any rows: the candidates' logits become keys in their places.
__device__ __forceinline__ Gathered many_rows(const Rows& rows, const Chooser& chooser, u32 total, bool all_tiny, float2* mass, u32& alive) {
    const Step& step = rows.step;
    constexpr u32 AHEAD = 4;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < total; base += AHEAD * THREADS) {
        u64 pair[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) pair[k] = base + k * THREADS < total ? __ldcg(rows.pairs + base + k * THREADS) : 0;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            if (base + k * THREADS >= total) break;
            rows.keys[base + k * THREADS] = __int_as_float(static_cast<int>(pair[k]));
            if (rows.names != nullptr) rows.names[base + k * THREADS] = static_cast<u32>(pair[k] >> 32);
        }
    }
    __syncthreads();

    // Logits become keys. Where all candidates fit among the survivors the keys go there, the dead
    // with the rest, for they come last in order; else they take the logits' places.
    const bool all_fit = total <= chooser.capacity;
    const u32 tiny = all_fit && step.nudge == nullptr && step.mass == nullptr ? TINY : 0;
    if (step.mass == nullptr && !(all_tiny && tiny == TINY)) add_up_rows(rows.keys, rows.offset, step.beams, tiny, mass, chooser.words);
    Extent extent;
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
            finished = rows.first[m] < 0;
            const u32 start = rows.offset[m], degree = rows.offset[m + 1] - start;
            if (degree <= tiny) {
                beam_score = mass[m].x;
                own = mass_of(rows.keys + start, 0, degree, 1).log();
            } else {
                beam_score = step.in_scores[rows.first_beam + m];
                own = step.mass != nullptr ? __ldcg(step.mass + rows.first_beam + m) : mass[m];
            }
        }
        const float key = finished ? or_dead(beam_score) : rows.key(m, i, name & TOKEN_MASK, beam_score, rows.keys[i], own);
        if (all_fit) chooser.survivors[i] = rank_number(key, i);
        else rows.keys[i] = key;
        if (key > never()) {
            extent.note(key);
            ++alive;
        }
    }
    Gathered gathered = block_summary(extent, alive, chooser.words);
    alive = gathered.count;
    gathered.count = alive == 0 ? 0 : total;
    if (!all_fit && alive != 0) gathered = narrow(Keys{rows.keys, total}, chooser, step.width, gathered.keys);
    return gathered;
}
