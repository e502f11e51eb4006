// Candidates in tiles, of which the best keys are known: the bound, and the list that blocks share.
//
// The best of a tile, or of a group of tiles, is itself a candidate, so the width-th best of these
// bounds the width-th best candidate: tiles below it need not be opened. Every block finds the bound
// for itself, and opens its share of the tiles; the block that ends last chooses. A block whose share
// holds more candidates than it can keep narrows them down to those that can be chosen, so that many
// equal keys cost every block a few looks at its share, and the last block a look at what is left.

struct Bound {
    Scale scale;
    u32 last_bin = 0;

    __device__ __forceinline__ bool open(float key) const { return key > never() && scale.bin_of(key) <= last_bin; }
    // The highest key, and about the lowest that is let through.
    __device__ __forceinline__ Extent keys() const {
        Extent extent;
        extent.high = scale.high;
        extent.low = scale.per_key > 0.0f ? scale.high - (last_bin + 1) / scale.per_key : scale.high;
        return extent;
    }
};

// What the blocks of one request share: zero between kernels.
struct Meeting {
    u32 arrived;  // blocks that have ended
    u32 listed;   // candidates in the request's list
};

// The bound of `count` keys at `best`, in every block. `kept`, of `room` words, spares the second look at
// the first of them.
__device__ __noinline__ Bound bound_of(const float* best, u32 count, u32 width, u32* kept, u32 room, u32* histogram, u32* words) {
    Extent own;
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
            own.high = fmaxf(own.high, key[k]);
            own.low = fminf(own.low, key[k] > never() ? key[k] : -never());
        }
    }
#pragma unroll 1
    for (u32 i = threadIdx.x; i < BINS; i += THREADS) histogram[i] = 0;
    own = block_extent(own.high, own.low, words);  // passes a barrier
    Bound bound;
    if (own.high == never()) return bound;
    bound.scale = Scale(own.high, own.low);
#pragma unroll 1
    for (u32 base = threadIdx.x; base < count; base += AHEAD * THREADS) {
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) {
            const u32 i = base + k * THREADS;
            if (i >= count) break;
            const float key = i < room ? __int_as_float(static_cast<int>(kept[i])) : best[i];
            if (key > never()) atomicAdd(&histogram[bound.scale.bin_of(key)], 1u);
        }
    }
    __syncthreads();
    bound.last_bin = last_bin_of(histogram, words, width);
    return bound;
}

// A request's list: room for all that its blocks can bring.
struct List {
    u64* places;
    Meeting* meeting;
};

struct Listed {
    const u64* places;
    u32 count;

    template <class F> __device__ __forceinline__ void each(F f) const {
        constexpr u32 AHEAD = 4;
#pragma unroll 1
        for (u32 base = threadIdx.x; base < ((count + 31) & ~31u); base += AHEAD * THREADS) {
            u64 number[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k) number[k] = base + k * THREADS < count ? __ldcg(places + base + k * THREADS) : 0;
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k) f(base + k * THREADS < count, number[k]);
        }
    }
};

// What is chosen from, in the block of `blocks` that ends last; in the others `last` is false. `source.each`
// goes through the candidates of this block's share that the bound lets through. All warps but the first
// do `meanwhile` while that one waits to hear whether the others have ended.
template <class Source, class Meanwhile>
__device__ __forceinline__ Gathered meet(const Source& source, const Chooser& chooser, const Bound& bound, u32 width, const List& list, u32 blocks, bool& last, Meanwhile meanwhile) {
    u32* const counter = chooser.words + 50;
    if (threadIdx.x == 0) *counter = 0;
    __syncthreads();
    source.each([&](bool there, u64 number) { append(chooser, counter, there, number); });
    __syncthreads();
    Gathered own{*counter, bound.keys()};
    __syncthreads();
    if (own.count > chooser.capacity) own = narrow(source, chooser, width, own.keys);
    last = true;
    if (blocks == 1) {
        if (warp_id() > 0) meanwhile();
        __syncthreads();
        return own;
    }
    if (threadIdx.x == 0) chooser.words[51] = own.count == 0 ? 0 : atomicAdd(&list.meeting->listed, own.count);
    __syncthreads();
    u64* const to = list.places + chooser.words[51];
#pragma unroll 1
    for (u32 i = threadIdx.x; i < own.count; i += THREADS) to[i] = chooser.survivors[i];
    __syncthreads();
    if (threadIdx.x == 0) chooser.words[0] = arrive(&list.meeting->arrived, blocks - 1) == blocks - 1;
    if (warp_id() > 0) meanwhile();
    __syncthreads();
    last = chooser.words[0] != 0;
    if (!last) return own;
    const u32 count = __ldcg(&list.meeting->listed);
    __syncthreads();
    if (threadIdx.x == 0) list.meeting->listed = 0;
    if (count > chooser.capacity) return gather(Listed{list.places, count}, chooser, width);
    constexpr u32 AHEAD = 4;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < count; base += AHEAD * THREADS) {
        u64 number[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k) number[k] = base + k * THREADS < count ? __ldcg(list.places + base + k * THREADS) : 0;
#pragma unroll
        for (u32 k = 0; k < AHEAD; ++k)
            if (base + k * THREADS < count) chooser.survivors[base + k * THREADS] = number[k];
    }
    __syncthreads();
    return {count, bound.keys()};
}
