// float32 rows as two float16 numbers each, so that three float16 products have float32 accuracy:
//
//     unit[r] = the power of two that brings row r's largest number to [2^14, 2^15)
//     x / unit[r] = high + low + rest,  high = x / unit[r] rounded to float16,  low the difference likewise
//     left  rows [high | low  | high]        right rows [high | high | low]
//     left . right * unit * unit = high.high + low.high + high.low   # low.low is below float32's last bit
//
// Two factors in one launch: left rows, then right rows. in [rows, d], out [rows, 3, d], units [rows]. A
// number that is not finite goes to `high` alone. Grid: any, a warp to a row.

struct Halves {
    const float* in[2];
    u16* out[2];
    float* units[2];
    i64 rows[2];
    int size;
};

// x rounded to float16 (to the nearest, ties to even), |x| < 2^15 or not finite; and back.
__device__ __forceinline__ u16 to_half(float x) {
#ifdef __CUDA_ARCH__
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    const u32 bits = static_cast<u32>(__float_as_int(x));
    const u16 sign = static_cast<u16>(bits >> 16 & 0x8000u);
    const u32 size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) return sign | (size > 0x7f800000u ? 0x7e00u : 0x7c00u);
    if (size < 0x38800000u) {  // below 2^-14: in steps of 2^-24, which adding 0.5 leaves at the end
        const float stepped = __int_as_float(static_cast<int>(size)) + 0.5f;
        return sign | static_cast<u16>(static_cast<u32>(__float_as_int(stepped)) - 0x3f000000u);
    }
    const u32 rounded = size + 0xfffu + (size >> 13 & 1u);
    return sign | static_cast<u16>((rounded - 0x38000000u) >> 13);
#endif
}

__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// The exponent of a row's unit.
__device__ __forceinline__ int unit_of(float largest) {
    const int exponent = static_cast<int>(static_cast<u32>(__float_as_int(largest)) >> 23) - 127;
    return largest == 0.0f ? 0 : max(exponent - 14, -126);
}

__device__ __forceinline__ void split(float x, u16& high, u16& low) {
    high = to_half(x);
    low = is_finite(x) ? to_half(x - number(float16{high})) : 0;
}

// Two numbers at once, each pair of halves in a word.
__device__ __forceinline__ void split2(float x, float y, u32& high, u32& low) {
    u16 first, second, first_low, second_low;
    split(x, first, first_low);
    split(y, second, second_low);
    high = first | static_cast<u32>(second) << 16;
    low = first_low | static_cast<u32>(second_low) << 16;
}

__global__ void __launch_bounds__(THREADS, 3) split_halves(const __grid_constant__ Halves in) {
    const i64 all = in.rows[0] + in.rows[1];
    for (i64 at = static_cast<i64>(blockIdx.x) * WARPS + warp_id(); at < all; at += static_cast<i64>(gridDim.x) * WARPS) {
        const int which = at >= in.rows[0];
        const i64 row = which ? at - in.rows[0] : at, size = in.size;
        const float* const from = in.in[which] + row * size;
        u16* const to = in.out[which] + row * size * 3;
        const i64 low_place = which ? 2 * size : size, high_place = which ? size : 2 * size;
        float largest = 0.0f, x[8];
        const bool vectors = size % 8 == 0 && reinterpret_cast<u64>(from) % 16 == 0;
        for (i64 i = lane_id() * 8; vectors && i < size; i += 256) {
            load8(from + i, x);
#pragma unroll
            for (int k = 0; k < 8; ++k)
                if (is_finite(x[k])) largest = fmaxf(largest, x[k] < 0.0f ? -x[k] : x[k]);
        }
        for (i64 i = lane_id(); !vectors && i < size; i += 32) {
            const float y = from[i];
            if (is_finite(y)) largest = fmaxf(largest, y < 0.0f ? -y : y);
        }
        const int unit = unit_of(warp_max(largest));
        const float down = power_of_two(-unit);
        for (i64 i = lane_id() * 8; vectors && i < size; i += 256) {
            uint4 high, low;
            if (size > 256) load8(from + i, x);  // else they are there still
            split2(x[0] * down, x[1] * down, high.x, low.x);
            split2(x[2] * down, x[3] * down, high.y, low.y);
            split2(x[4] * down, x[5] * down, high.z, low.z);
            split2(x[6] * down, x[7] * down, high.w, low.w);
            *reinterpret_cast<uint4*>(to + i) = high;
            *reinterpret_cast<uint4*>(to + low_place + i) = low;
            *reinterpret_cast<uint4*>(to + high_place + i) = high;
        }
        for (i64 i = lane_id(); !vectors && i < size; i += 32) {
            u16 high, low;
            split(from[i] * down, high, low);
            to[i] = high;
            to[low_place + i] = low;
            to[high_place + i] = high;
        }
        if (lane_id() == 0) in.units[which][row] = power_of_two(unit);
    }
}
