// The end of a step with one beam to expand, as step 1 always is: its candidates' logits become keys in
// registers, PER_THREAD to a thread, and only what can be chosen is written down.
//
//     mass = log-sum-exp of the logits, the largest first            # or as given
//     keys = score + (logits - mass), -inf where targeting says no
//     survivors = all, or those up to the bin that holds the width-th best

// What a candidate is: its beam and its token.
constexpr u32 TOKEN_BITS = 20, TOKEN_MASK = (1u << TOKEN_BITS) - 1u;

constexpr u32 PER_THREAD = 16, ONE_ROW = PER_THREAD * THREADS;

// The candidates of a row that has not finished, at most ONE_ROW of them, from pairs of logit and token
// (see score_rows.cu). Where ties leave more than fit, the keys go to `keys`, [total], for a closer look.
__device__ __forceinline__ Gathered one_row(const Step& step, const Chooser& chooser, i64 beam, const u64* pairs, u32 total, float* keys, float2& mass, u32& alive) {
    float key[PER_THREAD];
    Extent own;
#pragma unroll
    for (u32 k = 0; k < PER_THREAD; ++k) {
        const u32 i = threadIdx.x + k * THREADS;
        key[k] = i < total ? __int_as_float(static_cast<int>(__ldcg(pairs + i))) : never();
        own.high = fmaxf(own.high, key[k]);
    }
    if (step.mass != nullptr) {
        mass = __ldcg(step.mass + beam);
    } else {
        Mass sum;
        sum.largest = block_extent(own.high, own.low, chooser.words).high;
#pragma unroll
        for (u32 k = 0; k < PER_THREAD; ++k) sum.sum += quick_exp(key[k] - sum.largest);
        sum.sum = block_sum(sum.sum, reinterpret_cast<float*>(chooser.words));
        mass = sum.log();
    }
    const float beam_score = step.in_scores[beam];
    const bool plain = step.eligible == nullptr && step.bonus == nullptr && step.nudge == nullptr;
    own = Extent();
    u32 count = 0;
#pragma unroll
    for (u32 k = 0; k < PER_THREAD; ++k) {
        const u32 i = threadIdx.x + k * THREADS;
        if (plain) {
            key[k] = or_dead(beam_score + log_probability(key[k], mass));
        } else if (i < total) {
            const u32 token = static_cast<u32>(__ldcg(pairs + i) >> 32) & TOKEN_MASK;
            const float score = score_of(step, beam_score, key[k], mass, beam, token);
            key[k] = is_eligible(step, beam, is_listed(step) ? i : token) ? key_of_score(step, score, beam, token) : never();
        }
        if (key[k] > never()) {
            own.note(key[k]);
            ++count;
        }
    }
    Gathered gathered = block_summary(own, count, chooser.words);
    alive = gathered.count;
    if (alive == 0) return gathered;
    u32 last_bin = BINS;
    const Scale scale(gathered.keys.high, gathered.keys.low);
    if (alive > chooser.capacity) {
        clear_histogram(chooser.histogram, BINS);
#pragma unroll
        for (u32 k = 0; k < PER_THREAD; ++k)
            if (key[k] > never()) atomicAdd(&chooser.histogram[scale.bin_of(key[k])], 1u);
        __syncthreads();
        last_bin = bin_reaching(chooser.histogram, chooser.words, BINS, step.width).bin;
    }
    u32* const counter = chooser.words + 50;
    if (threadIdx.x == 0) *counter = 0;
    __syncthreads();
    own.low = -never();
#pragma unroll
    for (u32 k = 0; k < PER_THREAD; ++k) {
        const bool passes = key[k] > never() && scale.bin_of(key[k]) <= last_bin;
        append(chooser, counter, passes, rank_number(key[k], threadIdx.x + k * THREADS));
        if (passes) own.low = fminf(own.low, key[k]);
    }
    gathered.keys.low = block_extent(gathered.keys.high, own.low, chooser.words).low;
    gathered.count = *counter;
    __syncthreads();
    if (gathered.count <= chooser.capacity) return gathered;
#pragma unroll
    for (u32 k = 0; k < PER_THREAD; ++k)
        if (threadIdx.x + k * THREADS < total) keys[threadIdx.x + k * THREADS] = key[k];
    __syncthreads();
    return narrow(Keys{keys, total}, chooser, step.width, gathered.keys);
}
