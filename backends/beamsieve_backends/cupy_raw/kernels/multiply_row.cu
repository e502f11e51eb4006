// The logits of a step of one beam over a table of one row, for the valid tokens alone.
//
//     for b in requests:
//         for v in row: logits[b, v] = hidden[b] . head[v]      # float32 sums
//
// A product is added up in the same order alone and among others, so that a request has the same bits.
//
// hidden [B, d], head [V, d] of T, logits float32 [B, V], of other tokens not written. `requests` is B, and
// `request_parts` warps share the requests of the same four tokens. Grid: any.

template <class T>
__global__ void __launch_bounds__(THREADS, 1) multiply_row(const __grid_constant__ Step step) {
    after_kernels_ahead();
    multiply_in_row<T, true>(step, 0, step.requests);
}
