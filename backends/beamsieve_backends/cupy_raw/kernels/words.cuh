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
struct FourPlaces {
    static constexpr u32 FIRST = Span / 2, SECOND = Span / 4;
    u32 k;
    bool writes;

    __device__ __forceinline__ FourPlaces() {
        k = (lane_id() & FIRST ? 2 : 0) + (lane_id() & SECOND ? 1 : 0);
        writes = (lane_id() & (SECOND - 1)) == 0;
    }
    __device__ __forceinline__ float largest(const float (&most)[TILES_AHEAD]) const {
        const bool upper = k >= 2, odd = k & 1;
        float even = upper ? most[2] : most[0], next = upper ? most[3] : most[1];
        even = fmaxf(even, __shfl_xor_sync(EVERY_LANE, upper ? most[0] : most[2], FIRST));
        next = fmaxf(next, __shfl_xor_sync(EVERY_LANE, upper ? most[1] : most[3], FIRST));
        float largest = fmaxf(odd ? next : even, __shfl_xor_sync(EVERY_LANE, odd ? even : next, SECOND));
#pragma unroll
        for (u32 by = SECOND / 2; by > 0; by >>= 1) largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, by));
        return largest;
    }
};

// A warp's logits on their way into shared memory: each lane copies what it will read itself, so that
// there is nothing to meet for. Room for two turns: one is awaited while the other is added up.
template <class T>
struct Arriving {
    struct __align__(4 * sizeof(T)) Four { T x[4]; };
    Four* place;        // of this lane, in the first of two halves
    const T* logits;    // of this lane in the beam's first chunk
    u32 left;           // how many logits there are from there on

    static constexpr u32 HALF = TILES_AHEAD * 32;  // vectors of a warp in one turn

    __device__ __forceinline__ Arriving(const Step& step, i64 beam, u8* room) {
        const u32 own = lane_id() * 4;
        place = settled_in_block(reinterpret_cast<Four*>(room) + warp_id() * 2 * HALF + lane_id());
        logits = settled(static_cast<const T*>(step.logits) + beam * step.vocabulary + own);
        left = step.vocabulary - min(own, static_cast<u32>(step.vocabulary));
    }

    // Logits `at`, `at + apart`, …, four each.
    __device__ __forceinline__ void ask(u32 half, u32 at, u32 apart) const {
#pragma unroll
        for (u32 k = 0; k < TILES_AHEAD; ++k) {
            const u32 from = at + k * apart;
            copy_ahead<4 * sizeof(T)>(place + half * HALF + k * 32, logits + (from < left ? from : 0), from < left);
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
// a turn is TILES_AHEAD chunks of a part, of which the first is asked for already. An invalid token is -inf, and exp makes it 0.
//
// Every instruction of a turn counts. So what does not change is in registers (`settled`), and a logit
// that is NaN or +inf is looked for by what it makes of the sum: then the turn is done again without it.
template <class T, bool AllKept>
__device__ __forceinline__ Mass read_words(const Step& step, const Beam& beam, int first, int end, const Arriving<T>& arriving, float* best) {
    const u32 lane = lane_id(), own = lane * 4, parts = step.parts, apart = parts * 128;
    const u32 nibble = settled((lane & 1) * 4), left = arriving.left;
    const u8* const valid_bits = settled(reinterpret_cast<const u8*>(step.table.bitmap + beam.row * step.table.words) + lane / 2);
    const u8* const kept_bits = AllKept ? nullptr : settled(reinterpret_cast<const u8*>(step.eligible + beam.beam * step.eligible_words) + lane / 2);
    const bool narrowed = step.normalize == NORMALIZE_ELIGIBLE, scaled = step.left_units != nullptr;
    const float left_unit = scaled ? step.left_units[beam.beam] : 1.0f;
    const FourPlaces<16> places;
    float* const lane_best = settled_anywhere(best + 2 * places.k * parts + lane / 16);
    const u32 tiles_left = static_cast<u32>(max(0, step.tiles - static_cast<int>(2 * places.k * parts + lane / 16)));
    const u32 all = step.tiles * 64;
    Mass mass, sum;
    u32 part = first, at = first * 128, half = 0;
#pragma unroll 1
    while (part < static_cast<u32>(end)) {
        u32 next_part = part, next = at + apart * TILES_AHEAD;
        if (next >= all) next = ++next_part * 128;
        if (next_part < static_cast<u32>(end)) arriving.ask(half ^ 1, next, apart);
        else close_copies();
        u32 valid[TILES_AHEAD], kept[TILES_AHEAD];
#pragma unroll
        for (u32 k = 0; k < TILES_AHEAD; ++k) {
            const u32 from = at + k * apart;
            valid[k] = kept[k] = 0;
            if (from < left) {
                valid[k] = valid_bits[from >> 3] >> nibble;
                if (!AllKept) kept[k] = valid[k] & kept_bits[from >> 3] >> nibble;
            }
        }
        await_copies<1>();
        float x[TILES_AHEAD * 4], most[TILES_AHEAD];
        arriving.take(half, x);
        if (scaled) {
#pragma unroll
            for (u32 k = 0; k < TILES_AHEAD; ++k) {
                const u32 from = at + k * apart;
                float unit[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (from < left) load4(step.right_units + own + from, unit);
#pragma unroll
                for (int i = 0; i < 4; ++i) x[4 * k + i] *= left_unit * unit[i];
            }
        }
        const auto look = [&]() {
            float top = never();
#pragma unroll
            for (int k = 0; k < TILES_AHEAD; ++k) {
                const u32 counts = AllKept || !narrowed ? valid[k] : kept[k];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float& each = x[4 * k + i];
                    each = counts & 1u << i ? each : never();
                    const float candidate = AllKept || kept[k] & 1u << i ? each : never();
                    most[k] = i == 0 ? candidate : fmaxf(most[k], candidate);
                    if (!AllKept) top = fmaxf(top, each);
                }
                if (AllKept) top = k == 0 ? most[k] : fmaxf(top, most[k]);
            }
            return top;
        };
        const Mass before = mass;
        add_to_mass(mass, x, look());
        if (__any_sync(EVERY_LANE, !(mass.sum < -never()))) {
            mass = before;
#pragma unroll
            for (int k = 0; k < TILES_AHEAD; ++k) {
                valid[k] = settled(valid[k]);  // nothing of the first look is kept for this one
                kept[k] = settled(kept[k]);
            }
#pragma unroll
            for (int i = 0; i < TILES_AHEAD * 4; ++i) x[i] = or_dead(settled(x[i]));
            add_to_mass(mass, x, look());
        }
        const float largest = places.largest(most);
        if (places.writes && at / 64 < tiles_left) lane_best[at / 64] = largest;
        if (next_part != part) {
            sum.add(mass.across_warp());
            mass = Mass();
        }
        part = next_part;
        at = next;
        half ^= 1;
    }
    return sum;
}
