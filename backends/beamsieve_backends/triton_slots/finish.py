"""Selection in one kernel, where every logit was written: threshold, survivors, ranks, new beams.

One program per request does it all, so a step is two launches. That suits what is small per
request; what is larger is chosen, scored once more and ranked by many programs (``choose``,
``revisit``, ``rank``).
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.choose import log_mass
from beamsieve_backends.triton_slots.ordering import (
    LOWEST,
    ordered,
    packed,
    threshold_held,
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
    scores, tile_peak, tile_sum, logits, candidates, slots,
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
    identity = m[:, None] * V + v[None, :]
    tl.store(candidates + identity, packed(total, identity), mask=there)
    tl.debug_barrier()
    n = M * V
    if n > W + SLACK:
        n = keep_best(candidates, scores, slots, n, W, SLACK, False, False, BEAMS_UP * COLUMNS_UP)
    rank_and_write(
        candidates, scores, slots, n, 0, b, 0, OWN, rows, finished, history,
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
        rows, slots, 0, 0,
        out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
        M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
    )  # fmt: skip


@triton.jit(do_not_specialize=_RUNTIME)
def finish_cells(
    scores, cell_best, tile_peak, tile_sum, logits, tops, log_sums, cell_list, candidates,
    candidate_count, slots,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, beams, tiles, columns, CAPACITY, CELL_CAPACITY,
    TILES_UP: tl.constexpr, CELLS: tl.constexpr, CELL: tl.constexpr, BEAMS_UP: tl.constexpr,
    GATHER: tl.constexpr, RANKED: tl.constexpr, T_UP: tl.constexpr, OWN: tl.constexpr,
    OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The cells that can hold one of the best are chosen first, then their tokens are looked at.

    Each cell's largest candidate is a candidate of its own, so the W best cells hold the W best
    candidates.

    Args:
        cell_best: float32 [tiles * CELLS, B * M]; tile_*: [tiles, B * M]; logits: [B, M, columns].
        tops, log_sums: workspace, float32 [B, M]; cell_list: int32 [B, CELL_CAPACITY];
            candidates: int64 [B, CAPACITY], room for every token of so many cells.
        candidate_count: out, int32 [B].
        RANKED: the new beams are written here; else ``write_best`` comes next.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    candidates += b * CAPACITY
    cell_list += b * CELL_CAPACITY
    tl.store(candidate_count + b, 0)
    m = tl.arange(0, BEAMS_UP)
    tile = tl.arange(0, TILES_UP)
    cell = tl.arange(0, TILES_UP * CELLS)
    there = (m < M)[:, None] & (tile < tiles)[None, :]
    at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
    mass = tl.load(tile_sum + at, mask=there, other=0.0)
    at = cell.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    there = (m < M)[:, None] & (cell < tiles * CELLS)[None, :]
    best = tl.load(cell_best + at, mask=there, other=float("-inf"))
    score = tl.load(scores + b * M + m, mask=m < M, other=float("-inf"))
    top, log_sum = log_mass(peak, mass)
    tl.store(tops + b * M + m, top, mask=m < M)
    tl.store(log_sums + b * M + m, log_sum, mask=m < M)
    key = ordered(usable(score[:, None] + ((best - top[:, None]) - log_sum[:, None])))
    key = tl.where(there, key, LOWEST)
    tau, need = threshold_held(key, W, SLACK)
    above = (key > tau).to(tl.int32)
    equal = (key == tau).to(tl.int32)
    both = above + (equal << 16)
    in_row = tl.cumsum(both, 1) - both
    of_row = tl.sum(both, 1)
    running = (tl.cumsum(of_row, 0) - of_row)[:, None] + in_row
    equal_before = running >> 16
    keep = (above > 0) | ((equal > 0) & (equal_before < need))
    place = (running & 0xFFFF) + tl.minimum(equal_before, need)
    tl.store(cell_list + place, m[:, None] * (TILES_UP * CELLS) + cell[None, :], mask=keep)
    cells = tl.sum(above) + tl.minimum(tl.sum(equal), need)
    tau = unordered(tau)
    tl.debug_barrier()

    for begin in range(0, cells * CELL, GATHER):
        item = begin + tl.arange(0, GATHER)
        real = item < cells * CELL
        listed = tl.load(cell_list + item // CELL, mask=real, other=0)
        of = listed // (TILES_UP * CELLS)
        v = (listed % (TILES_UP * CELLS)) * CELL + item % CELL
        logit = tl.load(
            logits + (b * M + of) * columns + v, mask=real & (v < V), other=float("-inf")
        )
        own = tl.load(scores + b * M + of, mask=real, other=float("-inf"))
        own_top = tl.load(tops + b * M + of, mask=real, other=0.0)
        own_sum = tl.load(log_sums + b * M + of, mask=real, other=0.0)
        total = usable(own + ((logit - own_top) - own_sum))
        # The same sum as above, of the same numbers: the bits are the same, and so is the order.
        stays = real & (total >= tau) & (total > float("-inf"))
        to = tl.atomic_add(candidate_count + b + tl.zeros((GATHER,), tl.int64), 1, mask=stays)
        tl.store(candidates + to, packed(total, of * V + v), mask=stays)
    tl.debug_barrier()
    # An atomic read: an ordinary one might find what this processor still holds of the count.
    n = tl.atomic_add(candidate_count + b, 0)
    if n > W + W // 2 + SLACK:
        n = keep_best(candidates, scores, slots, n, W, SLACK, False, False, GATHER)
        if RANKED == 0:
            tl.store(candidate_count + b, n)
    if RANKED:
        rank_and_write(
            candidates, scores, slots, n, 0, b, 0, OWN, rows, finished, history,
            start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
            tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
            next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
            rows, slots, 0, 0,
            out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
            M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
        )  # fmt: skip
