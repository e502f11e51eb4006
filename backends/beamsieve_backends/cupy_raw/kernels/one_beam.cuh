// A step of one beam over a table of one row, as step 1 always is: what its two kernels know of the row.

// The token of candidate j. Such a table is a list of whole numbers, cut out of the words that hold them,
// or has all tokens.
__device__ __forceinline__ u32 token_in_list(const Step& step, u32 j) {
    const u32 at = j * (static_cast<u32>(step.table.token_bits) >> 3);
    return static_cast<const u32*>(step.table.tokens)[at >> 2] >> (8 * (at & 3)) & (0xffffffffu >> (32 - step.table.token_bits));
}
__device__ __forceinline__ bool has_all_tokens(const Step& step) { return step.single == step.vocabulary; }
__device__ __forceinline__ u32 token_in_row(const Step& step, u32 j) { return has_all_tokens(step) ? j : token_in_list(step, j); }
