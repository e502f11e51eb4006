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

__global__ void __launch_bounds__(THREADS, 3) split_halves(const __grid_constant__ Halves in) {
    after_kernels_ahead();
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
            largest = fmaxf(largest, largest_of(x));
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
            split8(x, down, high, low);
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
