// The first pass of a selection from padded slots:
//
//     best[tile] = the highest key of TILE slots                        # spread over the blocks
//     groups[group] = the best of `group` tiles                         # where tiles are many
//
// select_slots is the second pass. Grid (blocks per request, B), a warp to eight tiles at a time.
// Workspace: scratch_stride >= ceil(N / TILE) floats per request; `groups` [B, ceil(tiles / group)]
// where `group` is 2, 4 or 8, unused where it is 1. N < 2^32.

constexpr int TILES_AT_ONCE = 8;

// The best of eight tiles: lane 4 i to 4 i + 3 brings that of tile i.
__device__ __forceinline__ void write_best(const Slots& in, int b, u32 base, float largest) {
    const u32 lane = lane_id(), tile = base + lane / 4, tiles = tiles_of(in);
    if (lane % 4 == 0 && tile < tiles) in.step.scratch[b * in.step.scratch_stride + tile] = largest;
    if (in.step.group == 1) return;
    const u32 lanes = 4 * in.step.group;
#pragma unroll 1
    for (u32 by = 4; by < lanes; by <<= 1) largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, by));
    if ((lane & (lanes - 1)) == 0 && tile < tiles) in.step.groups[static_cast<i64>(b) * groups_of(in) + tile / in.step.group] = largest;
}

__global__ void __launch_bounds__(THREADS, 4) tile_slots(const __grid_constant__ Slots in) {
    after_kernels_ahead();
    const int b = blockIdx.y;
    const u32 tiles = tiles_of(in), step = gridDim.x * WARPS * TILES_AT_ONCE;
    const bool vectors = in.rows == nullptr && in.total % 4 == 0 && reinterpret_cast<u64>(in.keys) % 16 == 0;
#pragma unroll 1
    for (u32 base = (blockIdx.x * WARPS + warp_id()) * TILES_AT_ONCE; base < tiles; base += step) {
        float largest[4];
        if (vectors) {  // half a warp to a tile, two tiles to a load, four loads in flight
            float key[4][4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const i64 slot = static_cast<i64>(base + 2 * k) * TILE + lane_id() * 4;
#pragma unroll
                for (int i = 0; i < 4; ++i) key[k][i] = never();
                if (slot < in.total) load4(in.keys + b * in.total + slot, key[k]);
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) largest[k] = fmaxf(fmaxf(or_dead(key[k][0]), or_dead(key[k][1])), fmaxf(or_dead(key[k][2]), or_dead(key[k][3])));
        } else {
            // The same lanes hold the same tiles, four slots each.
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const i64 slot = static_cast<i64>(base + 2 * k + (lane_id() >> 4)) * TILE + (lane_id() & 15);
                largest[k] = never();
#pragma unroll
                for (int i = 0; i < 4; ++i) largest[k] = fmaxf(largest[k], slot_key(in, b, slot + i * 16));
            }
        }
        // largest[k] is of tile 2 k in the lower half, of 2 k + 1 in the upper. Lanes trade what others
        // gather, so that each step is one for several tiles: tile 2 k + h ends in lanes 16 h + 4 k on.
        const bool second = (lane_id() & 8) != 0, odd = (lane_id() & 4) != 0;
        float even = second ? largest[2] : largest[0], next = second ? largest[3] : largest[1];
        even = fmaxf(even, __shfl_xor_sync(EVERY_LANE, second ? largest[0] : largest[2], 8));
        next = fmaxf(next, __shfl_xor_sync(EVERY_LANE, second ? largest[1] : largest[3], 8));
        float best = fmaxf(odd ? next : even, __shfl_xor_sync(EVERY_LANE, odd ? even : next, 4));
        best = fmaxf(best, __shfl_xor_sync(EVERY_LANE, best, 2));
        best = fmaxf(best, __shfl_xor_sync(EVERY_LANE, best, 1));
        // From lanes 16 h + 4 k to lanes 4 (2 k + h).
        const u32 lane = lane_id() / 4;
        best = __shfl_sync(EVERY_LANE, best, (lane & 1) * 16 + (lane >> 1) * 4);
        write_best(in, b, base, best);
    }
}
