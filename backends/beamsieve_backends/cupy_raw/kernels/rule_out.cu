// Per request, nibble and value: which signatures a Bloom row with that nibble cannot contain.
//
//     ruled_out[b, group, nibble, value] = bits i of the group's signatures whose own nibble there
//                                          has a bit that value lacks
//
// Grid: any; a thread to an entry, B * groups * words * 16 * 16 of them.

struct Signatures {
    const u64* signatures;  // [B, places, words]
    const int* count;       // [B]
    u64* ruled_out;         // [B, groups, words * 16, 16]
    i64 total;
    int places, words, groups;
};

__global__ void __launch_bounds__(THREADS) rule_out(const __grid_constant__ Signatures in) {
    after_kernels_ahead();
    for (i64 i = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x; i < in.total; i += static_cast<i64>(gridDim.x) * THREADS) {
        const u32 value = i & 15;
        const int nibble = static_cast<int>(i >> 4) % (in.words * 16);
        const i64 rest = (i >> 4) / (in.words * 16);
        const int group = static_cast<int>(rest % in.groups);
        const i64 b = rest / in.groups;
        const int from = group * 64, here = min(64, in.count[b] - from);
        u64 mask = 0;
        for (int k = 0; k < here; ++k) {
            const u64 word = in.signatures[(b * in.places + from + k) * in.words + (nibble >> 4)];
            const u32 own = static_cast<u32>(word >> (4 * (nibble & 15))) & 15;
            mask |= static_cast<u64>((own & ~value) != 0) << k;
        }
        in.ruled_out[i] = mask;
    }
}
