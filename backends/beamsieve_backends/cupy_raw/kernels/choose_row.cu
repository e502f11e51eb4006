// The end of a step of one beam over a table of one row, from its logits: a block to a request.
//
//     for b in requests:
//         mass = log-sum-exp(logits[b, v] for v in row)              # or as given
//         keys = score[b] + (logits[b, row] - mass)                  # -inf where targeting says no
//         best = sorted(keys, key = (-key, place in row))[:width]
//
// Logits [B, V] of T. Grid (B). `single` candidates, at most 4 * THREADS, or 16 * THREADS (`Long`); scratch
// is [B, single].

template <class T, bool Long>
__global__ void __launch_bounds__(THREADS, 1) choose_row(const __grid_constant__ Step step) {
    after_kernels_ahead<true>();
    choose_in_row<T, Long, false>(step, blockIdx.x, beam_on_row(step, blockIdx.x));
}
