// What becomes of logits as tensor cores leave them: a lane holds, of each of two rows eight apart, the
// sixteens `lane % 4` of both tiles of a pair.

// Which tokens of a pair count for a row's mass, and which may be chosen: a word to each tile.
struct Bits {
    u64 counts[2], keeps[2];
};

// A row of the product: a beam, as a lane sees it.
struct ProductRow {
    i64 beam;             // b * M + m
    bool there;
    const u64* valid;     // its row of the bitmap
    const u32* eligible;  // its bits, or null
    float unit;
};

__device__ __forceinline__ Mass lanes_mass(Mass mass) {  // of four lanes that share a row
#pragma unroll
    for (int by = 1; by < 4; by <<= 1) {
        Mass other;
        other.largest = __shfl_xor_sync(EVERY_LANE, mass.largest, by);
        other.sum = __shfl_xor_sync(EVERY_LANE, mass.sum, by);
        mass.add(other);
    }
    return mass;
}

// Adds a lane's sixteen logits of a tile to the row's mass; the best that may be chosen of each half comes back.
// `Same`: what counts is what may be chosen. Token i of the sixteen is bit 8 (i / 2) + i % 2 of the shifted words.
template <bool Same>
__device__ __forceinline__ float2 add_sixteen(const float (&x)[16], u64 counts, u64 keeps, Mass& mass) {
    const u32 count[2] = {static_cast<u32>(counts), static_cast<u32>(counts >> 32)}, keep[2] = {static_cast<u32>(keeps), static_cast<u32>(keeps >> 32)};
    float best[2] = {never(), never()}, top = mass.largest, y[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const u32 bit = 1u << (8 * (i / 2 % 4) + i % 2);
        y[i] = count[i / 8] & bit ? x[i] : never();
        if (Same) {
            best[i / 8] = fmaxf(best[i / 8], y[i]);
        } else {
            best[i / 8] = fmaxf(best[i / 8], keep[i / 8] & bit ? x[i] : never());
            top = fmaxf(top, y[i]);
        }
    }
    if (Same) top = fmaxf(top, fmaxf(best[0], best[1]));
    float offset = top == never() ? 0.0f : -top * LOG2_E, even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        even += quick_exp2(fmaf(y[i], LOG2_E, offset));
        odd += quick_exp2(fmaf(y[i + 1], LOG2_E, offset));
    }
    even += odd;
    if (!(even < -never())) {  // a logit that is NaN or infinite is found by what it makes of the sum: again without it
        top = mass.largest;
        best[0] = best[1] = never();
        // Nothing of the first look is kept for this one.
        const u32 counted[2] = {settled(count[0]), settled(count[1])}, kept[2] = {settled(keep[0]), settled(keep[1])};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const u32 bit = 1u << (8 * (i / 2 % 4) + i % 2);
            const float z = or_dead(x[i]);
            y[i] = counted[i / 8] & bit ? z : never();
            top = fmaxf(top, y[i]);
            best[i / 8] = fmaxf(best[i / 8], kept[i / 8] & bit ? z : never());
        }
        offset = top == never() ? 0.0f : -top * LOG2_E;
        even = 0.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) even += quick_exp2(fmaf(y[i], LOG2_E, offset));
    }
    mass.sum = mass.sum * quick_exp2(fmaf(mass.largest, LOG2_E, offset)) + even;
    mass.largest = top;
    return make_float2(best[0], best[1]);
}
