// The second pass of a step whose beams have many candidates each:
//
//     for b in requests: beams = the `width` best candidates of the tiles that reach bound[b]
//
// Grid (blocks per request, B). How: opening.cuh. Workspace: what score_tiles or product_tiles left, and
// `lists` [B, list_capacity].

template <class T>
__global__ void __launch_bounds__(THREADS) open_tiles(const __grid_constant__ Step step) {
    await_kernel_before();
    Carver carver;
    open_and_choose<T>(step, blockIdx.y, step.bounds[blockIdx.y], carver, blockIdx.x, gridDim.x);
}
