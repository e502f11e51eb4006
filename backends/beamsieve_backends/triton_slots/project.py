"""Full projection: what each tile of a beam's codebook holds, without writing the logits.

A beam's V tokens are cut into tiles, and tiles into groups. For every group the largest candidate
is kept, and for every tile what the log-softmax needs. That is all that leaves the kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import usable


@triton.jit
def row_bitmaps(
    rows, finished, row_starts, tokens, bitmaps,
    TOKEN_MASK: tl.constexpr, WORDS: tl.constexpr, WORD_BLOCK: tl.constexpr,
    ENTRY_BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write each beam's row of a sparse table as a bitmap: int32 [beams, WORDS].

    One program per beam. Tokens of a row are distinct, so the sum of their bits is their union.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    beam = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + beam)
    live = (row >= 0) & (tl.load(finished + beam) == 0)
    row = tl.where(live, row, 0)
    start = tl.load(row_starts + row).to(tl.int64)
    end = tl.where(live, tl.load(row_starts + row + 1).to(tl.int64), start)
    for word_begin in range(0, WORDS, WORD_BLOCK):
        word = word_begin + tl.arange(0, WORD_BLOCK)
        bits = tl.zeros((WORD_BLOCK,), tl.int32)
        for begin in range(start, end, ENTRY_BLOCK):
            at = begin + tl.arange(0, ENTRY_BLOCK)
            token = tl.load(tokens + at, mask=at < end, other=0).to(tl.int32) & TOKEN_MASK
            here = (at < end)[:, None] & ((token >> 5)[:, None] == word[None, :])
            bit = tl.full((ENTRY_BLOCK,), 1, tl.int32) << (token & 31)
            bits += tl.sum(tl.where(here, bit[:, None], 0), 0)
        tl.store(bitmaps + beam * WORDS + word, bits, mask=word < WORDS)


@triton.jit
def statistics(
    hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
    group_max, tile_best, tile_peak, tile_sum,
    beams, V,
    D: tl.constexpr, WORDS: tl.constexpr, TILES: tl.constexpr,
    TILE: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ALL: tl.constexpr, BY_ROW: tl.constexpr, HAS_LOGITS: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr, PRECISION: tl.constexpr,
    UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Largest candidate of each group and tile, and each tile's share of the log-softmax.

    Args:
        hidden: [beams, D]; with ``head`` [V, D]; or ``logits`` [beams, V].
        bitmaps: int32 [rows or beams, WORDS], which tokens are valid.
        group_max: float32 [beams, TILES * TILE / GROUP]; logit + bonus + nudge.
        tile_best: float32 [beams, TILES]; the largest of them.
        tile_peak, tile_sum: float32 [beams, TILES]; the largest logit of the normalizer's set, and
            the sum of exp(logit - peak).

    UPCAST multiplies in float32 (the interpreter has no bfloat16 product).

    A finished beam shows one candidate, in its first group, with a log-probability of 0.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    column_blocks = tl.cdiv(V, BLOCK_N)
    row_block = tl.program_id(0) // column_blocks
    column_block = tl.program_id(0) % column_blocks
    beam = row_block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    exists = beam < beams
    beam_safe = tl.where(exists, beam, 0)
    column = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = column < V

    if HAS_LOGITS:
        at = beam_safe[:, None] * V + column[None, :]
        scored = tl.load(logits + at, mask=exists[:, None] & inside[None, :], other=0.0)
        scored = scored.to(tl.float32)
    else:
        column_safe = tl.where(inside, column, 0)
        scored = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for begin in range(0, D, BLOCK_K):
            k = begin + tl.arange(0, BLOCK_K)
            if D % BLOCK_K == 0:
                h = tl.load(hidden + beam_safe[:, None] * D + k[None, :])
                w = tl.load(head + column_safe[None, :].to(tl.int64) * D + k[:, None])
            else:
                h = tl.load(
                    hidden + beam_safe[:, None] * D + k[None, :], mask=k[None, :] < D, other=0.0
                )
                w = tl.load(
                    head + column_safe[None, :].to(tl.int64) * D + k[:, None],
                    mask=k[:, None] < D,
                    other=0.0,
                )
            if UPCAST:
                h = h.to(tl.float32)
                w = w.to(tl.float32)
            scored = tl.dot(h, w, scored, input_precision=PRECISION)
        if HAS_BIAS:
            scored += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]

    row = tl.load(rows + beam_safe)
    done = (tl.load(finished + beam_safe) != 0) & (row >= 0) & exists
    live = (row >= 0) & exists & (done == 0)
    word = column_block * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32)
    owner = tl.where(live, row, 0) if BY_ROW else beam_safe
    words = tl.load(
        bitmaps + owner[:, None] * WORDS + word[None, :],
        mask=live[:, None] & (word < WORDS)[None, :],
        other=0,
    )
    bit = (words[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    scored = tl.reshape(scored, (BLOCK_M, BLOCK_N // 32, 32))
    candidate = tl.where((bit != 0) & (scored < float("inf")), scored, float("-inf"))

    if ALL:
        column3 = tl.reshape(column, (BLOCK_N // 32, 32))
        counted = tl.where((column3 < V)[None, :, :], usable(scored), float("-inf"))
    else:
        counted = candidate
    counted = tl.reshape(counted, (BLOCK_M, BLOCK_N // TILE, TILE))
    peak = tl.max(counted, 2)
    reference = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.sum(tl.exp(counted - reference[:, :, None]), 2)

    if HAS_BONUS or HAS_NUDGE:
        value = tl.reshape(candidate, (BLOCK_M, BLOCK_N))
        at = beam_safe[:, None] * V + column[None, :]
        there = exists[:, None] & inside[None, :]
        if HAS_BONUS:
            value += tl.load(bonus + at, mask=there, other=0.0)
        if HAS_NUDGE:
            value += tl.load(nudge + at, mask=there, other=0.0)
        value = usable(value)
    else:
        value = candidate
    best = tl.max(tl.reshape(value, (BLOCK_M, BLOCK_N // TILE, TILE)), 2)

    tile = column_block * (BLOCK_N // TILE) + tl.arange(0, BLOCK_N // TILE)
    own = done[:, None] & (tile == 0)[None, :]
    peak = tl.where(done[:, None], tl.where(own, 0.0, float("-inf")), peak)
    mass = tl.where(done[:, None], tl.where(own, 1.0, 0.0), mass)
    best = tl.where(done[:, None], tl.where(own, 0.0, float("-inf")), best)
    at = beam[:, None] * TILES + tile[None, :]
    there = exists[:, None] & (tile < TILES)[None, :]
    tl.store(tile_best + at, best, mask=there)
    tl.store(tile_peak + at, peak, mask=there)
    tl.store(tile_sum + at, mass, mask=there)

    GROUPS: tl.constexpr = BLOCK_N // GROUP
    if GROUP == 1:
        largest = tl.reshape(value, (BLOCK_M, BLOCK_N))
    else:
        largest = tl.max(tl.reshape(value, (BLOCK_M, GROUPS, GROUP)), 2)
    group = column_block * GROUPS + tl.arange(0, GROUPS)
    first = tl.where((group == 0)[None, :], 0.0, float("-inf"))
    largest = tl.where(done[:, None], first, largest)
    at = beam[:, None] * (TILES * (TILE // GROUP)) + group[None, :]
    there = exists[:, None] & (group < TILES * (TILE // GROUP))[None, :]
    tl.store(group_max + at, largest, mask=there)
