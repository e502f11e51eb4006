// Targeting: which positions of each beam its request may go on to, one bit each.
//
//     bit(b, m, p) = exact(b, e) and any(part passes for part in parts(e)),  e the entry at position p
//     part passes  = (bits[part] & asked[b]) == asked[b]
//                    and for each Bloom attribute: any(signature within blooms[part])
//     exact(b, e)  = a permitted leaf lies in e's leaf interval
//
// The Bloom test turns the question around. For every nibble of a row and every value it may have, a
// table says which of the request's signatures that nibble rules out (rule_out.cu). A candidate ORs
// one entry per nibble, and passes if a signature is left; it stops once none is. There is no loop
// over signatures, and a warp's look-ups never share a bank: the 16 entries of a nibble fill them.
//
// Grid (blocks per request, B); a warp to 32 positions. The request's masks are in shared memory
// once per block; bits go before Bloom; words that ask nothing are never read. A part's bits and Bloom
// words lie side by side in one row.

constexpr int MOST_BLOOMS = 8;

struct Bloom {
    const u64* ruled_out;   // [B, groups, words * 16, 16]; a bit per signature of the group of 64
    const int* count;       // [B]: signatures; 0 asks nothing
    int words;
    int offset;             // where the attribute's words begin in a row
    int groups;
};

struct Filter {
    Step step;
    Bloom bloom[MOST_BLOOMS];
    const void* part_starts;   // [entries + 1], part_bytes each; null where entry e has the part e
    const u64* rows;           // [distinct, row_words]: bits first, then each Bloom attribute's words
    const void* index;         // [parts], index_bytes each: a part's row
    const u64* asked;          // [B, bit_words]
    const signed char* leaf_mode;  // [B]: 0 no exact set, 1 only the listed leaves, 2 all but these
    const i64* set_starts;     // [B + 1], into leaves
    const i64* leaves;         // ascending within a request
    const void* leaf_starts;   // [entries + 1], leaf_bytes each: first leaf below; null where it is the entry
    const void* leaf_ends;     // [entries]: one behind the last
    u32* out;                  // [B, M, out_words]
    int out_words;
    int bit_words, row_words, index_bytes, part_bytes, leaf_bytes, blooms;
    int staged;                // whether the Bloom tables fit in shared memory
};

// The first of leaves[low : high) that is at least `leaf`.
__device__ __forceinline__ i64 first_at_least(const i64* leaves, i64 low, i64 high, i64 leaf) {
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if (leaves[middle] < leaf) low = middle + 1;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ bool passes_set(const Filter& filter, int b, i64 entry) {
    const int mode = filter.leaf_mode[b];
    if (mode == 0) return true;
    i64 from = entry, to = entry + 1;
    if (filter.leaf_starts != nullptr) {
        from = integer_at(filter.leaf_starts, filter.leaf_bytes, entry);
        to = integer_at(filter.leaf_ends, filter.leaf_bytes, entry);
    }
    const i64 end = filter.set_starts[b + 1];
    const i64 low = first_at_least(filter.leaves, filter.set_starts[b], end, from);
    if (mode == 1) return low < end && filter.leaves[low] < to;
    return first_at_least(filter.leaves, low, end, to) - low < to - from;
}

// What a block knows of its request, in shared memory.
struct Asked {
    u64* bits;       // [bit_words]: words that ask something
    int* word;       // [bit_words]: which these are
    int* words;      // how many
    u64* ruled_out;  // the Bloom tables, one after another
};

// Whether a signature of the request lies within a Bloom row. All lanes of the warp call it together;
// only lanes that want to know look anything up.
__device__ __forceinline__ bool passes_bloom(const Bloom& bloom, const u64* table, int count, const u64* row, bool wanted) {
    bool passes = false;
    for (int group = 0; group < bloom.groups && group * 64 < count; ++group) {
        const int here = min(64, count - group * 64);
        const u64 all = here == 64 ? ~0ull : (1ull << here) - 1;
        const u64* place = table + static_cast<i64>(group) * bloom.words * 256;
        u64 ruled_out = wanted && !passes ? 0 : all;
        for (int w = 0; w < bloom.words; ++w) {
            if (!__any_sync(EVERY_LANE, ruled_out != all)) break;
            const u64 word = ruled_out != all ? row[bloom.offset + w] : 0;
            if (ruled_out != all) {
#pragma unroll
                for (int k = 0; k < 16; ++k) ruled_out |= place[k * 16 + static_cast<int>(word >> (4 * k) & 15)];
            }
            place += 256;
        }
        passes |= ruled_out != all;
    }
    return passes;
}

__global__ void __launch_bounds__(THREADS) filter_rows(const __grid_constant__ Filter filter) {
    await_kernel_before();
    const Step& step = filter.step;
    const int b = blockIdx.y, beams = step.beams;
    const i64 first_beam = static_cast<i64>(b) * beams;
    const bool lists = is_listed(step);

    Carver carver;
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    u32* const offset = carver.take<u32>(beams + 1);  // in chunks of 32 positions
    Asked asked;
    asked.bits = carver.take<u64>(filter.bit_words);
    asked.word = carver.take<int>(filter.bit_words);
    asked.words = reinterpret_cast<int*>(words) + 40;
    u32 table_words = 0;
    if (filter.staged)
        for (int i = 0; i < filter.blooms; ++i) table_words += filter.bloom[i].groups * filter.bloom[i].words * 256;
    asked.ruled_out = carver.take<u64>(table_words);

    if (threadIdx.x == 0) {
        int count = 0;
        for (int w = 0; w < filter.bit_words; ++w) {
            const u64 bits = filter.asked[static_cast<i64>(b) * filter.bit_words + w];
            if (bits != 0) {
                asked.bits[count] = bits;
                asked.word[count++] = w;
            }
        }
        *asked.words = count;
    }
    if (filter.staged) {
        u32 at = 0;
        for (int i = 0; i < filter.blooms; ++i) {
            const u32 size = filter.bloom[i].groups * filter.bloom[i].words * 256;
            if (filter.bloom[i].count[b] > 0)
                for (u32 k = threadIdx.x; k < size; k += THREADS) asked.ruled_out[at + k] = filter.bloom[i].ruled_out[static_cast<i64>(b) * size + k];
            at += size;
        }
    }
    // Where each beam's chunks begin, as in score_rows.
    const int count = static_cast<int>(step.in_count[b]);
    const int each = (beams + THREADS - 1) / THREADS;
    u32 mine = 0, total;
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        const i64 row = step.in_rows[first_beam + m];
        u32 chunks = 0;
        if (m < count && !step.in_finished[first_beam + m])
            chunks = static_cast<u32>(((lists ? range_of(step.table.starts, row).size() : static_cast<u32>(step.vocabulary)) + 31) / 32);
        offset[m] = chunks;
        mine += chunks;
    }
    u32 running = block_scan(mine, words, total);
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        const u32 chunks = offset[m];
        offset[m] = running;
        running += chunks;
    }
    if (threadIdx.x == 0) offset[beams] = total;
    __syncthreads();

    const int asked_words = *asked.words;
    for (u32 chunk = blockIdx.x * WARPS + warp_id(); chunk < total; chunk += gridDim.x * WARPS) {
        int low = 0, high = beams - 1;
        while (low < high) {
            const int middle = (low + high + 1) >> 1;
            if (offset[middle] <= chunk) low = middle;
            else high = middle - 1;
        }
        const i64 table_row = step.in_rows[first_beam + low];
        const u32 p = (chunk - offset[low]) * 32 + lane_id();
        i64 entry = -1;
        if (lists) {
            const Range range = range_of(step.table.starts, table_row);
            if (p < range.size()) entry = range.begin + p;
        } else if (p < static_cast<u32>(step.vocabulary) && is_valid(step.table, table_row, p)) {
            entry = entry_at(step, table_row, start_of(step.table.starts, table_row), p);
        }
        bool there = entry >= 0 && passes_set(filter, b, entry);
        i64 part = entry, parts_end = entry + 1;
        if (there && filter.part_starts != nullptr) {
            part = integer_at(filter.part_starts, filter.part_bytes, entry);
            parts_end = integer_at(filter.part_starts, filter.part_bytes, entry + 1);
        }
        bool passes = false;
        while (__any_sync(EVERY_LANE, there && !passes && part < parts_end)) {
            bool open = there && !passes && part < parts_end;
            const u64* row = nullptr;
            if (open && filter.rows != nullptr) {
                row = filter.rows + integer_at(filter.index, filter.index_bytes, part) * filter.row_words;
                for (int w = 0; w < asked_words && open; ++w) open = (asked.bits[w] & ~row[asked.word[w]]) == 0;
            }
            const u64* table = asked.ruled_out;
            for (int i = 0; i < filter.blooms; ++i) {
                const Bloom& bloom = filter.bloom[i];
                const u32 size = bloom.groups * bloom.words * 256;
                const int signatures = bloom.count[b];
                if (signatures > 0)
                    open = passes_bloom(bloom, filter.staged ? table : bloom.ruled_out + static_cast<i64>(b) * size, signatures, row, open);
                table += size;
            }
            passes |= open;
            ++part;
        }
        const u32 mask = __ballot_sync(EVERY_LANE, passes);
        if (lane_id() == 0) filter.out[(first_beam + low) * filter.out_words + chunk - offset[low]] = mask;
    }
}
