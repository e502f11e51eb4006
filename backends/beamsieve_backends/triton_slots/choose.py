"""Selection, first part: which groups can hold one of the best.

Each tile's largest candidate is a candidate of its own, so the ``width`` best tiles (in the order
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
    kth_held,
    kth_in_memory,
    ordered,
    packed,
    places_of_best,
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
    scores, tile_best, tile_peak, tile_sum, group_max,
    log_sums, keys, tile_list, group_list, group_count, threshold, candidate_count,
    M, W,
    TILES: tl.constexpr, TILES_UP: tl.constexpr, GROUPS: tl.constexpr,
    BEAM_BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr,
    LIST_BLOCK: tl.constexpr, LIMIT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Log-sum-exps, and the list of at most ``LIMIT * W`` groups that can hold one of the W best.

    Args:
        scores: float32 [B, M]; tile_*: [B, M, TILES]; group_max: [B, M, TILES, GROUPS].
        log_sums: out, float32 [B, M].
        keys: workspace, int32 [B, max(M * TILES_UP, W * GROUPS)].
        tile_list: workspace, int32 [B, W].
        group_list: out, int32 [B, LIMIT * W]; ``(m * TILES_UP + tile) * GROUPS + group``.
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
    keys += b * tl.maximum(M * TILES_UP, W * GROUPS)
    tile_list += b * W
    group_list += b * W * LIMIT
    group_max += b * M * (TILES * GROUPS)

    tile = tl.arange(0, TILES_UP)
    held = tl.full((BEAM_BLOCK * TILES_UP,), LOWEST, tl.int32)
    for begin in range(0, M, BEAM_BLOCK):
        m = begin + tl.arange(0, BEAM_BLOCK)
        there = (m < M)[:, None] & (tile < TILES)[None, :]
        at = (b * M + m)[:, None] * TILES + tile[None, :]
        peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
        mass = tl.load(tile_sum + at, mask=there, other=0.0)
        best = tl.load(tile_best + at, mask=there, other=float("-inf"))
        log_sum = log_mass(peak, mass)
        tl.store(log_sums + m, log_sum, mask=m < M)
        score = tl.load(scores + m, mask=m < M, other=float("-inf"))
        key = ordered(usable(score[:, None] + (best - log_sum[:, None])))
        held = tl.reshape(tl.where(there, key, LOWEST), (BEAM_BLOCK * TILES_UP,))
        if not ONE_BLOCK:
            place = begin * TILES_UP + tl.arange(0, BEAM_BLOCK * TILES_UP)
            tl.store(keys + place, held, mask=place < M * TILES_UP)
    if ONE_BLOCK:
        tau = tl.maximum(kth_held(held, W), DEAD + 1)
        need = W - tl.sum((held > tau).to(tl.int32))
        keep, place, above, equal = places_of_best(held, tau, need, 0, 0)
        tl.store(tile_list + place, tl.arange(0, BEAM_BLOCK * TILES_UP), mask=keep)
    else:
        tl.debug_barrier()
        n = M * TILES_UP
        tau = tl.maximum(kth_in_memory(keys, n, W, BEAM_BLOCK * TILES_UP), DEAD + 1)
        need = W
        for begin in range(0, n, BEAM_BLOCK * TILES_UP):
            at = begin + tl.arange(0, BEAM_BLOCK * TILES_UP)
            held = tl.load(keys + at, mask=at < n, other=LOWEST)
            need -= tl.sum((held > tau).to(tl.int32))
        above = 0
        equal = 0
        for begin in range(0, n, BEAM_BLOCK * TILES_UP):
            at = begin + tl.arange(0, BEAM_BLOCK * TILES_UP)
            held = tl.load(keys + at, mask=at < n, other=LOWEST)
            keep, place, above, equal = places_of_best(held, tau, need, above, equal)
            tl.store(tile_list + place, at, mask=keep)
    tiles = above + tl.minimum(equal, need)

    # The groups of those tiles, in the same order.
    tl.debug_barrier()
    n = tiles * GROUPS
    reaching = 0
    for begin in range(0, n, LIST_BLOCK):
        entry = begin + tl.arange(0, LIST_BLOCK)
        listed_tile = tl.load(tile_list + entry // GROUPS, mask=entry < n, other=0)
        of = listed_tile // TILES_UP
        group = (listed_tile % TILES_UP) * GROUPS + entry % GROUPS
        largest = tl.load(
            group_max + of.to(tl.int64) * (TILES * GROUPS) + group,
            mask=entry < n,
            other=float("-inf"),
        )
        base = tl.load(scores + of, mask=entry < n, other=float("-inf"))
        normalizer = tl.load(log_sums + of, mask=entry < n, other=0.0)
        held_groups = tl.where(entry < n, ordered(usable(base + (largest - normalizer))), LOWEST)
        reaching += tl.sum((held_groups >= tau).to(tl.int32))
        tl.store(keys + entry, held_groups, mask=entry < n)
    tl.debug_barrier()
    limit = LIMIT * W
    if reaching > limit:
        tau = tl.maximum(kth_in_memory(keys, n, limit, LIST_BLOCK), DEAD + 1)
    room = limit
    if reaching > limit:
        for begin in range(0, n, LIST_BLOCK):
            entry = begin + tl.arange(0, LIST_BLOCK)
            held_groups = tl.load(keys + entry, mask=entry < n, other=LOWEST)
            room -= tl.sum((held_groups > tau).to(tl.int32))
    over = 0
    level = 0
    for begin in range(0, n, LIST_BLOCK):
        entry = begin + tl.arange(0, LIST_BLOCK)
        held_groups = tl.load(keys + entry, mask=entry < n, other=LOWEST)
        chosen, slot, over, level = places_of_best(held_groups, tau, room, over, level)
        listed_tile = tl.load(tile_list + entry // GROUPS, mask=chosen, other=0)
        tl.store(group_list + slot, listed_tile * GROUPS + entry % GROUPS, mask=chosen)
    tl.store(group_count + b, over + tl.minimum(level, room))
    tl.store(threshold + b, unordered(tau))


@triton.jit
def choose_tokens(
    scores, tile_peak, tile_sum, group_max,
    candidate_keys, candidate_scores, candidate_count,
    M, V, W, CAPACITY,
    TILES: tl.constexpr, TILES_UP: tl.constexpr, COLUMNS: tl.constexpr, COLUMNS_UP: tl.constexpr,
    BEAMS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The W best candidates themselves, where few enough were written (groups of one token).

    Args:
        group_max: float32 [B, M, COLUMNS]; the logits of valid tokens, -inf elsewhere.
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY].
        candidate_count: out, int32 [B].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    m = tl.arange(0, BEAMS)
    tile = tl.arange(0, TILES_UP)
    there = (m < M)[:, None] & (tile < TILES)[None, :]
    at = (b * M + m)[:, None] * TILES + tile[None, :]
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
    tau = tl.maximum(kth_held(key, W), DEAD + 1)
    need = W - tl.sum((key > tau).to(tl.int32))
    keep, place, above, equal = places_of_best(key, tau, need, 0, 0)
    at = b * CAPACITY + place
    tl.store(candidate_keys + at, packed(total, identity), mask=keep)
    tl.store(candidate_scores + at, total, mask=keep)
    tl.store(candidate_count + b, above + tl.minimum(equal, need))


@triton.jit
def thin_candidates(
    candidate_keys, candidate_scores, candidate_rows, candidate_count, keys,
    W, CAPACITY, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Drop, in place, the candidates below the W-th largest key, where there are many.

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
    if n > W:
        if n <= BLOCK:
            at = tl.arange(0, BLOCK)
            whole = tl.load(candidate_keys + at, mask=at < n, other=NOTHING)
            tau = kth_held((whole >> 32).to(tl.int32), W)
        else:
            for begin in range(0, n, BLOCK):
                at = begin + tl.arange(0, BLOCK)
                whole = tl.load(candidate_keys + at, mask=at < n, other=0)
                tl.store(keys + at, (whole >> 32).to(tl.int32), mask=at < n)
            tl.debug_barrier()
            tau = kth_in_memory(keys, n, W, BLOCK)
        tau = tl.maximum(tau, DEAD + 1)
        kept = 0
        for begin in range(0, n, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            whole = tl.load(candidate_keys + at, mask=at < n, other=NOTHING)
            score = tl.load(candidate_scores + at, mask=at < n, other=0.0)
            row = tl.load(candidate_rows + at, mask=at < n, other=0)
            keep = (whole >> 32).to(tl.int32) >= tau
            place = kept + tl.cumsum(keep.to(tl.int32), 0) - 1
            kept += tl.sum(keep.to(tl.int32))
            # All of the chunk is read before its places, or earlier ones, are written.
            tl.debug_barrier()
            tl.store(candidate_keys + place, whole, mask=keep)
            tl.store(candidate_scores + place, score, mask=keep)
            tl.store(candidate_rows + place, row, mask=keep)
        tl.store(candidate_count + b, kept)
