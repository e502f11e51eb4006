// The last part of a step in one launch: from every block's own candidates to the `width` best of all
//
//     everyone = [sorted(own) of each block]
//     for number in own: place = sum(count(other < number for other in block) for block in everyone)
//
// Each block sorts what is its own into everyone's shared memory, and finds places there by bisection, a
// thread to a number and a block. Where some block has more candidates than its region holds, all blocks first
// find a limit that the width-th best stays below, byte by byte.

constexpr u32 MOST_BLOCKS = 16;

struct Pool {
    u64* everyone;   // [blocks, region + 1]: each block's candidates, in regions that begin in different banks
    u64* own;        // [capacity], at least a region
    u32* count;      // [4]: how many are own, whether or not own holds them; the others are the caller's
    u64* counts;     // [MOST_BLOCKS]: of every block
    u64* box;        // [2]: mailboxes, of which this takes the first
    u32* sums;       // [256]
    u32* words;      // [BLOCK_WORDS]
    u64* chosen;     // [room]: own candidates after narrowing
    u32* kept;       // [room]: their indices in own
    u32* places;     // [max(region, room)]: of own candidates, or of chosen ones, among everyone's
    u32 region, capacity, room;
};

// What `make_pool` takes, before the cluster begins; chosen and kept are 12 bytes of the caller's for each of `room`.
__device__ __forceinline__ Pool make_pool(Carver& carver, u32 blocks, u32 region, u32 capacity, u32 width) {
    Pool pool;
    pool.count = carver.take<u32>(4);
    pool.counts = carver.take<u64>(MOST_BLOCKS);
    pool.box = carver.take<u64>(2);
    pool.sums = carver.take<u32>(256);
    pool.words = carver.take<u32>(BLOCK_WORDS);
    pool.places = carver.take<u32>(max(region, 2 * width));
    pool.everyone = carver.take<u64>(max(blocks * (region + 1), MOST_BLOCKS * 256u));
    pool.own = carver.take<u64>(capacity);
    pool.region = region;
    pool.capacity = capacity;
    pool.room = 2 * width;
    if (threadIdx.x < 2) open_mailbox(pool.box + threadIdx.x, blocks);
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

// All of a block's, where they are more than its region holds.
struct OwnCandidates {
    const u64* numbers;
    u32 count;

    template <class F> __device__ __forceinline__ void each(F f) const {
        for (u32 i = threadIdx.x; i < count; i += THREADS) f(numbers[i], i);
    }
};

// Sends the block's `count` numbers to its region of every block, upwards: four threads to a number.
__device__ __forceinline__ void give_sorted(const Pool& pool, u32 count) {
    u64* const region = pool.everyone + blockIdx.x * (pool.region + 1);
    const u32 blocks = gridDim.x, part = threadIdx.x & 3;
#pragma unroll 1
    for (u32 base = warp_id() * 8; base < count; base += THREADS / 4) {
        const u32 i = base + lane_id() / 4;
        const u64 number = pool.own[min(i, count - 1)];
        u32 below = 0;
#pragma unroll 4
        for (u32 k = part; k < count; k += 4) below += pool.own[k] < number;
        below += __shfl_xor_sync(EVERY_LANE, below, 1);
        below += __shfl_xor_sync(EVERY_LANE, below, 2);
        if (i < count)
            for (u32 rank = part; rank < blocks; rank += 4) send(region + below, number, pool.box, rank);
    }
}

// The places of the block's `count` numbers among everyone's, of whom no block has more than `most`.
__device__ __forceinline__ void find_places(const Pool& pool, u32 count, u32 most) {
    const int bits = bit_of(gridDim.x);
    const u32 rank = threadIdx.x & (gridDim.x - 1);
    const u64* const region = pool.everyone + rank * (pool.region + 1);
    const u32 theirs = static_cast<u32>(pool.counts[rank]);
#pragma unroll 1
    for (u32 base = warp_id() * 32; base < count << bits; base += THREADS) {
        const u32 i = (base + lane_id()) >> bits;
        const u64 number = pool.own[min(i, count - 1)];
        u32 before = 0;
#pragma unroll 1
        for (u32 by = 1u << bit_of(most); by > 0; by >>= 1)
            if (before + by <= theirs && region[before + by - 1] < number) before += by;
#pragma unroll 1
        for (u32 by = 1; by < gridDim.x; by <<= 1) before += __shfl_xor_sync(EVERY_LANE, before, by);
        if (rank == 0 && i < count) pool.places[i] = before;
    }
}

// What rank_pool found.
struct Ranked {
    u32 own;        // numbers of the block that have a place: `own`, or where `narrowed` the `chosen` ones
    u32 kept;       // candidates that are chosen in all
    bool narrowed;
};

// Finds `places`, which count up to `width` where a candidate is one of the best of all. Own candidates are
// complete, the block has met, and the cluster has begun. All warps do `meanwhile` before they wait for the
// others, the first ones when they have sent what is the block's.
template <class Source, class Meanwhile>
__device__ __forceinline__ Ranked rank_pool(const Pool& pool, const Source& source, u32 width, Meanwhile meanwhile) {
    const u32 blocks = gridDim.x, me = blockIdx.x;
    u32 own = *pool.count;
    const bool fits = own <= pool.region;
    if (fits) give_sorted(pool, own);
    if (threadIdx.x < blocks) {
        send(pool.counts + me, own, pool.box, threadIdx.x);
        announce(pool.box, threadIdx.x, 8 * (1 + (fits ? own : 0)));
    }
    meanwhile();
    await_mail(pool.box);
    const u32 theirs = static_cast<u32>(lane_id()) < blocks ? static_cast<u32>(pool.counts[lane_id()]) : 0;
    const u32 total = __reduce_add_sync(EVERY_LANE, theirs), most = __reduce_max_sync(EVERY_LANE, theirs);
    const bool narrowed = most > pool.region;
    if (!narrowed) {
        if (own > 0) find_places(pool, own, most);
        __syncthreads();
        return {own, min(total, width), false};
    }
    cluster_arrive();  // what was sent has come to all of them
    cluster_wait();
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
    if (threadIdx.x < blocks) peer(pool.counts, threadIdx.x)[me] = own;
    cluster_arrive();
    cluster_wait();
    u32 begin = 0, passing = 0;
    for (u32 rank = 0; rank < blocks; ++rank) {
        if (rank < me) begin += static_cast<u32>(pool.counts[rank]);
        passing += static_cast<u32>(pool.counts[rank]);
    }
    for (u32 rank = warp_id(); rank < blocks; rank += WARPS)
        give(reinterpret_cast<const u32*>(pool.chosen), reinterpret_cast<u32*>(pool.everyone + begin), 2 * own, rank);
    cluster_arrive();
    cluster_wait();
#pragma unroll 1
    for (u32 at = warp_id(); at < own; at += WARPS) {
        const u64 number = pool.chosen[at];
        u32 before = 0;
        for (u32 k = lane_id(); k < passing; k += 32) before += pool.everyone[k] < number;
        before = __reduce_add_sync(EVERY_LANE, before);
        if (lane_id() == 0) pool.places[at] = before;
    }
    __syncthreads();
    return {own, min(total, width), true};
}
