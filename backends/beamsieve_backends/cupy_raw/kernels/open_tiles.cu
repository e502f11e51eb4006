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

// What is known of an opened tile.
struct Opened {
    i64 base;     // row (bitmap layout) or first entry (list layout)
    float2 mass;
    float score;
    u32 beam;     // m
    u32 place;    // first position of the tile in its beam
    u32 size;     // positions of the beam; 0 for a finished one
};

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
    u32* numbers;    // [KEYS_AT_ONCE], in shared memory: numbers of the opened tiles in the request
    Opened* opened;  // [THREADS], likewise
    u32* counter;

    // Calls f(there, number) for the candidates of the opened tiles, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        const u32 tiles = static_cast<u32>(step.beams) * step.tiles, blocks = gridDim.x;
        const float* const best = step.scratch + b * step.scratch_stride;
#pragma unroll 1
        for (u32 turn = 0; turn * KEYS_AT_ONCE * blocks < tiles; ++turn) {
            if (threadIdx.x == 0) *counter = 0;
            __syncthreads();
#pragma unroll 1
            for (u32 from = 0; from < KEYS_AT_ONCE; from += KEYS_AHEAD * THREADS) {
                if ((turn * KEYS_AT_ONCE + from) * blocks >= tiles) break;
                float key[KEYS_AHEAD];
                u32 tile[KEYS_AHEAD];
#pragma unroll
                for (u32 k = 0; k < KEYS_AHEAD; ++k) {  // runs of eight neighbours go to the blocks in turns
                    const u32 run = (turn * KEYS_AT_ONCE + from + k * THREADS + threadIdx.x) >> 3;
                    tile[k] = (run * blocks + blockIdx.x) * 8 + (threadIdx.x & 7);
                    key[k] = tile[k] < tiles ? __ldcg(best + tile[k]) : never();
                }
#pragma unroll
                for (u32 k = 0; k < KEYS_AHEAD; ++k)
                    if (bound.open(key[k])) numbers[atomicAdd(counter, 1u)] = tile[k];
            }
            __syncthreads();
            const u32 count = *counter;
#pragma unroll 1
            for (u32 from = 0; from < count; from += THREADS) {
                look_up(from, min(count - from, static_cast<u32>(THREADS)));
                __syncthreads();
                visit(from, min(count - from, static_cast<u32>(THREADS)), f);
                __syncthreads();
            }
            __syncthreads();
        }
    }

    __device__ __forceinline__ void look_up(u32 from, u32 count) const {
        const u32 i = threadIdx.x;
        if (i >= count) return;
        const u32 tile = numbers[from + i], m = tile / step.tiles;
        const i64 beam = static_cast<i64>(b) * step.beams + m;
        const i64 row = step.in_rows[beam];
        const bool finished = step.in_finished[beam];  // its row is none of this table
        Opened own{finished ? 0 : row, __ldcg(step.masses + beam), step.in_scores[beam], m, (tile - m * step.tiles) * step.tile, static_cast<u32>(step.vocabulary)};
        if (is_listed(step)) {
            const Range range = range_of(step.table.starts, own.base);
            own.size = range.size();
            own.base = range.begin;
        }
        if (finished) own.size = 0;
        opened[i] = own;
    }

    // 32 positions to a warp at a time, four times over, with all loads on their way before the first use.
    template <class F> __device__ __forceinline__ void visit(u32 from, u32 count, F f) const {
        const u32 halves = step.tile == 64 ? 1 : 0, all = count << halves;
        const bool simple = step.bonus == nullptr && step.nudge == nullptr && step.bias == nullptr;
#pragma unroll 1
        for (u32 part = warp_id(); part < all; part += 4 * WARPS) {
            float key[4];
            if (simple) {
                simple_keys(part, all, halves, key);
            } else {
#pragma unroll
                for (u32 k = 0; k < 4; ++k) key[k] = part + k * WARPS < all ? with_guidance(part + k * WARPS, halves) : never();
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                const u32 at = part + k * WARPS;
                if (at >= all) break;
                f(bound.open(key[k]), rank_number(key[k], numbers[from + (at >> halves)] * step.tile + (at & halves) * 32 + lane_id()));
            }
        }
    }

    // The keys of the lane's positions in four halves or whole tiles, -inf where there is no candidate.
    __device__ __forceinline__ void simple_keys(u32 part, u32 all, u32 halves, float (&key)[4]) const {
        const bool lists = is_listed(step), scaled = step.left_units != nullptr;
        const T* const logits = static_cast<const T*>(step.logits);
        u32 p[4], v[4], bits[4];
        float x[4], unit[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            const u32 at = part + k * WARPS;
            const Opened& tile = opened[min(at, all - 1) >> halves];
            p[k] = at < all ? tile.place + (at & halves) * 32 + lane_id() : ~0u;
            v[k] = p[k] < tile.size ? p[k] : 0;  // something that is there, so that no load waits for a branch
        }
        if (lists) {
            TokenWords words[4];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) words[k] = words_at(step.table, opened[min(part + k * WARPS, all - 1) >> halves].base + v[k]);
#pragma unroll
            for (u32 k = 0; k < 4; ++k) v[k] = token_of(step.table, words[k]);
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            const Opened& tile = opened[min(part + k * WARPS, all - 1) >> halves];
            const i64 beam = static_cast<i64>(b) * step.beams + tile.beam;
            bits[k] = lists ? ~0u : reinterpret_cast<const u32*>(step.table.bitmap + tile.base * step.table.words)[v[k] >> 5];
            if (step.eligible != nullptr && p[k] < tile.size) {  // numbered by position, as the bitmap is by token
                const u32 word = step.eligible[beam * step.eligible_words + (p[k] >> 5)];
                bits[k] = lists ? (word >> (p[k] & 31) & 1u) << (v[k] & 31) : bits[k] & word;
            }
            x[k] = number(logits[beam * step.vocabulary + v[k]]);
            unit[k] = scaled ? step.left_units[beam] * step.right_units[v[k]] : 1.0f;
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            x[k] = settled(x[k]);
            bits[k] = settled(bits[k]);
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            const Opened& tile = opened[min(part + k * WARPS, all - 1) >> halves];
            const float score = tile.score;
            const float logit = or_dead(scaled ? x[k] * unit[k] : x[k]);
            key[k] = or_dead(score + log_probability(logit, tile.mass));
            if (p[k] >= tile.size || !(bits[k] >> (v[k] & 31) & 1u)) key[k] = never();
            if (tile.size == 0 && p[k] == 0) key[k] = or_dead(score);  // a finished beam
        }
    }

    // The same with a bonus or a nudge.
    __device__ __forceinline__ float with_guidance(u32 at, u32 halves) const {
        const Opened& tile = opened[at >> halves];
        const u32 size = tile.size, p = tile.place + (at & halves) * 32 + lane_id();
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
    Opened* const opened = carver.take<Opened>(THREADS);

    const u32 groups = static_cast<u32>(step.beams) * (step.parts * step.slots / step.group);
    const Bound bound = bound_of(step.groups + static_cast<i64>(b) * groups, groups, step.width, numbers, KEYS_AT_ONCE, chooser.histogram, chooser.words);
    bool last;
    const List list{step.lists + static_cast<i64>(b) * step.list_capacity, step.meetings + b};
    const Gathered gathered = meet(OpenTiles<T>{step, b, bound, numbers, opened, chooser.words + 52}, chooser, bound, step.width, list, gridDim.x, last);
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
        const bool was_finished = step.in_finished[beam];
        const i64 known = was_finished ? 0 : row;  // looked up in any case, so that no load waits for a branch
        const i64 entry = entry_at(step, known, start_of(step.table.starts, known), p);
        const u32 token = lists ? token_at(step.table, entry) : p;
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr && !was_finished) score = token_score<T>(step, beam, token, __ldcg(step.masses + beam), step.in_scores[beam]);
        u8 finished = 1;
        i64 next = row;
        if (!was_finished) next = settle(step, entry, finished);
        write_beam(step, b, place, parent, ancestors, was_finished ? -1 : static_cast<int>(token), score, key, next, finished);
    };
    write_padding(step, b, choose(chooser, gathered, step.width, emit));
}
