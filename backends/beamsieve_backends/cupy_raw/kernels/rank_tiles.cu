// score_tiles and pool_tiles in one launch, by a cluster of blocks for each request:
//
//     for b: masses, keys of tiles and groups, of each block's own beams              # as score_tiles
//            groups of all blocks                                                     # in shared memory
//            bound, own candidates, places, beams                                     # as pool_tiles
//
// Beam m belongs to block m % blocks. No bonus, no nudge, no bias. Grid (blocks, B), the cluster (blocks, 1, 1).
// A block keeps up to `capacity` candidates, of which `list_capacity` are ranked at once.

template <class T>
__global__ void __launch_bounds__(THREADS, 1) rank_tiles(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    const u32 width = step.width, beams = step.beams, blocks = gridDim.x, me = blockIdx.x;
    const i64 first_beam = static_cast<i64>(b) * beams;
    const u32 most_held = (beams + blocks - 1) >> bit_of(blocks), held = (beams + blocks - 1 - me) >> bit_of(blocks);
    const u32 of_beam = step.parts * groups_of_part(step), of_block = (most_held * of_beam + 1) & ~1u;
    const int row_bits = tile_bits(step);
    Carver carver;
    Pool pool = make_pool(carver, blocks, step.list_capacity, step.capacity, width);
    cluster_begin();
    Opened* const opened = carver.take<Opened>(THREADS);
    u32* const numbers = carver.take<u32>(KEYS_AT_ONCE);
    u32* const histogram = carver.take<u32>(BINS);
    Seen* const seen = carver.take<Seen>(most_held);
    i64* const begins = carver.take<i64>(most_held);
    float* const bests = carver.take<float>(most_held << row_bits);
    float* const groups = carver.take<float>(blocks * of_block);
    u8* const room = reinterpret_cast<u8*>(pool.everyone);  // of Arriving, until the blocks have met
    pool.chosen = reinterpret_cast<u64*>(opened);           // by then all tiles have been looked into
    pool.kept = reinterpret_cast<u32*>(pool.chosen + pool.room);

#pragma unroll 1
    for (u32 i = threadIdx.x; i < BINS; i += THREADS) histogram[i] = 0;
    if (threadIdx.x == 0) *pool.count = 0;
    after_kernels_ahead();
    const float most = step.in_scores[first_beam];
    Beginning beginning{!is_listed(step) && threadIdx.x < held};
    if (beginning.wanted) {
        const i64 beam = first_beam + me + threadIdx.x * blocks, row = step.in_rows[beam];
        const bool finished = step.in_finished[beam];
        beginning.row = me + threadIdx.x * blocks < step.in_count[b] && !finished ? row : 0;
    }
    if (step.tiles < 1 << row_bits) {  // there are no tiles between
        for (u32 i = threadIdx.x; i < most_held << row_bits; i += THREADS) bests[i] = never();
        __syncthreads();
    }
    const int share = step.warps_per_beam, shift = __ffs(share) - 1, part = warp_id() & (share - 1);
    float* const own_groups = groups + me * of_block;
#pragma unroll 1
    for (u32 from = 0; from < most_held; from += WARPS >> shift) {
        const u32 turn = from + (warp_id() >> shift), at = turn < held ? turn : 0;
        const Found to{bests + (at << row_bits), own_groups + at * of_beam, seen + at};
        score_beam<T>(step, turn < held, b, static_cast<u32>(first_beam) + (turn < held ? me + at * blocks : 0), share, part, pool.words, room, to);
    }
    for (u32 i = held * of_beam + threadIdx.x; i < of_block; i += THREADS) own_groups[i] = never();
    beginning.ask_sample(step.table.starts);
    __syncthreads();
    cluster_wait();  // every block has begun: its shared memory is there
    const u32 rank = warp_id() & (blocks - 1);
    u64* const pairs = reinterpret_cast<u64*>(own_groups);
    for (u32 i = (warp_id() >> bit_of(blocks)) * 32 + lane_id(); i < of_block / 2; i += THREADS >> bit_of(blocks)) send(pairs + i, pairs[i], pool.box + 1, rank);
    if (threadIdx.x < blocks) announce(pool.box + 1, threadIdx.x, 4 * of_block);
    const Share<true> mine{bests, held << row_bits, numbers, KEYS_AT_ONCE, pool.count + 1};
    OpenedTiles<T, 2, false, true> source{step, b, mine, opened, seen, Bound(), {}};
    mine.ask(0, source.first);
    await_mail(pool.box + 1);

    const u32 all = blocks * of_block;
    float first[KEYS_AHEAD];
#pragma unroll
    for (u32 k = 0; k < KEYS_AHEAD; ++k) first[k] = k * THREADS + threadIdx.x < all ? groups[k * THREADS + threadIdx.x] : never();
    source.bound = bound_below(
        most, first, all, width, histogram, pool.words, [&](u32 i) { return groups[i]; },
        [&] { return bound_of(groups, all, width, numbers, KEYS_AT_ONCE, histogram, pool.words); }
    );
    beginning.ask_words(step.table.starts);
    const u32 own = gather_own(source, pool, Chooser{pool.own, nullptr, pool.capacity, histogram, pool.words}, width);
    if (beginning.wanted) begins[threadIdx.x] = beginning.place(step.table.starts);
    __syncthreads();

    kernel_behind_may_start();
    write_best(step, b, pool, own, [&](u64 number) {
        const u32 slot = slot_of(number), at = slot >> (POSITION_BITS + bit_of(blocks));
        const int parent = slot >> POSITION_BITS;
        const Seen& of = seen[at];
        return made_of(step, first_beam + parent, parent, slot & POSITION, of.base, is_listed(step) ? of.base : begins[at], of.size == 0);
    });
}
