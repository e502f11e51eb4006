// As open_tiles, where nobody kept the logits: those of halves of sixteens that reach the bound are made again.
//
//     for b: bound = as open_tiles finds it, a little lower                      # by each block for itself
//            list = [candidates of the halves that reach it, their logits hidden[m] . head[token]]
//            beams = choose(list)                                                # the block that ends last
//
// A product made again may differ from multiply_tiles' in its last bits, as its terms are added in another
// order. So the bound lies a bin below what the bests say: then all that these bits could bring among the
// chosen are in the list, unless the keys of a whole search lie within a few bits of each other. There too
// every opened tile lists its best, so that they never become too few. A candidate's numbers depend on its
// own beam and token alone. Grid and workspace as open_tiles.

constexpr u32 ROOM = 4 * KEYS_AT_ONCE;

// What is known of a tile that is opened.
struct Sixteened {
    u64 mask;     // its candidates, a bit to a token
    float2 mass;
    float score;
    u32 beam;     // m
    u32 place;    // its first token
    u32 whole;    // of a finished beam, which is itself the candidate
};

template <class T>
struct ReopenTiles {
    const Sixteens& in;
    int b;
    Bound bound;
    Share<false> share;
    Sixteened* opened;  // [THREADS], in shared memory
    float first[KEYS_AHEAD];

    // Calls f(there, number) for the candidates, in all lanes of a warp together.
    template <class F> __device__ __forceinline__ void each(F f) const {
        share.each(bound, first, [&](const u32* numbers, u32 count) {
            if (threadIdx.x < count) opened[threadIdx.x] = look_up(numbers[threadIdx.x]);
            __syncthreads();
#pragma unroll 1
            for (u32 i = warp_id(); i < count; i += WARPS) visit(opened[i], f);
        });
    }

    __device__ __forceinline__ Sixteened look_up(u32 number) const {
        const Step& step = in.step;
        const u32 m = number / step.tiles, tile = number - m * step.tiles;
        const i64 beam = static_cast<i64>(b) * step.beams + m;
        const bool finished = step.in_finished[beam];  // its row is none of this table
        const i64 row = finished ? 0 : step.in_rows[beam];
        Sixteened own{0, __ldcg(step.masses + beam), step.in_scores[beam], m, tile * 64, finished};
        const float2* const bests = reinterpret_cast<const float2*>(in.bests + (beam * in.pairs + tile / 2) * 4) + tile % 2;
        float2 best[4];
#pragma unroll
        for (u32 q = 0; q < 4; ++q) best[q] = __ldcg(bests + 2 * q);
        u64 valid = tile < static_cast<u32>(step.table.words) ? step.table.bitmap[row * step.table.words + tile] : 0;
        if (step.eligible != nullptr && static_cast<int>(tile * 2) < step.eligible_words) {
            const u32* const words = step.eligible + beam * step.eligible_words + tile * 2;
            const u32 second = static_cast<int>(tile * 2 + 1) < step.eligible_words ? words[1] : 0;
            valid &= words[0] | static_cast<u64>(second) << 32;
        }
#pragma unroll
        for (u32 q = 0; q < 4; ++q) {
            const u32 half = static_cast<u32>(sixteen(q));
            if (bound.open(or_dead(own.score + log_probability(best[q].x, own.mass)))) own.mask |= half;
            if (bound.open(or_dead(own.score + log_probability(best[q].y, own.mass)))) own.mask |= static_cast<u64>(half) << 32;
        }
        own.mask = finished ? 0 : own.mask & valid;
        return own;
    }

    // PIECE candidates of a tile at a time.
    template <class F> __device__ __forceinline__ void visit(const Sixteened& tile, F f) const {
        const Step& step = in.step;
        const u32 first = tile.beam << POSITION_BITS | tile.place;  // its first slot
        if (tile.whole) {
            f(lane_id() == 0, rank_number(or_dead(tile.score), first));
            return;
        }
        const i64 beam = static_cast<i64>(b) * step.beams + tile.beam;
        const T* const state = static_cast<const T*>(step.hidden) + beam * step.hidden_size;
        u64 left = tile.mask, best = ~0ull;
        bool listed = false;
#pragma unroll 1
        while (left != 0) {
            u32 own = 64;
#pragma unroll
            for (u32 k = 0; k < PIECE; ++k) {
                if (static_cast<u32>(lane_id()) == k && left != 0) own = __ffsll(static_cast<i64>(left)) - 1;
                left &= left - 1;
            }
            const bool wanted = own < 64;
            const float logit = piece_logit(step, state, tile.place + (wanted ? own : 0), wanted);
            const float key = or_dead(tile.score + log_probability(logit, tile.mass));
            const u64 number = rank_number(key, first + own);
            const bool open = wanted && bound.open(key);
            f(open, number);
            listed |= open;
            if (wanted && key > never() && number < best) best = number;
        }
        if (__any_sync(EVERY_LANE, listed)) return;
        u64 least = best;
#pragma unroll 1
        for (int by = 16; by > 0; by >>= 1) {
            const u64 other = __shfl_xor_sync(EVERY_LANE, least, by);
            if (other < least) least = other;
        }
        f(best == least && best != ~0ull, least);
    }
};

// Lower by a bin, and its highest key higher by two, which a product made again may pass.
__device__ __forceinline__ Bound loosened(Bound bound) {
    if (bound.scale.per_key > 0.0f) bound.scale.high += 2.0f / bound.scale.per_key;
    bound.last_bin = min(bound.last_bin + 3, BINS - 1);
    return bound;
}

template <class T>
__global__ void __launch_bounds__(THREADS, 1) reopen_tiles(const __grid_constant__ Sixteens in) {
    const Step& step = in.step;
    const int b = blockIdx.y;
    Carver carver;
    Chooser chooser = make_chooser(carver, step.capacity);
    u32* const numbers = carver.take<u32>(ROOM);
    Sixteened* const opened = carver.take<Sixteened>(THREADS);

    after_kernels_ahead();
    const u32 groups = static_cast<u32>(step.beams) * (step.slots / step.group), tiles = static_cast<u32>(step.beams) * step.tiles;
    const Share<false> share{step.scratch + static_cast<i64>(b) * tiles, tiles, numbers, ROOM, chooser.words + 52};
    ReopenTiles<T> source{in, b, Bound(), share, opened, {}};
    share.ask(0, source.first);
    source.bound = loosened(bound_of(step.groups + static_cast<i64>(b) * groups, groups, step.width, numbers, ROOM, chooser.histogram, chooser.words));
    bool last;
    const List list{step.lists + static_cast<i64>(b) * step.list_capacity, step.meetings + b};
    const Gathered gathered = meet(source, chooser, source.bound, step.width, list, gridDim.x, last, [] {});
    if (!last) return;
    kernel_behind_may_start();

    const auto emit = [&](u32 place, u64 number) {
        const u32 slot = slot_of(number);
        const int parent = slot >> POSITION_BITS;
        const i64 beam = static_cast<i64>(b) * step.beams + parent;
        const bool finished = step.in_finished[beam];
        const i64 row = finished ? 0 : step.in_rows[beam];
        const Made made = made_of(step, beam, parent, slot & POSITION, row, start_of(step.table.starts, row), finished);
        const float key = key_of(number);
        write_beam(step, b, place, parent, made.ancestors, made.token, key, key, made.row, made.finished);
    };
    write_padding(step, b, choose(chooser, gathered, step.width, emit));
}
