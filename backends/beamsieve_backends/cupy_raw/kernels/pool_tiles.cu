// As open_tiles, by a cluster of blocks for each request:
//
//     for b: bound = an interval that holds the width-th best group, or lies below    # by each block for itself
//            own = [candidates of the tiles that reach the bound]                     # of each block's share
//            places = rank(own, among all blocks' candidates)                         # in shared memory
//            beams = [own candidates that have a place]                               # by each block
//
// Nothing is met for in device memory, and what becomes of a candidate is looked up while the blocks meet.
// The bound is looked for in intervals of a fixed length below the best beam's score, which no key exceeds:
// so it needs no extent of the keys. Where the width-th best lies below all of them, it is found as
// open_tiles finds it.
//
// No bonus, no nudge, no bias. Grid (blocks, B), the cluster (blocks, 1, 1). A block keeps up to `capacity`
// candidates, of which `list_capacity` are ranked at once. Workspace: what score_tiles left.

constexpr u32 AHEAD = 4;                         // keys that a thread asks for at once
constexpr u32 AT_ONCE = AHEAD * THREADS;
constexpr u32 TOGETHER = 2;                      // looks of a warp into opened tiles at a time
constexpr float PER_KEY = 64.0f;                 // intervals of a key's unit

// What is known of an opened tile.
struct __align__(16) Opened {
    i64 logits;   // the beam's first logit
    i64 from;     // bitmap layout: 32-bit word of the bitmap; list layout: entry
    float2 mass;
    float score;
    u32 beam;     // m
    u32 place;    // its first position
    u32 left;     // positions from there on, 0 for a finished beam
    u32 slot;     // its first slot
    u32 unused;
};

// Where a row begins (bitmap layout), of one beam to a thread: looked up step by step between other things, as
// each step waits for the one before.
struct Beginning {
    bool wanted;
    i64 row = 0, sample = 0;
    StartWords found{};

    __device__ __forceinline__ void ask_sample(const Starts& starts) {
        if (wanted) sample = sample_of(starts, row);
    }
    __device__ __forceinline__ void ask_words(const Starts& starts) {
        if (wanted && sampled(starts)) found = start_words(starts, row, sample);
    }
    __device__ __forceinline__ i64 place(const Starts& starts) const { return sampled(starts) ? start_in(starts, row, sample, found) : sample; }
};

// What becomes of a candidate.
struct Made {
    int parent, token;
    i64 row;
    u8 finished;
    Ancestors ancestors;
};

template <class T>
struct PoolTiles {
    const Step& step;
    int b;
    Bound bound;
    u32* numbers;     // [AT_ONCE], in shared memory: of the opened tiles in the request
    Opened* opened;   // [THREADS], likewise
    const Seen* seen; // [M], likewise
    u32* counter;
    float ahead[AHEAD];  // the keys of the first tiles

    __device__ __forceinline__ u32 tile_of(u32 i) const {  // runs of eight neighbours go to the blocks in turns
        return ((i >> 3) * gridDim.x + blockIdx.x) * 8 + (i & 7);
    }
    __device__ __forceinline__ void ask(u32 turn, float (&key)[AHEAD]) const {
        const float* const best = step.scratch + b * step.scratch_stride;
        const u32 tiles = static_cast<u32>(step.beams) * step.tiles;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            const u32 tile = tile_of(turn * AT_ONCE + k * THREADS + threadIdx.x);
            key[k] = tile < tiles ? __ldcg(best + tile) : never();
        }
    }

    // Calls f(there, number) for the candidates of the opened tiles, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        const u32 tiles = static_cast<u32>(step.beams) * step.tiles;
        float key[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) key[k] = ahead[k];
#pragma unroll 1
        for (u32 turn = 0; turn * AT_ONCE * gridDim.x < tiles; ++turn) {
            if (turn > 0) ask(turn, key);
            if (threadIdx.x == 0) *counter = 0;
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k)
                if (bound.open(key[k])) numbers[atomicAdd(counter, 1u)] = tile_of(turn * AT_ONCE + k * THREADS + threadIdx.x);
            __syncthreads();
            const u32 count = *counter;
#pragma unroll 1
            for (u32 from = 0; from < count; from += THREADS) {
                const u32 here = min(count - from, static_cast<u32>(THREADS));
                if (threadIdx.x < here) opened[threadIdx.x] = opened_of(numbers[from + threadIdx.x]);
                __syncthreads();
                visit(here, f);
                __syncthreads();
            }
        }
    }

    __device__ __forceinline__ Opened opened_of(u32 tile) const {
        const u32 m = tile / step.tiles;
        const Seen& known = seen[m];
        Opened own;
        own.logits = (static_cast<i64>(b) * step.beams + m) * step.vocabulary;
        own.place = (tile - m * step.tiles) * step.tile;
        own.from = is_listed(step) ? known.base + own.place : known.base * step.table.words * 2 + (own.place >> 5);
        own.mass = known.mass;
        own.score = known.score;
        own.beam = m;
        own.left = known.size - min(known.size, own.place);
        own.slot = tile * step.tile;
        return own;
    }

    // 32 positions to a warp at a time, twice, with all loads on their way before the first use.
    template <class F> __device__ __forceinline__ void visit(u32 count, F f) const {
        const u32 halves = step.tile == 64 ? 1 : 0, all = count << halves;
        const bool lists = is_listed(step), scaled = step.left_units != nullptr;
#pragma unroll 1
        for (u32 part = warp_id(); part < all; part += TOGETHER * WARPS) {
            float x[TOGETHER], unit[TOGETHER];
            u32 within[TOGETHER], v[TOGETHER], bits[TOGETHER];
            const auto tile_at = [&](u32 k) -> const Opened& { return opened[min(part + k * WARPS, all - 1) >> halves]; };
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k) {
                const Opened& tile = tile_at(k);
                within[k] = ((part + k * WARPS) & halves) * 32 + lane_id();
                v[k] = within[k] < tile.left ? within[k] : 0;  // something that is there, so that no load waits for a branch
            }
            if (lists) {
                TokenWords words[TOGETHER];
#pragma unroll
                for (u32 k = 0; k < TOGETHER; ++k) words[k] = words_at(step.table, tile_at(k).from + v[k]);
#pragma unroll
                for (u32 k = 0; k < TOGETHER; ++k) v[k] = token_of(step.table, words[k]);
            }
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k) {
                const Opened& tile = tile_at(k);
                bits[k] = lists ? ~0u : reinterpret_cast<const u32*>(step.table.bitmap)[tile.from + (v[k] >> 5)];
                const u32 p = tile.place + within[k];
                if (step.eligible != nullptr && within[k] < tile.left) {  // numbered by position, as the bitmap is by token
                    const u32 word = step.eligible[(static_cast<i64>(b) * step.beams + tile.beam) * step.eligible_words + (p >> 5)];
                    bits[k] &= word;
                }
                if (!lists) v[k] += tile.place;
                x[k] = number(static_cast<const T*>(step.logits)[tile.logits + v[k]]);
                unit[k] = scaled ? step.left_units[static_cast<i64>(b) * step.beams + tile.beam] * step.right_units[v[k]] : 1.0f;
            }
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k) {
                x[k] = settled(x[k]);
                bits[k] = settled(bits[k]);
            }
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k) {
                if (part + k * WARPS >= all) break;
                const Opened& tile = tile_at(k);
                const float logit = or_dead(scaled ? x[k] * unit[k] : x[k]);
                float key = or_dead(tile.score + log_probability(logit, tile.mass));
                if (within[k] >= tile.left || !(bits[k] >> (within[k] & 31) & 1u)) key = never();
                if (tile.left == 0 && within[k] == 0) key = or_dead(tile.score);  // a finished beam
                f(bound.open(key), rank_number(key, tile.slot + within[k]));
            }
        }
    }
};

// The bound of the `count` keys at `best`, of which each thread knows the first AHEAD: in intervals below
// `most`, which no key exceeds. `cleared` is a histogram of zeros; a barrier has passed.
__device__ __forceinline__ Bound bound_below(float most, const float (&first)[AHEAD], const float* best, u32 count, u32 width, u32* cleared, u32* words) {
    Bound bound;
    bound.scale.high = most + 1.0f / PER_KEY;
    bound.scale.per_key = PER_KEY;
    float key[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k) key[k] = first[k];
#pragma unroll 1
    for (u32 base = 0;;) {
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k)
            if (key[k] > never()) atomicAdd(&cleared[bound.scale.bin_of(key[k])], 1u);
        base += AT_ONCE;
        if (base >= count) break;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            const u32 i = base + k * THREADS + threadIdx.x;
            key[k] = i < count ? __ldcg(best + i) : never();
        }
    }
    __syncthreads();
    bound.last_bin = last_bin_of(cleared, words, width);
    return bound;
}

__device__ __forceinline__ Made made_of(const Step& step, int b, const Seen* known, const i64* begins, u64 number) {
    const bool lists = is_listed(step);
    const u32 slot = slot_of(number), each = static_cast<u32>(step.tiles) * step.tile;
    Made made;
    made.parent = slot / each;
    const u32 p = slot - made.parent * each;
    const i64 beam = static_cast<i64>(b) * step.beams + made.parent;
    const Seen& seen = known[made.parent];
    const bool was_finished = seen.size == 0;
    made.ancestors = ancestors_of(step, beam);
    const i64 row = step.in_rows[beam];
    const i64 begin = lists ? seen.base : begins != nullptr ? begins[made.parent] : start_of(step.table.starts, seen.base);
    const i64 entry = entry_at(step, seen.base, begin, p);
    const u32 token = lists ? token_at(step.table, entry) : p;
    made.token = was_finished ? -1 : static_cast<int>(token);
    made.finished = 1;
    made.row = row;
    if (!was_finished) made.row = settle(step, entry, made.finished);
    return made;
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) pool_tiles(const __grid_constant__ Step step) {
    cluster_begin();
    const int b = blockIdx.y;
    const u32 width = step.width, beams = step.beams;
    Carver carver;
    Pool pool = make_pool(carver, gridDim.x, step.list_capacity, step.capacity, width);
    Seen* const seen = carver.take<Seen>(beams);
    u32* const numbers = carver.take<u32>(AT_ONCE);
    Opened* const opened = carver.take<Opened>(THREADS);
    const bool known = !is_listed(step) && beams <= THREADS;
    i64* const begins = known ? reinterpret_cast<i64*>(numbers) : nullptr;  // [M], when all tiles have been looked into
    u32* const histogram = carver.take<u32>(BINS);
    pool.chosen = reinterpret_cast<u64*>(opened);  // by then all tiles have been looked into
    pool.kept = reinterpret_cast<u32*>(pool.chosen + pool.room);

    // All asked for at once.
    const u32 groups = beams * step.parts * groups_of_part(step);
    const float* const bests = step.groups + static_cast<i64>(b) * groups;
    float first[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k) first[k] = k * THREADS + threadIdx.x < groups ? __ldcg(bests + k * THREADS + threadIdx.x) : never();
    PoolTiles<T> source{step, b, Bound(), numbers, opened, seen, pool.count + 1, {}};
    source.ask(0, source.ahead);
    const float most = __ldcg(&step.seen[static_cast<i64>(b) * beams].score);
#pragma unroll 1
    for (u32 m = threadIdx.x; m < beams; m += THREADS) seen[m] = seen_of(step, static_cast<i64>(b) * beams + m);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < BINS; i += THREADS) histogram[i] = 0;
    if (threadIdx.x == 0) *pool.count = 0;
    __syncthreads();
    Beginning beginning{known && threadIdx.x < beams};
    if (beginning.wanted) beginning.row = seen[threadIdx.x].base;
    beginning.ask_sample(step.table.starts);
    Bound bound;
    if (is_finite(most)) bound = bound_below(most, first, bests, groups, width, histogram, pool.words);
    const Chooser chooser{pool.own, nullptr, pool.capacity, histogram, pool.words};
    if (bound.last_bin == 0 || bound.last_bin == BINS - 1) {
        __syncthreads();
        bound = bound_of(bests, groups, width, numbers, AT_ONCE, histogram, pool.words);
    }
    source.bound = bound;
    beginning.ask_words(step.table.starts);
    source.each([&](bool there, u64 number) { append(chooser, pool.count, there, number); });
    u32 own = *pool.count;
    if (own > pool.capacity) {
        __syncthreads();
        own = narrow(source, chooser, width, bound.keys()).count;
        if (threadIdx.x == 0) *pool.count = own;
        __syncthreads();
    }
    if (beginning.wanted) begins[threadIdx.x] = beginning.place(step.table.starts);
    __syncthreads();
    cluster_wait();  // every block has begun: its shared memory is there
    Made made;
    const Ranked ranked = rank_pool(pool, OwnCandidates{pool.own, own}, width, [&] {
        if (threadIdx.x < own) made = made_of(step, b, seen, begins, pool.own[threadIdx.x]);
    });
#pragma unroll 1
    for (u32 at = threadIdx.x; at < ranked.own; at += THREADS) {
        const u32 place = pool.places[at];
        if (place >= width) continue;
        const u64 number = ranked.narrowed ? pool.chosen[at] : pool.own[at];
        if (ranked.narrowed || at >= THREADS) made = made_of(step, b, seen, begins, number);
        const float key = key_of(number);
        write_beam(step, b, place, made.parent, made.ancestors, made.token, key, key, made.row, made.finished);
    }
    if (blockIdx.x == 0) write_padding(step, b, ranked.kept);
}
