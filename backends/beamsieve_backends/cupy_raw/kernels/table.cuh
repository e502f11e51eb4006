// The look-ups in a step's table, as the index stores it (`beamsieve.index.tables`, `.starts`, `.tokens`).
//
// Row r owns the entries start(r) : start(r + 1); an entry's position is its row in the next table.

// Where rows begin. Plain: an array. Identity: every row has one entry. Sampled: a bitmap with a set bit
// at start(r) + gap * r for every row, and of every 2^block_bits-th row the place of its bit.
struct Starts {
    const void* plain;       // [rows + 1], `bytes` each; null unless plain
    const u64* bits;         // sampled only, else null
    const void* samples;     // [ceil((rows + 1) / 2^block_bits)], `bytes` each, signed
    const void* exceptions;  // the starts of the rows of blocks that span more than 128 bits
    int bytes;
    int block_bits;
    int gap;                 // 1 where a row may be empty
};

// The place in `word` of its set bit number `left`, from 0.
__device__ __forceinline__ u32 place_of_bit(u64 word, u32 left) {
    u32 place = 0;
#pragma unroll
    for (u32 half = 32; half > 0; half >>= 1) {
        const u32 below = __popcll(word & ((1ull << half) - 1));
        if (left >= below) {
            left -= below;
            word >>= half;
            place += half;
        }
    }
    return place;
}

// What leads to a row's start, in the order in which it must be asked for: `sample` is the start itself unless
// `sampled`, and words[0] where it is negative.
struct StartWords {
    u64 words[3];
};
__device__ __forceinline__ bool sampled(const Starts& starts) { return starts.plain == nullptr && starts.bits != nullptr; }
__device__ __forceinline__ i64 sample_of(const Starts& starts, i64 row) {
    if (starts.plain != nullptr) return signed_at(starts.plain, starts.bytes, row);
    if (starts.bits == nullptr) return row;
    return signed_at(starts.samples, starts.bytes, row >> starts.block_bits);
}
__device__ __forceinline__ StartWords start_words(const Starts& starts, i64 row, i64 sample) {
    if (sample < 0) {
        const u32 left = static_cast<u32>(row) & ((1u << starts.block_bits) - 1u);
        return {{static_cast<u64>(signed_at(starts.exceptions, starts.bytes, ((-sample - 1) << starts.block_bits) + left)), 0, 0}};
    }
    const u64* const bits = starts.bits + (sample >> 6);
    return {{bits[0], bits[1], bits[2]}};
}
__device__ __forceinline__ i64 start_in(const Starts& starts, i64 row, i64 sample, const StartWords& found) {
    if (sample < 0) return static_cast<i64>(found.words[0]);
    u32 left = static_cast<u32>(row) & ((1u << starts.block_bits) - 1u);
    const int shift = static_cast<int>(sample & 63);
    const u64 begin = found.words[0] >> shift << shift;
    const u32 first = __popcll(begin), second = first + __popcll(found.words[1]);
    const int which = (left >= first) + (left >= second);
    const u64 word = which == 0 ? begin : which == 1 ? found.words[1] : found.words[2];
    left -= which == 0 ? 0 : which == 1 ? first : second;
    return (((sample >> 6) + which) << 6) + place_of_bit(word, left) - (starts.gap ? row : 0);
}

__device__ __forceinline__ i64 start_of(const Starts& starts, i64 row) {
    const i64 sample = sample_of(starts, row);
    return sampled(starts) ? start_in(starts, row, sample, start_words(starts, row, sample)) : sample;
}

struct Range {
    i64 begin, end;
    __device__ __forceinline__ u32 size() const { return static_cast<u32>(end - begin); }
};

// A row's range where its start or the next row's must be looked up by itself.
__device__ __noinline__ Range range_across(const Starts& starts, i64 row) { return {start_of(starts, row), start_of(starts, row + 1)}; }

// A row's first entry and the one behind its last. Every row has a bit, so the next row's is the next one
// that is set. Three words from the sample on hold the row's bit, and but for wide rows the next.
__device__ __forceinline__ Range range_of(const Starts& starts, i64 row) {
    if (starts.plain != nullptr) return {signed_at(starts.plain, starts.bytes, row), signed_at(starts.plain, starts.bytes, row + 1)};
    if (starts.bits == nullptr) return {row, row + 1};
    const u32 left = static_cast<u32>(row) & ((1u << starts.block_bits) - 1u);
    const i64 sample = signed_at(starts.samples, starts.bytes, row >> starts.block_bits);
    if (sample < 0) return range_across(starts, row);
    const u64* const bits = starts.bits + (sample >> 6);
    const int shift = static_cast<int>(sample & 63);
    const u64 words[3] = {bits[0] >> shift << shift, bits[1], bits[2]};
    const u32 first = __popcll(words[0]), second = first + __popcll(words[1]);
    if (left + 1 >= second + __popcll(words[2])) return range_across(starts, row);
    const u32 which = (left >= first) + (left >= second);
    const u64 word = which == 0 ? words[0] : which == 1 ? words[1] : words[2];
    const u32 place = place_of_bit(word, left - (which == 0 ? 0 : which == 1 ? first : second));
    // The rest of the word, or the next word that has a bit.
    const u64 rest = place == 63 ? 0 : word >> (place + 1);
    const u64 behind = rest != 0 ? rest : which == 0 && words[1] != 0 ? words[1] : words[2];
    const u32 from = rest != 0 ? which * 64 + place + 1 : which == 0 && words[1] != 0 ? 64 : 128;
    const i64 at = sample >> 6 << 6;
    const i64 begin = at + which * 64 + place, next = at + from + __ffsll(static_cast<i64>(behind)) - 1;
    return {begin - (starts.gap ? row : 0), next - (starts.gap ? row + 1 : 0)};
}

struct Table {
    Starts starts;
    const void* tokens;  // list layout: [entries], token_bits each, side by side
    const u64* bitmap;   // bitmap layout: [rows, words], else null
    const void* ranks;   // bitmap layout: [rows, groups], rank_bytes each: the row's tokens before 4 words
    int token_bits, rank_bytes;
    int words, groups;
};

// The token of an entry (list layout). A second word is read only where the token reaches into it; else the
// first once more, so that no load waits for a branch.
struct TokenWords {
    u32 first, second, shift;
};
__device__ __forceinline__ TokenWords words_at(const Table& table, i64 entry) {
    const i64 at = entry * table.token_bits;
    const u32 shift = static_cast<u32>(at) & 31u;
    const u32* const words = static_cast<const u32*>(table.tokens) + (at >> 5);
    return {words[0], words[shift + table.token_bits > 32], shift};
}
__device__ __forceinline__ u32 token_of(const Table& table, const TokenWords& words) {
    return static_cast<u32>((words.first | static_cast<u64>(words.second) << 32) >> words.shift) & (0xffffffffu >> (32 - table.token_bits));
}
__device__ __forceinline__ u32 token_at(const Table& table, i64 entry) { return token_of(table, words_at(table, entry)); }

__device__ __forceinline__ bool is_valid(const Table& table, i64 row, u32 token) {
    return table.bitmap[row * table.words + (token >> 6)] >> (token & 63) & 1;
}

// How many tokens of a row come before `token` (bitmap layout).
__device__ __forceinline__ u32 rank_of(const Table& table, i64 row, u32 token) {
    const u32 word = token >> 6;
    const u64* const words = table.bitmap + row * table.words + (word & ~3u);
    u32 rank = static_cast<u32>(integer_at(table.ranks, table.rank_bytes, row * table.groups + (word >> 2)));
    rank += __popcll(words[word & 3] & ((1ull << (token & 63)) - 1));
#pragma unroll
    for (u32 k = 0; k < 3; ++k)
        if (k < (word & 3)) rank += __popcll(words[k]);
    return rank;
}

// The token in place j of a row (bitmap layout): by bisection over the ranks, then through four words.
__device__ __noinline__ u32 token_by_rank(const Table& table, i64 row, u32 j) {
    int low = 0, high = table.groups - 1;  // the last group with at most j tokens before it
    while (low < high) {
        const int middle = (low + high + 1) >> 1;
        if (integer_at(table.ranks, table.rank_bytes, row * table.groups + middle) <= j) low = middle;
        else high = middle - 1;
    }
    u32 left = j - static_cast<u32>(integer_at(table.ranks, table.rank_bytes, row * table.groups + low));
    int word = low * 4;
    const u64* const words = table.bitmap + row * table.words;
    for (u32 here = __popcll(words[word]); left >= here && word + 1 < table.words; here = __popcll(words[word])) {
        left -= here;
        ++word;
    }
    return static_cast<u32>(word) * 64 + place_of_bit(words[word], left);
}
