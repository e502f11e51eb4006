// The second pass of a step whose beams have many candidates each:
//
//     for b: bound = the interval that holds the width-th best group             # by each block for itself
//            list = [candidates of the tiles that reach the bound]               # spread over the blocks
//            beams = choose(list)                                                # the block that ends last
//
// Grid (blocks per request, B). What a block finds it gathers in shared memory and then appends to
// the request's list; a block alone chooses at once.
// Workspace: what score_tiles left, and `lists` [B, list_capacity], room for `capacity` of every block.

constexpr u32 ROOM = 4 * KEYS_AT_ONCE;

template <class T>
__global__ void __launch_bounds__(THREADS, 2) open_tiles(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    u32* const numbers = carver.take<u32>(ROOM);
    Opened* const opened = carver.take<Opened>(THREADS);

    after_kernels_ahead();
    const u32 groups = static_cast<u32>(step.beams) * step.parts * groups_of_part(step);
    const float* const bests = step.groups + static_cast<i64>(b) * groups;
    const List list{step.lists + static_cast<i64>(b) * step.list_capacity, step.meetings + b};
    bool last;
    const Share<false> share{step.scratch + b * step.scratch_stride, static_cast<u32>(step.beams) * step.tiles, numbers, ROOM, chooser.words + 52};
    OpenedTiles<T, 2, true, false> source{step, b, share, opened, nullptr, Bound(), {}};
    share.ask(0, source.first);
    const Bound bound = bound_of(bests, groups, step.width, numbers, ROOM, chooser.histogram, chooser.words);
    source.bound = bound;
    // Where rows begin, [M], when all tiles have been looked into: of one beam to a thread, as more would keep
    // the others waiting.
    i64* const starts = reinterpret_cast<i64*>(numbers);
    const bool known_starts = !is_listed(step) && step.beams <= THREADS - 32;
    const Gathered gathered = meet(source, chooser, bound, step.width, list, gridDim.x, last, [&] {
        const int m = threadIdx.x - 32;
        if (known_starts && m < step.beams) starts[m] = start_of(step.table.starts, seen_of(step, static_cast<i64>(b) * step.beams + m).base);
    });
    if (!last) return;
    kernel_behind_may_start();

    const bool lists = is_listed(step);
    const auto emit = [&](u32 place, u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot >> POSITION_BITS;
        const i64 beam = static_cast<i64>(b) * step.beams + parent;
        const Seen seen = seen_of(step, beam);
        const i64 begin = lists ? seen.base : known_starts ? starts[parent] : start_of(step.table.starts, seen.base);
        const Made made = made_of(step, beam, parent, slot & POSITION, seen.base, begin, seen.size == 0);
        const float key = key_of(number);
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr && made.token >= 0) score = token_score<T>(step, beam, made.token, seen.mass, seen.score);
        write_beam(step, b, place, parent, made.ancestors, made.token, score, key, made.row, made.finished);
    };
    write_padding(step, b, choose(chooser, gathered, step.width, emit));
}
