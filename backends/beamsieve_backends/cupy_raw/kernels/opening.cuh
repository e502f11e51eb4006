// Opening tiles: the candidates of the tiles that reach a request's bound, and the choice among them.
//
//     list = [candidates of the tiles that reach the bound]      # spread over the blocks that call this
//     beams = choose(list)                                       # by the one that ends last
//
// open_tiles calls it with many blocks; score_tiles where its last block opens all tiles at once.

constexpr u32 KEYS_AHEAD = 8, KEYS_AT_ONCE = 2 * KEYS_AHEAD * THREADS;

// What is known of an opened tile, in shared memory.
struct Opened {
    u32* group;     // [KEYS_AT_ONCE]
    i64* base;      // [THREADS]: row (bitmap layout) or first entry (list layout)
    u32* size;      // [THREADS]: positions of the beam; 0 for a finished one
    float* score;   // [THREADS]
    float2* mass;   // [THREADS]
    u32* count;
};

template <class T>
struct OpenTiles {
    const Step& step;
    int b;
    Bound bound;
    u32 block, blocks;  // which of how many blocks share the tiles
    Opened opened;

    // Calls f(there, number) for the candidates of the opened tiles, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        const u32 groups = static_cast<u32>(step.beams) * step.tiles;
        const float* const best = step.scratch + b * step.scratch_stride;
        for (u32 turn = 0; turn * KEYS_AT_ONCE * blocks < groups; ++turn) {
            if (threadIdx.x == 0) *opened.count = 0;
            __syncthreads();
            for (u32 from = 0; from < KEYS_AT_ONCE; from += KEYS_AHEAD * THREADS) {
                if ((turn * KEYS_AT_ONCE + from) * blocks >= groups) break;
                float key[KEYS_AHEAD];
                u32 group[KEYS_AHEAD];
#pragma unroll
                for (u32 k = 0; k < KEYS_AHEAD; ++k) {  // runs of eight neighbours go to the blocks in turns
                    const u32 run = (turn * KEYS_AT_ONCE + from + k * THREADS + threadIdx.x) >> 3;
                    group[k] = (run * blocks + block) * 8 + (threadIdx.x & 7);
                    key[k] = group[k] < groups ? __ldcg(best + group[k]) : never();
                }
#pragma unroll
                for (u32 k = 0; k < KEYS_AHEAD; ++k)
                    if (bound.open(key[k])) opened.group[atomicAdd(opened.count, 1u)] = group[k];
            }
            __syncthreads();
            const u32 count = *opened.count;
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
        const i64 beam = static_cast<i64>(b) * step.beams + opened.group[from + i] / step.tiles;
        i64 base = step.in_rows[beam];
        u32 size = step.vocabulary;
        const bool finished = step.in_finished[beam];
        opened.score[i] = step.in_scores[beam];
        opened.mass[i] = __ldcg(step.masses + beam);
        if (finished) {
            size = 0;
        } else if (is_listed(step)) {
            const Range range = range_of(step.table.starts, base);
            size = range.size();
            base = range.begin;
        }
        opened.base[i] = base;
        opened.size[i] = size;
    }

    // 32 positions to a warp at a time, four times over before the first use.
    template <class F> __device__ __forceinline__ void visit(u32 from, u32 count, F f) const {
        const u32 parts = step.tile / 32, all = count * parts;
        for (u32 part = warp_id(); part < all; part += 4 * WARPS) {
            float key[4];
            u32 slot[4];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                const u32 at = part + k * WARPS;
                key[k] = never();
                slot[k] = 0;
                if (at >= all) continue;
                const u32 i = at / parts, group = opened.group[from + i], size = opened.size[i];
                const u32 m = group / step.tiles, inside = (at - i * parts) * 32 + lane_id();
                const u32 p = (group - m * step.tiles) * step.tile + inside;
                slot[k] = group * step.tile + inside;
                if (p < size) key[k] = position_key<T>(step, static_cast<i64>(b) * step.beams + m, opened.base[i], p, opened.mass[i], opened.score[i]);
                else if (size == 0 && p == 0) key[k] = or_dead(opened.score[i]);  // a finished beam
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                if (part + k * WARPS >= all) break;
                f(bound.open(key[k]), rank_number(key[k], slot[k]));
            }
        }
    }
};

template <class T>
__device__ __forceinline__ void open_and_choose(const Step& step, int b, const Bound& bound, Carver carver, u32 block, u32 blocks) {
    Chooser chooser = make_chooser(carver, step.capacity);
    Opened opened;
    opened.group = carver.take<u32>(KEYS_AT_ONCE);
    opened.base = carver.take<i64>(THREADS);
    opened.size = carver.take<u32>(THREADS);
    opened.score = carver.take<float>(THREADS);
    opened.mass = carver.take<float2>(THREADS);
    opened.count = chooser.words + 52;
    Meeting* const meeting = step.meetings + b;
    u64* const list = step.lists + static_cast<i64>(b) * step.list_capacity;

    OpenTiles<T> tiles{step, b, bound, block, blocks, opened};
    u32* const count = chooser.words + 50;
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    tiles.each([&](bool there, u64 number) { append(chooser, count, there, number); });
    __syncthreads();
    const bool alone = blocks == 1;
    u32 listed = *count;
    if (!alone) {
        list_survivors(chooser, listed, meeting, list, step.list_capacity);
        if (!arrived_last(&meeting->arrived, blocks, chooser.words)) return;
        listed = __ldcg(&meeting->listed);
        __syncthreads();
        if (threadIdx.x == 0) meeting->listed = 0;
    }
    const i64 first_beam = static_cast<i64>(b) * step.beams;
    const bool lists = is_listed(step);
    const u32 each = static_cast<u32>(step.tiles) * step.tile;
    const auto emit = [&](u32 place, u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot / each;
        const u32 p = slot - parent * each;
        const i64 beam = first_beam + parent;
        const float key = key_of(number);
        const i64 row = step.in_rows[beam];
        if (step.in_finished[beam]) {
            write_beam(step, b, place, parent, -1, key, key, row, 1);
            return;
        }
        const i64 entry = entry_at(step, row, start_of(step.table.starts, row), p);
        const u32 token = lists ? token_at(step.table, entry) : p;
        float score = key;  // without a nudge they are one
        if (step.nudge != nullptr) score = token_score<T>(step, beam, token, __ldcg(step.masses + beam), step.in_scores[beam]);
        u8 finished;
        const i64 next = settle(step, entry, finished);
        write_beam(step, b, place, parent, static_cast<int>(token), score, key, next, finished);
    };
    float high = tiles.bound.scale.high, low = tiles.bound.low();
    u32 alive;
    if (listed <= chooser.capacity && (alone || listed <= static_cast<u32>(step.list_capacity))) {
        if (!alone) {
            for (u32 i = threadIdx.x; i < listed; i += THREADS) chooser.survivors[i] = __ldcg(list + i);
            __syncthreads();
        }
        alive = listed;
    } else if (!alone && listed <= static_cast<u32>(step.list_capacity)) {
        alive = gather(Listed{list, listed}, chooser, step.width, high, low);
    } else {
        tiles.block = 0;
        tiles.blocks = 1;
        alive = narrow(tiles, chooser, step.width, high, low);
    }
    const u32 kept = choose(chooser, alive, high, low, step.width, emit);
    write_padding(step, b, kept);
}
