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
}

__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

__global__ void __launch_bounds__(THREADS) split_halves(const __grid_constant__ Halves in) {
    const i64 all = in.rows[0] + in.rows[1];
    for (i64 at = static_cast<i64>(blockIdx.x) * WARPS + warp_id(); at < all; at += static_cast<i64>(gridDim.x) * WARPS) {
        const int which = at >= in.rows[0];
        const i64 row = which ? at - in.rows[0] : at;
        const float* const from = in.in[which] + row * in.size;
        float largest = 0.0f;
        for (int i = lane_id(); i < in.size; i += 32) {
            const float x = from[i];
            if (is_finite(x)) largest = fmaxf(largest, x < 0.0f ? -x : x);
        }
        largest = warp_max(largest);
        const int exponent = static_cast<int>(static_cast<u32>(__float_as_int(largest)) >> 23) - 127;
        const int unit = largest == 0.0f ? 0 : max(exponent - 14, -126);
        const float down = power_of_two(-unit);
        u16* const to = in.out[which] + row * in.size * 3;
        for (int i = lane_id(); i < in.size; i += 32) {
            const float x = from[i] * down;
            const u16 high = to_half(x);
            const u16 low = is_finite(x) ? to_half(x - number(float16{high})) : 0;
            to[i] = high;
            to[in.size + i] = which ? high : low;
            to[2 * static_cast<i64>(in.size) + i] = which ? low : high;
        }
        if (lane_id() == 0) in.units[which][row] = power_of_two(unit);
    }
}
