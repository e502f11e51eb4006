// A step of one beam over a table of one row for one request alone: multiply_row's work by all blocks, then
// choose_row's by one. Every number comes about as in these two.
//
//     logits[v] = hidden . head[v]  for v in row
//     best = sorted(score + (logits - log-sum-exp(logits)))[:width]     # higher key, then lower place
//
// The block that begins last chooses: all others run by then, so that it can wait for their logits
// themselves, each of which is zero until it is written. A block that ended last would have to be told that
// what the others wrote can be seen, which takes as long as a third of the step.
//
// hidden [1, d], head [V, d] of T, no nudge. Workspace: logits float32 [V], zero between kernels, and scratch
// [single]. Grid: any.

template <class T, bool Long>
__global__ void __launch_bounds__(THREADS, 1) whole_row(const __grid_constant__ Step step) {
    u32 begun = 0;  // blocks before this one; asked for here, needed after the products
    if (threadIdx.x == THREADS - 1) begun = atomicInc(&step.meetings[0].arrived, gridDim.x - 1);
    const RowBeam beam = beam_on_row(step, 0);
    multiply_in_row<T, false>(step);
    if (__syncthreads_or(threadIdx.x == THREADS - 1 && begun == gridDim.x - 1)) choose_in_row<float, Long, true>(step, 0, beam);
}
