// The second pass over tiles by a cluster of blocks: what pool_tiles and rank_tiles do alike.
//
// The bound is looked for in intervals of a fixed length below the best beam's score, which no key exceeds: so
// it needs no extent of the keys. Where the width-th best lies below all of them, it is found as open_tiles
// finds it. What becomes of a candidate is looked up while the blocks meet.

constexpr float PER_KEY = 64.0f;  // intervals of a key's unit

// Where a row begins (bitmap layout), of one beam to a thread: looked up step by step between other things, as
// each step waits for the one before.
struct Beginning {
    bool wanted;
    i64 row = 0, sample = 0;
    StartWords found{};

    __device__ __forceinline__ void ask_sample(const Starts& starts) {
        if (wanted) sample = sample_of(starts, row);
    }
    __device__ __forceinline__ void ask_words(const Starts& starts) {
        if (wanted && sampled(starts)) found = start_words(starts, row, sample);
    }
    __device__ __forceinline__ i64 place(const Starts& starts) const { return sampled(starts) ? start_in(starts, row, sample, found) : sample; }
};

// The bound of `count` keys in intervals below `most`, which no key exceeds; each thread knows the first KEYS_AHEAD of
// its own, key_at(i) tells the others. Where the width-th best is in none of them, `exact()`. `cleared` is a
// histogram of zeros; a barrier has passed.
template <class At, class Exact>
__device__ __forceinline__ Bound bound_below(float most, const float (&first)[KEYS_AHEAD], u32 count, u32 width, u32* cleared, u32* words, At key_at, Exact exact) {
    if (!is_finite(most)) return exact();
    Bound bound;
    bound.scale.high = most + 1.0f / PER_KEY;
    bound.scale.per_key = PER_KEY;
    float key[KEYS_AHEAD];
#pragma unroll
    for (u32 k = 0; k < KEYS_AHEAD; ++k) key[k] = first[k];
#pragma unroll 1
    for (u32 base = 0;;) {
#pragma unroll
        for (u32 k = 0; k < KEYS_AHEAD; ++k)
            if (key[k] > never()) atomicAdd(&cleared[bound.scale.bin_of(key[k])], 1u);
        base += KEYS_AT_ONCE;
        if (base >= count) break;
#pragma unroll
        for (u32 k = 0; k < KEYS_AHEAD; ++k) {
            const u32 i = base + k * THREADS + threadIdx.x;
            key[k] = i < count ? key_at(i) : never();
        }
    }
    __syncthreads();
    bound.last_bin = last_bin_of(cleared, words, width);
    if (bound.last_bin > 0 && bound.last_bin < BINS - 1) return bound;
    __syncthreads();
    return exact();
}

// Puts the candidates of the block's opened tiles into its own; returns how many they are.
template <class Source>
__device__ __forceinline__ u32 gather_own(const Source& source, const Pool& pool, const Chooser& chooser, u32 width) {
    source.each([&](bool there, u64 number) { append(chooser, pool.count, there, number); });
    u32 own = *pool.count;
    if (own <= pool.capacity) return own;
    __syncthreads();
    own = narrow(source, chooser, width, source.bound.keys()).count;
    if (threadIdx.x == 0) *pool.count = own;
    __syncthreads();
    return own;
}

// Ranks the blocks' candidates and writes the beams. look_up(number) says what becomes of one of the block's own.
template <class LookUp>
__device__ __forceinline__ void write_best(const Step& step, int b, const Pool& pool, u32 own, LookUp look_up) {
    const u32 width = step.width, turned = THREADS - 1 - threadIdx.x;  // the last warps look up, the first ones send
    Made made;
    const Ranked ranked = rank_pool(pool, OwnCandidates{pool.own, own}, width, [&] {
        if (turned < own) made = look_up(pool.own[turned]);
    });
#pragma unroll 1
    for (u32 at = turned; at < ranked.own; at += THREADS) {
        const u32 place = pool.places[at];
        if (place >= width) continue;
        const u64 number = ranked.narrowed ? pool.chosen[at] : pool.own[at];
        if (ranked.narrowed || at >= THREADS) made = look_up(number);
        const float key = key_of(number);
        write_beam(step, b, place, made.parent, made.ancestors, made.token, key, key, made.row, made.finished);
    }
    if (blockIdx.x == 0) write_padding(step, b, ranked.kept);
}
