// float32 numbers as two tf32 numbers each, laid out so that one tf32 product of three times the
// depth has float32 accuracy:
//
//     x = high + low,  high = x rounded to tf32 (10 fraction bits),  low = x - high rounded likewise
//     left  rows [high | low  | high]        right rows [high | high | low]
//     left . right = high.high + low.high + high.low     # low.low is below float32's last bit
//
// in [rows, d], out [rows, 3 d]. A number that is not finite goes to `high` alone. Grid: any.

struct Split {
    const float* in;
    float* out;
    i64 rows;
    int size;
    int right;  // 0 for left operands (hidden states), 1 for right ones (the head)
};

__device__ __forceinline__ float to_tf32(float x) {
    const u32 bits = static_cast<u32>(__float_as_int(x));
    const u32 rounded = (bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u;
    return is_finite(x) ? __int_as_float(static_cast<int>(rounded)) : x;
}

__global__ void __launch_bounds__(THREADS) split_float32(const __grid_constant__ Split split) {
    await_kernel_before();
    const i64 total = split.rows * split.size;
    for (i64 i = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x; i < total; i += static_cast<i64>(gridDim.x) * THREADS) {
        const i64 row = i / split.size;
        const float x = split.in[i];
        const float high = to_tf32(x);
        const float low = is_finite(x) && is_finite(high) ? to_tf32(x - high) : 0.0f;
        float* const to = split.out + row * split.size * 3 + (i - row * split.size);
        to[0] = high;
        to[split.size] = split.right ? high : low;
        to[2 * static_cast<i64>(split.size)] = split.right ? low : high;
    }
}
