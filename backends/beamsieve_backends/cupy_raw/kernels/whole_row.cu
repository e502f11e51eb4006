// A step of one beam over a table of one row for one request alone: multiply_row's work by all blocks, then
// choose_row's by the one that ends last. Every number comes about as in these two.
//
//     logits[v] = hidden . head[v]  for v in row
//     best = sorted(score + (logits - log-sum-exp(logits)))[:width]     # higher key, then lower place
//
// hidden [1, d], head [V, d] of T. Workspace: logits float32 [V], scratch [single]. Grid: any.

template <class T, bool Long>
__global__ void __launch_bounds__(THREADS, 1) whole_row(const __grid_constant__ Step step) {
    const RowBeam beam = beam_on_row(step, 0);
    multiply_in_row<T, false>(step);
    if (arrived_last(&step.meetings[0].arrived, gridDim.x, reinterpret_cast<u32*>(shared_bytes))) choose_in_row<float, Long>(step, 0, beam);
}
