"""Selection, first part: which groups can hold one of the best.

Each cell's largest candidate is a candidate of its own, so the ``width`` best cells (in the order
of their largest, then of their position) hold the ``width`` best candidates; and the same is true
of the groups within them. One program per request finds both thresholds, exact ties included.
"""

from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import (
    DEAD,
    LOWEST,
    NOTHING,
    ordered,
    packed,
    places_of_best,
    threshold_held,
    threshold_in_memory,
    unordered,
    usable,
)


@triton.jit
def log_mass(peak, mass):
    """log-sum-exp per beam [n] from the tiles' [n, tiles]; 0 where nothing has any mass."""
    top = tl.max(peak, 1)
    reference = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(mass * tl.exp(peak - reference[:, None]), 1)
    return tl.where(total > 0.0, reference + tl.log(total), 0.0)


@triton.jit
def choose_groups(
    scores, cell_best, tile_peak, tile_sum, group_max,
    log_sums, keys, cell_list, group_list, group_count, threshold, candidate_count,
    beams, M, W, SLACK, LIMIT, KEYS,
    TILES: tl.constexpr, TILES_UP: tl.constexpr, CELLS: tl.constexpr, GROUPS: tl.constexpr,
    TOGETHER: tl.constexpr, BEAM_BLOCK: tl.constexpr, HELD: tl.constexpr,
    LIST_BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Log-sum-exps, and the list of the groups that can hold one of the W best.

    Args:
        scores: float32 [B, M]; tile_*: [TILES, B * M]; cell_best: [TILES * CELLS, B * M];
            group_max: [B, M, TILES * CELLS, GROUPS].
        log_sums: out, float32 [B, M].
        keys: workspace, int32 [B, KEYS]; KEYS >= HELD and every group of every listed cell.
        cell_list: workspace, int32 [B, W + SLACK]. TOGETHER cells are listed as one, so that there
            are at most HELD.
        group_list: out, int32 [B, LIMIT]; ``m * TILES_UP * CELLS * GROUPS + group``.
        group_count: out, int32 [B]; threshold: out, float32 [B], no better candidate is left out.
        candidate_count: out, int32 [B]; set to 0 for the kernel that comes next.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    tl.store(candidate_count + b, 0)
    scores += b * M
    log_sums += b * M
    keys += b * KEYS
    cell_list += b * (W + SLACK)
    group_list += b * LIMIT
    OF_BEAM: tl.constexpr = TILES * CELLS * GROUPS
    OF_BEAM_UP: tl.constexpr = TILES_UP * CELLS * GROUPS
    group_max += b * M * OF_BEAM

    LISTED: tl.constexpr = TILES_UP * CELLS // TOGETHER
    tile = tl.arange(0, TILES_UP)
    cell = tl.arange(0, TILES_UP * CELLS)
    held = tl.full((HELD,), LOWEST, tl.int32)
    for begin in range(0, M, BEAM_BLOCK):
        m = begin + tl.arange(0, BEAM_BLOCK)
        there = (m < M)[:, None] & (tile < TILES)[None, :]
        at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
        peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
        mass = tl.load(tile_sum + at, mask=there, other=0.0)
        at = cell.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
        best = tl.load(
            cell_best + at,
            mask=(m < M)[:, None] & (cell < TILES * CELLS)[None, :],
            other=float("-inf"),
        )
        log_sum = log_mass(peak, mass)
        tl.store(log_sums + m, log_sum, mask=m < M)
        score = tl.load(scores + m, mask=m < M, other=float("-inf"))
        if TOGETHER > 1:
            best = tl.max(tl.reshape(best, (BEAM_BLOCK, LISTED, TOGETHER)), 2)
        key = ordered(usable(score[:, None] + (best - log_sum[:, None])))
        if BEAM_BLOCK * LISTED == HELD:
            held = tl.reshape(tl.where((m < M)[:, None], key, LOWEST), (HELD,))
        else:
            to = m[:, None] * LISTED + tl.arange(0, LISTED)[None, :]
            tl.store(keys + to, key, mask=(m < M)[:, None])
    place = tl.arange(0, HELD)
    if BEAM_BLOCK * LISTED != HELD:
        tl.debug_barrier()
        held = tl.load(keys + place, mask=place < M * LISTED, other=LOWEST)
    tau, need = threshold_held(held, W, SLACK)
    keep, to_list, above, equal = places_of_best(held, tau, need, 0, 0)
    tl.store(cell_list + to_list, place, mask=keep)
    listed = above + tl.minimum(equal, need)

    # The groups of those cells, in the same order. Most cells have one that reaches the threshold.
    tl.debug_barrier()
    n = listed * (TOGETHER * GROUPS)
    reaching = 0
    for begin in range(0, n, LIST_BLOCK):
        entry = begin + tl.arange(0, LIST_BLOCK)
        group = _group_of(cell_list, entry, n, TOGETHER * GROUPS)
        key_of_group = _group_key(
            scores, log_sums, group_max, group, entry < n, OF_BEAM_UP, OF_BEAM
        )
        passes = (key_of_group >= tau).to(tl.int32)
        to_place = reaching + tl.cumsum(passes, 0) - passes
        tl.store(group_list + to_place, group, mask=(passes > 0) & (to_place < LIMIT))
        reaching += tl.sum(passes)
    if reaching > LIMIT:
        for begin in range(0, n, LIST_BLOCK):
            entry = begin + tl.arange(0, LIST_BLOCK)
            group = _group_of(cell_list, entry, n, TOGETHER * GROUPS)
            key_of_group = _group_key(
                scores, log_sums, group_max, group, entry < n, OF_BEAM_UP, OF_BEAM
            )
            tl.store(keys + entry, key_of_group, mask=entry < n)
        tl.debug_barrier()
        tau, need = threshold_in_memory(keys, n, LIMIT, 0, LIST_BLOCK)
        over = 0
        level = 0
        for begin in range(0, n, LIST_BLOCK):
            entry = begin + tl.arange(0, LIST_BLOCK)
            group = _group_of(cell_list, entry, n, TOGETHER * GROUPS)
            key_of_group = tl.load(keys + entry, mask=entry < n, other=LOWEST)
            chosen, slot, over, level = places_of_best(key_of_group, tau, need, over, level)
            tl.store(group_list + slot, group, mask=chosen)
        reaching = over + tl.minimum(level, need)
    tl.store(group_count + b, reaching)
    tl.store(threshold + b, unordered(tau))


@triton.jit
def _group_of(cell_list, entry, n, EACH: tl.constexpr):
    """``m * all groups of a beam + group`` of entry number ``entry`` behind the listed cells."""
    return tl.load(cell_list + entry // EACH, mask=entry < n, other=0) * EACH + entry % EACH


@triton.jit
def _group_key(
    scores, log_sums, group_max, group, there, OF_BEAM: tl.constexpr, STORED: tl.constexpr
):
    m = group // OF_BEAM
    of_beam = group % OF_BEAM
    there = there & (of_beam < STORED)
    largest = tl.load(
        group_max + m.to(tl.int64) * STORED + of_beam, mask=there, other=float("-inf")
    )
    score = tl.load(scores + m, mask=there, other=float("-inf"))
    log_sum = tl.load(log_sums + m, mask=there, other=0.0)
    return ordered(usable(score + (largest - log_sum)))


@triton.jit
def choose_tokens(
    scores, tile_peak, tile_sum, group_max,
    candidate_keys, candidate_scores, candidate_count,
    beams, M, V, W, SLACK,
    TILES: tl.constexpr, TILES_UP: tl.constexpr, COLUMNS: tl.constexpr, COLUMNS_UP: tl.constexpr,
    BEAMS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The W to W + SLACK best candidates, where every logit was written (groups of one token).

    Args:
        tile_*: float32 [TILES, B * M].
        group_max: float32 [B, M, COLUMNS]; the logits of valid tokens, -inf elsewhere.
        candidate_keys: out, int64 [B, W + SLACK]; candidate_scores: out, float32 [B, W + SLACK].
        candidate_count: out, int32 [B].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    m = tl.arange(0, BEAMS)
    tile = tl.arange(0, TILES_UP)
    there = (m < M)[:, None] & (tile < TILES)[None, :]
    at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
    mass = tl.load(tile_sum + at, mask=there, other=0.0)
    log_sum = log_mass(peak, mass)
    score = tl.load(scores + b * M + m, mask=m < M, other=float("-inf"))
    v = tl.arange(0, COLUMNS_UP)
    there = (m < M)[:, None] & (v < V)[None, :]
    logit = tl.load(
        group_max + (b * M + m)[:, None] * COLUMNS + v[None, :], mask=there, other=float("-inf")
    )
    total = usable(score[:, None] + (logit - log_sum[:, None]))
    identity = tl.reshape(m[:, None] * V + v[None, :], (BEAMS * COLUMNS_UP,))
    total = tl.reshape(total, (BEAMS * COLUMNS_UP,))
    key = ordered(total)
    tau, need = threshold_held(key, W, SLACK)
    keep, place, above, equal = places_of_best(key, tau, need, 0, 0)
    at = b * (W + SLACK) + place
    tl.store(candidate_keys + at, packed(total, identity), mask=keep)
    tl.store(candidate_scores + at, total, mask=keep)
    tl.store(candidate_count + b, above + tl.minimum(equal, need))


@triton.jit
def thin_candidates(
    candidate_keys, candidate_scores, candidate_rows, candidate_count, keys,
    W, SLACK, CAPACITY, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Drop, in place, candidates that more than W others beat, where there are many.

    Args:
        candidate_keys, candidate_scores, candidate_rows: [B, CAPACITY].
        candidate_count: int32 [B], in and out; keys: workspace, int32 [B, CAPACITY].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(candidate_count + b)
    candidate_keys += b * CAPACITY
    candidate_scores += b * CAPACITY
    candidate_rows += b * CAPACITY
    keys += b * CAPACITY
    if n > W + SLACK:
        if n <= BLOCK:
            at = tl.arange(0, BLOCK)
            whole = tl.load(candidate_keys + at, mask=at < n, other=NOTHING)
            tau, need = threshold_held((whole >> 32).to(tl.int32), W, SLACK)
        else:
            for begin in range(0, n, BLOCK):
                at = begin + tl.arange(0, BLOCK)
                whole = tl.load(candidate_keys + at, mask=at < n, other=0)
                tl.store(keys + at, (whole >> 32).to(tl.int32), mask=at < n)
            tl.debug_barrier()
            tau, need = threshold_in_memory(keys, n, W, SLACK, BLOCK)
        kept = 0
        for begin in range(0, n, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            whole = tl.load(candidate_keys + at, mask=at < n, other=NOTHING)
            score = tl.load(candidate_scores + at, mask=at < n, other=0.0)
            row = tl.load(candidate_rows + at, mask=at < n, other=0)
            # Ties at the threshold all stay: their order is settled when they are ranked.
            keep = ((whole >> 32).to(tl.int32) >= tau) & ((whole >> 32).to(tl.int32) > DEAD)
            place = kept + tl.cumsum(keep.to(tl.int32), 0) - 1
            kept += tl.sum(keep.to(tl.int32))
            # All of the chunk is read before its places, or earlier ones, are written.
            tl.debug_barrier()
            tl.store(candidate_keys + place, whole, mask=keep)
            tl.store(candidate_scores + place, score, mask=keep)
            tl.store(candidate_rows + place, row, mask=keep)
        tl.store(candidate_count + b, kept)
