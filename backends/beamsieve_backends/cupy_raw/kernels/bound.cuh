// Candidates in tiles, of which the best keys are known: the bound, and the list that blocks share.
//
// The best of a tile is itself a candidate, so the width-th best tile bounds the width-th best
// candidate: tiles below it need not be opened.

struct Bound {
    Scale scale;
    u32 last_bin = 0;

    __device__ __forceinline__ bool open(float key) const { return key > never() && scale.bin_of(key) <= last_bin; }
    // About the lowest key that is let through.
    __device__ __forceinline__ float low() const { return scale.per_key > 0.0f ? scale.high - (last_bin + 1) / scale.per_key : scale.high; }
};

// What the blocks of one request share: zero between kernels.
struct Meeting {
    u32 arrived;  // blocks that have ended
    u32 high;     // ordered() of the highest tile key so far, 0 for none
    u32 low;      // ~ordered() of the lowest, 0 for none
    u32 listed;   // candidates in the request's list, and above its capacity once it overflowed
};

// The block's part in the range of tile keys.
__device__ __forceinline__ void meet_range(Meeting* meeting, float high, float low, u32* words) {
    block_range(high, low, words);
    if (threadIdx.x == 0 && high > never()) {
        atomicMax(&meeting->high, ordered(high));
        atomicMax(&meeting->low, ~ordered(low));
    }
}

// By the block that arrived last: the bound of `tiles` keys at `best`.
__device__ __forceinline__ Bound find_bound(Meeting* meeting, const float* best, u32 tiles, u32 width, u32* histogram, u32* words) {
    Bound bound;
    const u32 high = __ldcg(&meeting->high), low = __ldcg(&meeting->low);
    __syncthreads();
    if (threadIdx.x == 0) meeting->high = meeting->low = 0;
    if (high == 0) return bound;
    bound.scale = Scale(unordered(high), unordered(~low));
    clear_histogram(histogram, BINS);
    constexpr u32 AHEAD = 8;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < tiles; base += AHEAD * THREADS) {
        float key[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) key[k] = base + k * THREADS < tiles ? __ldcg(best + base + k * THREADS) : never();
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            if (key[k] > never()) atomicAdd(&histogram[bound.scale.bin_of(key[k])], 1u);
        }
    }
    __syncthreads();
    u32 before;
    bound.last_bin = bin_reaching(histogram, words, BINS, width, before);
    return bound;
}

// The bound of `count` keys at `best`, found by every block for itself: it waits for no other. `kept`, of
// `room` words, spares the second look at the first of them.
__device__ __noinline__ Bound bound_of(const float* best, u32 count, u32 width, u32* kept, u32 room, const Chooser& chooser) {
    float high = never(), low = -never();
    constexpr u32 AHEAD = 8;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < count; base += AHEAD * THREADS) {
        float key[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) key[k] = base + k * THREADS < count ? best[base + k * THREADS] : never();
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            const u32 i = base + k * THREADS;
            if (i < min(count, room)) kept[i] = static_cast<u32>(__float_as_int(key[k]));
            high = fmaxf(high, key[k]);
            low = fminf(low, key[k] > never() ? key[k] : -never());
        }
    }
    clear_histogram(chooser.histogram, BINS);
    block_range(high, low, chooser.words);
    Bound bound;
    if (high == never()) return bound;
    bound.scale = Scale(high, low);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const float key = i < room ? __int_as_float(static_cast<int>(kept[i])) : best[i];
        if (key > never()) atomicAdd(&chooser.histogram[bound.scale.bin_of(key)], 1u);
    }
    __syncthreads();
    u32 before;
    bound.last_bin = bin_reaching(chooser.histogram, chooser.words, BINS, width, before);
    return bound;
}

// The request's list, of at most `capacity` candidates, as the last block's survivors: several to a
// thread are on their way at a time.
__device__ __forceinline__ void take_list(const Chooser& chooser, const u64* list, u32 count) {
    constexpr u32 AHEAD = 4;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < count; base += AHEAD * THREADS) {
        u64 number[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) number[k] = base + k * THREADS < count ? __ldcg(list + base + k * THREADS) : 0;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k)
            if (base + k * THREADS < count) chooser.survivors[base + k * THREADS] = number[k];
    }
    __syncthreads();
}

// Moves the block's survivors to the request's list; more than fit are only counted.
__device__ __forceinline__ void list_survivors(const Chooser& chooser, u32 found, Meeting* meeting, u64* list, u32 capacity) {
    if (threadIdx.x == 0) chooser.words[51] = found == 0 ? 0 : atomicAdd(&meeting->listed, found > chooser.capacity ? capacity + 1 : found);
    __syncthreads();
    const u32 base = chooser.words[51];
#pragma unroll 1
    for (u32 i = threadIdx.x; i < min(found, chooser.capacity); i += THREADS)
        if (base + i < capacity) list[base + i] = chooser.survivors[i];
}

struct Listed {
    const u64* list;
    u32 count;
    template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < ((count + 31) & ~31u); i += THREADS) f(i < count, i < count ? __ldcg(list + i) : 0);
    }
};
