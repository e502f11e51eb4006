// What a selection does where more candidates are alive than it can keep: narrows them down.

// `source.each(f)` calls f(there, number) for every candidate, in all lanes of a warp together.
//
// What a selection does when more candidates are alive than fit: keeps those up to the bin that holds
// the width-th best, and if still too many pass, exactly the best. `keys` is the extent of all, or of
// the part that matters: what lies outside falls into the first or the last bin.
template <class Source>
__device__ __noinline__ Gathered narrow(const Source source, const Chooser chooser, u32 width, Extent keys) {
    u32* const count = chooser.words + 50;
    const Scale scale(keys.high, keys.low);
    clear_histogram(chooser.histogram, BINS);
    source.each([&](bool there, u64 number) {
        if (there) atomicAdd(&chooser.histogram[scale.bin_of(key_of(number))], 1u);
    });
    __syncthreads();
    const u32 last_bin = last_bin_of(chooser.histogram, chooser.words, width);
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    Extent own;
    source.each([&](bool there, u64 number) {
        const bool passes = there && scale.bin_of(key_of(number)) <= last_bin;
        append(chooser, count, passes, number);
        if (passes) own.note(key_of(number));
    });
    own = block_extent(own.high, own.low, chooser.words);
    const u32 found = *count;
    __syncthreads();
    if (found <= chooser.capacity) return {found, own};

    // The width-th smallest number, byte by byte. Where all keys begin alike, so do the numbers.
    u64 limit = 0;
    u32 rest = width;
    const u32 first = ~ordered(own.high), last = ~ordered(own.low);
    int shift = 56;
    for (; shift >= 32 && first >> (shift - 32) == last >> (shift - 32); shift -= 8) limit = first >> (shift - 32);
    for (; shift >= 0; shift -= 8) {
        clear_histogram(chooser.histogram, 256);
        source.each([&](bool there, u64 number) {
            if (there && (shift == 56 || number >> (shift + 8) == limit)) atomicAdd(&chooser.histogram[static_cast<u32>(number >> shift) & 255u], 1u);
        });
        __syncthreads();
        const Bin byte = bin_reaching(chooser.histogram, chooser.words, 256, rest);
        limit = limit << 8 | byte.bin;
        rest -= byte.before;
    }
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    source.each([&](bool there, u64 number) { append(chooser, count, there && number <= limit, number); });
    __syncthreads();
    own.low = key_of(limit);
    return {min(width, found), own};
}

// Candidates by their keys, -inf for a dead one; a candidate's slot is its place.
struct Keys {
    const float* keys;
    u32 total;

    template <class F> __device__ __forceinline__ void each(F f) const {
        constexpr u32 AHEAD = 4;
#pragma unroll 1
        for (u32 base = threadIdx.x; base < ((total + 31) & ~31u); base += AHEAD * THREADS) {
            float key[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k) key[k] = base + k * THREADS < total ? keys[base + k * THREADS] : never();
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k) f(key[k] > never(), rank_number(key[k], base + k * THREADS));
        }
    }
};

// Gathers the candidates in survivors.
template <class Source>
__device__ __forceinline__ Gathered gather(const Source& source, const Chooser& chooser, u32 width) {
    u32* const counter = chooser.words + 50;
    if (threadIdx.x == 0) *counter = 0;
    __syncthreads();
    Extent own;
    source.each([&](bool there, u64 number) {
        append(chooser, counter, there, number);
        if (there) own.note(key_of(number));
    });
    own = block_extent(own.high, own.low, chooser.words);
    const u32 count = *counter;
    __syncthreads();
    if (count <= chooser.capacity) return {count, own};
    return narrow(source, chooser, width, own);
}
