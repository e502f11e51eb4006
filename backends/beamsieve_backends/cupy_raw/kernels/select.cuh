// Ordered selection by one block: the `width` best candidates, by higher key, then lower slot.
//
//     best = sorted(candidates, key = (-key, slot))[:width]
//
// A candidate is one 64-bit number that ascends in that order: the key's order reversed above, the
// slot below. Slots ascend by (parent, token), so the order is total and the answer unique.
//
// Candidates are spread over BINS equal intervals between the worst and the best key. The bins are
// monotone in the key whatever the rounding, so those up to the one that holds the width-th best
// hold all that can be chosen, ties included. They are sorted by bin in shared memory, and inside a
// bin by counting. Many equal keys fill one bin: then a bitonic network sorts; and should more
// candidates pass than fit, the width-th smallest number is found byte by byte. Same answer always.

constexpr u32 BINS = 2048;
constexpr u32 BLOCK_WORDS = 64;
constexpr u32 CROWDED = 256;  // candidates in one bin from which counting costs more than sorting

struct Chooser {
    u64* survivors;  // [capacity]
    u64* sorted;     // [capacity]
    u32 capacity;    // a power of two, at least width
    u32* histogram;  // [BINS]
    u32* words;      // [BLOCK_WORDS]
};

__device__ __forceinline__ Chooser make_chooser(Carver& carver, u32 capacity) {
    Chooser chooser;
    chooser.survivors = carver.take<u64>(capacity);
    chooser.sorted = carver.take<u64>(capacity);
    chooser.capacity = capacity;
    chooser.histogram = carver.take<u32>(BINS);
    chooser.words = carver.take<u32>(BLOCK_WORDS);
    return chooser;
}

__device__ __forceinline__ u64 rank_number(float key, u32 slot) {
    return static_cast<u64>(~ordered(key)) << 32 | slot;
}
__device__ __forceinline__ u32 slot_of(u64 number) { return static_cast<u32>(number); }
__device__ __forceinline__ float key_of(u64 number) { return unordered(~static_cast<u32>(number >> 32)); }

// Equal intervals from the highest key downwards.
struct Scale {
    float high = 0.0f;
    float per_key = 0.0f;

    __device__ __forceinline__ Scale() {}
    __device__ __forceinline__ Scale(float highest, float lowest) {
        const float span = highest - lowest;
        high = highest;
        per_key = span > 0.0f && is_finite(span) ? fminf((BINS - 1) / span, 1e30f) : 0.0f;
    }
    __device__ __forceinline__ u32 bin_of(float key) const {
        return static_cast<u32>(fminf(fmaxf((high - key) * per_key, 0.0f), static_cast<float>(BINS - 1)));
    }
};

// Appends `number` where wanted; all lanes of the warp call it together. Counts beyond capacity too.
__device__ __forceinline__ void append(const Chooser& chooser, u32* count, bool wanted, u64 number) {
    const u32 mask = __ballot_sync(EVERY_LANE, wanted);
    if (mask == 0) return;
    u32 base = 0;
    if (lane_id() == 0) base = atomicAdd(count, __popc(mask));
    base = __shfl_sync(EVERY_LANE, base, 0);
    const u32 place = base + __popc(mask & ((1u << lane_id()) - 1u));
    if (wanted && place < chooser.capacity) chooser.survivors[place] = number;
}

struct Bin {
    u32 bin;
    u32 before;  // the count of the bins before
};

// The first bin at which the running count reaches `wanted`. A barrier lies between one call and the next.
__device__ __noinline__ Bin bin_reaching(const u32* histogram, u32* words, u32 bins, u32 wanted) {
    const u32 each = (bins + THREADS - 1) / THREADS;
    const u32 first = threadIdx.x * each;
    u32 mine = 0;
    for (u32 i = first; i < min(bins, first + each); ++i) mine += histogram[i];
    if (threadIdx.x == 0) {
        words[40] = bins - 1;
        words[41] = 0;
    }
    u32 running = block_scan(mine, words).before;  // passes a barrier
    if (running < wanted && running + mine >= wanted) {
        u32 bin = first;
        while (running + histogram[bin] < wanted) running += histogram[bin++];
        words[40] = bin;
        words[41] = running;
    }
    __syncthreads();
    return {words[40], words[41]};
}

// The first of BINS bins at which the running count reaches `wanted`, else the last. Every warp finds it, in
// two looks: which warp's share of the bins, and which bin there. A barrier lies before it and before `words`
// are used again.
__device__ __noinline__ u32 last_bin_of(const u32* histogram, u32* words, u32 wanted) {
    static_assert(BINS == 4 * THREADS, "a thread has four bins");
    const uint4* const bins = reinterpret_cast<const uint4*>(histogram);
    const uint4 own = bins[threadIdx.x];
    const u32 sum = __reduce_add_sync(EVERY_LANE, own.x + own.y + own.z + own.w);
    if (lane_id() == 0) words[warp_id()] = sum;
    __syncthreads();
    const u32 upto = warp_scan(lane_id() < WARPS ? words[lane_id()] : 0);
    const u32 reached = __ballot_sync(EVERY_LANE, upto >= wanted);
    if (reached == 0) return BINS - 1;
    const int share = __ffs(static_cast<int>(reached)) - 1;
    const u32 before = __shfl_sync(EVERY_LANE, upto, share == 0 ? 31 : share - 1);
    const uint4 four = bins[share * 32 + lane_id()];
    const u32 all = four.x + four.y + four.z + four.w;
    const u32 running = (share == 0 ? 0 : before) + warp_scan(all), begin = running - all;
    const int lane = __ffs(static_cast<int>(__ballot_sync(EVERY_LANE, running >= wanted))) - 1;
    const u32 later = (begin + four.x < wanted) + (begin + four.x + four.y < wanted) + (running - four.w < wanted);
    return __shfl_sync(EVERY_LANE, (share * 32 + lane_id()) * 4 + later, lane);
}

__device__ __forceinline__ void clear_histogram(u32* histogram, u32 bins) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < bins; i += THREADS) histogram[i] = 0;
    __syncthreads();
}

// The highest and the lowest key of some: -inf and +inf where there is none.
struct Extent {
    float high = never(), low = -never();

    __device__ __forceinline__ void note(float key) {
        high = fmaxf(high, key);
        low = fminf(low, key);
    }
};

// Of all that the threads saw, in every thread.
__device__ __noinline__ Extent block_extent(float high, float low, u32* words) {
    float* const places = reinterpret_cast<float*>(words);
    high = warp_max(high);
    low = -warp_max(-low);
    if (lane_id() == 0) {
        places[warp_id()] = high;
        places[WARPS + warp_id()] = low;
    }
    __syncthreads();
    Extent all;
    all.high = warp_max(places[lane_id() % WARPS]);
    all.low = -warp_max(-places[WARPS + lane_id() % WARPS]);
    __syncthreads();
    return all;
}

// The sum over the block, in every thread.
__device__ __forceinline__ float block_sum(float x, float* places) {
    x = warp_sum(x);
    if (lane_id() == 0) places[warp_id()] = x;
    __syncthreads();
    x = warp_sum(lane_id() < WARPS ? places[lane_id()] : 0.0f);
    __syncthreads();
    return x;
}

// What a selection has gathered in survivors: how many, and the extent of their keys.
struct Gathered {
    u32 count;
    Extent keys;
};

// The extent of what the threads saw, and the sum of their counts, in every thread.
__device__ __forceinline__ Gathered block_summary(const Extent& own, u32 count, u32* words) {
    const u32 sum = __reduce_add_sync(EVERY_LANE, count);
    if (lane_id() == 0) words[2 * WARPS + warp_id()] = sum;
    const Extent keys = block_extent(own.high, own.low, words);
    return {__reduce_add_sync(EVERY_LANE, lane_id() < WARPS ? words[2 * WARPS + lane_id()] : 0), keys};
}

// Sorts survivors[0 : count) upwards, by a bitonic network; `count` is at most capacity.
__device__ __noinline__ void sort_survivors(u64* survivors, u32 count) {
    u32 size = 2;
    while (size < count) size <<= 1;
    for (u32 i = count + threadIdx.x; i < size; i += THREADS) survivors[i] = ~0ull;
    __syncthreads();
    for (u32 run = 2; run <= size; run <<= 1) {
        for (u32 step = run >> 1; step > 0; step >>= 1) {
            for (u32 pair = threadIdx.x; pair < size / 2; pair += THREADS) {
                const u32 low = 2 * pair - (pair & (step - 1));
                const u64 a = survivors[low], b = survivors[low + step];
                if ((a > b) == ((low & run) == 0)) {
                    survivors[low] = b;
                    survivors[low + step] = a;
                }
            }
            // Up to a step of 32, the 32 pairs of a warp lie in 64 places that no other warp touches.
            if (step > 32 || (step == 1 && run >= 64)) __syncthreads();
            else __syncwarp();
        }
    }
    __syncthreads();
}

// Sorts the survivors by bin into `sorted`, and leaves every bin's end in the histogram; where one bin
// holds too many it sorts them where they are, and returns true.
__device__ __forceinline__ bool sort_by_bins(const Chooser& chooser, u32 count, const Scale& scale) {
    u32* const ends = chooser.histogram;
    if (threadIdx.x == 0) chooser.words[53] = 0;
    clear_histogram(ends, BINS);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += THREADS) atomicAdd(&ends[scale.bin_of(key_of(chooser.survivors[i]))], 1u);
    __syncthreads();
    constexpr u32 EACH = BINS / THREADS;
    u32 mine[EACH], sum = 0;
    bool crowded = false;
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        mine[k] = ends[threadIdx.x * EACH + k];
        sum += mine[k];
        crowded |= mine[k] > CROWDED;
    }
    if (crowded) atomicMax(chooser.words + 53, 1u);
    u32 running = block_scan(sum, chooser.words).before;
    if (chooser.words[53] != 0) {
        sort_survivors(chooser.survivors, count);
        return true;
    }
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        ends[threadIdx.x * EACH + k] = running;  // the bin's begin, which filling it turns into its end
        running += mine[k];
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const u64 number = chooser.survivors[i];
        chooser.sorted[atomicAdd(&ends[scale.bin_of(key_of(number))], 1u)] = number;
    }
    __syncthreads();
    return false;
}

// How many of the numbers are less than one.
__device__ __forceinline__ u32 count_below(const u64* numbers, u32 begin, u32 end, u64 number) {
    u32 below = 0;
#pragma unroll 4
    for (u32 k = begin; k < end; ++k) below += numbers[k] < number;
    return below;
}

// Calls emit(place, number) for the `width` best of the survivors, each in some thread; returns how many
// they are. They are sorted by bin, and find their places by counting within it. All that the survivors
// are made of has passed a barrier.
template <class Emit>
__device__ __forceinline__ u32 choose(const Chooser& chooser, const Gathered& gathered, u32 width, Emit emit) {
    const u32 count = gathered.count;
    if (count == 0) return 0;
    const Scale scale(gathered.keys.high, gathered.keys.low);
    const bool in_bins = !sort_by_bins(chooser, count, scale);
    const u64* const numbers = in_bins ? chooser.sorted : chooser.survivors;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        const u64 number = numbers[i];
        u32 place = i;
        if (in_bins) {
            const u32 bin = scale.bin_of(key_of(number));
            place = bin == 0 ? 0 : chooser.histogram[bin - 1];
            if (place < width) place += count_below(numbers, place, chooser.histogram[bin], number);
        }
        if (place < width) emit(place, number);
    }
    return min(count, width);
}
