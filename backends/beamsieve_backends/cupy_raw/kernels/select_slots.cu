// The second half of a step: the best candidates of padded slots.
//
//     alive = [slot for slot in slots if rows[slot] != -1 and finite(scores[slot]) and finite(keys[slot])]
//     kept = sorted(alive, key = (-keys[slot], slot))[:width]
//
// Slots of a request are numbered parent by parent, so slot order is (parent, token) order. With
// `rows` null it is a plain ordered top-k of `keys` [B, N]: values and places go out.
// Grid (blocks per request, B). tile_slots goes before. Workspace: what that left, and `lists`
// [B, list_capacity], room for `capacity` candidates of every block.

constexpr u32 BESTS_KEPT = 8192;  // of tiles or groups, in shared memory

struct OpenSlots {
    const Slots& in;
    int b;
    Bound bound;

    template <class F> __device__ __forceinline__ void each(F f) const {
        const u32 tiles = tiles_of(in);
        const u32 quarter = (tiles + 31) / 32 * 8;
#pragma unroll 1
        for (u32 turn = blockIdx.x * WARPS + warp_id(); turn * 8 < quarter; turn += gridDim.x * WARPS) {
            const u32 tile = (lane_id() >> 3) * quarter + turn * 8 + (lane_id() & 7);
            const float best = tile < tiles ? __ldcg(in.step.scratch + b * in.step.scratch_stride + tile) : never();
            u32 mask = __ballot_sync(EVERY_LANE, bound.open(best));
            while (mask != 0) {
                float key[8];
                u32 slot[8];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const bool there = mask != 0;
                    const u32 here = __shfl_sync(EVERY_LANE, tile, there ? __ffs(static_cast<int>(mask)) - 1 : 0);
                    mask &= mask - 1;
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        slot[2 * k + half] = here * TILE + half * 32 + lane_id();
                        key[2 * k + half] = there ? slot_key(in, b, slot[2 * k + half]) : never();
                    }
                }
#pragma unroll
                for (int k = 0; k < 8; ++k) f(bound.open(key[k]), rank_number(key[k], slot[k]));
            }
        }
    }
};

__global__ void __launch_bounds__(THREADS) select_slots(const __grid_constant__ Slots in) {
    const Step& step = in.step;
    const int b = blockIdx.y;
    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    u32* const bests = carver.take<u32>(BESTS_KEPT);
    after_kernels_ahead();
    const bool grouped = step.group > 1;
    const float* const best = grouped ? step.groups + b * groups_of(in) : step.scratch + b * step.scratch_stride;
    const u32 count = static_cast<u32>(grouped ? groups_of(in) : tiles_of(in));
    const Bound bound = bound_of(best, count, step.width, bests, BESTS_KEPT, chooser.histogram, chooser.words);
    bool last;
    const List list{step.lists + static_cast<i64>(b) * step.list_capacity, step.meetings + b};
    const Gathered gathered = meet(OpenSlots{in, b, bound}, chooser, bound, step.width, list, gridDim.x, last, [] {});
    if (!last) return;
    kernel_behind_may_start();

    const auto emit = [&](u32 place, u64 number) {
        const i64 slot = slot_of(number);
        const i64 at = b * in.total + slot;
        float key = key_of(number);
        if (key == 0.0f) key = in.keys[at];  // which of the two zeros
        if (in.rows == nullptr) {
            in.top_values[static_cast<i64>(b) * step.width + place] = key;
            in.top_places[static_cast<i64>(b) * step.width + place] = slot;
            return;
        }
        const int m = static_cast<int>(slot / in.slots);
        const Ancestors ancestors = ancestors_of(step, static_cast<i64>(b) * step.beams + m);
        const int token = in.tokens[at];
        u8 finished = 1;
        i64 row = in.rows[at];
        if (token != -1) row = settle(step, row, finished);
        write_beam(step, b, place, m, ancestors, token, in.scores[at], key, row, finished);
    };
    const u32 kept = choose(chooser, gathered, step.width, emit);
    if (in.rows != nullptr) {
        write_padding(step, b, kept);
        return;
    }
    for (u32 place = kept + threadIdx.x; place < static_cast<u32>(step.width); place += THREADS) {
        in.top_values[static_cast<i64>(b) * step.width + place] = never();
        in.top_places[static_cast<i64>(b) * step.width + place] = -1;
    }
}
