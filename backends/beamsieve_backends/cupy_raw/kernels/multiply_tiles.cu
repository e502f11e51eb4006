// The first pass of a step over the whole codebook that writes no logits:
//
//     for b, m, v: logit = hidden[m] . head[v]                                   # 128 beams to a block
//     bests[m, half of a sixteen] = the largest logit of a token that may be chosen
//     sums[m, segment]  = (the largest logit that counts, sum of exp(logit - largest))
//
// Products are tensor cores' (wgmma): two warp groups have 64 beams each, whose states stay in shared memory;
// one thread more fetches the head in boxes of 128 tokens and 64 numbers, which go round in a ring. What
// becomes of a pair of tiles is worked out while the products of the next one run: two sets of results.
// A float32 head comes as split_halves made it, and so do states, or they are split likewise on their way into
// shared memory (`Splits`); the three products with three of their parts' pairs are added up. Splitting here takes no
// launch, but leaves the compiler less room in the loop, which a large codebook pays for.
//
// Grid (splits of the segments, blocks of 128 beams), PRODUCT_THREADS threads; a beam's numbers depend on neither.
// Without sm_90a the same by plain arithmetic, to be tested on any device.

constexpr int PRODUCT_THREADS = 384, GROUP_ROWS = 64, BLOCK_ROWS = 2 * GROUP_ROWS, DEPTH = 64, BOXES = 4;
constexpr u32 BOX = BLOCK_ROWS * DEPTH * 2;  // bytes

struct __align__(64) Product {
    Map left, right;   // [B * M, parts, d], nothing where states are split here; [V, parts, d]; of 16-bit numbers
    Sixteens sixteens;
    i64 rows;          // B * M
    int stages;        // boxes of the head that the ring has room for
};

// Of what a number's parts are, how many, and how many boxes of the head a warp group multiplies at a time.
template <class T> struct Parts {
    static constexpr int COUNT = 1, HERE = BOXES;
    using Factor = T;
};
template <> struct Parts<float> {
    static constexpr int COUNT = 2, HERE = 2;  // high and low
    using Factor = float16;
};

template <bool Same>
__device__ __forceinline__ Bits bits_of(const Product& in, const ProductRow& row, int pair) {
    const Step& step = in.sixteens.step;
    Bits bits;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
        const int word = pair * 2 + w;
        bits.counts[w] = bits.keeps[w] = 0;
        if (word >= step.table.words) continue;
        const u64 valid = __ldg(row.valid + word);
        bits.counts[w] = bits.keeps[w] = valid;
        if (Same) continue;
        if (row.eligible != nullptr) {
            if (2 * word < step.eligible_words) bits.keeps[w] &= row.eligible[2 * word] | 0xffffffff00000000ull;
            if (2 * word + 1 < step.eligible_words) bits.keeps[w] &= static_cast<u64>(row.eligible[2 * word + 1]) << 32 | 0xffffffffull;
        }
        const int left = step.vocabulary - word * 64;
        if (step.normalize == NORMALIZE_ALL) bits.counts[w] = left >= 64 ? ~0ull : (1ull << left) - 1;
        if (step.normalize == NORMALIZE_ELIGIBLE) bits.counts[w] = bits.keeps[w];
    }
    return bits;
}

// One sixteens of a row, that of tile w of a pair; `first` is what came of tile 0. With tile 1 the bests go out,
// and where a segment ends its sums. `Scaled`: products are of halves.
template <bool Scaled, bool Same>
__device__ __forceinline__ void finish_tile(
    const Product& in, const ProductRow& row, const Bits& bits, Mass& mass, const float (&products)[64], int h, int w, int pair, float2& first
) {
    const Sixteens& out = in.sixteens;
    const int own = lane_id() & 3;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        x[i] = products[(w * 8 + i / 2) * 4 + h * 2 + i % 2];
    }
    if (Scaled) {  // whole pairs have units; those behind the last token are of products that count for nothing
        const float2* const units = reinterpret_cast<const float2*>(out.step.right_units + pair * PAIR + w * 64) + own;
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            const float2 unit = __ldg(units + i * 2);
            x[i] *= row.unit * unit.x;
            x[i + 1] *= row.unit * unit.y;
        }
    }
    const float2 best = add_sixteen<Same>(x, bits.counts[w] >> 2 * own, bits.keeps[w] >> 2 * own, mass);
    if (w == 0) {
        first = best;
        return;
    }
    if (row.there) out.bests[(row.beam * out.pairs + pair) * 4 + own] = make_float4(first.x, first.y, best.x, best.y);
    if ((pair + 1) % SEGMENT_PAIRS == 0 || pair + 1 == out.pairs) {
        const Mass all = lanes_mass(mass);
        if (own == 0 && row.there) out.sums[row.beam * out.segments + pair / SEGMENT_PAIRS] = make_float2(all.largest, all.sum);
        mass = Mass();
    }
}

// Row h of a lane: beams are 64 to a warp group, 16 to a warp. Its unit is what split_halves left (`Stored`), or `unit`.
template <bool Stored>
__device__ __forceinline__ ProductRow row_of(const Product& in, int warp, int h, float unit) {
    const Step& step = in.sixteens.step;
    ProductRow row;
    row.beam = static_cast<i64>(blockIdx.y) * BLOCK_ROWS + warp * 16 + h * 8 + lane_id() / 4;
    row.there = row.beam < in.rows;
    const i64 known = row.there ? row.beam : 0, b = known / step.beams;
    const bool live = known - b * step.beams < step.in_count[b] && !step.in_finished[known];
    row.valid = step.table.bitmap + (live ? step.in_rows[known] : 0) * step.table.words;
    row.eligible = step.eligible == nullptr ? nullptr : step.eligible + known * step.eligible_words;
    row.unit = Stored ? step.left_units[known] : unit;
    return row;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A place in the ring, and the parity of the phase that its barrier is in.
struct Place {
    u32 stage = 0, parity = 0;
    __device__ __forceinline__ void advance(u32 stages) {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Where things are in shared memory.
struct Room {
    u32 left, ring, full, empty, loaded;
    __device__ __forceinline__ Room(const Product& in, int parts) {
        left = (in_shared(shared_bytes) + 1023u) & ~1023u;
        ring = left + parts * BOXES * BOX;
        full = ring + in.stages * BOX;
        empty = full + 8 * in.stages;
        loaded = empty + 8 * in.stages;
    }
};

// A warp splits its sixteen float32 states into shared memory, where copies of boxes would have put their parts;
// rows that are not there are zeros. Returns when the states of the whole warp group are there, with the units of
// rows lane / 4 and 8 more.
__device__ __forceinline__ float2 split_states(const Product& in, const Room& room, int warp) {
    constexpr int TOGETHER = 4;  // loads on their way
    const Step& step = in.sixteens.step;
    const i64 first = static_cast<i64>(blockIdx.y) * BLOCK_ROWS + warp * 16;
    const int own = lane_id() * 8;
    float2 units = make_float2(1.0f, 1.0f);
#pragma unroll 1
    for (int from = 0; from < 16; from += TOGETHER) {
        float x[TOGETHER][8];
#pragma unroll
        for (int r = 0; r < TOGETHER; ++r) {
#pragma unroll
            for (int k = 0; k < 8; ++k) x[r][k] = 0.0f;
            if (first + from + r < in.rows && own < step.hidden_size) load8(static_cast<const float*>(step.hidden) + (first + from + r) * step.hidden_size + own, x[r]);
        }
#pragma unroll
        for (int r = 0; r < TOGETHER; ++r) {
            uint4 high, low;
            const int unit = split_row(x[r], high, low);
            const u32 row = warp * 16 + from + r;  // of the block
            const u32 place = room.left + lane_id() / 8 * BOX + row * (DEPTH * 2) + ((lane_id() ^ row) & 7) * 16;
            put_piece(place, high);
            put_piece(place + BOXES * BOX, low);
            if (from + r == lane_id() / 4) units.x = power_of_two(unit);
            if (from + r == lane_id() / 4 + 8) units.y = power_of_two(unit);
        }
    }
    show_pieces();
    meet_in_group(1 + warp / 4);
    return units;
}

// The one thread that fetches: states that are not split here once, then the head box by box.
template <int Count, bool Splits>
__device__ __forceinline__ void fetch(const Product& in, const Room& room, int first, int end) {
    if (!Splits) {
        arrive_with(room.loaded, Count * BOXES * BOX);
        for (int part = 0; part < Count; ++part)
            for (int k = 0; k < BOXES; ++k) copy_box(room.left + (part * BOXES + k) * BOX, in.left, k * DEPTH, part, blockIdx.y * BLOCK_ROWS, room.loaded);
    }
    Place place;
    for (int pair = first; pair < end; ++pair)
        for (int k = 0; k < BOXES; ++k)
            for (int part = 0; part < Count; ++part) {
                await(room.empty + 8 * place.stage, place.parity ^ 1);  // at once in the first round
                arrive_with(room.full + 8 * place.stage, BOX);
                copy_box(room.ring + place.stage * BOX, in.right, k * DEPTH, part == 0 ? 0 : 2, pair * PAIR, room.full + 8 * place.stage);
                place.advance(in.stages);
            }
}

// Some boxes of one pair, their products under way: all of the states' depth, or a quarter of it where each number has
// two parts. First the boxes are waited for: only a run of products without a branch is one group to the compiler,
// which would otherwise end every wait for the group before with a wait for most of this one.
template <class T>
__device__ __forceinline__ void start_products(const Product& in, const Room& room, Place& place, u32 rows, int quarter, float (&products)[64]) {
    constexpr int COUNT = Parts<T>::COUNT, HERE = Parts<T>::HERE;
    u32 stage[HERE];
#pragma unroll
    for (int box = 0; box < HERE; ++box) {
        stage[box] = place.stage;
        await(room.full + 8 * place.stage, place.parity);
        place.advance(in.stages);
    }
    begin_products();
#pragma unroll
    for (int box = 0; box < HERE; ++box) {
        const int k = quarter + box / COUNT, part = box % COUNT;
        const u64 b = described(room.ring + stage[box] * BOX);
#pragma unroll
        for (int with = 0; with < COUNT - part; ++with) {  // the parts of the states: low times low is below the last bit
            const u64 a = described(room.left + (with * BOXES + k) * BOX + rows);
#pragma unroll
            for (int i = 0; i < DEPTH / 16; ++i) multiply<typename Parts<T>::Factor>(products, a + 2 * i, b + 2 * i, quarter + box + with + i != 0);
        }
    }
    close_products();
}

// The products of `pair` into `now`; meanwhile what became of the pair before, in `last`.
template <class T, bool Same>
__device__ __forceinline__ void turn(
    const Product& in, const Room& room, const ProductRow (&row)[2], Bits (&bits)[2], Mass (&mass)[2], Place& place, Place& given, u32 rows, int first, int pair,
    float (&now)[64], float (&last)[64]
) {
    constexpr int TURNS = BOXES * Parts<T>::COUNT / Parts<T>::HERE;
    float2 of_first[2];
#pragma unroll
    for (int quarter = 0; quarter < TURNS; ++quarter) {
        start_products<T>(in, room, place, rows, quarter, now);
        await_products<1>(last);
        if (pair > first) {
#pragma unroll
            for (int tile = 0; tile < 4; ++tile)
                if (TURNS == 1 || tile == quarter) finish_tile<TURNS != 1, Same>(in, row[tile / 2], bits[tile / 2], mass[tile / 2], last, tile / 2, tile % 2, pair - 1, of_first[tile / 2]);
        }
        if (quarter == TURNS - 1) {
            bits[0] = bits_of<Same>(in, row[0], pair);
            bits[1] = bits_of<Same>(in, row[1], pair);
        }
        await_products<0>(now);
#pragma unroll
        for (int box = 0; box < Parts<T>::HERE; ++box) {
            if (lane_id() == 0) arrive_at(room.empty + 8 * given.stage);
            given.advance(in.stages);
        }
    }
}

// What a warp of a warp group does.
template <class T, bool Same, bool Splits>
__device__ __forceinline__ void multiply_and_finish(const Product& in, const Room& room, int warp, int first, int end) {
    float2 units = make_float2(1.0f, 1.0f);
    if constexpr (Splits) units = split_states(in, room, warp);
    const ProductRow row[2] = {row_of<Parts<T>::COUNT == 2 && !Splits>(in, warp, 0, units.x), row_of<Parts<T>::COUNT == 2 && !Splits>(in, warp, 1, units.y)};
    const u32 rows = warp / 4 * GROUP_ROWS * DEPTH * 2;
    Mass mass[2];
    Bits bits[2] = {};
    Place place, given;
    float even[64], odd[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) even[i] = odd[i] = 0.0f;
    if (!Splits) await(room.loaded, 0);
#pragma unroll 1
    for (int pair = first; pair < end; pair += 2) {
        turn<T, Same>(in, room, row, bits, mass, place, given, rows, first, pair, even, odd);
        if (pair + 1 < end) turn<T, Same>(in, room, row, bits, mass, place, given, rows, first, pair + 1, odd, even);
    }
    if (end == first) return;
    const bool at_odd = (end - first) % 2 == 0;
    float2 of_first = make_float2(never(), never());
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
        const int h = tile / 2;
        if (at_odd) finish_tile<Parts<T>::COUNT == 2, Same>(in, row[h], bits[h], mass[h], odd, h, tile % 2, end - 1, of_first);
        else finish_tile<Parts<T>::COUNT == 2, Same>(in, row[h], bits[h], mass[h], even, h, tile % 2, end - 1, of_first);
    }
}

template <class T, bool Same, bool Splits>
__device__ __forceinline__ void run_block(const Product& in, int first, int end) {
    constexpr int COUNT = Parts<T>::COUNT;
    const Room room(in, COUNT);
    const int warp = __shfl_sync(EVERY_LANE, warp_id(), 0);  // the same in a warp, for the compiler to see
    if (threadIdx.x == 0) {
        for (int s = 0; s < in.stages; ++s) {
            make_barrier(room.full + 8 * s, 1);
            make_barrier(room.empty + 8 * s, 8);
        }
        make_barrier(room.loaded, 1);
        show_barriers();
    }
    after_kernels_ahead();
    __syncthreads();
    if (warp >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 256) fetch<COUNT, Splits>(in, room, first, end);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        multiply_and_finish<T, Same, Splits>(in, room, warp, first, end);
    }
}

#else

template <class T, bool Same, bool Splits>
__device__ __forceinline__ void run_block(const Product& in, int first, int end) {
    const Step& step = in.sixteens.step;
    after_kernels_ahead();
    if (warp_id() >= 8) return;
    const ProductRow row[2] = {row_of<false>(in, warp_id(), 0, 1.0f), row_of<false>(in, warp_id(), 1, 1.0f)};
    Mass mass[2];
#pragma unroll 1
    for (int pair = first; pair < end; ++pair) {
        float products[64];
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            const int token = min(pair * PAIR + i / 4 * 8 + (lane_id() & 3) * 2 + i % 2, step.vocabulary - 1);
            const ProductRow& own = row[i / 2 % 2];
            const T* const state = static_cast<const T*>(step.hidden) + (own.there ? own.beam : 0) * step.hidden_size;
            const T* const weights = static_cast<const T*>(step.head) + static_cast<i64>(token) * step.hidden_size;
            float sum = 0.0f;
#pragma unroll 1
            for (int k = 0; k < step.hidden_size; ++k) sum = fmaf(number(state[k]), number(weights[k]), sum);
            products[i] = sum;
        }
        float2 of_first = make_float2(never(), never());
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
            const int h = tile / 2;
            finish_tile<false, Same>(in, row[h], bits_of<Same>(in, row[h], pair), mass[h], products, h, tile % 2, pair, of_first);
        }
    }
}

#endif

template <class T, bool Same, bool Splits>
__device__ __forceinline__ void multiply_block(const Product& in) {
    const i64 segments = in.sixteens.segments;
    const int first = static_cast<int>(segments * blockIdx.x / gridDim.x) * SEGMENT_PAIRS;
    const int end = min(static_cast<int>(segments * (blockIdx.x + 1) / gridDim.x) * SEGMENT_PAIRS, in.sixteens.pairs);
    run_block<T, Same, Splits>(in, first, end);
}

template <class T, bool Same, bool Splits>
__global__ void __launch_bounds__(PRODUCT_THREADS, 1) multiply_tiles(const __grid_constant__ Product in) { multiply_block<T, Same, Splits>(in); }
