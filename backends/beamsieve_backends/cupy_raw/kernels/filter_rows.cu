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
// Grid (blocks per request, B). List layout: a warp to 32 entries of a beam. Bitmap layout: a warp to a
// beam (`whole_rows`), whose entries it tests 32 at a time and then deals out to the positions of their
// tokens; in a large codebook a warp to 32 positions. The request's masks are in shared memory once
// per block; bits go before Bloom; words that ask nothing are never read. A part's bits and Bloom words lie
// side by side in one row, and several words are on their way before the first is looked at.

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
    int whole_rows;            // bitmap layout: whether a warp takes a beam; 0 in the list layout
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

constexpr int ROWS_AHEAD = 4;

// Whether a row has all bits that are asked for.
__device__ __forceinline__ bool passes_bits(const Asked& asked, int count, const u64* row, bool wanted) {
    for (int from = 0; from < count && wanted; from += ROWS_AHEAD) {
        u64 word[ROWS_AHEAD];
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; ++k) word[k] = from + k < count ? row[asked.word[from + k]] : ~0ull;
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; ++k)
            if (from + k < count) wanted = wanted && (asked.bits[from + k] & ~word[k]) == 0;
    }
    return wanted;
}

// Whether a signature of the request lies within a Bloom row. All lanes of the warp call it together;
// only lanes that want to know look anything up.
__device__ __forceinline__ bool passes_bloom(const Bloom& bloom, const u64* table, int count, const u64* row, bool wanted) {
    bool passes = false;
    for (int group = 0; group < bloom.groups && group * 64 < count; ++group) {
        const int here = min(64, count - group * 64);
        const u64 all = here == 64 ? ~0ull : (1ull << here) - 1;
        const u64* place = table + static_cast<i64>(group) * bloom.words * 256;
        u64 ruled_out = wanted && !passes ? 0 : all;
        for (int from = 0; from < bloom.words; from += ROWS_AHEAD) {
            if (!__any_sync(EVERY_LANE, ruled_out != all)) break;
            u64 word[ROWS_AHEAD];
#pragma unroll
            for (int k = 0; k < ROWS_AHEAD; ++k) word[k] = ruled_out != all && from + k < bloom.words ? row[bloom.offset + from + k] : 0;
#pragma unroll
            for (int k = 0; k < ROWS_AHEAD; ++k) {
                if (from + k >= bloom.words) break;
                if (ruled_out != all) {
#pragma unroll
                    for (int n = 0; n < 16; ++n) ruled_out |= place[n * 16 + static_cast<int>(word[k] >> (4 * n) & 15)];
                }
                place += 256;
            }
        }
        passes |= ruled_out != all;
    }
    return passes;
}

// Whether the request may go on to an entry. All lanes of the warp call it together, each with an entry
// of its own, or with none (-1).
__device__ __forceinline__ bool passes_entry(const Filter& filter, const Asked& asked, int b, i64 entry) {
    const bool there = entry >= 0 && passes_set(filter, b, entry);
    i64 part = entry, parts_end = entry + 1;
    if (there && filter.part_starts != nullptr) {
        part = integer_at(filter.part_starts, filter.part_bytes, entry);
        parts_end = integer_at(filter.part_starts, filter.part_bytes, entry + 1);
    }
    const int asked_words = *asked.words;
    bool passes = false;
    while (__any_sync(EVERY_LANE, there && !passes && part < parts_end)) {
        bool open = there && !passes && part < parts_end;
        const u64* row = nullptr;
        if (open && filter.rows != nullptr) {
            row = filter.rows + integer_at(filter.index, filter.index_bytes, part) * filter.row_words;
            open = passes_bits(asked, asked_words, row, open);
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
    return passes;
}

// The bits of `source`, from bit 0 on, at the places of the set bits of `places`.
__device__ __forceinline__ u32 deal_out(u32 source, u32 places) {
    u32 dealt = 0;
    for (; places != 0 && source != 0; source >>= 1) {
        if (source & 1u) dealt |= places & (0u - places);
        places &= places - 1;
    }
    return dealt;
}

// The answers that a warp has already: each lane's last row and whether it passed. Neighbouring entries
// often have the same few rows, so that 32 of them may need no test at all.
struct Known {
    i64 row = -1;
    bool passed = false;

    // Whether all lanes' rows are among them; then `passes` is the lane's answer. -1 is no row. A few rows
    // are looked for, and none after the first that is not there.
    __device__ __forceinline__ bool have(i64 wanted, bool& passes) const {
        passes = false;
        bool found = wanted < 0;
        u32 open = __ballot_sync(EVERY_LANE, !found);
        for (int tries = 0; tries < 4 && open != 0; ++tries) {
            const i64 sought = __shfl_sync(EVERY_LANE, wanted, __ffs(static_cast<int>(open)) - 1);
            const u32 holders = __ballot_sync(EVERY_LANE, row == sought);
            if (holders == 0) break;
            const int answer = __shfl_sync(EVERY_LANE, static_cast<int>(passed), __ffs(static_cast<int>(holders)) - 1);
            if (wanted == sought) {
                found = true;
                passes = answer != 0;
            }
            open = __ballot_sync(EVERY_LANE, !found);
        }
        return open == 0;
    }
};

// A beam's bits by a warp, bitmap layout; `passed` holds a word per 32 tokens, and one more.
__device__ __forceinline__ void filter_beam(const Filter& filter, const Asked& asked, int b, i64 beam, u32* passed) {
    const Step& step = filter.step;
    const i64 row = step.in_rows[beam];
    const Range range = range_of(step.table.starts, row);
    const u32 size = range.size();
    // An answer depends on the row alone unless entries have several parts or exact sets are asked for.
    const bool by_row = filter.rows != nullptr && filter.part_starts == nullptr && filter.leaf_mode[b] == 0;
    Known known;
    for (u32 from = 0; from < size; from += 32) {
        const u32 j = from + lane_id();
        const i64 entry = j < size ? range.begin + j : -1;
        const i64 matcher = by_row && entry >= 0 ? integer_at(filter.index, filter.index_bytes, entry) : -1;
        bool passes;
        if (!by_row || !known.have(matcher, passes)) {
            passes = passes_entry(filter, asked, b, entry);
            known.row = matcher;
            known.passed = passes;
        }
        const u32 mask = __ballot_sync(EVERY_LANE, passes);
        if (lane_id() == 0) passed[from >> 5] = mask;
    }
    if (lane_id() == 0) passed[(size + 31) >> 5] = 0;
    __syncwarp();
    const u32* const valid = reinterpret_cast<const u32*>(step.table.bitmap + row * step.table.words);
    u32 before = 0;
    for (int from = 0; from < filter.out_words; from += 32) {
        const int w = from + lane_id();
        const u32 places = w < filter.out_words ? valid[w] : 0;
        const u32 upto = before + warp_scan(static_cast<u32>(__popc(places)));
        const u32 first = upto - static_cast<u32>(__popc(places));
        before = __shfl_sync(EVERY_LANE, upto, 31);
        if (places != 0) {
            const u64 two = passed[first >> 5] | static_cast<u64>(passed[(first >> 5) + 1]) << 32;
            filter.out[beam * filter.out_words + w] = deal_out(static_cast<u32>(two >> (first & 31)), places);
        } else if (w < filter.out_words) {
            filter.out[beam * filter.out_words + w] = 0;
        }
    }
    __syncwarp();
}

__global__ void __launch_bounds__(THREADS) filter_rows(const __grid_constant__ Filter filter) {
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
    u32* const passed = carver.take<u32>(filter.whole_rows ? WARPS * (filter.out_words + 2) : 0);

    after_kernels_ahead();
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
    const int count = static_cast<int>(step.in_count[b]);
    if (filter.whole_rows) {
        __syncthreads();
        for (int m = blockIdx.x * WARPS + warp_id(); m < count; m += gridDim.x * WARPS)
            if (!step.in_finished[first_beam + m]) filter_beam(filter, asked, b, first_beam + m, passed + warp_id() * (filter.out_words + 2));
        return;
    }
    // Where each beam's chunks begin, as in score_rows.
    const int each = (beams + THREADS - 1) / THREADS;
    u32 mine = 0;
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
    const Scan scan = block_scan(mine, words);
    const u32 total = scan.total;
    u32 running = scan.before;
    for (int i = 0; i < each; ++i) {
        const int m = threadIdx.x * each + i;
        if (m >= beams) break;
        const u32 chunks = offset[m];
        offset[m] = running;
        running += chunks;
    }
    if (threadIdx.x == 0) offset[beams] = total;
    __syncthreads();
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
        const u32 mask = __ballot_sync(EVERY_LANE, passes_entry(filter, asked, b, entry));
        if (lane_id() == 0) filter.out[(first_beam + low) * filter.out_words + chunk - offset[low]] = mask;
    }
}
