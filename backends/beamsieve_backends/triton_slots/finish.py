"""Selection in one kernel, where every logit was written: threshold, survivors, ranks, new beams.

Several programs of a request find the same survivors, each for itself, and write the same numbers
to the same places; then each ranks its own share. Nobody waits for anybody, and a step is two
launches. That suits what is small per request; what is larger is chosen, scored once more and
ranked by kernels of their own (``choose``, ``revisit``, ``rank``).
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.choose import SPARE, log_mass
from beamsieve_backends.triton_slots.ordering import (
    LOWEST,
    ordered,
    packed,
    places_held,
    threshold_held,
    token_of,
    unordered,
    usable,
)
from beamsieve_backends.triton_slots.rank import keep_best, rank_and_write

_RUNTIME = [
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "child", "search_steps", "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last",
    "ragged", "SLACK", "beams", "tiles", "CAPACITY", "CELL_CAPACITY",
]  # fmt: skip


@triton.jit(do_not_specialize=_RUNTIME)
def finish_tokens(
    scores, tile_peak, tile_sum, logits, candidates,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, beams, tiles, columns, CAPACITY,
    TILES_UP: tl.constexpr, COLUMNS_UP: tl.constexpr, BEAMS_UP: tl.constexpr, T_UP: tl.constexpr,
    OWN: tl.constexpr, OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """All tokens of all beams of a request are held at once.

    Args:
        tile_peak, tile_sum: float32 [tiles, B * M]; logits: float32 [B, M, columns], -inf where
            not valid.
        candidates: workspace, int64 [B, CAPACITY]. The others as ``rank_and_write`` says.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    candidates += b * CAPACITY
    m = tl.arange(0, BEAMS_UP)
    tile = tl.arange(0, TILES_UP)
    there = (m < M)[:, None] & (tile < tiles)[None, :]
    at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
    mass = tl.load(tile_sum + at, mask=there, other=0.0)
    top, log_sum = log_mass(peak, mass)
    score = tl.load(scores + b * M + m, mask=m < M, other=float("-inf"))
    v = tl.arange(0, COLUMNS_UP)
    there = (m < M)[:, None] & (v < V)[None, :]
    at = (b * M + m)[:, None] * columns + v[None, :]
    logit = tl.load(logits + at, mask=there, other=float("-inf"))
    total = usable(score[:, None] + ((logit - top[:, None]) - log_sum[:, None]))
    key = tl.where(there, ordered(total), LOWEST)
    tau, need = threshold_held(key, W, SLACK)
    keep, place, n = places_held(key, tau, need)
    identity = m[:, None] * V + v[None, :]
    tl.store(candidates + place, packed(total, identity), mask=keep)
    tl.debug_barrier()
    rank_and_write(
        candidates, scores, rows, n, 0, b, tl.program_id(1) * OWN, tl.num_programs(1) * OWN, rows,
        finished, history,
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
        rows, rows, 0, 0,
        out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
        M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
    )  # fmt: skip


@triton.jit(do_not_specialize=_RUNTIME)
def finish_cells(
    scores, cell_best, tile_peak, tile_sum, logits, tops, log_sums, cell_list, candidates, best,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, beams, tiles, columns, CAPACITY, CELL_CAPACITY,
    TILES_UP: tl.constexpr, CELLS: tl.constexpr, CELL: tl.constexpr, BEAMS_UP: tl.constexpr,
    GATHER: tl.constexpr, T_UP: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The cells that can hold one of the best are chosen first, then their tokens are looked at.

    Each cell's largest candidate is a candidate of its own, so the W best cells hold the W best
    candidates.

    Args:
        cell_best: float32 [tiles * CELLS, B * M]; tile_*: [tiles, B * M]; logits: [B, M, columns].
        tops, log_sums: workspace, float32 [B, M]; cell_list: int32 [B, CELL_CAPACITY];
            candidates, best: int64 [B, CAPACITY], room for every token of so many cells.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    candidates += b * CAPACITY
    best += b * CAPACITY
    cell_list += b * CELL_CAPACITY
    m = tl.arange(0, BEAMS_UP)
    tile = tl.arange(0, TILES_UP)
    cell = tl.arange(0, TILES_UP * CELLS)
    there = (m < M)[:, None] & (tile < tiles)[None, :]
    at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
    mass = tl.load(tile_sum + at, mask=there, other=0.0)
    at = cell.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    there = (m < M)[:, None] & (cell < tiles * CELLS)[None, :]
    largest = tl.load(cell_best + at, mask=there, other=float("-inf"))
    score = tl.load(scores + b * M + m, mask=m < M, other=float("-inf"))
    top, log_sum = log_mass(peak, mass)
    tl.store(tops + b * M + m, top, mask=m < M)
    tl.store(log_sums + b * M + m, log_sum, mask=m < M)
    key = ordered(usable(score[:, None] + ((largest - top[:, None]) - log_sum[:, None])))
    key = tl.where(there, key, LOWEST)
    tau, need = threshold_held(key, W + SPARE, SLACK - SPARE)
    keep, place, cells = places_held(key, tau, need)
    tl.store(cell_list + place, m[:, None] * (TILES_UP * CELLS) + cell[None, :], mask=keep)
    tau = unordered(tau)
    tl.debug_barrier()

    n = 0
    for begin in range(0, cells * CELL, GATHER):
        item = begin + tl.arange(0, GATHER)
        real = item < cells * CELL
        listed = tl.load(cell_list + item // CELL, mask=real, other=0)
        of = listed // (TILES_UP * CELLS)
        v = token_of(listed % (TILES_UP * CELLS), item % CELL, CELL)
        logit = tl.load(
            logits + (b * M + of) * columns + v, mask=real & (v < V), other=float("-inf")
        )
        own = tl.load(scores + b * M + of, mask=real, other=float("-inf"))
        own_top = tl.load(tops + b * M + of, mask=real, other=0.0)
        own_sum = tl.load(log_sums + b * M + of, mask=real, other=0.0)
        total = usable(own + ((logit - own_top) - own_sum))
        # The same sum as above, of the same numbers: the bits are the same, and so is the order.
        stays = real & (total >= tau) & (total > float("-inf"))
        count = stays.to(tl.int32)
        to = n + tl.cumsum(count, 0) - count
        tl.store(candidates + to, packed(total, of * V + v), mask=stays)
        n += tl.sum(count)
    tl.debug_barrier()
    if n > W + W // 2 + SLACK:
        n = keep_best(
            candidates, scores, cell_list, best, scores, cell_list, n, W, SLACK, False, False,
            GATHER,
        )  # fmt: skip
        candidates = best
    rank_and_write(
        candidates, scores, rows, n, 0, b, tl.program_id(1) * OWN, tl.num_programs(1) * OWN, rows,
        finished, history,
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
        rows, rows, 0, 0,
        out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
        M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
    )  # fmt: skip
