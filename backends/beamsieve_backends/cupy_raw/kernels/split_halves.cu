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
        const bool vectors = size % 8 == 0 && reinterpret_cast<u64>(from) % 16 == 0;
        const auto put = [&](i64 i, const uint4& high, const uint4& low) {
            *reinterpret_cast<uint4*>(to + i) = high;
            *reinterpret_cast<uint4*>(to + low_place + i) = low;
            *reinterpret_cast<uint4*>(to + high_place + i) = high;
        };
        const i64 own = lane_id() * 8;
        uint4 high, low;
        float x[8] = {};
        int unit;
        if (vectors && size <= 256) {
            if (own < size) load8(from + own, x);
            unit = split_row(x, high, low);
            if (own < size) put(own, high, low);
        } else {
            u32 largest = 0;
            for (i64 i = own; vectors && i < size; i += 256) {
                load8(from + i, x);
                largest = max(largest, largest_size(x));
            }
            for (i64 i = lane_id(); !vectors && i < size; i += 32)
                if (is_finite(from[i])) largest = max(largest, size_of(from[i]));
            unit = unit_of(__int_as_float(static_cast<int>(__reduce_max_sync(EVERY_LANE, largest))));
            const float down = power_of_two(-unit);
            for (i64 i = own; vectors && i < size; i += 256) {
                load8(from + i, x);
                split8(x, down, high, low);
                put(i, high, low);
            }
            for (i64 i = lane_id(); !vectors && i < size; i += 32) {
                u16 half, rest;
                split(from[i] * down, half, rest);
                to[i] = half;
                to[low_place + i] = rest;
                to[high_place + i] = half;
            }
        }
        if (lane_id() == 0) in.units[which][row] = power_of_two(unit);
    }
}
