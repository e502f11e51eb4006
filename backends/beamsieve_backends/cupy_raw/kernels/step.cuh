// What one step reads and writes, and the look-ups in its table. `arguments.py` mirrors Step.
//
// B requests, M places for beams per request, V the codebook, d the hidden size, W the width,
// t tokens decoded so far. A *position* names a candidate of a beam: the
// entry's place in its row (list layout), or the token (bitmap layout).

constexpr int NORMALIZE_ALL = 0, NORMALIZE_CATALOG = 1, NORMALIZE_ELIGIBLE = 2;

// What score_tiles found of a beam: open_tiles asks for it, and for nothing that leads there.
struct __align__(16) Seen {
    i64 base;     // row (bitmap layout) or first entry (list layout); 0 for a finished beam
    float2 mass;
    float score;  // -inf for a beam that is not there
    u32 size;     // positions; 0 for a finished beam, and for one that is not there
};

struct Step {
    Table table;
    Starts next;             // of the next table, where a row of it can be empty (`next_ends`)
    const void* child_leaf;  // [entries]: the first leaf below each entry; null where it is the entry
    // The beams before the step.
    const int* in_tokens;      // [B, M, t]
    const float* in_scores;    // [B, M]
    const i64* in_rows;        // [B, M]
    const u8* in_finished;     // [B, M]
    const i64* in_count;       // [B]
    // The model's word on the next token.
    const void* hidden;       // [B, M, d]
    const void* head;         // [V, d]
    const void* bias;         // [V] of bias_type, or null
    const void* logits;       // [B, M, V]
    const float* left_units;  // [B, M] or null: what to multiply a beam's logits with
    const float* right_units; // [V] likewise, a token's
    const float* bonus;       // [B, M, V] or null
    const float* nudge;       // [B, M, V] or null
    const float2* mass;       // [B, M]: logs of the denominators (see Mass), or null to find them
    const u32* eligible;      // [B, M, eligible_words]: a bit per position, or null when all are
    // The beams after the step.
    int* out_tokens;     // [B, W, t + 1]
    float* out_scores;   // [B, W]
    float* out_keys;     // [B, W]
    i64* out_rows;       // [B, W]
    i64* out_parents;    // [B, W]
    u8* out_finished;    // [B, W]
    i64* out_count;      // [B]
    // Workspace.
    float* scratch;      // [B, scratch_stride]
    float* groups;       // score_tiles, tile_slots: the best keys of groups of tiles
    u64* lists;          // [B, list_capacity]: candidates of opened tiles
    float2* masses;      // [B, M]: where they go once found
    Seen* seen;          // [B, M]: of score_tiles, for open_tiles
    Meeting* meetings;   // [B], zero between kernels
    i64 scratch_stride;
    int beams, width, decoded, vocabulary, hidden_size;
    int next_ends, leaf_bytes, bias_type;
    int normalize, capacity, eligible_words;
    int last_level;      // whether the table is the last one: every entry completes a semantic ID
    int aligned;         // whether rows of hidden and head start at whole vectors
    int vectors;         // score_tiles: whether logits are read by whole vectors, through shared memory
    int list_capacity;
    int tile;            // score_tiles: positions per tile, 64 (bitmap layout) or 32 (list layout)
    int tiles;           // score_tiles: tiles per beam
    int parts;           // score_tiles: into how many parts they are dealt, a power of two up to WARPS
    int slots;           // score_tiles: places for tiles in a part, a multiple of `group`
    int group;           // score_tiles, tile_slots: tiles in a group, or entries of a tile; a power of two
    int warps_per_beam;  // score_tiles: 1, or as many as parts
    int single;          // entries of a table of one row, else 0
    int staged;          // score_rows: numbers of the workspace that fit in shared memory
    int requests;        // multiply_row: B
    int request_parts;   // multiply_row: into how many parts they are dealt
};

__device__ __forceinline__ bool is_listed(const Step& step) { return step.table.bitmap == nullptr; }

// score_tiles: groups of a part of a beam's tiles.
__device__ __forceinline__ int groups_of_part(const Step& step) { return (is_listed(step) ? 32 : step.slots) / step.group; }

// The entry at position p of a row whose first entry is `begin`; p is valid there.
__device__ __forceinline__ i64 entry_at(const Step& step, i64 row, i64 begin, u32 p) {
    return begin + (is_listed(step) ? p : rank_of(step.table, row, p));
}

// The token of the entry in place j of the row of `beam`, whose first entry is `first`.
__device__ __forceinline__ u32 token_in(const Step& step, i64 beam, i64 first, u32 j) {
    if (step.single == step.vocabulary) return j;  // one row of all tokens
    return is_listed(step) ? token_at(step.table, first + j) : token_by_rank(step.table, step.in_rows[beam], j);
}

__device__ __forceinline__ bool is_eligible(const Step& step, i64 beam, u32 position) {
    if (step.eligible == nullptr) return true;
    return step.eligible[beam * step.eligible_words + (position >> 5)] >> (position & 31) & 1;
}

__device__ __forceinline__ float bias_of(const Step& step, u32 token) {
    return step.bias == nullptr ? 0.0f : number_at(step.bias, step.bias_type, token);  // a call
}

// Score and key of a candidate, -inf when dead. `beam` is b * M + m.
__device__ __forceinline__ float score_of(const Step& step, float beam_score, float logit, float2 mass, i64 beam, u32 token) {
    float score = beam_score + log_probability(logit, mass);
    if (step.bonus != nullptr) score += step.bonus[beam * step.vocabulary + token];
    return or_dead(score);
}
__device__ __forceinline__ float key_of_score(const Step& step, float score, i64 beam, u32 token) {
    if (step.nudge == nullptr || score == never()) return score;
    return or_dead(score + step.nudge[beam * step.vocabulary + token]);
}

// The logit of token v after a beam, -inf when it is not finite.
template <class T>
__device__ __forceinline__ float logit_of(const Step& step, i64 beam, u32 v) {
    float logit = number(static_cast<const T*>(step.logits)[beam * step.vocabulary + v]);
    if (step.left_units != nullptr) logit *= step.left_units[beam] * step.right_units[v];
    return or_dead(logit + bias_of(step, v));
}

// The score of token v after a live beam, and the key of a position of it, which is less than the
// beam's number of positions; -inf when there is no candidate.
template <class T>
__device__ __forceinline__ float token_score(const Step& step, i64 beam, u32 v, float2 mass, float beam_score) {
    return score_of(step, beam_score, logit_of<T>(step, beam, v), mass, beam, v);
}
template <class T>
__device__ __forceinline__ float position_key(const Step& step, i64 beam, i64 base, u32 p, float2 mass, float beam_score) {
    u32 v = p;
    bool kept = is_eligible(step, beam, p);
    if (is_listed(step)) v = token_at(step.table, base + p);
    else kept &= is_valid(step.table, base, p);
    // The logit is loaded in any case, so that it is on its way while the bits are.
    const float key = key_of_score(step, token_score<T>(step, beam, v, mass, beam_score), beam, v);
    return kept ? key : never();
}

// Where an entry leads: the row of the next table, or the leaf when the semantic ID is complete.
__device__ __forceinline__ i64 settle(const Step& step, i64 entry, u8& finished) {
    bool complete = step.last_level;
    if (!complete && step.next_ends) complete = range_across(step.next, entry).size() == 0;  // a call
    finished = complete;
    if (!complete || step.child_leaf == nullptr) return entry;
    return integer_at(step.child_leaf, step.leaf_bytes, entry);
}

// The first tokens of a beam, asked for ahead of their use.
struct Ancestors {
    int tokens[4];
};
__device__ __forceinline__ Ancestors ancestors_of(const Step& step, i64 beam) {
    Ancestors found;
#pragma unroll
    for (int k = 0; k < 4; ++k) found.tokens[k] = k < step.decoded ? __ldg(step.in_tokens + beam * step.decoded + k) : 0;
    return found;
}

// Writes place `place` of request b: the beam that parent `m` becomes by `token`.
__device__ __forceinline__ void write_beam(
    const Step& step, int b, u32 place, int m, const Ancestors& ancestors, int token, float score, float key, i64 row, u8 finished
) {
    const i64 out = static_cast<i64>(b) * step.width + place;
    int* const to = step.out_tokens + out * (step.decoded + 1);
#pragma unroll
    for (int k = 0; k < 4; ++k)
        if (k < step.decoded) to[k] = ancestors.tokens[k];
#pragma unroll 1
    for (int i = 4; i < step.decoded; ++i) to[i] = __ldg(step.in_tokens + (static_cast<i64>(b) * step.beams + m) * step.decoded + i);
    to[step.decoded] = token;
    step.out_scores[out] = score;
    step.out_keys[out] = key;
    step.out_rows[out] = row;
    step.out_parents[out] = m;
    step.out_finished[out] = finished;
}

// Fills the places of request b from `count` on with padding, and says how many are real.
__device__ __forceinline__ void write_padding(const Step& step, int b, u32 count) {
#pragma unroll 1
    for (u32 place = count + threadIdx.x; place < static_cast<u32>(step.width); place += THREADS) {
        const i64 out = static_cast<i64>(b) * step.width + place;
#pragma unroll 1
        for (int i = 0; i <= step.decoded; ++i) step.out_tokens[out * (step.decoded + 1) + i] = -1;
        step.out_scores[out] = never();
        step.out_keys[out] = never();
        step.out_rows[out] = -1;
        step.out_parents[out] = -1;
        step.out_finished[out] = 0;
    }
    if (threadIdx.x == 0) step.out_count[b] = count;
}
