// A whole step of several beams in one launch, over the valid tokens alone: a cluster of blocks for each request.
//
//     for b in requests:
//         keys = [score[m] + log_probability(hidden[m] . head[v]) for m in beams for v in children(row[m])]
//         best = sorted(keys)[:width]      # higher key, then lower parent, then lower token
//
// Beam m belongs to block m % blocks, there to a warp, with the warp's other beams: a lane looks up a beam's
// row, then a lane a candidate's token, then the warp multiplies. A row of more than SHORT_ROW candidates is
// left to the whole block, one such row after another.
//
// No bonus, no nudge, normalised over catalog or eligible. Grid (blocks, B), the cluster (blocks, 1, 1).
// `list_capacity` candidates of each block are ranked at once, `staged` can be held by one, at least the
// sum of its rows. M <= blocks * WARPS * 32, V <= 2^20.

constexpr u32 SHORT_ROW = 64;    // candidates of a row that a warp takes
constexpr u32 WARP_ROOM = 256;   // candidates that a warp holds at once
constexpr int HISTORY = 4;       // tokens of a beam that are fetched ahead
constexpr u32 NO_TOKEN = 0xffffffffu;
constexpr int PLACE_BITS = 20;   // a candidate's slot: its beam, and its place in the beam's row

// Several beams: what a block knows of them.
struct Beams {
    i64* first;      // [beams of the block]: a row's first entry, -1 for a finished beam
    int* before;     // [beams of the block, HISTORY]: the first tokens that are decoded
    u32* tokens;     // [staged]: of own candidates
    float* logits;   // [WARPS, WARP_ROOM], or of a long row
    u32* names;      // [WARPS, WARP_ROOM]: tokens there
    u32* longs;      // [beams of the block]: those left to the block
    u32* long_count; // [1]
};

__device__ __forceinline__ void add_candidate(const Pool& pool, const Beams& beams, bool wanted, float key, u32 slot, u32 token) {
    if (!wanted || !(key > never())) return;
    const u32 place = add_own(pool, rank_number(key, slot));
    if (place < pool.capacity) beams.tokens[place] = token;
}

// A warp's beams: those of the block that are warp_id() + WARPS * lane.
template <class T>
__device__ __forceinline__ void short_rows(const Step& step, const Pool& pool, const Beams& own, int b) {
    const u32 blocks = gridDim.x;
    const i64 first_beam = static_cast<i64>(b) * step.beams;
    const u32 at = warp_id() + WARPS * lane_id();  // the lane's beam among the block's
    const int m = static_cast<int>(blockIdx.x + blocks * at);
    i64 begin = -1;
    u32 degree = 0;
    const bool there = m < step.beams;
    int before[HISTORY];
#pragma unroll
    for (int i = 0; i < HISTORY; ++i) before[i] = there && i < step.decoded ? step.in_tokens[(first_beam + m) * step.decoded + i] : 0;
    const i64 row = there ? step.in_rows[first_beam + m] : 0;
    const bool finished = there && step.in_finished[first_beam + m];
    const int count = static_cast<int>(step.in_count[b]);
    const float beam_score = there ? step.in_scores[first_beam + m] : never();
    const bool live = m < count;
    if (live) {
        if (!finished) {
            const Range range = range_of(step.table.starts, row);
            begin = range.begin;
            degree = range.size();
        }
        own.first[at] = begin;
#pragma unroll
        for (int i = 0; i < HISTORY; ++i) own.before[at * HISTORY + i] = before[i];
    }
    __syncthreads();  // the counters are zero
    add_candidate(pool, own, live && begin < 0, or_dead(beam_score), static_cast<u32>(m) << PLACE_BITS, NO_TOKEN);
    if (degree > SHORT_ROW) {
        own.longs[atomicAdd(own.long_count, 1u)] = at;
        degree = 0;
    }
    const u32 upto = warp_scan(degree);
    float* const logits = own.logits + warp_id() * WARP_ROOM;
    u32* const names = own.names + warp_id() * WARP_ROOM;
    const T* const hidden = static_cast<const T*>(step.hidden) + first_beam * step.hidden_size;
    const T* const head = static_cast<const T*>(step.head);
    const int lanes = static_cast<int>((static_cast<u32>(count) + blocks * WARPS - 1) >> bit_of(blocks * WARPS));  // that have beams
    u32 done = 0;
    while (done < __shfl_sync(EVERY_LANE, upto, 31)) {
        // As many whole beams as fit: candidates done : end of the warp.
        const u32 fits = __ballot_sync(EVERY_LANE, upto <= done + WARP_ROOM);
        const u32 end = __shfl_sync(EVERY_LANE, upto, 31 - __clz(static_cast<int>(fits)));
        for (u32 base = done; base < end; base += 32) {
            const u32 candidate = base + lane_id();
            int which = 0;  // the lane whose beam it is
            for (int k = 1; k < lanes; ++k) which += candidate >= __shfl_sync(EVERY_LANE, upto, k - 1);
            const u32 j = candidate - (__shfl_sync(EVERY_LANE, upto, which) - __shfl_sync(EVERY_LANE, degree, which));
            const i64 its_begin = __shfl_sync(EVERY_LANE, begin, which);
            const int its_m = __shfl_sync(EVERY_LANE, m, which);
            u32 token = 0;
            bool wanted = candidate < end;
            if (wanted) {
                token = token_in(step, first_beam + its_m, its_begin, j);
                names[candidate - done] = token;
                if (step.normalize == NORMALIZE_ELIGIBLE) wanted = is_eligible(step, first_beam + its_m, is_listed(step) ? j : token);
            }
            float logit = never();
            const int there = static_cast<int>(min(32u, end - base));
#pragma unroll 1
            for (int lane = 0; lane < there; lane += 4) {
                const T* states[4];
                const T* weights[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    states[k] = hidden + static_cast<i64>(__shfl_sync(EVERY_LANE, its_m, lane + k)) * step.hidden_size;
                    weights[k] = head + static_cast<i64>(__shfl_sync(EVERY_LANE, token, lane + k)) * step.hidden_size;
                }
                float sum[4];
                four_products(states, weights, step.hidden_size, step.aligned, sum);
                const int mine = lane_id() - lane;
                const float product = __shfl_sync(EVERY_LANE, four_sums(sum), mine * 8);
                if (mine >= 0 && mine < 4 && wanted) logit = product;
            }
            if (wanted) logit = or_dead(logit + bias_of(step, token));
            if (candidate < end) logits[candidate - done] = logit;
        }
        __syncwarp();
        // Each beam's denominator, by its lane.
        const u32 start = upto - degree;
        const bool here = degree > 0 && start >= done && upto <= end;
        float2 mass = make_float2(0.0f, 0.0f);
        if (here) mass = mass_of(logits + (start - done), 0, degree, 1).log();
        for (u32 base = done; base < end; base += 32) {
            const u32 candidate = base + lane_id();
            int which = 0;
            for (int k = 1; k < lanes; ++k) which += candidate >= __shfl_sync(EVERY_LANE, upto, k - 1);
            const u32 j = candidate - (__shfl_sync(EVERY_LANE, upto, which) - __shfl_sync(EVERY_LANE, degree, which));
            const int its_m = __shfl_sync(EVERY_LANE, m, which);
            float2 its_mass;
            its_mass.x = __shfl_sync(EVERY_LANE, mass.x, which);
            its_mass.y = __shfl_sync(EVERY_LANE, mass.y, which);
            const float score = __shfl_sync(EVERY_LANE, beam_score, which);
            bool wanted = candidate < end;
            u32 token = 0;
            float key = never();
            if (wanted) {
                token = names[candidate - done];
                if (is_eligible(step, first_beam + its_m, is_listed(step) ? j : token)) key = or_dead(score + log_probability(logits[candidate - done], its_mass));
            }
            add_candidate(pool, own, wanted, key, static_cast<u32>(its_m) << PLACE_BITS | j, token);
        }
        __syncwarp();
        done = end;
    }
}

// A row of many candidates, by the whole block.
template <class T>
__device__ __noinline__ void long_row(const Step& step, const Pool pool, const Beams own, int b, u32 at) {
    const i64 first_beam = static_cast<i64>(b) * step.beams;
    const int m = static_cast<int>(blockIdx.x + gridDim.x * at);
    const i64 begin = own.first[at];
    const u32 degree = range_of(step.table.starts, step.in_rows[first_beam + m]).size();
    const T* const state = static_cast<const T*>(step.hidden) + (first_beam + m) * step.hidden_size;
    for (u32 base = warp_id() * PIECE; base < degree; base += WARPS * PIECE) {
        const u32 j = base + lane_id();
        u32 token = 0;
        bool wanted = lane_id() < PIECE && j < degree;
        if (wanted) {
            token = token_in(step, first_beam + m, begin, j);
            if (step.normalize == NORMALIZE_ELIGIBLE) wanted = is_eligible(step, first_beam + m, is_listed(step) ? j : token);
        }
        const float logit = piece_logit(step, state, token, wanted);
        if (lane_id() < PIECE && j < degree) own.logits[j] = logit;
    }
    __syncthreads();
    const float2 mass = across_block(mass_of(own.logits, threadIdx.x, degree, THREADS).across_warp(), reinterpret_cast<float*>(pool.words)).log();
    const float score = step.in_scores[first_beam + m];
    for (u32 j = threadIdx.x; j < ((degree + 31) & ~31u); j += THREADS) {
        float key = never();
        u32 token = 0;
        if (j < degree) {
            token = token_in(step, first_beam + m, begin, j);
            if (is_eligible(step, first_beam + m, is_listed(step) ? j : token)) key = or_dead(score + log_probability(own.logits[j], mass));
        }
        add_candidate(pool, own, j < degree, key, static_cast<u32>(m) << PLACE_BITS | j, token);
    }
    __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(THREADS, 1) fused_rows(const __grid_constant__ Step step) {
    const int b = blockIdx.y;
    const u32 blocks = gridDim.x;
    Carver carver;
    const u32 held = (static_cast<u32>(step.beams) + blocks - 1) >> bit_of(blocks);
    Pool pool = make_pool(carver, blocks, step.list_capacity, max(step.staged, step.list_capacity), step.width);
    Beams own;
    own.first = carver.take<i64>(held);
    own.before = carver.take<int>(held * HISTORY);
    own.tokens = carver.take<u32>(step.staged);
    own.logits = carver.take<float>(max(WARPS * WARP_ROOM, max(static_cast<u32>(step.staged), 3 * pool.room)));
    own.names = carver.take<u32>(WARPS * WARP_ROOM);
    pool.chosen = reinterpret_cast<u64*>(own.logits);  // by then they are keys
    pool.kept = reinterpret_cast<u32*>(pool.chosen + pool.room);
    own.longs = carver.take<u32>(held);
    own.long_count = pool.count + 1;
    if (threadIdx.x < 2) pool.count[threadIdx.x] = 0;
    cluster_begin();
    after_kernels_ahead();
    short_rows<T>(step, pool, own, b);
    __syncthreads();
    const u32 longs = *own.long_count;
    for (u32 i = 0; i < longs; ++i) long_row<T>(step, pool, own, b, own.longs[i]);
    cluster_wait();  // every block has begun: its shared memory is there
    kernel_behind_may_start();
    const Ranked ranked = rank_pool(pool, OwnCandidates{pool.own, min(*pool.count, pool.capacity)}, step.width, [] {});
#pragma unroll 1
    for (u32 at = warp_id(); at < ranked.own; at += WARPS) {
        const u32 place = pool.places[at];
        if (place >= static_cast<u32>(step.width)) continue;
        const u32 i = ranked.narrowed ? pool.kept[at] : at;
        const u64 number = pool.own[i];
        const u32 slot = slot_of(number), token = own.tokens[i];
        const int m = static_cast<int>(slot >> PLACE_BITS);
        const u32 mine = static_cast<u32>(m) >> bit_of(blocks);
        const int* const before = step.decoded <= HISTORY ? own.before + mine * HISTORY : step.in_tokens + (static_cast<i64>(b) * step.beams + m) * step.decoded;
        const bool finished = token == NO_TOKEN;
        const i64 entry = finished ? step.in_rows[static_cast<i64>(b) * step.beams + m] : own.first[mine] + (slot & ((1u << PLACE_BITS) - 1u));
        write_beam_by_warp(step, b, place, m, before, finished ? -1 : static_cast<int>(token), key_of(number), entry);
    }
    if (blockIdx.x == 0) write_padding(step, b, ranked.kept);
}
