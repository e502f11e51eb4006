// The first pass of a selection from padded slots:
//
//     best[tile] = the highest key of TILE slots            # spread over the blocks
//     bound[b] = the interval that holds the width-th best  # the block that ends last
//
// select_slots is the second pass. Grid (blocks per request, B), a warp to several tiles at a time.
// Workspace: scratch_stride >= ceil(N / TILE) floats per request, `bounds` [B]. N < 2^32.

__global__ void __launch_bounds__(THREADS) tile_slots(const __grid_constant__ Slots in) {
    const Step& step = in.step;
    const int b = blockIdx.y;
    Carver carver;
    u32* const histogram = carver.take<u32>(BINS);
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    float* const best = step.scratch + b * step.scratch_stride;
    const u32 tiles = tiles_of(in);

    constexpr int AHEAD = 4;
    float high = never(), low = -never();
    const auto note = [&](float largest) {
        if (largest > never()) {
            high = fmaxf(high, largest);
            low = fminf(low, largest);
        }
    };
    const u32 warp = blockIdx.x * WARPS + warp_id(), warps = gridDim.x * WARPS;
    if (in.rows == nullptr && in.total % 4 == 0 && reinterpret_cast<u64>(in.keys) % 16 == 0) {
        // Whole vectors: half a warp to a tile, two tiles to a load, four loads in flight.
        for (u32 base = warp * AHEAD * 2; base < tiles; base += warps * AHEAD * 2) {
            float key[AHEAD][4];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                const i64 slot = static_cast<i64>(base + 2 * k) * TILE + lane_id() * 4;
#pragma unroll
                for (int i = 0; i < 4; ++i) key[k][i] = never();
                if (slot < in.total) load4(in.keys + b * in.total + slot, key[k]);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                float largest = fmaxf(fmaxf(or_dead(key[k][0]), or_dead(key[k][1])), fmaxf(or_dead(key[k][2]), or_dead(key[k][3])));
#pragma unroll
                for (int by = 8; by > 0; by >>= 1) largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, by));
                const u32 tile = base + 2 * k + (lane_id() >> 4);
                if (lane_id() % 16 == 0 && tile < tiles) best[tile] = largest;
                note(largest);
            }
        }
    } else {
        for (u32 base = warp * AHEAD; base < tiles; base += warps * AHEAD) {
            float key[2 * AHEAD];
#pragma unroll
            for (int k = 0; k < 2 * AHEAD; ++k) key[k] = slot_key(in, b, static_cast<i64>(base) * TILE + k * 32 + lane_id());
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                const float largest = warp_max(fmaxf(key[2 * k], key[2 * k + 1]));
                if (lane_id() == k && base + k < tiles) best[base + k] = largest;
                note(largest);
            }
        }
    }
    meet_range(step.meetings + b, high, low, words);
    if (!arrived_last(&step.meetings[b].arrived, gridDim.x, words)) return;
    const Bound bound = find_bound(step.meetings + b, best, tiles, step.width, histogram, words);
    if (threadIdx.x == 0) step.bounds[b] = bound;
}
