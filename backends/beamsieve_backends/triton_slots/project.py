"""Full projection: what each tile of a beam's codebook holds, without writing the logits.

A beam's V tokens are cut into tiles, tiles into cells, cells into groups. For every group and cell
the largest candidate is kept, and for every tile what the log-softmax needs. That is all that
leaves the kernel.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import usable


@triton.jit
def row_bitmaps(
    rows, finished, row_starts, tokens, bitmaps, beams,
    TOKEN_MASK: tl.constexpr, WORDS: tl.constexpr, WORD_BLOCK: tl.constexpr,
    BEAMS: tl.constexpr, ENTRIES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write each beam's row of a sparse table as a bitmap: int32 [beams, WORDS].

    Tokens of a row are distinct, so the sum of their bits is their union.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    beam = tl.program_id(0).to(tl.int64) * BEAMS + tl.arange(0, BEAMS)
    row = tl.load(rows + beam, mask=beam < beams, other=-1)
    live = (row >= 0) & (tl.load(finished + beam, mask=beam < beams, other=0) == 0)
    start = tl.load(row_starts + row, mask=live, other=0).to(tl.int64)
    degree = tl.load(row_starts + row + 1, mask=live, other=0).to(tl.int64) - start
    most = tl.max(degree).to(tl.int32)
    for word_begin in range(0, WORDS, WORD_BLOCK):
        word = word_begin + tl.arange(0, WORD_BLOCK)
        bits = tl.zeros((BEAMS, WORD_BLOCK), tl.int32)
        for begin in range(0, most, ENTRIES):
            number = begin + tl.arange(0, ENTRIES)
            inside = number[None, :] < degree[:, None]
            token = tl.load(tokens + start[:, None] + number[None, :], mask=inside, other=0)
            token = token.to(tl.int32) & TOKEN_MASK
            here = inside[:, :, None] & ((token >> 5)[:, :, None] == word[None, None, :])
            bit = tl.full((BEAMS, ENTRIES), 1, tl.int32) << (token & 31)
            bits += tl.sum(tl.where(here, bit[:, :, None], 0), 1)
        tl.store(
            bitmaps + beam[:, None] * WORDS + word[None, :],
            bits,
            mask=(beam < beams)[:, None] & (word < WORDS)[None, :],
        )


@triton.jit
def split_rows(x, high, low, inverse, n, D: tl.constexpr, D_UP: tl.constexpr,
               ROWS: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Write each float32 row as two float16 rows whose sum, times ``inverse``, it is.

    A power of two brings the row's largest value to 2**13 first, so that neither part leaves
    float16's range: 22 bits of every value stay, as in a three-pass tf32 product, and the product
    runs twice as fast. high, low: float16 [n, D]; inverse: float32 [n].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, D_UP)
    there = (row < n)[:, None] & (k < D)[None, :]
    at = row[:, None] * D + k[None, :]
    value = tl.load(x + at, mask=there, other=0.0)
    exponent = (tl.max(tl.abs(value), 1).to(tl.int32, bitcast=True) >> 23) & 0xFF
    exponent = tl.maximum(exponent, 14)
    scale = ((267 - exponent) << 23).to(tl.float32, bitcast=True)
    scaled = value * scale[:, None]
    first = scaled.to(tl.float16)
    tl.store(high + at, first, mask=there)
    tl.store(low + at, (scaled - first.to(tl.float32)).to(tl.float16), mask=there)
    tl.store(inverse + row, ((exponent - 13) << 23).to(tl.float32, bitcast=True), mask=row < n)


@triton.jit
def _tile(base, rows, k, D: tl.constexpr, BLOCK_K: tl.constexpr):
    """[rows, BLOCK_K] of a [n, D] array."""
    at = base + rows.to(tl.int64)[:, None] * D + k[None, :]
    if D % BLOCK_K == 0:
        return tl.load(at)
    return tl.load(at, mask=(k < D)[None, :], other=0.0)


@triton.jit
def _product(h, w, total, UPCAST: tl.constexpr):
    if UPCAST:
        return total + tl.sum(h.to(tl.float32)[:, None, :] * w.to(tl.float32)[None, :, :], 2)
    return tl.dot(h, w.T, total, input_precision="ieee")


@triton.jit
def statistics(
    hidden, head, hidden_low, head_low, hidden_scale, head_scale, bias, logits, bonus, nudge,
    rows, finished, bitmaps,
    group_max, cell_best, tile_peak, tile_sum,
    beams, V, splits, tiles_each,
    D: tl.constexpr, WORDS: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    CELLS: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr, BLOCK_K: tl.constexpr,
    ALL: tl.constexpr, BY_ROW: tl.constexpr, SPLIT: tl.constexpr, HAS_LOGITS: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr,
    UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Largest candidate of each group and cell, and each tile's share of the log-softmax.

    A program takes BLOCK_M beams and ``tiles_each`` tiles; what it writes of a tile does not depend
    on how the tiles are divided among programs.

    Args:
        hidden: [beams, D]; with ``head`` [V, D]; or ``logits`` [beams, V]. With SPLIT, both,
            their ``_low`` and their ``_scale`` are what :func:`split_rows` made.
        bitmaps: int32 [rows or beams, WORDS], which tokens are valid.
        group_max: float32 [beams, TILES * TILE / GROUP]; logit + bonus + nudge.
        cell_best: float32 [TILES * CELLS, beams]; the largest of each of a tile's CELLS.
        tile_peak, tile_sum: float32 [TILES, beams]; the largest logit of the normalizer's set, and
            the sum of exp(logit - peak).

    UPCAST multiplies and adds in float32, for the interpreter: it has no bfloat16 product, and the
    matrix product that it calls rounds a row by its place.

    A finished beam shows one candidate, in its first group, with a log-probability of 0.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    GROUPS: tl.constexpr = TILE // GROUP
    beam = (tl.program_id(0) // splits).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    exists = beam < beams
    beam_safe = tl.where(exists, beam, 0)
    row = tl.load(rows + beam_safe)
    done = (tl.load(finished + beam_safe) != 0) & (row >= 0) & exists
    live = (row >= 0) & exists & (done == 0)
    owner = tl.where(live, row, 0) if BY_ROW else beam_safe
    if not HAS_LOGITS:
        whole_k = tl.arange(0, BLOCK_K)
        if D <= BLOCK_K:
            h = _tile(hidden, beam_safe, whole_k, D, BLOCK_K)
            if SPLIT:
                h_low = _tile(hidden_low, beam_safe, whole_k, D, BLOCK_K)
        if SPLIT:
            beam_scale = tl.load(hidden_scale + beam_safe)

    first = (tl.program_id(0) % splits) * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, TILES)):
        column = tile * TILE + tl.arange(0, TILE)
        inside = column < V
        if HAS_LOGITS:
            at = beam_safe[:, None] * V + column[None, :]
            scored = tl.load(logits + at, mask=exists[:, None] & inside[None, :], other=0.0)
            scored = scored.to(tl.float32)
        else:
            token = tl.where(inside, column, 0)
            scored = tl.zeros((BLOCK_M, TILE), tl.float32)
            if D <= BLOCK_K:
                w = _tile(head, token, whole_k, D, BLOCK_K)
                scored = _product(h, w, scored, UPCAST)
                if SPLIT:
                    w_low = _tile(head_low, token, whole_k, D, BLOCK_K)
                    scored = _product(h, w_low, scored, UPCAST)
                    scored = _product(h_low, w, scored, UPCAST)
            else:
                for begin in range(0, D, BLOCK_K):
                    k = begin + tl.arange(0, BLOCK_K)
                    h_part = _tile(hidden, beam_safe, k, D, BLOCK_K)
                    w_part = _tile(head, token, k, D, BLOCK_K)
                    scored = _product(h_part, w_part, scored, UPCAST)
                    if SPLIT:
                        w_rest = _tile(head_low, token, k, D, BLOCK_K)
                        scored = _product(h_part, w_rest, scored, UPCAST)
                        h_rest = _tile(hidden_low, beam_safe, k, D, BLOCK_K)
                        scored = _product(h_rest, w_part, scored, UPCAST)
            if SPLIT:
                scored = scored * beam_scale[:, None]
                scored = scored * tl.load(head_scale + token)[None, :]
            if HAS_BIAS:
                scored += tl.load(bias + token).to(tl.float32)[None, :]

        word = tile * (TILE // 32) + tl.arange(0, TILE // 32)
        words = tl.load(
            bitmaps + owner[:, None] * WORDS + word[None, :],
            mask=live[:, None] & (word < WORDS)[None, :],
            other=0,
        )
        bit = (words[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
        scored = tl.reshape(scored, (BLOCK_M, TILE // 32, 32))
        candidate = tl.where((bit != 0) & (scored < float("inf")), scored, float("-inf"))
        if HAS_BONUS or HAS_NUDGE:
            value = tl.reshape(candidate, (BLOCK_M, TILE))
            at = beam_safe[:, None] * V + column[None, :]
            there = exists[:, None] & inside[None, :]
            if HAS_BONUS:
                value += tl.load(bonus + at, mask=there, other=0.0)
            if HAS_NUDGE:
                value += tl.load(nudge + at, mask=there, other=0.0)
            value = usable(value)
        else:
            value = tl.reshape(candidate, (BLOCK_M, TILE))
        largest = value
        if GROUP > 1:
            largest = tl.max(tl.reshape(value, (BLOCK_M, GROUPS, GROUP)), 2)
        best = tl.max(tl.reshape(largest, (BLOCK_M, CELLS, GROUPS // CELLS)), 2)
        if ALL:
            usable_logit = usable(tl.reshape(scored, (BLOCK_M, TILE)))
            counted = tl.where(inside[None, :], usable_logit, float("-inf"))
            peak = tl.max(counted, 1)
        elif HAS_BONUS or HAS_NUDGE:
            counted = tl.reshape(candidate, (BLOCK_M, TILE))
            peak = tl.max(counted, 1)
        else:
            counted = value
            peak = tl.max(best, 1)
        # The largest is subtracted first: large logits keep their small differences.
        reference = tl.where(peak == float("-inf"), 0.0, peak)
        mass = tl.sum(tl.exp(counted - reference[:, None]), 1)

        only = tl.where(tile == 0, 0.0, float("-inf"))
        peak = tl.where(done, only, peak)
        mass = tl.where(done, tl.where(tile == 0, 1.0, 0.0), mass)
        at = tl.full((BLOCK_M,), 1, tl.int64) * tile * beams + beam
        tl.store(tile_peak + at, peak, mask=exists)
        tl.store(tile_sum + at, mass, mask=exists)
        if GROUP > 1:
            cell = tile * CELLS + tl.arange(0, CELLS)
            own_cell = tl.where((cell == 0)[None, :], 0.0, float("-inf"))
            best = tl.where(done[:, None], own_cell, best)
            at = cell.to(tl.int64)[None, :] * beams + beam[:, None]
            tl.store(cell_best + at, best, mask=exists[:, None])
        group = tile * GROUPS + tl.arange(0, GROUPS)
        own = tl.where((group == 0)[None, :], 0.0, float("-inf"))
        largest = tl.where(done[:, None], own, largest)
        at = beam[:, None] * (TILES * GROUPS) + group[None, :]
        tl.store(group_max + at, largest, mask=exists[:, None])
