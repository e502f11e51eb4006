// Tiles whose best keys are known: which of them a block opens, what it finds in there, and what becomes of it.

constexpr u32 KEYS_AHEAD = 4;  // keys that a thread asks for at once
constexpr u32 KEYS_AT_ONCE = KEYS_AHEAD * THREADS;
constexpr int POSITION_BITS = 20;  // of a candidate's slot: its beam above, its position below (V <= 2^20)
constexpr u32 POSITION = (1u << POSITION_BITS) - 1u;

// The binary logarithm of a power of two that the tiles of a beam do not exceed.
__device__ __forceinline__ int tile_bits(const Step& step) { return 32 - __clz(step.tiles - 1); }

// The tiles of a request, as its blocks share them: runs of eight neighbours go to the blocks in turns. Where
// Near, those of the block's own beams, whose keys lie in shared memory, a beam's every 2^tile_bits.
template <bool Near>
struct Share {
    const float* best;  // of each tile
    u32 tiles;
    u32* numbers;       // [room], in shared memory: of opened tiles in the request
    u32 room;           // a multiple of KEYS_AT_ONCE
    u32* counter;

    __device__ __forceinline__ u32 blocks() const { return Near ? 1 : gridDim.x; }
    __device__ __forceinline__ u32 tile_of(u32 i) const { return Near ? i : ((i >> 3) * gridDim.x + blockIdx.x) * 8 + (i & 7); }
    __device__ __forceinline__ void ask(u32 from, float (&key)[KEYS_AHEAD]) const {
#pragma unroll
        for (u32 k = 0; k < KEYS_AHEAD; ++k) {
            const u32 tile = tile_of(from + k * THREADS + threadIdx.x);
            key[k] = tile >= tiles ? never() : Near ? best[tile] : __ldcg(best + tile);
        }
    }

    // Calls look(numbers, count) in the whole block for up to THREADS tiles that the bound opens at a time. The
    // keys of the first KEYS_AT_ONCE are asked for already.
    template <class Look> __device__ __forceinline__ void each(const Bound& bound, const float (&first)[KEYS_AHEAD], Look look) const {
        float key[KEYS_AHEAD];
#pragma unroll
        for (u32 k = 0; k < KEYS_AHEAD; ++k) key[k] = first[k];
#pragma unroll 1
        for (u32 turn = 0; turn * blocks() < tiles; turn += room) {
            if (threadIdx.x == 0) *counter = 0;
            __syncthreads();
#pragma unroll 1
            for (u32 from = turn; from < turn + room && from * blocks() < tiles; from += KEYS_AT_ONCE) {
                if (from > 0) ask(from, key);
#pragma unroll
                for (u32 k = 0; k < KEYS_AHEAD; ++k)
                    if (bound.open(key[k])) numbers[atomicAdd(counter, 1u)] = tile_of(from + k * THREADS + threadIdx.x);
            }
            __syncthreads();
            const u32 count = *counter;
            if (count == 0) __syncthreads();
#pragma unroll 1
            for (u32 from = 0; from < count; from += THREADS) {
                look(numbers + from, min(count - from, static_cast<u32>(THREADS)));
                __syncthreads();
            }
        }
    }
};

__device__ __forceinline__ Seen seen_of(const Step& step, i64 beam) {
    const uint4* const from = reinterpret_cast<const uint4*>(step.seen + beam);
    const uint4 low = __ldcg(from), high = __ldcg(from + 1);
    Seen seen;
    seen.base = static_cast<i64>(low.x | static_cast<u64>(low.y) << 32);
    seen.mass = make_float2(__int_as_float(static_cast<int>(low.z)), __int_as_float(static_cast<int>(low.w)));
    seen.score = __int_as_float(static_cast<int>(high.x));
    seen.size = high.y;
    return seen;
}

// What is known of an opened tile.
struct __align__(16) Opened {
    i64 beam;     // b * M + m
    i64 base;     // row (bitmap layout) or first entry (list layout)
    float2 mass;
    float score;
    u32 place;    // its first position
    u32 left;     // positions from there on, 0 for a finished beam
    u32 slot;     // its first slot
};

// The key of a position with a bonus or a nudge: seldom, so it is called.
template <class T>
__device__ __noinline__ float guided_key(const Step& step, i64 beam, i64 base, u32 p, float2 mass, float beam_score) {
    return position_key<T>(step, beam, base, p, mass, beam_score);
}

// The candidates of a block's opened tiles, Together * 32 positions of a warp on their way at a time.
template <class T, u32 Together, bool Guided, bool Near>
struct OpenedTiles {
    const Step& step;
    int b;
    Share<Near> share;
    Opened* opened;    // [THREADS], in shared memory
    const Seen* seen;  // [M], likewise, or of the block's own beams, or null
    Bound bound;
    float first[KEYS_AHEAD];

    // Calls f(there, number) for the candidates, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        share.each(bound, first, [&](const u32* numbers, u32 count) {
            if (threadIdx.x < count) opened[threadIdx.x] = look_up(numbers[threadIdx.x]);
            __syncthreads();
            visit(count, f);
        });
    }

    __device__ __forceinline__ Opened look_up(u32 tile) const {
        const u32 at = Near ? tile >> tile_bits(step) : tile / step.tiles, m = Near ? at * gridDim.x + blockIdx.x : at;
        Opened own;
        own.beam = static_cast<i64>(b) * step.beams + m;
        const Seen known = seen != nullptr ? seen[at] : seen_of(step, own.beam);
        own.base = known.base;
        own.mass = known.mass;
        own.score = known.score;
        own.place = (tile - (Near ? at << tile_bits(step) : at * step.tiles)) * step.tile;
        own.left = known.size - min(known.size, own.place);
        own.slot = m << POSITION_BITS | own.place;
        return own;
    }

    template <class F> __device__ __forceinline__ void visit(u32 count, F f) const {
        const u32 halves = step.tile == 64 ? 1 : 0, all = count << halves;
        const bool simple = !Guided || (step.bonus == nullptr && step.nudge == nullptr && step.bias == nullptr);
#pragma unroll 1
        for (u32 part = warp_id(); part < all; part += Together * WARPS) {
            const auto tile_at = [&](u32 k) -> const Opened& { return opened[min(part + k * WARPS, all - 1) >> halves]; };
            u32 within[Together];  // the tile
            float key[Together];
#pragma unroll
            for (u32 k = 0; k < Together; ++k) within[k] = ((part + k * WARPS) & halves) * 32 + lane_id();
            if (simple) {
                simple_keys(within, tile_at, key);
            } else {
#pragma unroll
                for (u32 k = 0; k < Together; ++k) {
                    const Opened& tile = tile_at(k);
                    key[k] = within[k] < tile.left ? guided_key<T>(step, tile.beam, tile.base, tile.place + within[k], tile.mass, tile.score) : never();
                }
            }
#pragma unroll
            for (u32 k = 0; k < Together; ++k) {
                if (part + k * WARPS >= all) break;
                const Opened& tile = tile_at(k);
                if (tile.left == 0 && within[k] == 0) key[k] = or_dead(tile.score);  // a finished beam
                f(bound.open(key[k]), rank_number(key[k], tile.slot + within[k]));
            }
        }
    }

    // Without bonus, nudge or bias: all loads are on their way before the first use.
    template <class At> __device__ __forceinline__ void simple_keys(const u32 (&within)[Together], At tile_at, float (&key)[Together]) const {
        const bool lists = is_listed(step), scaled = step.left_units != nullptr;
        const u32* const bitmap = reinterpret_cast<const u32*>(step.table.bitmap);
        u32 v[Together], bits[Together];
        float x[Together], unit[Together];
#pragma unroll
        for (u32 k = 0; k < Together; ++k)  // something that is there, so that no load waits for a branch
            v[k] = tile_at(k).place + (within[k] < tile_at(k).left ? within[k] : 0);
        if (lists) {
            TokenWords words[Together];
#pragma unroll
            for (u32 k = 0; k < Together; ++k) words[k] = words_at(step.table, tile_at(k).base + v[k]);
#pragma unroll
            for (u32 k = 0; k < Together; ++k) v[k] = token_of(step.table, words[k]);
        }
#pragma unroll
        for (u32 k = 0; k < Together; ++k) {
            const Opened& tile = tile_at(k);
            bits[k] = lists ? ~0u : bitmap[tile.base * step.table.words * 2 + (v[k] >> 5)];
            if (step.eligible != nullptr && within[k] < tile.left)  // numbered by position, as the bitmap is by token
                bits[k] &= step.eligible[tile.beam * step.eligible_words + ((tile.place + within[k]) >> 5)];
            x[k] = number(static_cast<const T*>(step.logits)[tile.beam * step.vocabulary + v[k]]);
            unit[k] = scaled ? step.left_units[tile.beam] * step.right_units[v[k]] : 1.0f;
        }
#pragma unroll
        for (u32 k = 0; k < Together; ++k) {
            x[k] = settled(x[k]);
            bits[k] = settled(bits[k]);
        }
#pragma unroll
        for (u32 k = 0; k < Together; ++k) {
            const Opened& tile = tile_at(k);
            const float logit = or_dead(scaled ? x[k] * unit[k] : x[k]);
            key[k] = or_dead(tile.score + log_probability(logit, tile.mass));
            if (within[k] >= tile.left || !(bits[k] >> (within[k] & 31) & 1u)) key[k] = never();
        }
    }
};

// What becomes of a candidate: the beam of `parent` by the entry at position p. `base` is its row, or its first
// entry in the list layout, `begin` its first entry; `finished` says that the parent was finished.
struct Made {
    int parent, token;
    i64 row;
    u8 finished;
    Ancestors ancestors;
};

__device__ __forceinline__ Made made_of(const Step& step, i64 beam, int parent, u32 p, i64 base, i64 begin, bool finished) {
    Made made;
    made.parent = parent;
    made.ancestors = ancestors_of(step, beam);
    made.row = step.in_rows[beam];
    const i64 entry = entry_at(step, base, begin, p);  // looked up in any case, so that no load waits for a branch
    const u32 token = is_listed(step) ? token_at(step.table, entry) : p;
    made.token = finished ? -1 : static_cast<int>(token);
    made.finished = 1;
    if (!finished) made.row = settle(step, entry, made.finished);
    return made;
}
