// A step whose logits are never written: what its three kernels hand on.
//
// multiply_tiles makes the logits of all beams and keeps, of each, only what key_tiles and reopen_tiles
// need: the best of both halves of every sixteen tokens that may be chosen, and the sum of exponentials of every
// SEGMENT tokens. The few logits that can be chosen are then computed again.
//
// Sixteens: token v belongs to the *pair* v / 128, in it to the tile v / 64 % 2, and in that to the sixteen
// v / 2 % 4: the tokens that one lane holds of what a tensor core makes.

constexpr int PAIR = 128, SEGMENT_PAIRS = 2, SEGMENT = SEGMENT_PAIRS * PAIR;

struct Sixteens {
    Step step;      // scratch, groups, masses: as score_tiles leaves them, where tiles = 2 * pairs
    float4* bests;  // [B, M, pairs, 4]: of sixteen q, the largest logit that may be chosen of each tile's halves
    float2* sums;   // [B, M, segments]: the largest logit that counts, and the sum of exp(x - largest)
    int pairs;      // of tiles per beam
    int segments;
};

// The tokens of sixteen q in a tile, a bit each.
__device__ __forceinline__ u64 sixteen(u32 q) { return 0x0303030303030303ull << 2 * q; }
