// A beam's tiles in the bitmap layout, by whole vectors, as score_tiles reads them.

constexpr float LOG2_E = 1.4426950408889634f;
constexpr int TILES_AHEAD = 4;

// A beam as the warps see it.
struct Beam {
    i64 beam;   // b * M + m
    i64 row;
    i64 start;  // first entry (list layout)
    u32 size;   // positions
};

// Adds a lane's numbers, of which `top` is the largest, to its part of the mass.
template <int N>
__device__ __forceinline__ void add_to_mass(Mass& mass, const float (&x)[N], float top) {
    if (top > mass.largest) {
        mass.sum *= quick_exp2((mass.largest - top) * LOG2_E);
        mass.largest = top;
    }
    if (mass.largest == never()) return;
    const float offset = -mass.largest * LOG2_E;
#pragma unroll
    for (int i = 0; i < N; ++i) mass.sum += quick_exp2(fmaf(x[i], LOG2_E, offset));
}

// The largest of most[k] over `Span` neighbouring lanes (32 or 16), for four k at once: lanes trade what
// others gather, so that each of the last steps is one for all. A lane gets that of its own k.
template <int Span>
struct FourLargest {
    static constexpr int FIRST = Span / 2, SECOND = Span / 4;
    float largest;
    __device__ __forceinline__ FourLargest(const float (&most)[TILES_AHEAD]) {
        const bool upper = lane_id() & FIRST, odd = lane_id() & SECOND;
        float even = upper ? most[2] : most[0], next = upper ? most[3] : most[1];
        even = fmaxf(even, __shfl_xor_sync(EVERY_LANE, upper ? most[0] : most[2], FIRST));
        next = fmaxf(next, __shfl_xor_sync(EVERY_LANE, upper ? most[1] : most[3], FIRST));
        largest = fmaxf(odd ? next : even, __shfl_xor_sync(EVERY_LANE, odd ? even : next, SECOND));
#pragma unroll
        for (int by = SECOND / 2; by > 0; by >>= 1) largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, by));
    }
    static __device__ __forceinline__ int k() { return (lane_id() & FIRST ? 2 : 0) + (lane_id() & SECOND ? 1 : 0); }
    static __device__ __forceinline__ bool writes() { return (lane_id() & (SECOND - 1)) == 0; }
};

// A warp's logits on their way into shared memory: each lane copies what it will read itself, so that
// there is nothing to meet for. Room for two turns: one is awaited while the other is added up.
template <class T>
struct Arriving {
    struct __align__(4 * sizeof(T)) Four { T x[4]; };
    Four* place;        // of this lane, in the first of two halves
    const T* logits;    // the beam's
    u32 vocabulary;

    static constexpr u32 HALF = TILES_AHEAD * 32;  // vectors of a warp in one turn

    __device__ __forceinline__ void ask(u32 half, int chunk, int parts) const {
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) {
            const u32 p = static_cast<u32>(chunk + k * parts) * 128 + lane_id() * 4;
            copy_ahead<4 * sizeof(T)>(place + half * HALF + k * 32, logits + (p < vocabulary ? p : 0), p < vocabulary);
        }
        close_copies();
    }
    __device__ __forceinline__ void take(u32 half, float (&x)[TILES_AHEAD * 4]) const {
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) {
            float four[4];
            load4(place[half * HALF + k * 32].x, four);
#pragma unroll
            for (int i = 0; i < 4; ++i) x[4 * k + i] = four[i];
        }
    }
};

// Parts `first` to `end` of a live beam's tiles; the mass of these, in every lane, and the tiles' largest
// candidate logits in `best`. The usual case, at the speed of memory: bitmap layout, whole vectors, no
// bias, and a denominator of valid or of eligible tokens. A chunk is two tiles, four tokens to a lane;
// a turn is TILES_AHEAD chunks of a part. An invalid token is -inf, and exp makes it 0.
template <class T, bool AllKept>
__device__ __forceinline__ Mass read_words(const Step& step, const Beam& beam, int first, int end, u8* room, float* best) {
    const u8* const valid_bits = reinterpret_cast<const u8*>(step.table.bitmap + beam.row * step.table.words);
    const u8* const kept_bits = reinterpret_cast<const u8*>(step.eligible + beam.beam * step.eligible_words);
    const bool narrowed = step.normalize == NORMALIZE_ELIGIBLE, scaled = step.left_units != nullptr;
    const float left_unit = scaled ? step.left_units[beam.beam] : 1.0f;
    const int parts = step.parts, chunks = (step.tiles + 1) / 2;
    const u32 vocabulary = step.vocabulary;
    using Vectors = Arriving<T>;
    const Vectors arriving{
        reinterpret_cast<typename Vectors::Four*>(room) + warp_id() * 2 * Vectors::HALF + lane_id(),
        static_cast<const T*>(step.logits) + beam.beam * step.vocabulary, vocabulary
    };
    Mass mass, sum;
    int part = first, c = first, half = 0;
    arriving.ask(0, c, parts);
#pragma unroll 1
    while (part < end) {
        int next_part = part, next = c + parts * TILES_AHEAD;
        if (next >= chunks) next = ++next_part;
        if (next_part < end) arriving.ask(half ^ 1, next, parts);
        else close_copies();
        u32 valid[TILES_AHEAD], kept[TILES_AHEAD];
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) {
            const u32 p = static_cast<u32>(c + k * parts) * 128 + lane_id() * 4;
            valid[k] = kept[k] = 0;
            if (p < vocabulary) {
                valid[k] = valid_bits[p >> 3] >> (p & 4);
                if (!AllKept) kept[k] = kept_bits[p >> 3] >> (p & 4);
            }
        }
        await_copies<1>();
        float x[TILES_AHEAD * 4], most[TILES_AHEAD];
        arriving.take(half, x);
        if (scaled) {
#pragma unroll
            for (int k = 0; k < TILES_AHEAD; ++k) {
                const u32 p = static_cast<u32>(c + k * parts) * 128 + lane_id() * 4;
                float unit[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (p < vocabulary) load4(step.right_units + p, unit);
#pragma unroll
                for (int i = 0; i < 4; ++i) x[4 * k + i] *= left_unit * unit[i];
            }
        }
        float top = never(), highest = never();
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) {
            const u32 kept_here = AllKept ? valid[k] : valid[k] & kept[k];
            const u32 counts = narrowed ? kept_here : valid[k];
            most[k] = never();
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // fmaxf makes NaN -inf
                float& each = x[4 * k + i];
                if (!AllKept) most[k] = fmaxf(most[k], kept_here & 1u << i ? each : never());
                each = fmaxf(counts & 1u << i ? each : never(), never());
                if (AllKept) most[k] = fmaxf(most[k], each);
                else top = fmaxf(top, each);
            }
            highest = fmaxf(highest, most[k]);
        }
        top = fmaxf(top, highest);
        if (__any_sync(EVERY_LANE, top == -never())) {  // seldom: +inf counts as -inf
            top = never();
#pragma unroll
            for (int k = 0; k < TILES_AHEAD; ++k) {
                const u32 kept_here = AllKept ? valid[k] : valid[k] & kept[k];
                most[k] = never();
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float& each = x[4 * k + i];
                    each = or_dead(each);
                    top = fmaxf(top, each);
                    if (kept_here & 1u << i) most[k] = fmaxf(most[k], each);
                }
            }
        }
        add_to_mass(mass, x, top);
        const FourLargest<16> four(most);
        const int chunk = c + four.k() * parts, tile = 2 * chunk + (lane_id() >> 4);
        if (four.writes() && tile < step.tiles) best[tile] = four.largest;
        if (next_part != part) {
            sum.add(mass.across_warp());
            mass = Mass();
        }
        part = next_part;
        c = next;
        half ^= 1;
    }
    return sum;
}
