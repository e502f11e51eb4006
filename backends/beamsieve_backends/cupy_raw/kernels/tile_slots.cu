// The first pass of a selection from padded slots:
//
//     best[tile] = the highest key of TILE slots            # spread over the blocks
//     bound[b] = the interval that holds the width-th best  # the block that ends last
//
// select_slots is the second pass. Grid (blocks per request, B), a warp to four tiles at a time.
// Workspace: scratch_stride >= ceil(N / TILE) floats per request, `bounds` [B]. N < 2^32.

__global__ void __launch_bounds__(THREADS) tile_slots(const __grid_constant__ Slots in) {
    const Step& step = in.step;
    const int b = blockIdx.y;
    Carver carver;
    u32* const histogram = carver.take<u32>(BINS);
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    float* const best = step.scratch + b * step.scratch_stride;
    const u32 tiles = tiles_of(in);

    constexpr int AHEAD = 4;  // tiles that a warp reads at once
    float high = never(), low = -never();
    const u32 stride = gridDim.x * WARPS * AHEAD;
    for (u32 base = (blockIdx.x * WARPS + warp_id()) * AHEAD; base < tiles; base += stride) {
        float key[2 * AHEAD];
#pragma unroll
        for (int k = 0; k < 2 * AHEAD; ++k) key[k] = slot_key(in, b, static_cast<i64>(base) * TILE + k * 32 + lane_id());
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const float largest = warp_max(fmaxf(key[2 * k], key[2 * k + 1]));
            if (lane_id() == k && base + k < tiles) best[base + k] = largest;
            if (largest > never()) {
                high = fmaxf(high, largest);
                low = fminf(low, largest);
            }
        }
    }
    meet_range(step.meetings + b, high, low, words);
    if (!arrived_last(&step.meetings[b].arrived, gridDim.x, words)) return;
    const Bound bound = find_bound(step.meetings + b, best, tiles, step.width, histogram, words);
    if (threadIdx.x == 0) step.bounds[b] = bound;
}
