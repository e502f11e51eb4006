// The second pass of a step whose beams have many candidates each:
//
//     for b: bound = the interval that holds the width-th best group             # by each block for itself
//            list = [candidates of the tiles that reach the bound]               # spread over the blocks
//            beams = choose(list)                                                # the block that ends last
//
// Grid (blocks per request, B). What a block finds it gathers in shared memory and then appends to
// the request's list; a block alone chooses at once.
// Workspace: what score_tiles left, and `lists` [B, list_capacity], room for `capacity` of every block.

constexpr u32 KEYS_AHEAD = 4, KEYS_AT_ONCE = 4 * KEYS_AHEAD * THREADS;

// The key of a position with a bonus or a nudge: seldom, so it is called.
template <class T>
__device__ __noinline__ float guided_key(const Step& step, i64 beam, i64 base, u32 p, float2 mass, float beam_score) {
    return position_key<T>(step, beam, base, p, mass, beam_score);
}

template <class T>
struct OpenTiles {
    const Step& step;
    int b;
    Bound bound;
    u32* numbers;  // [KEYS_AT_ONCE], in shared memory: of the opened tiles in the request, or of their threads
    Seen* opened;  // [THREADS], likewise
    u32* counter;
    float ahead;   // the key of the thread's own tile, where `one_each`

    // Whether the block has no more tiles than threads.
    __device__ __forceinline__ bool one_each() const { return static_cast<u32>(step.beams) * step.tiles <= gridDim.x * THREADS; }
    __device__ __forceinline__ u32 tile_of(u32 i) const {  // runs of eight neighbours go to the blocks in turns
        return ((i >> 3) * gridDim.x + blockIdx.x) * 8 + (i & 7);
    }
    // Asks for what is known of the thread's own tile, while the bound is not known yet.
    __device__ __forceinline__ void look_ahead() {
        if (!one_each()) return;
        const u32 tiles = static_cast<u32>(step.beams) * step.tiles, tile = tile_of(threadIdx.x);
        const bool there = tile < tiles;
        const u32 m = there ? tile / step.tiles : 0;
        ahead = __ldcg(step.scratch + b * step.scratch_stride + (there ? tile : 0));
        Seen seen = seen_of(step, static_cast<i64>(b) * step.beams + m);
        seen.place = (tile - m * step.tiles) * step.tile;
        if (!there) ahead = never();
        else opened[threadIdx.x] = seen;
    }

    // Calls f(there, number) for the candidates of the opened tiles, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        const u32 tiles = static_cast<u32>(step.beams) * step.tiles, blocks = gridDim.x;
        const float* const best = step.scratch + b * step.scratch_stride;
        const bool ready = one_each();
#pragma unroll 1
        for (u32 turn = 0; turn * KEYS_AT_ONCE * blocks < tiles; ++turn) {
            if (threadIdx.x == 0) *counter = 0;
            __syncthreads();
            if (ready) {
                if (bound.open(ahead)) numbers[atomicAdd(counter, 1u)] = threadIdx.x;
            } else {
#pragma unroll 1
                for (u32 from = 0; from < KEYS_AT_ONCE; from += KEYS_AHEAD * THREADS) {
                    if ((turn * KEYS_AT_ONCE + from) * blocks >= tiles) break;
                    float key[KEYS_AHEAD];
                    u32 tile[KEYS_AHEAD];
#pragma unroll
                    for (u32 k = 0; k < KEYS_AHEAD; ++k) {
                        tile[k] = tile_of(turn * KEYS_AT_ONCE + from + k * THREADS + threadIdx.x);
                        key[k] = tile[k] < tiles ? __ldcg(best + tile[k]) : never();
                    }
#pragma unroll
                    for (u32 k = 0; k < KEYS_AHEAD; ++k)
                        if (bound.open(key[k])) numbers[atomicAdd(counter, 1u)] = tile[k];
                }
            }
            __syncthreads();
            const u32 count = *counter;
#pragma unroll 1
            for (u32 from = 0; from < count; from += THREADS) {
                if (!ready) {
                    look_up(from, min(count - from, static_cast<u32>(THREADS)));
                    __syncthreads();
                }
                visit(ready, min(count - from, static_cast<u32>(THREADS)), f);
                __syncthreads();
            }
            __syncthreads();
        }
    }

    __device__ __forceinline__ void look_up(u32 from, u32 count) const {
        const u32 i = threadIdx.x;
        if (i >= count) return;
        const u32 tile = numbers[from + i], m = tile / step.tiles;
        Seen seen = seen_of(step, static_cast<i64>(b) * step.beams + m);
        seen.place = (tile - m * step.tiles) * step.tile;
        opened[i] = seen;
    }

    // Where an opened tile's record lies: in order, or where its thread put it.
    __device__ __forceinline__ u32 place_of(bool ready, u32 i) const { return ready ? numbers[i] : i; }

    // 32 positions to a warp at a time, four times over, with all loads on their way before the first use.
    template <class F> __device__ __forceinline__ void visit(bool ready, u32 count, F f) const {
        const u32 halves = step.tile == 64 ? 1 : 0, all = count << halves;
        const bool simple = step.bonus == nullptr && step.nudge == nullptr && step.bias == nullptr;
#pragma unroll 1
        for (u32 part = warp_id(); part < all; part += 4 * WARPS) {
            float key[4];
            if (simple) {
                u32 p[4];
                const auto tile_at = [&](u32 k) -> const Seen& { return opened[place_of(ready, min(part + k * WARPS, all - 1) >> halves)]; };
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    const u32 at = part + k * WARPS;
                    p[k] = at < all ? tile_at(k).place + (at & halves) * 32 + lane_id() : ~0u;
                }
                simple_keys<T>(step, static_cast<i64>(b) * step.beams, p, tile_at, key);
            } else {
#pragma unroll
                for (u32 k = 0; k < 4; ++k) key[k] = part + k * WARPS < all ? with_guidance(place_of(ready, (part + k * WARPS) >> halves), (part + k * WARPS) & halves) : never();
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                const u32 at = part + k * WARPS;
                if (at >= all) break;
                const Seen& tile = opened[place_of(ready, at >> halves)];
                f(bound.open(key[k]), rank_number(key[k], tile.beam * static_cast<u32>(step.tiles * step.tile) + tile.place + (at & halves) * 32 + lane_id()));
            }
        }
    }

    // The same with a bonus or a nudge.
    __device__ __forceinline__ float with_guidance(u32 at, u32 half) const {
        const Seen& tile = opened[at];
        const u32 size = tile.size, p = tile.place + half * 32 + lane_id();
        if (p >= size) return size == 0 && p == 0 ? or_dead(tile.score) : never();
        return guided_key<T>(step, static_cast<i64>(b) * step.beams + tile.beam, tile.base, p, tile.mass, tile.score);
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS, 2) open_tiles(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    u32* const numbers = carver.take<u32>(KEYS_AT_ONCE);
    Seen* const opened = carver.take<Seen>(THREADS);

    const u32 groups = static_cast<u32>(step.beams) * step.parts * groups_of_part(step);
    const float* const bests = step.groups + static_cast<i64>(b) * groups;
    const List list{step.lists + static_cast<i64>(b) * step.list_capacity, step.meetings + b};
    bool last;
    OpenTiles<T> source{step, b, Bound(), numbers, opened, chooser.words + 52, never()};
    source.look_ahead();
    const Bound bound = bound_of(bests, groups, step.width, numbers, KEYS_AT_ONCE, chooser.histogram, chooser.words);
    source.bound = bound;
    // Where rows begin, [M], when all tiles have been looked into: of one beam to a thread, as more would keep
    // the others waiting.
    i64* const starts = reinterpret_cast<i64*>(numbers);
    const bool known_starts = !is_listed(step) && step.beams <= THREADS - 32;
    const Gathered gathered = meet(source, chooser, bound, step.width, list, gridDim.x, last, [&] {
        const int m = threadIdx.x - 32;
        if (!known_starts || m >= step.beams) return;
        const i64 beam = static_cast<i64>(b) * step.beams + m, row = step.in_rows[beam];
        const bool live = m < static_cast<int>(step.in_count[b]) && !step.in_finished[beam];
        starts[m] = start_of(step.table.starts, live ? row : 0);
    });
    if (!last) return;

    const i64 first_beam = static_cast<i64>(b) * step.beams;
    const bool lists = is_listed(step);
    const u32 each = static_cast<u32>(step.tiles) * step.tile;
    const auto emit = [&](u32 place, u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot / each;
        const u32 p = slot - parent * each;
        const i64 beam = first_beam + parent;
        const float key = key_of(number);
        const Ancestors ancestors = ancestors_of(step, beam);
        const i64 row = step.in_rows[beam];
        const Seen seen = seen_of(step, beam);
        const bool was_finished = seen.size == 0;
        const i64 begin = lists ? seen.base : known_starts ? starts[parent] : start_of(step.table.starts, seen.base);
        const i64 entry = entry_at(step, seen.base, begin, p);
        const u32 token = lists ? token_at(step.table, entry) : p;
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr && !was_finished) score = token_score<T>(step, beam, token, seen.mass, seen.score);
        u8 finished = 1;
        i64 next = row;
        if (!was_finished) next = settle(step, entry, finished);
        write_beam(step, b, place, parent, ancestors, was_finished ? -1 : static_cast<int>(token), score, key, next, finished);
    };
    write_padding(step, b, choose(chooser, gathered, step.width, emit));
}
