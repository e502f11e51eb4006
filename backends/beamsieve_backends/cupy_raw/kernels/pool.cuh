// The last part of a step in one launch: from every block's own candidates to the `width` best of all
//
//     everyone = gather(own of each block)
//     for number in own: place = count(other < number for other in everyone); emit(place) if place < width
//
// Each block ranks what is its own, and writes those beams. Where some block has more candidates than
// its region holds, all blocks first find a limit that the width-th best stays below, byte by byte.

constexpr u32 MOST_BLOCKS = 16;

struct Pool {
    u64* everyone;   // [blocks * region]: a region for each block's candidates
    u64* own;        // [capacity], at least a region
    u32* count;      // [4]: how many are own, whether or not own holds them; the others are the caller's
    u32* counts;     // [MOST_BLOCKS]: of every block
    u32* sums;       // [256]
    u32* words;      // [BLOCK_WORDS]
    u64* chosen;     // [room]: own candidates after narrowing
    u32* kept;       // [room]: their places in own
    u32 region, capacity, room;
};

// What `make_pool` takes; chosen and kept are 12 bytes of the caller's for each of `room`.
__device__ __forceinline__ Pool make_pool(Carver& carver, u32 blocks, u32 region, u32 capacity, u32 width) {
    Pool pool;
    pool.everyone = carver.take<u64>(max(blocks * region, MOST_BLOCKS * 256u));
    pool.own = carver.take<u64>(capacity);
    pool.count = carver.take<u32>(4);
    pool.counts = carver.take<u32>(MOST_BLOCKS);
    pool.sums = carver.take<u32>(256);
    pool.words = carver.take<u32>(BLOCK_WORDS);
    pool.region = region;
    pool.capacity = capacity;
    pool.room = 2 * width;
    return pool;
}

// Puts a thread's candidate into own, and returns its place.
__device__ __forceinline__ u32 add_own(const Pool& pool, u64 number) {
    const u32 place = atomicAdd(pool.count, 1u);
    if (place < pool.capacity) pool.own[place] = number;
    return place;
}

// A warp writes `count` words into the same place of a peer.
__device__ __forceinline__ void give(const u32* from, u32* to, u32 count, u32 rank) {
    u32* const theirs = peer(to, rank);
    for (u32 i = lane_id(); i < count; i += 32) theirs[i] = from[i];
}

// `source.each(f)` calls f(number, place in own) for every candidate of the block, each in some thread.
//
// A number that the `width` best of all candidates do not exceed, and no more than `room` in all. What lay
// in `everyone` is overwritten.
template <class Source>
__device__ __noinline__ u64 limit_of(const Pool pool, const Source source, u32 width) {
    const u32 blocks = gridDim.x, me = blockIdx.x;
    u64 limit = 0;
    u32 rest = width;
    for (int shift = 56, turn = 0; shift >= 0; shift -= 8, turn ^= 1) {
        // [MOST_BLOCKS, 256], twice: a slow block may still read the ones before.
        u32* const histograms = reinterpret_cast<u32*>(pool.everyone) + turn * MOST_BLOCKS * 256;
        u32* const mine = histograms + me * 256;
        clear_histogram(mine, 256);
        source.each([&](u64 number, u32) {
            if ((shift == 56 || number >> (shift + 8) == limit)) atomicAdd(&mine[static_cast<u32>(number >> shift) & 255u], 1u);
        });
        __syncthreads();
        for (u32 rank = warp_id(); rank < blocks; rank += WARPS)
            if (rank != me) give(mine, mine, 256, rank);
        cluster_arrive();
        cluster_wait();
        if (threadIdx.x < 256) {
            u32 sum = 0;
            for (u32 rank = 0; rank < blocks; ++rank) sum += histograms[rank * 256 + threadIdx.x];
            pool.sums[threadIdx.x] = sum;
        }
        __syncthreads();
        const Bin byte = bin_reaching(pool.sums, pool.words, 256, rest);
        limit = limit << 8 | byte.bin;
        rest -= byte.before;
        const u32 passing = width - rest + pool.sums[byte.bin];
        __syncthreads();
        if (passing <= pool.room) return ((limit + 1) << shift) - 1;
    }
    return limit;
}

// Calls emit(place, number, place in own) in a whole warp for every candidate of the block that is one of the
// `width` best of all; returns how many are kept in all. Own candidates are complete, the block has met, and
// every block of the cluster may be written to.
template <class Source, class Emit>
__device__ __forceinline__ u32 rank_pool(const Pool& pool, const Source& source, u32 width, Emit emit) {
    const u32 blocks = gridDim.x, me = blockIdx.x, region = pool.region;
    u32 own = *pool.count;
    for (u32 rank = warp_id(); rank < blocks; rank += WARPS) {
        const u32* const mine = reinterpret_cast<const u32*>(pool.own);
        give(mine, reinterpret_cast<u32*>(pool.everyone + me * region), 2 * min(own, region), rank);
        if (lane_id() == 0) peer(pool.counts, rank)[me] = own;
    }
    cluster_arrive();
    cluster_wait();
    const u32 theirs = lane_id() < blocks ? pool.counts[lane_id()] : 0;
    const u32 total = __reduce_add_sync(EVERY_LANE, theirs);
    const bool narrowed = __ballot_sync(EVERY_LANE, theirs > region) != 0;
    u32 passing = 0;
    if (narrowed) {
        const u64 limit = limit_of(pool, source, width);
        if (threadIdx.x == 0) *pool.count = 0;
        __syncthreads();
        source.each([&](u64 number, u32 place) {
            if (number > limit) return;
            const u32 to = atomicAdd(pool.count, 1u);
            if (to >= pool.room) return;
            pool.chosen[to] = number;
            pool.kept[to] = place;
        });
        __syncthreads();
        own = *pool.count;
        for (u32 rank = warp_id(); rank < blocks; rank += WARPS)
            if (lane_id() == 0) peer(pool.counts, rank)[me] = own;
        cluster_arrive();
        cluster_wait();
        u32 begin = 0;
        for (u32 rank = 0; rank < blocks; ++rank) {
            if (rank < me) begin += pool.counts[rank];
            passing += pool.counts[rank];
        }
        for (u32 rank = warp_id(); rank < blocks; rank += WARPS)
            give(reinterpret_cast<const u32*>(pool.chosen), reinterpret_cast<u32*>(pool.everyone + begin), 2 * own, rank);
        cluster_arrive();
        cluster_wait();
    }
    // A lane compares with one of each block's at a time.
    const u32 turns = (__reduce_max_sync(EVERY_LANE, narrowed ? 0 : theirs) + 31) / 32;
#pragma unroll 1
    for (u32 at = warp_id(); at < own; at += WARPS) {
        const u64 number = narrowed ? pool.chosen[at] : pool.own[at];
        u32 before = 0;
#pragma unroll 1
        for (u32 turn = 0; turn < turns; ++turn) {
            const u32 k = turn * 32 + lane_id();
#pragma unroll 8
            for (u32 rank = 0; rank < blocks; ++rank)
                if (k < pool.counts[rank]) before += pool.everyone[rank * region + k] < number;
        }
        if (narrowed)
            for (u32 k = lane_id(); k < passing; k += 32) before += pool.everyone[k] < number;
        const u32 place = __reduce_add_sync(EVERY_LANE, before);
        if (place < width) emit(place, number, narrowed ? pool.kept[at] : at);
    }
    return min(total, width);
}

