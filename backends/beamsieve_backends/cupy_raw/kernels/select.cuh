// Ordered selection by one block: the `width` best candidates, by higher key, then lower slot.
//
//     best = sorted(candidates, key = (-key, slot))[:width]
//
// A candidate is one 64-bit number that ascends in that order: the key's order reversed above, the
// slot below. Slots ascend by (parent, token), so the order is total and the answer unique.
//
// Candidates come in groups of which the best key is known (a group may be a single candidate). The
// best of each group is itself a candidate, so the width-th best group key bounds the width-th best
// candidate: groups below it are never opened. BINS equal intervals between the worst and the best
// group key find the bound; the bins are monotone in the key whatever the rounding, so nothing that
// ties with the bound is lost. What passes is sorted in shared memory. Should more pass than fit
// (many equal keys, say), the width-th smallest number is found byte by byte instead: same answer.

constexpr u32 BINS = 2048;
constexpr u32 BLOCK_WORDS = 64;

struct Chooser {
    u64* survivors;  // [capacity]; the chosen ones, sorted, in the end
    u32 capacity;    // a power of two, at least width
    u32* histogram;  // [BINS]
    u32* words;      // [BLOCK_WORDS]
};

__device__ __forceinline__ Chooser make_chooser(Carver& carver, u32 capacity) {
    Chooser chooser;
    chooser.survivors = carver.take<u64>(capacity);
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

// Counts one for `bin`; all lanes of the warp call it together. Lanes with the same bin add once.
__device__ __forceinline__ void count_one(u32* histogram, u32 bin, bool wanted) {
    const u32 alike = __match_any_sync(EVERY_LANE, wanted ? bin : 0xffffffffu);
    if (wanted && __ffs(static_cast<int>(alike)) - 1 == lane_id()) atomicAdd(&histogram[bin], __popc(alike));
}

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
__device__ __forceinline__ u32 bin_reaching(const Chooser& chooser, u32 bins, u32 wanted, u32& before) {
    const u32 each = (bins + THREADS - 1) / THREADS;
    const u32 first = threadIdx.x * each;
    u32 mine = 0, total;
    for (u32 i = first; i < min(bins, first + each); ++i) mine += chooser.histogram[i];
    u32 running = block_scan(mine, chooser.words, total);
    if (threadIdx.x == 0) {
        chooser.words[40] = bins - 1;
        chooser.words[41] = 0;
    }
    __syncthreads();
    if (running < wanted && running + mine >= wanted) {
        u32 bin = first;
        while (running + chooser.histogram[bin] < wanted) running += chooser.histogram[bin++];
        chooser.words[40] = bin;
        chooser.words[41] = running;
    }
    __syncthreads();
    const u32 bin = chooser.words[40];
    before = chooser.words[41];
    __syncthreads();
    return bin;
}

__device__ __forceinline__ void clear_histogram(const Chooser& chooser, u32 bins) {
    for (u32 i = threadIdx.x; i < bins; i += THREADS) chooser.histogram[i] = 0;
    __syncthreads();
}

// Sorts survivors[0 : count) upwards, by a bitonic network; `count` is at most capacity.
__device__ __forceinline__ void sort_survivors(const Chooser& chooser, u32 count) {
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

// `source.each_group(f)` calls f(key) for every group, in all lanes of a warp together (-inf for
// none); `source.each_candidate(open, f)` calls f(wanted, key, slot) for every candidate of the
// groups for which open(key), likewise; `source.single` says that a group is one candidate.
// Returns how many are chosen; survivors[0 : that) hold them in order.
template <class Source>
__device__ u32 choose(const Source& source, const Chooser& chooser, u32 width) {
    float high = never(), low = -never();
    u32 alive = 0;
    source.each_group([&](float key) {
        if (key > never()) {
            high = fmaxf(high, key);
            low = fminf(low, key);
            ++alive;
        }
    });
    u32 ignored;
    block_scan(alive, chooser.words, alive);
    high = warp_max(high);
    low = -warp_max(-low);
    if (lane_id() == 0) {
        reinterpret_cast<float*>(chooser.words)[lane_id() + warp_id()] = high;
        reinterpret_cast<float*>(chooser.words)[WARPS + warp_id()] = low;
    }
    __syncthreads();
    high = warp_max(lane_id() < WARPS ? reinterpret_cast<float*>(chooser.words)[lane_id()] : never());
    low = -warp_max(lane_id() < WARPS ? -reinterpret_cast<float*>(chooser.words)[WARPS + lane_id()] : never());
    __syncthreads();
    if (alive == 0) return 0;

    const float span = high - low;
    const float scale = span > 0.0f && is_finite(span) ? fminf((BINS - 1) / span, 1e30f) : 0.0f;
    const auto bin_of = [&](float key) {
        return static_cast<u32>(fminf((high - key) * scale, static_cast<float>(BINS - 1)));
    };
    u32 last_bin = BINS - 1;
    if (alive > (source.single ? chooser.capacity : width)) {
        clear_histogram(chooser, BINS);
        source.each_group([&](float key) {
            const bool there = key > never();
            count_one(chooser.histogram, there ? bin_of(key) : 0, there);
        });
        __syncthreads();
        last_bin = bin_reaching(chooser, BINS, width, ignored);
    }
    const auto open = [&](float key) { return key > never() && bin_of(key) <= last_bin; };

    u32* const count = chooser.words + 50;
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    source.each_candidate(open, [&](bool there, float key, u32 slot) {
        append(chooser, count, there && open(key), rank_number(key, slot));
    });
    __syncthreads();
    u32 found = *count;
    __syncthreads();

    if (found > chooser.capacity) {
        u64 limit = 0;
        u32 rest = width;
        for (int shift = 56; shift >= 0; shift -= 8) {
            clear_histogram(chooser, 256);
            source.each_candidate(open, [&](bool there, float key, u32 slot) {
                const u64 number = rank_number(key, slot);
                const bool inside = there && open(key) && (shift == 56 || number >> (shift + 8) == limit);
                count_one(chooser.histogram, static_cast<u32>(number >> shift) & 255u, inside);
            });
            __syncthreads();
            u32 before;
            const u32 byte = bin_reaching(chooser, 256, rest, before);
            limit = limit << 8 | byte;
            rest -= before;
        }
        if (threadIdx.x == 0) *count = 0;
        __syncthreads();
        source.each_candidate(open, [&](bool there, float key, u32 slot) {
            const u64 number = rank_number(key, slot);
            append(chooser, count, there && open(key) && number <= limit, number);
        });
        __syncthreads();
        found = *count;
        __syncthreads();
    }
    sort_survivors(chooser, found);
    return min(found, width);
}
