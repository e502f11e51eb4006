// The second pass of a step whose beams have many candidates each:
//
//     for b: list = [candidates of the tiles that reach bound[b]]                # spread over the blocks
//            beams = choose(list)                                                # the block that ends last
//
// Grid (blocks per request, B); 32 tiles to a warp at a time. What a block finds it gathers in shared
// memory and then appends to the request's list. Should the list overflow (many equal keys, say),
// the last block looks at the opened tiles themselves: slower, same answer.
// Workspace: what score_tiles left, and `lists` [B, list_capacity].

template <class T>
struct OpenTiles {
    const Step& step;
    int b;
    Bound bound;
    u32 first_warp, all_warps;  // which of how many warps this one is
    u32* opened;                // [32] of this warp's own

    // Calls f(there, number) for the candidates of the opened tiles, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        const u32 tiles = step.tiles, tile = step.tile, groups = static_cast<u32>(step.beams) * tiles;
        const u32 parts = tile / 32;
        // A warp takes four runs of eight neighbours, far apart: the tiles of a good beam are all open.
        const u32 quarter = (groups + 31) / 32 * 8;
        for (u32 turn = first_warp; turn * 8 < quarter; turn += all_warps) {
            const u32 group = (lane_id() >> 3) * quarter + turn * 8 + (lane_id() & 7);
            const float best = group < groups ? __ldcg(step.scratch + b * step.scratch_stride + group) : never();
            const bool open = bound.open(best);
            const u32 mask = __ballot_sync(EVERY_LANE, open);
            if (mask == 0) continue;
            const int count = __popc(mask);
            if (open) opened[__popc(mask & ((1u << lane_id()) - 1u))] = group;
            __syncwarp();
            // Each lane looks up what one opened tile needs; the others ask it.
            const bool mine = lane_id() < count;
            const u32 my_group = mine ? opened[lane_id()] : 0;
            const i64 my_beam = static_cast<i64>(b) * step.beams + my_group / tiles;
            i64 my_base = step.in_rows[my_beam];
            u32 my_size = step.vocabulary;
            const bool my_finished = step.in_finished[my_beam];
            const float my_score = step.in_scores[my_beam];
            const float2 my_mass = __ldcg(step.masses + my_beam);
            if (step.bitmap == nullptr && mine && !my_finished) {
                const i64 begin = row_start(step, my_base);
                my_size = static_cast<u32>(row_start(step, my_base + 1) - begin);
                my_base = begin;
            }
            if (my_finished) my_size = 0;
            __syncwarp();
            for (u32 part = 0; part < count * parts; part += 4) {
                float key[4];
                u32 slot[4];
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    const u32 at = min(part + k, count * parts - 1);
                    const int from = at / parts;
                    const u32 here = __shfl_sync(EVERY_LANE, my_group, from);
                    const i64 base = __shfl_sync(EVERY_LANE, my_base, from);
                    const u32 size = __shfl_sync(EVERY_LANE, my_size, from);
                    const float score = __shfl_sync(EVERY_LANE, my_score, from);
                    float2 mass;
                    mass.x = __shfl_sync(EVERY_LANE, my_mass.x, from);
                    mass.y = __shfl_sync(EVERY_LANE, my_mass.y, from);
                    const u32 m = here / tiles;
                    const u32 inside = (at - from * parts) * 32 + lane_id();
                    const u32 p = (here - m * tiles) * tile + inside;
                    slot[k] = here * tile + inside;
                    key[k] = never();
                    if (part + k < count * parts) {
                        if (p < size) key[k] = position_key<T>(step, static_cast<i64>(b) * step.beams + m, base, p, mass, score);
                        else if (size == 0 && p == 0) key[k] = or_dead(score);  // a finished beam
                    }
                }
#pragma unroll
                for (u32 k = 0; k < 4; ++k) f(bound.open(key[k]), rank_number(key[k], slot[k]));
            }
        }
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) open_tiles(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    u32* const opened = carver.take<u32>(THREADS);
    Meeting* const meeting = step.meetings + b;
    u64* const list = step.lists + static_cast<i64>(b) * step.list_capacity;

    OpenTiles<T> tiles{step, b, step.bounds[b], blockIdx.x * WARPS + warp_id(), gridDim.x * WARPS, opened + warp_id() * 32};
    u32* const count = chooser.words + 50;
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    tiles.each([&](bool there, u64 number) { append(chooser, count, there, number); });
    __syncthreads();
    list_survivors(chooser, *count, meeting, list, step.list_capacity);
    if (!arrived_last(&meeting->arrived, gridDim.x, chooser.words)) return;

    const u32 listed = __ldcg(&meeting->listed);
    __syncthreads();
    if (threadIdx.x == 0) meeting->listed = 0;
    const i64 first_beam = static_cast<i64>(b) * step.beams;
    const bool lists = step.bitmap == nullptr;
    const u32 each = static_cast<u32>(step.tiles) * step.tile;
    const auto emit = [&](u32 place, u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot / each;
        const u32 p = slot - parent * each;
        const i64 beam = first_beam + parent;
        const float key = key_of(number);
        const i64 row = step.in_rows[beam];
        if (step.in_finished[beam]) {
            write_beam(step, b, place, parent, -1, key, key, row, 1);
            return;
        }
        const i64 entry = lists ? row_start(step, row) + p : entry_of(step, row, p);
        const u32 token = lists ? static_cast<u32>(integer_at(step.tokens, step.token_bytes, entry)) : p;
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr) score = token_score<T>(step, beam, token, __ldcg(step.masses + beam), step.in_scores[beam]);
        u8 finished;
        const i64 next = settle(step, entry, finished);
        write_beam(step, b, place, parent, static_cast<int>(token), score, key, next, finished);
    };
    u32 kept;
    if (listed <= static_cast<u32>(step.list_capacity)) {
        kept = choose(Listed{list, listed}, chooser, step.width, emit);
    } else {
        tiles.first_warp = warp_id();
        tiles.all_warps = WARPS;
        kept = choose(tiles, chooser, step.width, emit);
    }
    write_padding(step, b, kept);
}
