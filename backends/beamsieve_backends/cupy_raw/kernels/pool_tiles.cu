// As open_tiles, by a cluster of blocks for each request:
//
//     for b: bound = an interval that holds the width-th best group, or lies below    # by each block for itself
//            own = [candidates of the tiles that reach the bound]                     # of each block's share
//            places = rank(own, among all blocks' candidates)                         # in shared memory
//            beams = [own candidates that have a place]                               # by each block
//
// No bonus, no nudge, no bias. Grid (blocks, B), the cluster (blocks, 1, 1). A block keeps up to `capacity`
// candidates, of which `list_capacity` are ranked at once. Workspace: what score_tiles left.

template <class T>
__global__ void __launch_bounds__(THREADS, 2) pool_tiles(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    const u32 width = step.width, beams = step.beams;
    const i64 first_beam = static_cast<i64>(b) * beams;
    Carver carver;
    Pool pool = make_pool(carver, gridDim.x, step.list_capacity, step.capacity, width);
    cluster_begin();
    Seen* const seen = carver.take<Seen>(beams);
    u32* const numbers = carver.take<u32>(KEYS_AT_ONCE);
    Opened* const opened = carver.take<Opened>(THREADS);
    const bool known = !is_listed(step) && beams <= THREADS;
    i64* const begins = reinterpret_cast<i64*>(numbers);  // [M] where known, when all tiles have been looked into
    u32* const histogram = carver.take<u32>(BINS);
    pool.chosen = reinterpret_cast<u64*>(opened);  // by then all tiles have been looked into
    pool.kept = reinterpret_cast<u32*>(pool.chosen + pool.room);

#pragma unroll 1
    for (u32 i = threadIdx.x; i < BINS; i += THREADS) histogram[i] = 0;
    if (threadIdx.x == 0) *pool.count = 0;
    after_kernels_ahead();
    // All asked for at once.
    const u32 groups = beams * step.parts * groups_of_part(step);
    const float* const bests = step.groups + static_cast<i64>(b) * groups;
    float first[KEYS_AHEAD];
#pragma unroll
    for (u32 k = 0; k < KEYS_AHEAD; ++k) first[k] = k * THREADS + threadIdx.x < groups ? __ldcg(bests + k * THREADS + threadIdx.x) : never();
    const Share<false> share{step.scratch + b * step.scratch_stride, beams * step.tiles, numbers, KEYS_AT_ONCE, pool.count + 1};
    OpenedTiles<T, 2, false, false> source{step, b, share, opened, seen, Bound(), {}};
    share.ask(0, source.first);
    const float most = __ldcg(&step.seen[first_beam].score);
#pragma unroll 1
    for (u32 m = threadIdx.x; m < beams; m += THREADS) seen[m] = seen_of(step, first_beam + m);
    __syncthreads();
    Beginning beginning{known && threadIdx.x < beams};
    if (beginning.wanted) beginning.row = seen[threadIdx.x].base;
    beginning.ask_sample(step.table.starts);
    source.bound = bound_below(
        most, first, groups, width, histogram, pool.words, [&](u32 i) { return __ldcg(bests + i); },
        [&] { return bound_of(bests, groups, width, numbers, KEYS_AT_ONCE, histogram, pool.words); }
    );
    beginning.ask_words(step.table.starts);
    const u32 own = gather_own(source, pool, Chooser{pool.own, nullptr, pool.capacity, histogram, pool.words}, width);
    if (beginning.wanted) begins[threadIdx.x] = beginning.place(step.table.starts);
    __syncthreads();
    cluster_wait();  // every block has begun: its shared memory is there

    kernel_behind_may_start();
    write_best(step, b, pool, own, [&](u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot >> POSITION_BITS;
        const Seen& of = seen[parent];
        const i64 begin = is_listed(step) ? of.base : known ? begins[parent] : start_of(step.table.starts, of.base);
        return made_of(step, first_beam + parent, parent, slot & POSITION, of.base, begin, of.size == 0);
    });
}
