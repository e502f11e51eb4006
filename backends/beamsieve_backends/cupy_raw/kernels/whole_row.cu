// A step of one beam over a table of one row in one launch, where multiply_row would fetch little: its work by
// all blocks of a request, then choose_row's by one. Every number comes about as in these two.
//
//     for b in requests:
//         logits = [hidden[b] . head[v]  for v in row]
//         best = sorted(score[b] + (logits - log-sum-exp(logits)))[:width]     # higher key, then lower place
//
// The block of a request that begins last chooses: the others run by then, so that it can wait for their
// logits themselves, each of which is zero until it is written. A block that ended last would have to be told
// that what the others wrote can be seen. That takes 1700 cycles, but less than to look at the logits of a
// `Long` row more than once; there it is the block that ends last.
//
// hidden [B, d], head [V, d] of T, no nudge. Workspace: logits float32 [B, V], zero between kernels unless
// `Long`, and scratch [B, single]. Grid (any, B).

template <class T, bool Long>
__global__ void __launch_bounds__(THREADS, 1) whole_row(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    after_kernels_ahead();
    u32* const arrived = &step.meetings[b].arrived;
    if constexpr (Long) {
        const RowBeam beam = beam_on_row(step, b);
        multiply_in_row<T, false>(step, b, b + 1);
        if (!arrived_last(arrived, gridDim.x, reinterpret_cast<u32*>(shared_bytes))) return;
        kernel_behind_may_start();
        choose_in_row<float, Long, false>(step, b, beam);
    } else {
        u32 begun = 0;  // blocks before this one; asked for here, needed after the products
        if (threadIdx.x == THREADS - 1) begun = atomicInc(arrived, gridDim.x - 1);
        const RowBeam beam = beam_on_row(step, b);
        multiply_in_row<T, false>(step, b, b + 1);
        if (!__syncthreads_or(threadIdx.x == THREADS - 1 && begun == gridDim.x - 1)) return;
        kernel_behind_may_start();
        choose_in_row<float, Long, true>(step, b, beam);
    }
}
