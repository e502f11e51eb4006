"""Full projection: what each tile of a beam's codebook holds, without writing the logits.

A beam's V tokens are cut into tiles, tiles into cells, cells into groups. For every group and cell
the largest candidate is kept, and for every tile what the log-softmax needs. That is all that
leaves the kernel.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
# What one constant of a kernel decides is bound, or used, as the same constant says.
# pyright: reportPossiblyUnboundVariable=false
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import usable


@triton.jit
def _tile(base, rows, k, D, EVEN: tl.constexpr):
    """[rows, len(k)] of a [n, D] array; EVEN where every k is below D."""
    at = base + rows.to(tl.int64)[:, None] * D + k[None, :]
    if EVEN:
        return tl.load(at)
    return tl.load(at, mask=(k < D)[None, :], other=0.0)


@triton.jit
def _product(h, w, total, PRECISION: tl.constexpr, UPCAST: tl.constexpr):
    if UPCAST:
        return total + tl.sum(h.to(tl.float32)[:, None, :] * w.to(tl.float32)[None, :, :], 2)
    return tl.dot(h, w.T, total, input_precision=PRECISION)


@triton.jit
def _where_set(words, value, UPCAST: tl.constexpr):
    """float32 [rows, n, 4, 4, 2]: ``value`` where it is below +inf and its bit of the int32 words
    [rows, n] is set, bits from the lowest; else -inf."""
    eight, pair, one = tl.arange(0, 4), tl.arange(0, 4), tl.arange(0, 2)
    shifted = words[:, :, None, None, None] >> (pair * 2)[None, None, None, :, None]
    flag = (1 << (eight * 8)[None, None, :, None, None]) << one[None, None, None, None, :]
    if UPCAST:  # the interpreter runs no assembly
        return tl.where(((shifted & flag) != 0) & (value < float("inf")), value, float("-inf"))
    # Written out, it is three instructions for each value; the compiler finds eight.
    return tl.inline_asm_elementwise(
        """{
        .reg .pred set, usable;
        .reg .b32 bit;
        and.b32 bit, $1, $2;
        setp.ne.b32 set, bit, 0;
        setp.lt.and.f32 usable, $3, 0f7F800000, set;
        selp.f32 $0, $3, 0fFF800000, usable;
        }""",
        "=f,r,r,f", [shifted, flag, value], tl.float32, True, 1,
    )  # fmt: skip


@triton.jit
def _usable_of(scored, inside):
    """float32 [rows, n, 4, 4, 2]: ``scored``, below +inf, of the columns ``inside`` ([n * 32]);
    else -inf."""
    rows: tl.constexpr = scored.shape[0]
    columns: tl.constexpr = inside.shape[0]
    real = tl.reshape(
        tl.broadcast_to(inside[None, :], (rows, columns)), (rows, columns // 32, 4, 4, 2)
    )
    return tl.where(real & (scored < float("inf")), scored, float("-inf"))


@triton.jit
def exp_of_difference(x, largest, UPCAST: tl.constexpr):
    """exp(x - largest); what is less than the smallest normal number becomes 0."""
    if UPCAST:  # the interpreter runs no assembly
        return tl.exp(x - largest)
    to_base_2: tl.constexpr = 1.4426950408889634
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [(x - largest) * to_base_2], tl.float32,
        True, 1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["words", "beams", "V", "zeros", "splits", "blocks_each", "tiles",
                               "by_row", "everything", "has_kept", "has_bias", "has_bonus",
                               "has_nudge"])  # fmt: skip
def statistics(
    hidden, head, hidden_low, head_low, hidden_scale, head_scale, bias, logits, bonus, nudge,
    rows, finished, bitmaps, kept,
    group_max, cell_best, tile_peak, tile_sum, counts,
    beams, V, D, words, zeros, splits, blocks_each, tiles, by_row, everything, has_kept, has_bias,
    has_bonus, has_nudge,
    GROUP: tl.constexpr, CELLS: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr, BLOCK_K: tl.constexpr, EVEN: tl.constexpr, SPLIT: tl.constexpr,
    HAS_LOGITS: tl.constexpr,
    PLAIN: tl.constexpr, KEPT: tl.constexpr, EVERYTHING: tl.constexpr, PRECISION: tl.constexpr,
    UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Largest candidate of each group and cell, and each tile's share of the log-softmax.

    A program takes BLOCK_M beams and ``blocks_each`` times TILES tiles side by side; what it writes
    of a tile does not depend on how the tiles are divided among programs.

    Args:
        hidden: [beams, D]; with ``head`` [V, D]; or ``logits`` [beams, V]. With SPLIT, both,
            their ``_low`` and their ``_scale`` are what :func:`operands.split_rows` made.
        bitmaps: int32 [rows or beams, words], which tokens are valid; ``by_row`` says which.
        group_max: float32 [beams, tiles * TILE / GROUP]; logit + bonus + nudge. GROUP is 8, or 1.
        cell_best: float32 [tiles * CELLS, beams]; the largest of each of a tile's CELLS, if any.
            Which tokens a group or cell has says ``ordering.token_of``.
        tile_peak, tile_sum: float32 [tiles, beams]; the largest logit of the normalizer's set, and
            the sum of exp(logit - peak).

    counts: int32 [2, zeros], ``zeros`` at most ``beams``; set to 0 for the kernels behind.
    kept: int32 [beams, words], what targeting leaves of the valid tokens, where ``has_kept``.
    ``everything``: the normalizer's set is the whole codebook, not the valid tokens. PLAIN says at
    compile time that there is no bonus or nudge; then KEPT and EVERYTHING say which of these is so.

    UPCAST multiplies and adds in float32, for the interpreter: it has no bfloat16 product, and the
    matrix product that it calls rounds a row by its place.

    A finished beam shows one candidate, in its first group, with a log-probability of 0.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    BLOCK_N: tl.constexpr = TILE * TILES
    if zeros > 0:
        at = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
        nought = tl.zeros((BLOCK_M,), tl.int32)
        tl.store(counts + at, nought, mask=at < zeros)
        tl.store(counts + zeros + at, nought, mask=at < zeros)
    beam = (tl.program_id(0) // splits).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    exists = beam < beams
    beam_safe = tl.where(exists, beam, 0)
    row = tl.load(rows + beam_safe)
    done = (tl.load(finished + beam_safe) != 0) & (row >= 0) & exists
    live = (row >= 0) & exists & (done == 0)
    owner = tl.where(by_row != 0, tl.where(live, row, 0), beam_safe)
    if SPLIT:
        beam_scale = tl.load(hidden_scale + beam_safe)

    first = (tl.program_id(0) % splits) * blocks_each
    for block in range(first, tl.minimum(first + blocks_each, tl.cdiv(tiles, TILES))):
        column = block * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = column < V
        if HAS_LOGITS:
            at = beam_safe[:, None] * V + column[None, :]
            scored = tl.load(logits + at, mask=exists[:, None] & inside[None, :], other=0.0)
            scored = scored.to(tl.float32)
            if UPCAST == 0:
                # A product of nothing, added to: the tile lies in the threads as a product's does.
                # In the layout of a load, reductions across a reshape read some lanes twice.
                none = tl.zeros((BLOCK_M, 16), tl.float16)
                scored = tl.dot(none, tl.zeros((BLOCK_N, 16), tl.float16).T, scored)
        else:
            token = tl.where(inside, column, 0)
            scored = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for begin in range(0, D, BLOCK_K):
                k = begin + tl.arange(0, BLOCK_K)
                h = _tile(hidden, beam_safe, k, D, EVEN)
                w = _tile(head, token, k, D, EVEN)
                scored = _product(h, w, scored, PRECISION, UPCAST)
                if SPLIT:
                    w_low = _tile(head_low, token, k, D, EVEN)
                    scored = _product(h, w_low, scored, PRECISION, UPCAST)
                    h_low = _tile(hidden_low, beam_safe, k, D, EVEN)
                    scored = _product(h_low, w, scored, PRECISION, UPCAST)
            if SPLIT:
                scored = scored * beam_scale[:, None]
                scored = scored * tl.load(head_scale + token)[None, :]
            if has_bias != 0:
                scored += tl.load(bias + token)[None, :]

        word = block * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32)
        valid = tl.load(
            bitmaps + owner[:, None] * words + word[None, :],
            mask=live[:, None] & (word < words)[None, :],
            other=0,
        )
        scored = tl.reshape(scored, (BLOCK_M, BLOCK_N // 32, 4, 4, 2))
        candidate = _where_set(valid, scored, UPCAST)
        value = candidate
        if KEPT:
            left = tl.load(
                kept + beam_safe[:, None] * words + word[None, :],
                mask=live[:, None] & (word < words)[None, :],
                other=0,
            )
            value = _where_set(left, value, UPCAST)
        if PLAIN == 0:
            if has_kept != 0:
                left = tl.load(
                    kept + beam_safe[:, None] * words + word[None, :],
                    mask=live[:, None] & (word < words)[None, :],
                    other=0,
                )
                value = _where_set(left, value, UPCAST)
            at = beam_safe[:, None] * V + column[None, :]
            there = exists[:, None] & inside[None, :]
            if has_bonus + has_nudge != 0:
                added = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
                if has_bonus != 0:
                    added += tl.load(bonus + at, mask=there, other=0.0)
                if has_nudge != 0:
                    added += tl.load(nudge + at, mask=there, other=0.0)
                value += tl.reshape(added, (BLOCK_M, BLOCK_N // 32, 4, 4, 2))
            value = usable(value)
        # Groups of 8, as ``token_of`` has them.
        eights = tl.max(tl.max(value, 4), 2)
        if CELLS > 0:
            best = tl.max(tl.reshape(eights, (BLOCK_M, TILES * CELLS, TILE // 8 // CELLS)), 2)
        counted = candidate
        if EVERYTHING:
            counted = _usable_of(scored, inside)
        if PLAIN and KEPT + EVERYTHING == 0:
            peak = (
                tl.max(tl.reshape(best, (BLOCK_M, TILES, CELLS)), 2)
                if CELLS > 0
                else tl.max(tl.reshape(eights, (BLOCK_M, TILES, TILE // 8)), 2)
            )
        else:
            if PLAIN == 0 and everything != 0:
                counted = _usable_of(scored, inside)
            peak = tl.max(tl.max(counted, 4), 2)
            peak = tl.max(tl.reshape(peak, (BLOCK_M, TILES, TILE // 8)), 2)
        # The largest is subtracted first: large logits keep their small differences.
        reference = tl.where(peak == float("-inf"), 0.0, peak)
        counted = tl.reshape(counted, (BLOCK_M, TILES, TILE // 32, 4, 4, 2))
        share = exp_of_difference(counted, reference[:, :, None, None, None, None], UPCAST)
        share = tl.sum(tl.sum(share, 5), 3)
        mass = tl.sum(tl.reshape(share, (BLOCK_M, TILES, TILE // 8)), 2)
        if GROUP > 1:
            largest = tl.reshape(eights, (BLOCK_M, BLOCK_N // GROUP))
        else:
            largest = tl.reshape(value, (BLOCK_M, BLOCK_N))

        tile = block * TILES + tl.arange(0, TILES)
        there = exists[:, None] & (tile < tiles)[None, :]
        only = tl.where(tile == 0, 0.0, float("-inf"))
        peak = tl.where(done[:, None], only[None, :], peak)
        mass = tl.where(done[:, None], tl.where(tile == 0, 1.0, 0.0)[None, :], mass)
        at = tile.to(tl.int64)[None, :] * beams + beam[:, None]
        tl.store(tile_peak + at, peak, mask=there)
        tl.store(tile_sum + at, mass, mask=there)
        if CELLS > 0:
            cell = block * TILES * CELLS + tl.arange(0, TILES * CELLS)
            own_cell = tl.where((cell == 0)[None, :], 0.0, float("-inf"))
            best = tl.where(done[:, None], own_cell, best)
            at = cell.to(tl.int64)[None, :] * beams + beam[:, None]
            tl.store(cell_best + at, best, mask=exists[:, None] & (cell < tiles * CELLS)[None, :])
        group = block * (BLOCK_N // GROUP) + tl.arange(0, BLOCK_N // GROUP)
        groups = tl.cdiv(tiles, TILES) * (BLOCK_N // GROUP)
        own = tl.where((group == 0)[None, :], 0.0, float("-inf"))
        largest = tl.where(done[:, None], own, largest)
        at = beam[:, None] * groups + group[None, :]
        tl.store(group_max + at, largest, mask=exists[:, None])
