// The first half of a step: every candidate of every beam in a slot of its own.
//
//     slot of candidate = its position: the token (bitmap layout), its place in the row (list layout)
//     score = score[m] + (logits[b, m, v] - mass[b, m]) + bonus[b, m, v]
//
// A finished beam is its own candidate in slot 0, with token -1. Empty slots: token -1, score -inf,
// row -1. Dead candidates keep their row, with score -inf. Grid (blocks per beam, M, B), a thread to
// a slot; `slots` per beam.

struct Listing {
    Step step;
    int* tokens;    // [B, M, slots]
    float* scores;  // [B, M, slots]
    i64* rows;      // [B, M, slots]
    i64 slots;
};

template <class T>
__global__ void __launch_bounds__(THREADS) list_candidates(const __grid_constant__ Listing out) {
    after_kernels_ahead();
    const Step& step = out.step;
    const i64 p = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x;
    if (p >= out.slots) return;
    const int m = blockIdx.y, b = blockIdx.z;
    const i64 beam = static_cast<i64>(b) * step.beams + m;
    int token = -1;
    float score = never();
    i64 entry = -1;
    if (m < step.in_count[b]) {
        const i64 row = step.in_rows[beam];
        if (step.in_finished[beam]) {
            if (p == 0) {
                score = step.in_scores[beam];
                entry = row;
            }
        } else {
            i64 found = -1;
            u32 v = static_cast<u32>(p);
            const Range range = range_of(step.table.starts, row);
            if (!is_listed(step)) {
                if (v < static_cast<u32>(step.vocabulary) && is_valid(step.table, row, v)) found = entry_at(step, row, range.begin, v);
            } else {
                if (p < range.size()) {
                    found = range.begin + p;
                    v = token_at(step.table, found);
                }
            }
            if (found >= 0 && is_eligible(step, beam, static_cast<u32>(p))) {
                const float logit = logit_of<T>(step, beam, v);
                token = static_cast<int>(v);
                score = score_of(step, step.in_scores[beam], logit, __ldcg(step.mass + beam), beam, v);
                entry = found;
            }
        }
    }
    const i64 slot = beam * out.slots + p;
    out.tokens[slot] = token;
    out.scores[slot] = score;
    out.rows[slot] = entry;
}
