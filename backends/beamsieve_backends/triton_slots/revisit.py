"""Selection, second part: the candidates of the chosen cells, scored once more.

The logits were never written, so the few groups that matter are projected again, this time one
product per candidate in float32. A candidate stays when it reaches the threshold (with a margin, as
the two projections may round differently) or is the best of its group.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import (
    LOWEST,
    ordered,
    packed,
    places_of_best,
    threshold_in_memory,
    token_of,
    usable,
)
from beamsieve_backends.triton_slots.rank import keep_best

MARGIN = tl.constexpr(1e-3)


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
def _score(
    hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps, scores, tops, log_sums,
    group, listed, tau, b, M, V, D, words, of_beam_up, by_row, has_bias, has_bonus, has_nudge,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE_D: tl.constexpr,
    HAS_LOGITS: tl.constexpr,
):  # fmt: skip
    """Packed key, score, and whether it stays, of every token of GROUPS groups.

    ``group`` and ``listed`` are [GROUPS * GROUP]: each group, and whether it is real, GROUP times.
    """
    slots: tl.constexpr = GROUPS * GROUP
    slot = tl.arange(0, slots)
    m = group // of_beam_up
    beam = b * M + m
    column = token_of(group % of_beam_up, slot % GROUP, GROUP)
    inside = listed & (column < V)
    at = beam * V + column
    row = tl.load(rows + beam, mask=listed, other=-1)
    done = listed & (row >= 0) & (tl.load(finished + beam, mask=listed, other=0) != 0)
    live = listed & (row >= 0) & (done == 0)
    score = tl.load(scores + m, mask=listed, other=float("-inf"))
    top = tl.load(tops + m, mask=listed, other=0.0)
    log_sum = tl.load(log_sums + m, mask=listed, other=0.0)
    owner = tl.where(by_row != 0, tl.where(live, row, 0), beam)
    word = tl.load(bitmaps + owner * words + (column >> 5), mask=live & inside, other=0)
    if HAS_LOGITS:
        logit = tl.load(logits + at, mask=inside, other=0.0).to(tl.float32)
    else:
        logit = tl.zeros((slots,), tl.float32)
        at_hidden = hidden + beam[:, None] * D
        at_head = head + column.to(tl.int64)[:, None] * D
        if WHOLE_D > 0:
            for begin in tl.static_range(0, WHOLE_D, BLOCK_K):
                k = begin + tl.arange(0, BLOCK_K)
                h = tl.load(at_hidden + k[None, :], mask=inside[:, None], other=0.0)
                w = tl.load(at_head + k[None, :], mask=inside[:, None], other=0.0)
                logit += tl.sum(h.to(tl.float32) * w.to(tl.float32), 1)
        else:
            for begin in range(0, D, BLOCK_K):
                k = begin + tl.arange(0, BLOCK_K)
                there = inside[:, None] & (k < D)[None, :]
                h = tl.load(at_hidden + k[None, :], mask=there, other=0.0)
                w = tl.load(at_head + k[None, :], mask=there, other=0.0)
                logit += tl.sum(h.to(tl.float32) * w.to(tl.float32), 1)
        if has_bias != 0:
            logit += tl.load(bias + column, mask=inside, other=0.0)
    valid = ((word >> (column & 31)) & 1) != 0
    own = done & (column == 0)
    total = score + ((usable(logit) - top) - log_sum)
    if has_bonus != 0:
        total += tl.load(bonus + at, mask=valid, other=0.0)
    total = usable(total)
    key = total
    if has_nudge != 0:
        key = usable(key + tl.load(nudge + at, mask=valid, other=0.0))
    key = tl.where(own, score, tl.where(valid, key, float("-inf")))
    total = tl.where(own, score, total)
    best = tl.max(tl.reshape(key, (GROUPS, GROUP)), 1)
    best = tl.reshape(tl.broadcast_to(best[:, None], (GROUPS, GROUP)), (slots,))
    reach = tl.minimum(tau - MARGIN * tl.maximum(tl.abs(tau), 1.0), best)
    keep = (key > float("-inf")) & (key >= reach)
    return packed(key, m.to(tl.int64) * V + column), total, keep


@triton.jit(do_not_specialize=["M", "MOST", "LIMIT", "groups_of_beam", "of_beam_up", "EACH"])
def list_groups(
    scores, tops, log_sums, group_max, cell_list, cell_count, threshold, group_list, group_count,
    M, MOST, LIMIT, groups_of_beam, of_beam_up, EACH, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """List the groups of the listed cells that reach the threshold; most cells have one.

    Args:
        group_max: float32 [B, M, groups_of_beam]; of_beam_up counts groups of missing tiles too.
        cell_list: int32 [B, MOST], of which ``cell_count`` [B] are set, of EACH groups.
        group_list: out, int32 [B, LIMIT], in no order; ``m * of_beam_up + group``.
        group_count: int32 [B], in and out; above LIMIT where not all had a place.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    tau = tl.load(threshold + b)
    n = tl.load(cell_count + b) * EACH
    entry = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    cell = tl.load(cell_list + b * MOST + entry // EACH, mask=entry < n, other=0)
    group = cell * EACH + entry % EACH
    key = _key_of_group(
        scores + b * M, tops + b * M, log_sums + b * M, group_max + b * M * groups_of_beam, group,
        entry < n, of_beam_up, groups_of_beam,
    )  # fmt: skip
    passes = ((key >= tau) & (key > float("-inf"))).to(tl.int32)
    place = tl.atomic_add(group_count + b, tl.sum(passes)) + tl.cumsum(passes, 0) - 1
    tl.store(group_list + b * LIMIT + place, group, mask=(passes > 0) & (place < LIMIT))


@triton.jit(do_not_specialize=["M", "V", "words", "of_beam_up", "by_row", "has_bias", "has_bonus",
                               "has_nudge", "LIMIT", "CAPACITY"])  # fmt: skip
def score_groups(
    hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
    scores, tops, log_sums, group_list, group_count, threshold,
    candidate_keys, candidate_scores, candidate_count,
    M, V, D, words, of_beam_up, by_row, has_bias, has_bonus, has_nudge, LIMIT, CAPACITY,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE_D: tl.constexpr,
    HAS_LOGITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Candidates of the listed groups: order key, and score.

    Args:
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY].
        candidate_count: int32 [B], in and out; CAPACITY is every token of LIMIT groups.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    tau = tl.load(threshold + b)
    n = tl.minimum(tl.load(group_count + b), LIMIT)
    slot = tl.arange(0, GROUPS * GROUP)
    for begin in range(tl.program_id(1) * GROUPS, n, tl.num_programs(1) * GROUPS):
        item = begin + slot // GROUP
        group = tl.load(group_list + b * LIMIT + item, mask=item < n, other=0)
        code, score, keep = _score(
            hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
            scores + b * M, tops + b * M, log_sums + b * M, group, item < n, tau, b, M, V, D,
            words, of_beam_up, by_row, has_bias, has_bonus, has_nudge, GROUP, GROUPS, BLOCK_K,
            WHOLE_D, HAS_LOGITS,
        )  # fmt: skip
        count = keep.to(tl.int32)
        place = tl.atomic_add(candidate_count + b, tl.sum(count)) + tl.cumsum(count, 0) - 1
        tl.store(candidate_keys + b * CAPACITY + place, code, mask=keep)
        tl.store(candidate_scores + b * CAPACITY + place, score, mask=keep)


@triton.jit(do_not_specialize=["M", "V", "words", "of_beam_up", "by_row", "has_bias", "has_bonus",
                               "has_nudge", "LIMIT", "CAPACITY", "W", "SLACK", "MOST", "KEYS",
                               "groups_of_beam", "EACH"])  # fmt: skip
def settle_candidates(
    hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
    scores, tops, log_sums, group_list, group_count, threshold,
    candidate_keys, candidate_scores, candidate_count, group_max, cell_list, cell_count, keys,
    M, V, D, words, of_beam_up, by_row, has_bias, has_bonus, has_nudge, W, SLACK, MOST, CAPACITY,
    LIMIT, KEYS, groups_of_beam, EACH,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
    WHOLE_D: tl.constexpr, HAS_LOGITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Bring a request's candidates down to what can be ranked; mostly there is nothing to do.

    Where groups had no place (a few beams far ahead of the others, or all logits equal), the LIMIT
    best groups of the listed cells, in the exact order, are listed anew and scored: they hold the W
    best just as the cells did. One program per request does this alone.

    Args:
        keys: workspace, int32 [B, KEYS].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    count = tl.load(candidate_count + b)
    keys += b * KEYS
    group_list += b * LIMIT
    if tl.load(group_count + b) > LIMIT:
        tau_of_cells = tl.load(threshold + b)
        n = tl.load(cell_count + b) * EACH
        for begin in range(0, n, BLOCK):
            entry = begin + tl.arange(0, BLOCK)
            cell = tl.load(cell_list + b * MOST + entry // EACH, mask=entry < n, other=0)
            key = _key_of_group(
                scores + b * M, tops + b * M, log_sums + b * M, group_max + b * M * groups_of_beam,
                cell * EACH + entry % EACH, entry < n, of_beam_up, groups_of_beam,
            )  # fmt: skip
            tl.store(keys + entry, ordered(key), mask=entry < n)
        tl.debug_barrier()
        tau, need = threshold_in_memory(keys, n, LIMIT, 0, BLOCK)
        above = 0
        equal = 0
        for begin in range(0, n, BLOCK):
            entry = begin + tl.arange(0, BLOCK)
            cell = tl.load(cell_list + b * MOST + entry // EACH, mask=entry < n, other=0)
            key_here = tl.load(keys + entry, mask=entry < n, other=LOWEST)
            keep, place, above, equal = places_of_best(key_here, tau, need, above, equal)
            tl.store(group_list + place, cell * EACH + entry % EACH, mask=keep)
        groups = above + tl.minimum(equal, need)
        tl.debug_barrier()
        count = 0
        slot = tl.arange(0, GROUPS * GROUP)
        for begin in range(0, groups, GROUPS):
            item = begin + slot // GROUP
            group = tl.load(group_list + item, mask=item < groups, other=0)
            code, score, stays = _score(
                hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
                scores + b * M, tops + b * M, log_sums + b * M, group, item < groups,
                tau_of_cells, b, M, V, D, words, of_beam_up, by_row, has_bias, has_bonus, has_nudge,
                GROUP, GROUPS, BLOCK_K, WHOLE_D, HAS_LOGITS,
            )  # fmt: skip
            at = b * CAPACITY + count + tl.cumsum(stays.to(tl.int32), 0) - 1
            tl.store(candidate_keys + at, code, mask=stays)
            tl.store(candidate_scores + at, score, mask=stays)
            count += tl.sum(stays.to(tl.int32))
        tl.store(candidate_count + b, count)
        tl.debug_barrier()
    if count > 2 * W + SLACK:
        kept = keep_best(
            candidate_keys + b * CAPACITY, candidate_scores + b * CAPACITY, group_list,
            candidate_keys + b * CAPACITY, candidate_scores + b * CAPACITY, group_list, count, W,
            SLACK, True, False, BLOCK,
        )  # fmt: skip
        tl.store(candidate_count + b, kept)
