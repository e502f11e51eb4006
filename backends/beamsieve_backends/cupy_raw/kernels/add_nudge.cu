// keys[slot] = scores[slot] + nudge[b, m, tokens[slot]], or scores[slot] where there is no token.
// Grid: any; a thread to a slot. `total` = B * M * S slots.

struct Nudge {
    const int* tokens;
    const float* scores;
    const float* nudge;  // [B, M, V]
    float* keys;
    i64 total;
    i64 slots;
    i64 vocabulary;
};

__global__ void __launch_bounds__(THREADS) add_nudge(const __grid_constant__ Nudge in) {
    after_kernels_ahead();
    for (i64 i = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x; i < in.total; i += static_cast<i64>(gridDim.x) * THREADS) {
        const int token = in.tokens[i];
        in.keys[i] = in.scores[i] + (token < 0 ? 0.0f : in.nudge[i / in.slots * in.vocabulary + token]);
    }
}
