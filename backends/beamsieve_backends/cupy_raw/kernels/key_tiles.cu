// What multiply_tiles found becomes what open_tiles starts from:
//
//     for b, m: masses[m] = log(sum over segments)
//               scratch[m, tile] = score[m] + (best of the tile's sixteens - masses[m])
//               groups[m, group] = the best of the group's tiles
//
// Grid (blocks, B), a warp to a beam, a lane to a pair of tiles. Beams that are not there have no key; a
// finished one has its score, in its first tile.

__global__ void __launch_bounds__(THREADS, 2) key_tiles(const __grid_constant__ Sixteens in) {
    after_kernels_ahead();
    const Step& step = in.step;
    const int b = blockIdx.y, beams = step.beams, pairs = in.pairs, count = static_cast<int>(step.in_count[b]);
    const int together = max(1, step.group / 2), of_beam = step.slots / step.group;
#pragma unroll 1
    for (int m = blockIdx.x * WARPS + warp_id(); m < beams; m += gridDim.x * WARPS) {
        const i64 beam = static_cast<i64>(b) * beams + m;
        const bool alive = m < count, finished = alive && step.in_finished[beam], live = alive && !finished;
        const float score = alive ? step.in_scores[beam] : never();
        Mass sum;
#pragma unroll 1
        for (int s = lane_id(); s < in.segments; s += 32) {
            const float2 one = in.sums[beam * in.segments + s];
            Mass other;
            other.largest = one.x;
            other.sum = one.y;
            sum.add(other);
        }
        const float2 mass = sum.across_warp().log();
        if (live && lane_id() == 0) step.masses[beam] = mass;
        float2* const keys = reinterpret_cast<float2*>(step.scratch) + beam * pairs;
        float* const groups = step.groups + beam * of_beam;
#pragma unroll 1
        for (int base = 0; base < pairs; base += 32) {
            const int pair = base + lane_id();
            float2 key = make_float2(never(), never());
            if (live && pair < pairs) {
                const float4* const bests = in.bests + (beam * pairs + pair) * 4;
                float even = never(), odd = never();
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const float4 best = bests[q];
                    even = fmaxf(even, fmaxf(best.x, best.y));
                    odd = fmaxf(odd, fmaxf(best.z, best.w));
                }
                key.x = or_dead(score + log_probability(even, mass));
                key.y = or_dead(score + log_probability(odd, mass));
            }
            if (finished && pair == 0) key.x = or_dead(score);
            if (pair < pairs) keys[pair] = key;
            float best = fmaxf(key.x, key.y);
#pragma unroll 1
            for (int by = 1; by < together; by <<= 1) best = fmaxf(best, __shfl_xor_sync(EVERY_LANE, best, by));
            if (pair >= pairs) continue;
            if (step.group == 1) {
                groups[2 * pair] = key.x;
                groups[2 * pair + 1] = key.y;
            } else if (pair % together == 0) {
                groups[pair / together] = best;
            }
        }
    }
}
