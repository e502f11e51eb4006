// The second pass of a step whose beams have many candidates each:
//
//     for b: list = [candidates of the tiles that reach bound[b]]                # spread over the blocks
//            beams = choose(list)                                                # the block that ends last
//
// Grid (blocks per request, B). What a block finds it gathers in shared memory and then appends to
// the request's list; a block alone chooses at once. Should the list overflow (many equal keys, say),
// the last block looks at the opened tiles themselves: slower, same answer.
// Workspace: what score_tiles left, and `lists` [B, list_capacity].

template <class T>
__global__ void __launch_bounds__(THREADS, 2) open_tiles(const __grid_constant__ Step step) {
    open_and_choose<T>(step, blockIdx.y, step.bounds[blockIdx.y], Carver(), blockIdx.x, gridDim.x);
}
