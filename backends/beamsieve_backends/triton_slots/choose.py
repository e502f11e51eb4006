"""Selection, first part: which cells can hold one of the best.

Each cell's largest candidate is a candidate of its own, so the ``width`` best cells (in the order
of their largest, then of their position) hold the ``width`` best candidates. Where cells of the
same 32 tokens take turns (``ordering.token_of``), this holds for those whose 32 tokens are all
listed, hence SPARE more. Every program of a request finds them, exact ties included, and lists a
share of their groups.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import (
    LOWEST,
    ordered,
    places_held,
    places_of_best,
    threshold_held,
    threshold_in_memory,
    unordered,
    usable,
)

SPARE = tl.constexpr(4)
ARRIVED = tl.constexpr(1 << 24)
"""What a program, one of MOST_PROGRAMS at the most, adds to its request's count of groups when its
share is listed; beyond any count."""
MOST_PROGRAMS = 64


@triton.jit
def _key_of_group(scores, tops, log_sums, group_max, group, there, of_beam_up, groups_of_beam):
    """Key of the largest candidate of each group (``m * of_beam_up + group of the beam``)."""
    m = group // of_beam_up
    of_beam = group % of_beam_up
    there = there & (of_beam < groups_of_beam)
    largest = tl.load(
        group_max + m.to(tl.int64) * groups_of_beam + of_beam, mask=there, other=float("-inf")
    )
    score = tl.load(scores + m, mask=there, other=float("-inf"))
    top = tl.load(tops + m, mask=there, other=0.0)
    log_sum = tl.load(log_sums + m, mask=there, other=0.0)
    return usable(score + ((largest - top) - log_sum))


@triton.jit
def log_mass(peak, mass):
    """The log-softmax's normalizer per beam [n] from the tiles' [n, tiles], in two parts.

    It is their sum; each is subtracted for itself, as the sum would round small differences of
    large logits away. Both are 0 where nothing has any mass.
    """
    top = tl.max(peak, 1)
    reference = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(mass * tl.exp(peak - reference[:, None]), 1)
    return reference, tl.where(total > 0.0, tl.log(total), 0.0)


@triton.jit
def _keys_of(
    scores, cell_best, tile_peak, tile_sum, tops, log_sums, b, m, beams, M, tiles,
    TILES_UP: tl.constexpr, CELLS: tl.constexpr, PEAKS: tl.constexpr,
):  # fmt: skip
    """int32 [beams, cells] of request b: the key of each cell's largest; normalizers written.

    PEAKS: a cell is a tile, and its largest candidate the largest of the normalizer's set.
    """
    tile = tl.arange(0, TILES_UP)
    cell = tl.arange(0, TILES_UP * CELLS)
    there = (m < M)[:, None] & (tile < tiles)[None, :]
    at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
    mass = tl.load(tile_sum + at, mask=there, other=0.0)
    best = peak
    if PEAKS == 0:
        at = cell.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
        there = (m < M)[:, None] & (cell < tiles * CELLS)[None, :]
        best = tl.load(cell_best + at, mask=there, other=float("-inf"))
    score = tl.load(scores + b * M + m, mask=m < M, other=float("-inf"))
    top, log_sum = log_mass(peak, mass)
    tl.store(tops + b * M + m, top, mask=m < M)
    tl.store(log_sums + b * M + m, log_sum, mask=m < M)
    key = ordered(usable(score[:, None] + ((best - top[:, None]) - log_sum[:, None])))
    return tl.where((m < M)[:, None], key, LOWEST)


@triton.jit(do_not_specialize=["beams", "M", "tiles"])
def key_cells(
    scores, cell_best, tile_peak, tile_sum, tops, log_sums, keys, beams, M, tiles,
    TILES_UP: tl.constexpr, CELLS: tl.constexpr, PEAKS: tl.constexpr, TOGETHER: tl.constexpr,
    BEAM_BLOCK: tl.constexpr, BEAMS_UP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Where one program cannot hold all cells: normalizers and keys, BEAM_BLOCK beams a program.

    Args:
        keys: out, int32 [B, LISTED, BEAMS_UP]; TOGETHER cells count as one, so that a beam has
            LISTED = TILES_UP * CELLS / TOGETHER. The others as in :func:`choose_cells`.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    LISTED: tl.constexpr = TILES_UP * CELLS // TOGETHER
    b = tl.program_id(0).to(tl.int64)
    m = tl.program_id(1) * BEAM_BLOCK + tl.arange(0, BEAM_BLOCK)
    key = _keys_of(
        scores, cell_best, tile_peak, tile_sum, tops, log_sums, b, m, beams, M, tiles, TILES_UP,
        CELLS, PEAKS,
    )  # fmt: skip
    if TOGETHER > 1:
        key = tl.max(tl.reshape(key, (BEAM_BLOCK, LISTED, TOGETHER)), 2)
    to = (b * LISTED + tl.arange(0, LISTED))[None, :] * BEAMS_UP + m[:, None]
    tl.store(keys + to, key, mask=(m < BEAMS_UP)[:, None])


@triton.jit
def cells_to_list(
    scores, cell_best, tile_peak, tile_sum, tops, log_sums, cell_list, b, beams, M, W, SLACK, tiles,
    TILES_UP: tl.constexpr, CELLS: tl.constexpr, PEAKS: tl.constexpr, LISTED: tl.constexpr,
    BEAMS_UP: tl.constexpr, KEYED: tl.constexpr,
):  # fmt: skip
    """Normalizers, and the W to W + SLACK cells that can hold one of the W best of request b.

    Arguments as of :func:`choose_cells`. Returns the threshold and how many cells there are.
    """
    m = tl.arange(0, BEAMS_UP)
    if KEYED:
        at = (b * LISTED + tl.arange(0, LISTED))[None, :] * BEAMS_UP + m[:, None]
        key = tl.load(cell_best + at, mask=(m < M)[:, None], other=LOWEST)
    else:
        key = _keys_of(
            scores, cell_best, tile_peak, tile_sum, tops, log_sums, b, m, beams, M, tiles, TILES_UP,
            CELLS, PEAKS,
        )  # fmt: skip
    tau, need = threshold_held(key, W + SPARE, SLACK - SPARE)
    keep, place, cells = places_held(key, tau, need)
    identity = m[:, None] * LISTED + tl.arange(0, LISTED)[None, :]
    tl.store(cell_list + b * (W + SLACK) + place, identity, mask=keep)
    tl.debug_barrier()
    return unordered(tau), cells


@triton.jit
def passing(
    scores, tops, log_sums, group_max, cell_list, tau, entry, n, of_beam_up, groups_of_beam, EACH,
):  # fmt: skip
    """The groups at these places of the listed cells, and int32 whether each reaches the
    threshold."""
    cell = tl.load(cell_list + entry // EACH, mask=entry < n, other=0)
    group = cell * EACH + entry % EACH
    key = _key_of_group(
        scores, tops, log_sums, group_max, group, entry < n, of_beam_up, groups_of_beam
    )
    return group, ((key >= tau) & (key > float("-inf"))).to(tl.int32)


@triton.jit
def list_the_best(
    scores, tops, log_sums, group_max, cell_list, keys, group_list, n, of_beam_up, groups_of_beam,
    EACH, KEPT, BLOCK: tl.constexpr,
):  # fmt: skip
    """The KEPT best groups of the listed cells, in the exact order, where too many pass."""
    for begin in range(0, n, BLOCK):
        entry = begin + tl.arange(0, BLOCK)
        cell = tl.load(cell_list + entry // EACH, mask=entry < n, other=0)
        key = _key_of_group(
            scores, tops, log_sums, group_max, cell * EACH + entry % EACH, entry < n, of_beam_up,
            groups_of_beam,
        )  # fmt: skip
        tl.store(keys + entry, ordered(key), mask=entry < n)
    tl.debug_barrier()
    tau, need = threshold_in_memory(keys, n, KEPT, 0, BLOCK)
    above = 0
    equal = 0
    for begin in range(0, n, BLOCK):
        entry = begin + tl.arange(0, BLOCK)
        cell = tl.load(cell_list + entry // EACH, mask=entry < n, other=0)
        key = tl.load(keys + entry, mask=entry < n, other=LOWEST)
        stays, to, above, equal = places_of_best(key, tau, need, above, equal)
        tl.store(group_list + to, cell * EACH + entry % EACH, mask=stays)


@triton.jit(do_not_specialize=["beams", "M", "W", "SLACK", "tiles", "groups_of_beam", "of_beam_up",
                               "EACH", "LIMIT", "KEPT"])  # fmt: skip
def choose_cells(
    scores, cell_best, tile_peak, tile_sum, group_max,
    tops, log_sums, cell_list, keys, threshold, group_list, group_count,
    beams, M, W, SLACK, tiles, groups_of_beam, of_beam_up, EACH, LIMIT, KEPT,
    TILES_UP: tl.constexpr, CELLS: tl.constexpr, PEAKS: tl.constexpr, LISTED: tl.constexpr,
    BEAMS_UP: tl.constexpr, KEYED: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Normalizers, the W to W + SLACK cells that can hold one of the W best, and their groups that
    reach the threshold; most cells have one.

    Where those are more than LIMIT (a few beams far ahead of the others, or all logits equal), the
    KEPT best of them (W + SPARE), in the exact order, hold the W best just as the cells did; the
    program that ends last finds them.

    Args:
        scores: float32 [B, M]; tile_*: [tiles, B * M]; cell_best: [tiles * CELLS, B * M], or, if
            KEYED, what :func:`key_cells` wrote.
        tops, log_sums: out, float32 [B, M]; the normalizer in two parts; not if KEYED.
        group_max: float32 [B, M, groups_of_beam]; of_beam_up counts groups of missing tiles too.
        cell_list: workspace, int32 [B, W + SLACK]; ``m * LISTED + cell``. keys: the same, [B,
            (W + SLACK) * EACH], where a cell has EACH groups.
        threshold: out, float32 [B], no better candidate is left out.
        group_list: out, int32 [B, 2, LIMIT], ``m * of_beam_up + group``: all, in any order, or,
            behind them, the KEPT best.
        group_count: int32 [B], in 0, out how many there are, and ARRIVED for each program.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    tau, cells = cells_to_list(
        scores, cell_best, tile_peak, tile_sum, tops, log_sums, cell_list, b, beams, M, W, SLACK,
        tiles, TILES_UP, CELLS, PEAKS, LISTED, BEAMS_UP, KEYED,
    )  # fmt: skip
    tl.store(threshold + b, tau)
    scores += b * M
    tops += b * M
    log_sums += b * M
    group_max += b * M * groups_of_beam
    cell_list += b * (W + SLACK)
    group_list += b * 2 * LIMIT
    n = cells * EACH
    own = tl.program_id(1) * BLOCK
    stride = tl.num_programs(1) * BLOCK
    listed = 0
    before = 0
    total = 0
    for begin in range(own, tl.maximum(n, own + 1), stride):
        group, passes = passing(
            scores, tops, log_sums, group_max, cell_list, tau, begin + tl.arange(0, BLOCK), n,
            of_beam_up, groups_of_beam, EACH,
        )  # fmt: skip
        # More than LIMIT is too many, however many: the count stays below ARRIVED.
        listed = tl.minimum(tl.sum(passes), LIMIT + 1 - total)
        total += listed
        before = tl.atomic_add(
            group_count + b, listed + tl.where(begin + stride >= n, ARRIVED, 0), sem="relaxed"
        )
        to = before % ARRIVED + tl.cumsum(passes, 0) - passes
        tl.store(group_list + to, group, mask=(passes > 0) & (to < LIMIT))
    arrived_last = before // ARRIVED == tl.num_programs(1) - 1
    if arrived_last & (before % ARRIVED + listed > LIMIT):
        list_the_best(
            scores, tops, log_sums, group_max, cell_list, keys + b * (W + SLACK) * EACH,
            group_list + LIMIT, n, of_beam_up, groups_of_beam, EACH, KEPT, BLOCK,
        )  # fmt: skip
