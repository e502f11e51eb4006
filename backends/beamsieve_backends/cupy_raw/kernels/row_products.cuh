// The products of a step of one beam over a table of one row (see multiply_row.cu).

constexpr u32 TOKENS = 4;  // of a warp at a time

// The sums over the warp of x[0] to x[Left - 1], Left a power of two up to 32: lane l has that of
// x[l / (32 / Left)]. Lanes trade what others add, until each has one. Constants all the way: a loop that
// is not unrolled would look for its register at run time.
template <int Left, int By = 16> __device__ __forceinline__ float sums_of(float* x) {
    if constexpr (By == 0) {
        return x[0];
    } else if constexpr (Left == 1) {
        x[0] += __shfl_xor_sync(EVERY_LANE, x[0], By);
        return sums_of<1, By / 2>(x);
    } else {
        const bool upper = (threadIdx.x & By) != 0;
#pragma unroll
        for (int k = 0; k < Left / 2; ++k) {
            const float low = x[k], high = x[k + Left / 2];
            x[k] = (upper ? high : low) + __shfl_xor_sync(EVERY_LANE, upper ? low : high, By);
        }
        return sums_of<Left / 2, By / 2>(x);
    }
}

// The grid's warps take four tokens at a time, their rows of the head read once for all requests of a part, of
// which eight are taken together (`Several`) or the only one.
template <class T, bool Several>
__device__ __forceinline__ void multiply_in_row(const Step& step, int from_request, int requests) {
    constexpr int TOGETHER = Several ? 8 : 1, PRODUCTS = TOGETHER * TOKENS;
    constexpr int AHEAD = Several ? 4 : 1;  // as many states as fit in registers
    const u32 total = static_cast<u32>(step.single), size = static_cast<u32>(step.hidden_size), lane = lane_id();
    const u32 fours = (total + TOKENS - 1) / TOKENS, parts = static_cast<u32>(step.request_parts);
    const T* const hidden = static_cast<const T*>(step.hidden);
    const T* const head = static_cast<const T*>(step.head);
    float* const logits = static_cast<float*>(const_cast<void*>(step.logits));
#pragma unroll 1
    for (u32 task = warp_id() * gridDim.x + blockIdx.x; task < fours * parts; task += gridDim.x * WARPS) {
        const u32 part = parts == 1 ? 0 : task / fours, first = (task - part * fours) * TOKENS;
        const T* weights[TOKENS];
        u32 token[TOKENS];
#pragma unroll
        for (u32 k = 0; k < TOKENS; ++k) token[k] = token_in_row(step, min(first + k, total - 1));
#pragma unroll
        for (u32 k = 0; k < TOKENS; ++k) weights[k] = head + static_cast<u64>(token[k]) * size;
        Eight<T> right[TOKENS];
        bool there = false;  // whether `right` holds the rows whole
#pragma unroll 1
        for (int b = from_request + static_cast<int>(part) * TOGETHER; b < requests; b += static_cast<int>(parts) * TOGETHER) {
            // Of requests that are not there the last one's is taken.
            auto state = [&](int r) { return hidden + static_cast<u64>(min(b + r, requests - 1)) * size; };
            float sum[PRODUCTS];
#pragma unroll
            for (int k = 0; k < PRODUCTS; ++k) sum[k] = 0.0f;
#pragma unroll 1
            for (u32 i = lane; !step.aligned && i < size; i += 32)
#pragma unroll
                for (int k = 0; k < PRODUCTS; ++k) sum[k] = fmaf(number(state(k / TOKENS)[i]), number(weights[k % TOKENS][i]), sum[k]);
#pragma unroll 1
            for (u32 i = lane * 8; step.aligned && i < size; i += 256) {
                if (!there) {
#pragma unroll
                    for (u32 k = 0; k < TOKENS; ++k) right[k].load(weights[k] + i);
                }
#pragma unroll
                for (int from = 0; from < TOGETHER; from += AHEAD) {
                    Eight<T> left[AHEAD];
#pragma unroll
                    for (int r = 0; r < AHEAD; ++r) left[r].load(state(from + r) + i);
#pragma unroll
                    for (int r = 0; r < AHEAD; ++r) left[r].settle();
#pragma unroll
                    for (u32 k = 0; k < TOKENS; ++k) {
                        float y[8];
                        right[k].numbers(y);
#pragma unroll
                        for (int r = 0; r < AHEAD; ++r) {
                            float x[8];
                            left[r].numbers(x);
                            float& one = sum[(from + r) * TOKENS + k];
#pragma unroll
                            for (int n = 0; n < 8; ++n) one = fmaf(x[n], y[n], one);
                        }
                    }
                }
            }
            there = size <= 256;
            float product = sums_of<PRODUCTS>(sum);
            product = product == 0.0f ? -0.0f : product;  // zero is what whole_row takes for none yet
            constexpr u32 LANES = 32 / PRODUCTS;  // that have the same product
            const u32 which = lane / LANES, r = which / TOKENS, k = which % TOKENS;
            u32 own = token[0];
#pragma unroll
            for (u32 i = 1; i < TOKENS; ++i) own = k == i ? token[i] : own;
            if (lane % LANES == 0 && first + k < total && b + static_cast<int>(r) < requests)
                logits[static_cast<u64>(b + r) * step.vocabulary + own] = product;
        }
    }
}
