// The second half of a step: the best candidates of padded slots.
//
//     alive = [slot for slot in slots if rows[slot] != -1 and finite(scores[slot]) and finite(keys[slot])]
//     kept = sorted(alive, key = (-keys[slot], slot))[:width]
//
// Slots of a request are numbered parent by parent, so slot order is (parent, token) order. With
// `rows` null it is a plain ordered top-k of `keys` [B, N]: values and places go out.
// Grid (blocks per request, B): a warp to a tile of TILE slots, then the block that ends last
// chooses. Workspace: scratch_stride >= ceil(N / TILE) floats per request. N < 2^32.

constexpr u32 TILE = 64;

struct Slots {
    Step step;
    const int* tokens;    // [B, M, S]
    const float* scores;  // [B, M, S]
    const i64* rows;      // [B, M, S], or null for a plain top-k
    const float* keys;    // [B, M, S]
    float* top_values;    // [B, W], plain top-k only
    i64* top_places;      // [B, W], plain top-k only
    i64 slots;            // S
    i64 total;            // N = M * S
};

struct Padded {
    const Slots& in;
    int b;
    u32 tiles;
    static constexpr bool single = false;

    __device__ __forceinline__ float key_at(i64 slot) const {
        if (slot >= in.total) return never();
        const i64 place = b * in.total + slot;
        const float key = or_dead(in.keys[place]);
        if (in.rows == nullptr) return key;
        return in.rows[place] != -1 && is_finite(in.scores[place]) ? key : never();
    }
    __device__ __forceinline__ float best(u32 tile) const {
        return tile < tiles ? __ldcg(in.step.scratch + b * in.step.scratch_stride + tile) : never();
    }
    template <class F> __device__ __forceinline__ void each_group(F f) const {
        const u32 end = (tiles + 31) & ~31u;
        for (u32 i = threadIdx.x; i < end; i += THREADS) f(best(i));
    }
    template <class Open, class F> __device__ __forceinline__ void each_candidate(Open open, F f) const {
        for (u32 base = warp_id() * 32; base < tiles; base += THREADS) {
            u32 mask = __ballot_sync(EVERY_LANE, open(best(base + lane_id())));
            while (mask != 0) {
                u32 tile[4];
                int opened = 0;
                float key[8];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    tile[k] = 0;
                    if (mask != 0) {
                        tile[k] = base + __ffs(static_cast<int>(mask)) - 1;
                        mask &= mask - 1;
                        opened = k + 1;
                    }
                    key[2 * k] = opened > k ? key_at(static_cast<i64>(tile[k]) * TILE + lane_id()) : never();
                    key[2 * k + 1] = opened > k ? key_at(static_cast<i64>(tile[k]) * TILE + 32 + lane_id()) : never();
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if (k >= opened) break;
                    f(key[2 * k] > never(), key[2 * k], tile[k] * TILE + lane_id());
                    f(key[2 * k + 1] > never(), key[2 * k + 1], tile[k] * TILE + 32 + lane_id());
                }
            }
        }
    }
};

__global__ void __launch_bounds__(THREADS) select_slots(const __grid_constant__ Slots in) {
    const Step& step = in.step;
    const int b = blockIdx.y;
    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    const Padded source{in, b, static_cast<u32>((in.total + TILE - 1) / TILE)};
    float* const best = step.scratch + b * step.scratch_stride;

    constexpr int AHEAD = 4;  // tiles that a warp reads at once
    const u32 stride = gridDim.x * WARPS * AHEAD;
    for (u32 base = (blockIdx.x * WARPS + warp_id()) * AHEAD; base < source.tiles; base += stride) {
        float key[2 * AHEAD];
#pragma unroll
        for (int k = 0; k < 2 * AHEAD; ++k) key[k] = source.key_at(static_cast<i64>(base) * TILE + k * 32 + lane_id());
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const float largest = warp_max(fmaxf(key[2 * k], key[2 * k + 1]));
            if (lane_id() == k && base + k < source.tiles) best[base + k] = largest;
        }
    }
    if (!arrived_last(step.arrived + b, gridDim.x, chooser.words)) return;

    const u32 kept = choose(source, chooser, step.width);
    for (u32 place = threadIdx.x; place < kept; place += THREADS) {
        const u64 number = chooser.survivors[place];
        const i64 slot = slot_of(number);
        const i64 at = b * in.total + slot;
        const float key = in.keys[at];
        if (in.rows == nullptr) {
            in.top_values[static_cast<i64>(b) * step.width + place] = key;
            in.top_places[static_cast<i64>(b) * step.width + place] = slot;
            continue;
        }
        const int m = static_cast<int>(slot / in.slots);
        const int token = in.tokens[at];
        u8 finished = 1;
        i64 row = in.rows[at];
        if (token != -1) row = settle(step, row, finished);
        write_beam(step, b, place, m, token, in.scores[at], key, row, finished);
    }
    if (in.rows != nullptr) {
        write_padding(step, b, kept);
        return;
    }
    for (u32 place = kept + threadIdx.x; place < static_cast<u32>(step.width); place += THREADS) {
        in.top_values[static_cast<i64>(b) * step.width + place] = never();
        in.top_places[static_cast<i64>(b) * step.width + place] = -1;
    }
}
