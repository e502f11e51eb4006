// A float32 row as two float16 numbers each: its unit, and the parts (see split_halves.cu).

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

// The largest finite size among a lane's eight numbers.
__device__ __forceinline__ float largest_of(const float (&x)[8]) {
    float largest = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        if (is_finite(x[k])) largest = fmaxf(largest, x[k] < 0.0f ? -x[k] : x[k]);
    return largest;
}

// Eight numbers divided by their row's unit, whose inverse is `down`.
__device__ __forceinline__ void split8(const float (&x)[8], float down, uint4& high, uint4& low) {
    split2(x[0] * down, x[1] * down, high.x, low.x);
    split2(x[2] * down, x[3] * down, high.y, low.y);
    split2(x[4] * down, x[5] * down, high.z, low.z);
    split2(x[6] * down, x[7] * down, high.w, low.w);
}
