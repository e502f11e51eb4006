// The log of each beam's denominator, from its logits:
//
//     mass[b, m] = log(sum(exp(logits[b, m, v]) for v in denominator(b, m)))
//
// The denominator is the whole codebook, the tokens that may follow the beam's row, or those of them
// that are eligible. A logit that is NaN or infinite counts as -inf. 0 where nothing has mass (every
// candidate is -inf there anyway) and where no live beam is. Grid (M, B), a block to a beam.

template <class T>
__global__ void __launch_bounds__(THREADS) row_mass(const __grid_constant__ Step step) {
    after_kernels_ahead();
    Carver carver;
    float* const largest_of = carver.take<float>(WARPS);
    float* const sum_of = carver.take<float>(WARPS);
    const int m = blockIdx.x, b = blockIdx.y;
    const i64 beam = static_cast<i64>(b) * step.beams + m;
    const bool live = m < step.in_count[b] && !step.in_finished[beam];
    Mass sum;
    if (live) {
        const bool listed = is_listed(step) && step.normalize != NORMALIZE_ALL;
        const i64 row = step.in_rows[beam];
        const Range range = range_of(step.table.starts, row);
        const u32 size = listed ? range.size() : step.vocabulary;
        for (u32 p = threadIdx.x; p < size; p += THREADS) {
            const u32 v = listed ? token_at(step.table, range.begin + p) : p;
            bool counts = true;
            if (step.normalize != NORMALIZE_ALL) {
                if (!listed) counts = is_valid(step.table, row, p);
                if (step.normalize == NORMALIZE_ELIGIBLE) counts = counts && is_eligible(step, beam, p);
            }
            if (counts) sum.add(logit_of<T>(step, beam, v));
        }
    }
    sum = sum.across_warp();
    if (lane_id() == 0) {
        largest_of[warp_id()] = sum.largest;
        sum_of[warp_id()] = sum.sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        Mass all;
        for (int i = 0; i < WARPS; ++i) {
            Mass other;
            other.largest = largest_of[i];
            other.sum = sum_of[i];
            all.add(other);
        }
        step.masses[beam] = all.log();
    }
}
