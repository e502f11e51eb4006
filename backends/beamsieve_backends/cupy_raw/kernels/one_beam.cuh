// A step of one beam over a table of one row, as step 1 always is: what its kernels know of the row
// and of the beam.

// The token of candidate j. Such a table is a list of whole numbers, cut out of the words that hold them,
// or has all tokens.
__device__ __forceinline__ u32 token_in_list(const Step& step, u32 j) {
    const u32 at = j * (static_cast<u32>(step.table.token_bits) >> 3);
    return static_cast<const u32*>(step.table.tokens)[at >> 2] >> (8 * (at & 3)) & (0xffffffffu >> (32 - step.table.token_bits));
}
__device__ __forceinline__ bool has_all_tokens(const Step& step) { return step.single == step.vocabulary; }
__device__ __forceinline__ u32 token_in_row(const Step& step, u32 j) { return has_all_tokens(step) ? j : token_in_list(step, j); }

// Where a chosen candidate leads.
struct Lead {
    u32 token;
    i64 row;
    u8 finished;
};
__device__ __forceinline__ Lead lead_of(const Step& step, u32 slot) {
    Lead lead;
    lead.token = token_in_row(step, slot);
    lead.row = settle(step, slot, lead.finished);
    return lead;
}

// What is known of the beam, asked for ahead of its use.
struct RowBeam {
    i64 count;
    float2 mass;
    float score;
    bool finished;
};
__device__ __forceinline__ RowBeam beam_on_row(const Step& step, int b) {
    RowBeam beam;
    beam.count = step.in_count[b];
    beam.mass = step.mass != nullptr ? step.mass[b] : make_float2(0.0f, 0.0f);
    beam.score = step.in_scores[b];
    beam.finished = step.in_finished[b];
    return beam;
}
