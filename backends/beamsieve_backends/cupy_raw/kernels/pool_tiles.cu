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

constexpr float PER_KEY = 64.0f;  // intervals of a key's unit

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

template <class T>
__global__ void __launch_bounds__(THREADS, 2) pool_tiles(const __grid_constant__ Step step) {
    cluster_begin();
    const int b = blockIdx.y;
    const u32 width = step.width, beams = step.beams;
    const i64 first_beam = static_cast<i64>(b) * beams;
    Carver carver;
    Pool pool = make_pool(carver, gridDim.x, step.list_capacity, step.capacity, width);
    Seen* const seen = carver.take<Seen>(beams);
    u32* const numbers = carver.take<u32>(AT_ONCE);
    Opened* const opened = carver.take<Opened>(THREADS);
    const bool known = !is_listed(step) && beams <= THREADS;
    i64* const begins = reinterpret_cast<i64*>(numbers);  // [M] where known, when all tiles have been looked into
    u32* const histogram = carver.take<u32>(BINS);
    pool.chosen = reinterpret_cast<u64*>(opened);  // by then all tiles have been looked into
    pool.kept = reinterpret_cast<u32*>(pool.chosen + pool.room);

    // All asked for at once.
    const u32 groups = beams * step.parts * groups_of_part(step);
    const float* const bests = step.groups + static_cast<i64>(b) * groups;
    float first[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k) first[k] = k * THREADS + threadIdx.x < groups ? __ldcg(bests + k * THREADS + threadIdx.x) : never();
    const Share share{step.scratch + b * step.scratch_stride, beams * step.tiles, numbers, AT_ONCE, pool.count + 1};
    OpenedTiles<T, 2, false> source{step, b, share, opened, seen, Bound(), {}};
    share.ask(0, source.first);
    const float most = __ldcg(&step.seen[first_beam].score);
#pragma unroll 1
    for (u32 m = threadIdx.x; m < beams; m += THREADS) seen[m] = seen_of(step, first_beam + m);
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

    const u32 each = static_cast<u32>(step.tiles) * step.tile;
    const auto look_up = [&](u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot / each;
        const Seen& of = seen[parent];
        const i64 begin = is_listed(step) ? of.base : known ? begins[parent] : start_of(step.table.starts, of.base);
        return made_of(step, first_beam + parent, parent, slot - parent * each, of.base, begin, of.size == 0);
    };
    Made made;
    const Ranked ranked = rank_pool(pool, OwnCandidates{pool.own, own}, width, [&] {
        if (threadIdx.x < own) made = look_up(pool.own[threadIdx.x]);
    });
#pragma unroll 1
    for (u32 at = threadIdx.x; at < ranked.own; at += THREADS) {
        const u32 place = pool.places[at];
        if (place >= width) continue;
        const u64 number = ranked.narrowed ? pool.chosen[at] : pool.own[at];
        if (ranked.narrowed || at >= THREADS) made = look_up(number);
        const float key = key_of(number);
        write_beam(step, b, place, made.parent, made.ancestors, made.token, key, key, made.row, made.finished);
    }
    if (blockIdx.x == 0) write_padding(step, b, ranked.kept);
}
