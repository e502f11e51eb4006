// Padded slots, as the two passes of a selection over them see them.

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

__device__ __forceinline__ u32 tiles_of(const Slots& in) { return static_cast<u32>((in.total + TILE - 1) / TILE); }
__device__ __forceinline__ u32 groups_of(const Slots& in) { return (tiles_of(in) + in.step.group - 1) / in.step.group; }

// Key of a slot, -inf when there is no living candidate.
__device__ __forceinline__ float slot_key(const Slots& in, int b, i64 slot) {
    if (slot >= in.total) return never();
    const i64 place = b * in.total + slot;
    const float key = or_dead(in.keys[place]);
    if (in.rows == nullptr) return key;
    return in.rows[place] != -1 && is_finite(in.scores[place]) ? key : never();
}
