// The first pass of a step whose beams have many candidates each, over their logits:
//
//     for b, m: mass[m] = log-sum-exp of the beam's denominator                  # spread over the blocks
//               best[m, tile] = score[m] + (largest candidate logit in tile - mass[m])
//               groups[m, group] = the best of the group
//
// open_tiles or pool_tiles is the second pass. A tile is `tile` positions of one beam: 64 tokens in the bitmap
// layout (a word of the bitmap), 32 entries in the list layout. A group is `group` tiles of a beam: the best
// of a group is a candidate too, and so many keys are enough for a sharp bound. In the list layout most rows
// have a tile or two, too few for that: there a group is `group` neighbouring entries of all tiles of a part.
//
// The tiles of a beam are dealt to `parts` parts, `together` neighbours at a time; parts are summed one
// after the other, so that the sum is the same whether a beam has a warp for each part or one for
// all (`warps_per_beam`). Grid (blocks per request, B): all blocks together go from beam to beam, whoever's
// they are. With bonus or nudge the tiles are read twice: the best of a tile is then known only after
// `mass`. Workspace: scratch_stride = M * tiles floats per request; `groups` [B, M, parts * groups_of_part];
// `seen` [B, M].

template <class T>
__global__ void __launch_bounds__(THREADS, 2) score_tiles(const __grid_constant__ Step step) {
    const u32 rows = gridDim.y * step.beams, blocks = gridDim.y * gridDim.x, block = blockIdx.y * gridDim.x + blockIdx.x;
    const int share = step.warps_per_beam, shift = __ffs(share) - 1, own = warp_id() & (share - 1);
    Carver carver;
    u32* const words = carver.take<u32>(BLOCK_WORDS);
    u8* const room = carver.take<u8>(0);  // of Arriving, where `vectors`
    const u32 at_once = blocks * (WARPS >> shift), of_beam = step.parts * groups_of_part(step);
    after_kernels_ahead();
#pragma unroll 1
    for (u32 from = 0; from < rows; from += at_once) {
        const u32 turn = from + (warp_id() >> shift) * blocks + block, known = turn < rows ? turn : 0;
        const Found to{step.scratch + static_cast<i64>(known) * step.tiles, step.groups + static_cast<i64>(known) * of_beam, step.seen + known};
        score_beam<T>(step, turn < rows, known / step.beams, known, share, own, words, room, to);
    }
}
