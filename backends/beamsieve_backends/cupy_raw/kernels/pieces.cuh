// Products of a step in one launch, where only valid tokens are scored: a warp takes several together.

constexpr u32 PIECE = 8;  // candidates of one beam whose products a warp takes together

// The lane's part of PIECE products of one vector a.
template <class T> __device__ __forceinline__ void piece_products(const T* a, const T* const (&b)[PIECE], int size, bool aligned, float (&sum)[PIECE]) {
#pragma unroll
    for (u32 k = 0; k < PIECE; ++k) sum[k] = 0.0f;
    if (!aligned) {
#pragma unroll 1
        for (int i = lane_id(); i < size; i += 32) {
            const float x = number(a[i]);
#pragma unroll
            for (u32 k = 0; k < PIECE; ++k) sum[k] = fmaf(x, number(b[k][i]), sum[k]);
        }
        return;
    }
#pragma unroll 1
    for (int i = lane_id() * 8; i < size; i += 256) {
        float x[8], y[PIECE][8];
        load8(a + i, x);
#pragma unroll
        for (u32 k = 0; k < PIECE; ++k) load8(b[k] + i, y[k]);
#pragma unroll
        for (u32 k = 0; k < PIECE; ++k)
#pragma unroll
            for (int n = 0; n < 8; ++n) sum[k] = fmaf(x[n], y[k][n], sum[k]);
    }
}

// Four products of vectors of their own.
template <class T> __device__ __forceinline__ void four_products(const T* const (&a)[4], const T* const (&b)[4], int size, bool aligned, float (&sum)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[k] = 0.0f;
    if (!aligned) {
#pragma unroll 1
        for (int i = lane_id(); i < size; i += 32)
#pragma unroll
            for (int k = 0; k < 4; ++k) sum[k] = fmaf(number(a[k][i]), number(b[k][i]), sum[k]);
        return;
    }
#pragma unroll 1
    for (int i = lane_id() * 8; i < size; i += 256) {
        float x[4][8], y[4][8];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            load8(a[k] + i, x[k]);
            load8(b[k] + i, y[k]);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int n = 0; n < 8; ++n) sum[k] = fmaf(x[k][n], y[k][n], sum[k]);
    }
}

// The logits of PIECE candidates of one beam, in the lanes from 0 on; `token` is known there.
template <class T> __device__ __forceinline__ float piece_logit(const Step& step, const T* state, u32 token, bool wanted) {
    const T* const head = static_cast<const T*>(step.head);
    const T* weights[PIECE];
#pragma unroll
    for (u32 k = 0; k < PIECE; ++k) weights[k] = head + static_cast<i64>(__shfl_sync(EVERY_LANE, token, k)) * step.hidden_size;
    float sum[PIECE];
    piece_products(state, weights, step.hidden_size, step.aligned, sum);
    const float low[4] = {sum[0], sum[1], sum[2], sum[3]}, high[4] = {sum[4], sum[5], sum[6], sum[7]};
    const float of_low = __shfl_sync(EVERY_LANE, four_sums(low), lane_id() * 8);
    const float of_high = __shfl_sync(EVERY_LANE, four_sums(high), lane_id() * 8);
    const float logit = lane_id() < 4 ? of_low : of_high;
    return wanted ? or_dead(logit + bias_of(step, token)) : never();
}
