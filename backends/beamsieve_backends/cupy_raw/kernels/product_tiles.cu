// The first pass of a step whose beams have many candidates each: the product, and what is known of
// its tiles. A tile is 64 tokens of one beam, one word of the bitmap.
//
//     for b, m:    logit[v] = hidden[b, m] . head[v] (+ bias[v])
//                  written[b, m, v] = logit[v] if v is a candidate else -inf
//                  mass[m] = log-sum-exp of the logits of the beam's denominator
//                  best[m, tile] = score[m] + (largest candidate logit in tile - mass[m])
//     for b:       bound[b] = the interval that holds the width-th best group of tiles
//
// open_tiles is the second pass; where tiles are few, the block that ends last does its work. A block takes ROWS beams of one request and every gridDim.x-th of
// the blocks of COLUMNS tokens; a warp has 32 beams by 64 tokens, a tile to a beam. The block's beams
// stay in shared memory (`resident`) or come with the tokens, DEPTH numbers of each at a time, in
// a ring of STAGES. Float32 comes as two float16 parts each (split_halves.cu). Sums run over the depth
// in one order, whatever the block's shape, so that neither batch nor grid changes a bit.
//
// Shared rows are 128 bytes, eight pieces of 16; piece c of row r lies at c ^ (r % 8), so that the
// eight rows that a matrix unit takes at a time lie in different banks.
//
// Bitmap layout only, no bonus, no nudge; d a multiple of 8, V even. Grid (columns, rows, B). The block
// that ends last of its beams turns sums into keys, the last of its request finds the bound.
// Workspace: scratch_stride >= M * tiles floats per request, `partial` [B, M, tiles], `masses` [B, M],
// `groups` [B, M, 4 * groups_per_lane], `row_meetings` [B, gridDim.y].

struct Product {
    Step step;
    Step opening;            // the same as open_tiles takes it, where the last block opens the tiles at once
    const void* left;        // [B, M, parts, d]
    const void* right;       // [V, parts, d]
    const float2* left_units;   // [B, M], float32 only: two factors to multiply a row with
    const float2* right_units;  // [V], likewise
    float* written;          // [B, M, V]
    float2* partial;         // [B, M, tiles]: the largest logit of the denominator, the sum of exp(x - largest)
    float* groups;           // best keys of groups of tiles, in any order
    u32* row_meetings;       // zero between kernels
    int chunks;              // pieces of DEPTH numbers in d
    int column_blocks;       // pieces of COLUMNS tokens in V
    int resident;
    int groups_per_lane, tiles_per_group;
    int opens;               // whether the last block does
};

constexpr float LOG2_E = 1.4426950408889634f;

template <class T> struct Operand {
    using Half = T;
    static constexpr int PARTS = 1;
};
template <> struct Operand<float> {
    using Half = float16;
    static constexpr int PARTS = 2;
};

template <class T, bool Small>
struct Tiling {
    static constexpr int PARTS = Operand<T>::PARTS, DEPTH = 64 / PARTS;
    static constexpr int ROWS = Small ? 64 : 128, COLUMNS = Small ? 128 : 256, STAGES = Small ? 4 : 3;
    static constexpr int WARP_COLUMNS = COLUMNS / 64, COMPUTING = ROWS / 32 * WARP_COLUMNS;
};

// Piece `chunk` of some rows of [rows, parts, d] into `to`; zeros behind the last row and number.
template <class T, bool Small, int Rows>
__device__ __forceinline__ void fetch_rows(u8* to, const u16* from, i64 first, int rows, int d, int chunk) {
    using Shape = Tiling<T, Small>;
    constexpr int EACH = 8 / Shape::PARTS;  // 16-byte pieces of one part
#pragma unroll
    for (int i = threadIdx.x; i < Rows * 8; i += THREADS) {
        const int row = i >> 3, piece = i & 7, part = piece / EACH;
        const int k = chunk * Shape::DEPTH + piece % EACH * 8;
        const bool there = row < rows && k < d;
        const u16* const source = there ? from + ((first + row) * Shape::PARTS + part) * d + k : from;
        copy16(to + row * 128 + ((piece ^ (row & 7)) << 4), source, there);
    }
}

// sums += the chunk's products, for 32 beams by 64 tokens.
template <class T, bool Small>
__device__ __forceinline__ void multiply_chunk(float (&sums)[2][8][4], const u8* left, const u8* right) {
    using Shape = Tiling<T, Small>;
    using Half = typename Operand<T>::Half;
    constexpr int PARTS = Shape::PARTS, EACH = 8 / PARTS;
    const int lane = lane_id(), swap = lane & 7;
    left += (lane & 15) * 128;
    right += ((lane & 7) + (lane >> 4) * 8) * 128;
#pragma unroll
    for (int k = 0; k < EACH / 2; ++k) {
        u32 a[PARTS][2][4];
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                load_parts(a[part][i], left + i * 16 * 128 + (((part * EACH + 2 * k + (lane >> 4)) ^ swap) << 4));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            u32 w[PARTS][4];
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                load_parts(w[part], right + j * 16 * 128 + (((part * EACH + 2 * k + (lane >> 3 & 1)) ^ swap) << 4));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    float(&sum)[4] = sums[i][2 * j + n];
                    multiply_add(sum, a[0][i], w[0][2 * n], w[0][2 * n + 1], Half{});
                    if (PARTS == 2) {
                        multiply_add(sum, a[PARTS - 1][i], w[0][2 * n], w[0][2 * n + 1], Half{});
                        multiply_add(sum, a[0][i], w[PARTS - 1][2 * n], w[PARTS - 1][2 * n + 1], Half{});
                    }
                }
            }
        }
    }
}

// The bits of a tile's tokens that are eligible.
__device__ __forceinline__ u64 eligible_word(const Step& step, i64 beam, int tile) {
    if (step.eligible == nullptr) return ~0ull;
    const u32* const words = step.eligible + beam * step.eligible_words + 2 * tile;
    return words[0] | (2 * tile + 1 < step.eligible_words ? static_cast<u64>(words[1]) << 32 : 0);
}

__device__ __forceinline__ bool bit(u64 word, int i) { return static_cast<u32>(i < 32 ? word : word >> 32) >> (i & 31) & 1; }

// What one beam's tile says, by the four lanes that hold its logits: x[n][e] is token 8 n + 2 (lane % 4)
// + e of the tile. Leaves candidates' logits in x, -inf elsewhere; returns the largest of them.
__device__ __forceinline__ float see_tile(float (&x)[8][2], u64 counted, u64 kept, Mass& mass) {
    const int shift = (lane_id() & 3) * 2;
    const bool alike = counted == kept;
    const u64 mine = counted >> shift;
    float largest, sum;
    const auto add_up = [&] {  // a tile without mass is all -inf, and exp makes each of them 0
        largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, 2));
        const float offset = largest > never() ? -largest * LOG2_E : 0.0f;
        sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) sum += quick_exp2(fmaf(x[n][e], LOG2_E, offset));
        sum += __shfl_xor_sync(EVERY_LANE, sum, 1);
        sum += __shfl_xor_sync(EVERY_LANE, sum, 2);
    };
    largest = never();
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            x[n][e] = bit(mine, 8 * n + e) ? x[n][e] : never();
            largest = fmaxf(largest, x[n][e]);
        }
    add_up();
    if (__any_sync(EVERY_LANE, !is_finite(sum))) {  // seldom: a NaN, or +inf, which count as -inf
        largest = never();
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                x[n][e] = or_dead(x[n][e]);
                largest = fmaxf(largest, x[n][e]);
            }
        add_up();
    }
    mass.largest = largest;
    mass.sum = sum;
    if (!__any_sync(EVERY_LANE, !alike)) return largest;
    const u64 own = kept >> shift;
    float candidate = never();
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            x[n][e] = bit(own, 8 * n + e) ? x[n][e] : never();
            candidate = fmaxf(candidate, x[n][e]);
        }
    candidate = fmaxf(candidate, __shfl_xor_sync(EVERY_LANE, candidate, 1));
    return fmaxf(candidate, __shfl_xor_sync(EVERY_LANE, candidate, 2));
}

// The keys of the block's beams from what all blocks saw of them: four lanes to a beam, which take its
// tiles in turns.
__device__ __forceinline__ void find_keys(const Product& in, int b, int first_row, int rows, float& high, float& low) {
    const Step& step = in.step;
    const int count = static_cast<int>(step.in_count[b]), tiles = step.tiles, lane = threadIdx.x & 3;
    constexpr int AHEAD = 8;
    for (int from = 0; from < rows; from += THREADS / 4) {
        const int m = first_row + from + static_cast<int>(threadIdx.x >> 2);
        const bool there = from + static_cast<int>(threadIdx.x >> 2) < rows;
        const i64 beam = static_cast<i64>(b) * step.beams + (there ? m : first_row);
        const bool alive = there && m < count, finished = alive && step.in_finished[beam], live = alive && !finished;
        const float beam_score = alive ? or_dead(step.in_scores[beam]) : never();
        const float2* const partial = in.partial + beam * tiles;
        float* const best = step.scratch + b * step.scratch_stride + static_cast<i64>(beam - static_cast<i64>(b) * step.beams) * tiles;
        float* const groups = in.groups + (beam * 4 + lane) * in.groups_per_lane;
        Mass sum;
        for (int i = lane; live && i < tiles; i += 4 * AHEAD) {
            float2 seen[AHEAD];
            float top = sum.largest;
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                seen[k] = make_float2(never(), 0.0f);
                if (i + 4 * k < tiles) seen[k] = __ldcg(partial + i + 4 * k);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) top = fmaxf(top, seen[k].x);
            if (top == never()) continue;
            sum.sum *= quick_exp2((sum.largest - top) * LOG2_E);
            sum.largest = top;
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) sum.sum += seen[k].y * quick_exp2((seen[k].x - top) * LOG2_E);
        }
#pragma unroll
        for (int by = 1; by < 4; by <<= 1) {
            Mass other;
            other.largest = __shfl_xor_sync(EVERY_LANE, sum.largest, by);
            other.sum = __shfl_xor_sync(EVERY_LANE, sum.sum, by);
            sum.add(other);
        }
        const float2 mass = sum.log();
        if (live && lane == 0) step.masses[beam] = mass;
        float of_group = never();
        int filled = 0, group = 0;
        for (int i = lane; there && i < tiles; i += 4 * AHEAD) {
            float key[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) key[k] = live && i + 4 * k < tiles ? __ldcg(best + i + 4 * k) : never();
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (i + 4 * k >= tiles) break;
                key[k] = or_dead(beam_score + log_probability(key[k], mass));
                if (!live) key[k] = finished && i + 4 * k == 0 ? beam_score : never();
                best[i + 4 * k] = key[k];
                of_group = fmaxf(of_group, key[k]);
                if (++filled == in.tiles_per_group) {
                    groups[group++] = of_group;
                    if (of_group > never()) {
                        high = fmaxf(high, of_group);
                        low = fminf(low, of_group);
                    }
                    of_group = never();
                    filled = 0;
                }
            }
        }
        if (there) {
            for (; group < in.groups_per_lane; ++group) {
                groups[group] = of_group;
                if (of_group > never()) {
                    high = fmaxf(high, of_group);
                    low = fminf(low, of_group);
                }
                of_group = never();
            }
        }
    }
}

template <class T, bool Small>
__global__ void __launch_bounds__(THREADS, 1) product_tiles(const __grid_constant__ Product in) {
    await_kernel_before();
    using Shape = Tiling<T, Small>;
    constexpr int ROWS = Shape::ROWS, COLUMNS = Shape::COLUMNS, STAGES = Shape::STAGES;
    const Step& step = in.step;
    const int b = blockIdx.z, beams = step.beams, d = step.hidden_size, chunks = in.chunks, tiles = step.tiles;
    const int first_row = blockIdx.y * ROWS, rows = min(ROWS, beams - first_row);
    const i64 first_beam = static_cast<i64>(b) * beams;
    const int count = static_cast<int>(step.in_count[b]);

    Carver carver;
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    i64* const base = carver.take<i64>(ROWS);  // where a beam's bitmap words begin; -1 when not alive
    u8* const right = carver.take<u8>(STAGES * COLUMNS * 128);
    u32* const histogram = reinterpret_cast<u32*>(right);  // once all products are done
    u8* const left = carver.take<u8>((in.resident ? chunks : STAGES) * ROWS * 128);

    if (first_row < count) {
        const u16* const states = static_cast<const u16*>(in.left);
        const u16* const head = static_cast<const u16*>(in.right);
        const int turns = (in.column_blocks - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
        const int total = turns * chunks;
        int next = 0, next_chunk = 0, next_stage = 0;
        i64 next_column = static_cast<i64>(blockIdx.x) * COLUMNS;
        const auto fetch = [&] {  // one chunk of the tokens, and of the beams unless they are there
            if (next < total) {
                const int columns = static_cast<int>(min(static_cast<i64>(COLUMNS), step.vocabulary - next_column));
                fetch_rows<T, Small, COLUMNS>(right + next_stage * COLUMNS * 128, head, next_column, columns, d, next_chunk);
                if (!in.resident || next < chunks)
                    fetch_rows<T, Small, ROWS>(left + (in.resident ? next_chunk : next_stage) * ROWS * 128, states, first_beam + first_row, rows, d, next_chunk);
            }
            close_copies();
            ++next;
            if (++next_stage == STAGES) next_stage = 0;
            if (++next_chunk == chunks) {
                next_chunk = 0;
                next_column += static_cast<i64>(gridDim.x) * COLUMNS;
            }
        };
        for (int i = 0; i < STAGES - 1; ++i) fetch();
        for (int i = threadIdx.x; i < ROWS; i += THREADS) {
            const i64 beam = first_beam + first_row + i;
            const bool live = i < rows && first_row + i < count && !step.in_finished[beam];
            base[i] = live ? step.in_rows[beam] * step.table.words : -1;
        }

        const int warp_row = warp_id() / Shape::WARP_COLUMNS * 32, warp_column = warp_id() % Shape::WARP_COLUMNS * 64;
        const bool computing = warp_id() < Shape::COMPUTING;
        float sums[2][8][4];
        int chunk = 0, stage = 0;
        i64 column = static_cast<i64>(blockIdx.x) * COLUMNS + warp_column;
        for (int i = 0; i < total; ++i) {
            await_copies<STAGES - 2>();
            __syncthreads();
            fetch();
            const int tile = static_cast<int>(column >> 6);
            if (computing) {
                if (chunk == 0) {
#pragma unroll
                    for (int r = 0; r < 2; ++r)
#pragma unroll
                        for (int n = 0; n < 8; ++n)
#pragma unroll
                            for (int k = 0; k < 4; ++k) sums[r][n][k] = 0.0f;
                }
                u64 valid[4] = {0, 0, 0, 0};
                const bool last = chunk + 1 == chunks && tile < tiles;
                if (last) {  // asked for now, needed after the products
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const i64 place = base[warp_row + r * 8 + (lane_id() >> 2)];
                        if (place >= 0) valid[r] = step.table.bitmap[place + tile];
                    }
                }
                multiply_chunk<T, Small>(sums, left + ((in.resident ? chunk : stage) * ROWS + warp_row) * 128, right + (stage * COLUMNS + warp_column) * 128);
                if (last) {
                    const u32 token = static_cast<u32>(column) + (lane_id() & 3) * 2;
                    const int here = step.vocabulary - static_cast<int>(token);  // tokens from there on
                    const u64 whole = step.vocabulary - column >= 64 ? ~0ull : (1ull << (step.vocabulary - column)) - 1;
                    if (Shape::PARTS == 2) {
                        float2 unit[4];
#pragma unroll
                        for (int r = 0; r < 4; ++r) unit[r] = in.left_units[first_beam + first_row + min(warp_row + r * 8 + (lane_id() >> 2), rows - 1)];
#pragma unroll
                        for (int n = 0; n < 8; ++n) {
                            if (8 * n >= here) continue;
                            const float4 other = *reinterpret_cast<const float4*>(in.right_units + token + 8 * n);
#pragma unroll
                            for (int r = 0; r < 4; ++r) {
                                sums[r >> 1][n][(r & 1) * 2] *= unit[r].x * other.x;
                                sums[r >> 1][n][(r & 1) * 2] *= unit[r].y * other.y;
                                sums[r >> 1][n][(r & 1) * 2 + 1] *= unit[r].x * other.z;
                                sums[r >> 1][n][(r & 1) * 2 + 1] *= unit[r].y * other.w;
                            }
                        }
                    }
                    if (step.bias != nullptr) {
#pragma unroll
                        for (int n = 0; n < 8; ++n)
#pragma unroll
                            for (int e = 0; e < 2; ++e) {
                                const float bias = 8 * n + e < here ? bias_of(step, token + 8 * n + e) : 0.0f;
#pragma unroll
                                for (int r = 0; r < 4; ++r) sums[r >> 1][n][(r & 1) * 2 + e] += bias;
                            }
                    }
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const int own = warp_row + r * 8 + (lane_id() >> 2);
                        const i64 beam = first_beam + first_row + min(own, rows - 1);
                        const bool live = base[own] >= 0;
                        float x[8][2];
#pragma unroll
                        for (int n = 0; n < 8; ++n)
#pragma unroll
                            for (int e = 0; e < 2; ++e) x[n][e] = sums[r >> 1][n][(r & 1) * 2 + e];
                        const u64 eligible = live ? eligible_word(step, beam, tile) : 0;
                        const u64 kept = valid[r] & eligible;
                        u64 counted = valid[r];
                        if (step.normalize == NORMALIZE_ALL) counted = live ? whole : 0;
                        if (step.normalize == NORMALIZE_ELIGIBLE) counted = kept;
                        Mass mass;
                        const float candidate = see_tile(x, counted, kept, mass);
                        if (!live) continue;
                        float* const out = in.written + beam * step.vocabulary + token;
#pragma unroll
                        for (int n = 0; n < 8; ++n)
                            if (8 * n < here) *reinterpret_cast<float2*>(out + n * 8) = make_float2(x[n][0], x[n][1]);
                        if ((lane_id() & 3) == 0) {
                            in.partial[beam * tiles + tile] = make_float2(mass.largest, mass.sum);
                            step.scratch[b * step.scratch_stride + (beam - first_beam) * tiles + tile] = candidate;
                        }
                    }
                }
            }
            if (++stage == STAGES) stage = 0;
            if (++chunk == chunks) {
                chunk = 0;
                column += static_cast<i64>(gridDim.x) * COLUMNS;
            }
        }
        await_copies<0>();
    }

    if (!arrived_last(in.row_meetings + static_cast<i64>(b) * gridDim.y + blockIdx.y, gridDim.x, words)) return;
    float high = never(), low = -never();
    find_keys(in, b, first_row, rows, high, low);
    meet_range(step.meetings + b, high, low, words);
    if (!arrived_last(&step.meetings[b].arrived, gridDim.y, words)) return;
    const u32 groups = static_cast<u32>(beams) * 4 * in.groups_per_lane;
    const Bound bound = find_bound(step.meetings + b, in.groups + static_cast<i64>(b) * groups, groups, step.width, histogram, words);
    if (!in.opens) {
        if (threadIdx.x == 0) step.bounds[b] = bound;
        return;
    }
    Carver again;  // over what the products needed
    again.take<u32>(BLOCK_WORDS);
    __syncthreads();
    open_and_choose<float>(in.opening, b, bound, again, 0, 1);
}
