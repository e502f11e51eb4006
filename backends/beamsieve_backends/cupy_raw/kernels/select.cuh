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
        return static_cast<u32>(fminf((high - key) * per_key, static_cast<float>(BINS - 1)));
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

// The first bin at which the running count reaches `wanted`, and the count before it.
__device__ __noinline__ u32 bin_reaching(const u32* histogram, u32* words, u32 bins, u32 wanted, u32& before) {
    const u32 each = (bins + THREADS - 1) / THREADS;
    const u32 first = threadIdx.x * each;
    u32 mine = 0, total;
    for (u32 i = first; i < min(bins, first + each); ++i) mine += histogram[i];
    u32 running = block_scan(mine, words, total);
    if (threadIdx.x == 0) {
        words[40] = bins - 1;
        words[41] = 0;
    }
    __syncthreads();
    if (running < wanted && running + mine >= wanted) {
        u32 bin = first;
        while (running + histogram[bin] < wanted) running += histogram[bin++];
        words[40] = bin;
        words[41] = running;
    }
    __syncthreads();
    const u32 bin = words[40];
    before = words[41];
    __syncthreads();
    return bin;
}

__device__ __forceinline__ void clear_histogram(u32* histogram, u32 bins) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < bins; i += THREADS) histogram[i] = 0;
    __syncthreads();
}

// The highest and lowest of what the threads saw (-inf and +inf for nothing), in every thread.
__device__ __noinline__ void block_range(float& high, float& low, u32* words) {
    float* const places = reinterpret_cast<float*>(words);
    high = warp_max(high);
    low = -warp_max(-low);
    if (lane_id() == 0) {
        places[warp_id()] = high;
        places[WARPS + warp_id()] = low;
    }
    __syncthreads();
    high = warp_max(places[lane_id() % WARPS]);
    low = -warp_max(-places[WARPS + lane_id() % WARPS]);
    __syncthreads();
}

// The same, and the sum of `count` over the block.
__device__ __noinline__ u32 block_summary(float& high, float& low, u32 count, u32* words) {
    const u32 sum = __reduce_add_sync(EVERY_LANE, count);
    if (lane_id() == 0) words[2 * WARPS + warp_id()] = sum;
    block_range(high, low, words);
    return __reduce_add_sync(EVERY_LANE, lane_id() < WARPS ? words[2 * WARPS + lane_id()] : 0);
}

// Sorts survivors[0 : count) upwards, by a bitonic network; `count` is at most capacity.
__device__ __noinline__ void sort_survivors(const Chooser& chooser, u32 count) {
    u32 size = 2;
    while (size < count) size <<= 1;
    for (u32 i = count + threadIdx.x; i < size; i += THREADS) chooser.survivors[i] = ~0ull;
    __syncthreads();
    for (u32 run = 2; run <= size; run <<= 1) {
        for (u32 step = run >> 1; step > 0; step >>= 1) {
            for (u32 pair = threadIdx.x; pair < size / 2; pair += THREADS) {
                const u32 low = 2 * pair - (pair & (step - 1));
                const u64 a = chooser.survivors[low], b = chooser.survivors[low + step];
                if ((a > b) == ((low & run) == 0)) {
                    chooser.survivors[low] = b;
                    chooser.survivors[low + step] = a;
                }
            }
            // Up to a step of 32, the 32 pairs of a warp lie in 64 places that no other warp touches.
            if (step > 32 || (step == 1 && run >= 64)) __syncthreads();
            else __syncwarp();
        }
    }
    __syncthreads();
}

// `source.each(f)` calls f(there, number) for every candidate, in all lanes of a warp together.
//
// What a selection does when more candidates are alive than fit: keeps those up to the bin that holds
// the width-th best, and if still too many pass, exactly the best. Leaves them in survivors, their
// range in high and low, and returns how many they are.
template <class Source>
__device__ __noinline__ u32 narrow(const Source& source, const Chooser& chooser, u32 width, float& high, float& low) {
    u32* const count = chooser.words + 50;
    const Scale scale(high, low);
    u32 before;
    clear_histogram(chooser.histogram, BINS);
    source.each([&](bool there, u64 number) {
        if (there) atomicAdd(&chooser.histogram[scale.bin_of(key_of(number))], 1u);
    });
    __syncthreads();
    const u32 last_bin = bin_reaching(chooser.histogram, chooser.words, BINS, width, before);
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    low = -never();
    source.each([&](bool there, u64 number) {
        const bool passes = there && scale.bin_of(key_of(number)) <= last_bin;
        append(chooser, count, passes, number);
        if (passes) low = fminf(low, key_of(number));
    });
    float ignored = high;
    block_range(ignored, low, chooser.words);
    u32 found = *count;
    __syncthreads();
    if (found <= chooser.capacity) return found;

    u64 limit = 0;  // the width-th smallest number, byte by byte
    u32 rest = width;
    for (int shift = 56; shift >= 0; shift -= 8) {
        clear_histogram(chooser.histogram, 256);
        source.each([&](bool there, u64 number) {
            const bool inside = there && (shift == 56 || number >> (shift + 8) == limit);
            const u32 byte = static_cast<u32>(number >> shift) & 255u;
            const u32 alike = __match_any_sync(EVERY_LANE, inside ? byte : 256u);
            if (inside && __ffs(static_cast<int>(alike)) - 1 == lane_id())
                atomicAdd(&chooser.histogram[byte], static_cast<u32>(__popc(alike)));
        });
        __syncthreads();
        const u32 byte = bin_reaching(chooser.histogram, chooser.words, 256, rest, before);
        limit = limit << 8 | byte;
        rest -= before;
    }
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    source.each([&](bool there, u64 number) { append(chooser, count, there && number <= limit, number); });
    __syncthreads();
    found = *count;
    __syncthreads();
    low = key_of(limit);
    return found;
}

// Gathers the candidates in survivors, and their range in high and low; returns how many they are.
template <class Source>
__device__ __forceinline__ u32 gather(const Source& source, const Chooser& chooser, u32 width, float& high, float& low) {
    u32* const counter = chooser.words + 50;
    if (threadIdx.x == 0) *counter = 0;
    __syncthreads();
    high = never();
    low = -never();
    source.each([&](bool there, u64 number) {
        append(chooser, counter, there, number);
        if (there) {
            high = fmaxf(high, key_of(number));
            low = fminf(low, key_of(number));
        }
    });
    block_range(high, low, chooser.words);
    const u32 count = *counter;
    __syncthreads();
    return count <= chooser.capacity ? count : narrow(source, chooser, width, high, low);
}

// Calls emit(place, number) for the `width` best of survivors[0 : count), whose keys lie between low
// and high, each in some thread; returns how many they are.
template <class Emit>
__device__ __forceinline__ u32 choose(const Chooser& chooser, u32 count, float high, float low, u32 width, Emit emit) {
    if (count == 0) return 0;
    u32* const ends = chooser.histogram;
    if (threadIdx.x == 0) chooser.words[53] = 0;
    clear_histogram(ends, BINS);
    // Sorted by bin; then each finds its place in its bin by counting those before it.
    const Scale scale(high, low);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += THREADS) atomicAdd(&ends[scale.bin_of(key_of(chooser.survivors[i]))], 1u);
    __syncthreads();
    constexpr u32 EACH = BINS / THREADS;
    u32 mine[EACH], sum = 0, total;
    bool crowded = false;
#pragma unroll
    for (u32 k = 0; k < EACH; ++k) {
        mine[k] = ends[threadIdx.x * EACH + k];
        sum += mine[k];
        crowded |= mine[k] > CROWDED;
    }
    if (crowded) atomicMax(chooser.words + 53, 1u);
    u32 running = block_scan(sum, chooser.words, total);
    crowded = chooser.words[53] != 0;
    if (crowded) {
        sort_survivors(chooser, count);
    } else {
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
    }
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        u64 number;
        u32 place = i;
        if (crowded) {
            number = chooser.survivors[i];
        } else {
            number = chooser.sorted[i];
            const u32 bin = scale.bin_of(key_of(number));
            place = bin == 0 ? 0 : ends[bin - 1];
            if (place >= width) continue;
#pragma unroll 1
            for (u32 k = place, end = ends[bin]; k < end; ++k) place += chooser.sorted[k] < number;
        }
        if (place < width) emit(place, number);
    }
    return min(count, width);
}

// --- candidates in tiles, of which the best keys are known
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
