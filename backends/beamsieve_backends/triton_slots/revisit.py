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

from beamsieve_backends.triton_slots.choose import ARRIVED
from beamsieve_backends.triton_slots.ordering import packed, token_of, usable

MARGIN = tl.constexpr(1e-3)


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
        at_hidden = hidden + beam[:, None] * D
        at_head = head + column.to(tl.int64)[:, None] * D
        # Lanes add up at the end, once, as that takes most of the time.
        products = tl.zeros((slots, BLOCK_K), tl.float32)
        if WHOLE_D > 0:
            for begin in tl.static_range(0, WHOLE_D, BLOCK_K):
                k = begin + tl.arange(0, BLOCK_K)
                h = tl.load(at_hidden + k[None, :], mask=inside[:, None], other=0.0)
                w = tl.load(at_head + k[None, :], mask=inside[:, None], other=0.0)
                products += h.to(tl.float32) * w.to(tl.float32)
        else:
            for begin in range(0, D, BLOCK_K):
                k = begin + tl.arange(0, BLOCK_K)
                there = inside[:, None] & (k < D)[None, :]
                h = tl.load(at_hidden + k[None, :], mask=there, other=0.0)
                w = tl.load(at_head + k[None, :], mask=there, other=0.0)
                products += h.to(tl.float32) * w.to(tl.float32)
        logit = tl.sum(products, 1)
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


@triton.jit(do_not_specialize=["M", "V", "words", "of_beam_up", "by_row", "has_bias", "has_bonus",
                               "has_nudge", "LIMIT", "KEPT", "CAPACITY"])  # fmt: skip
def score_groups(
    hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
    scores, tops, log_sums, group_list, group_count, threshold,
    candidate_keys, candidate_scores, candidate_count,
    M, V, D, words, of_beam_up, by_row, has_bias, has_bonus, has_nudge, LIMIT, KEPT, CAPACITY,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE_D: tl.constexpr,
    HAS_LOGITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Candidates of the listed groups: order key, and score.

    Args:
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY].
        group_list, group_count: see :func:`choose.choose_cells`.
        candidate_count: int32 [B], in 0, and out; CAPACITY is every token of LIMIT groups.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    tau = tl.load(threshold + b)
    # The first groups are read before it is known how many there are: nothing waits for the count.
    slot = tl.arange(0, GROUPS * GROUP)
    item = tl.program_id(1) * GROUPS + slot // GROUP
    group = tl.load(group_list + 2 * b * LIMIT + item, mask=item < LIMIT, other=0)
    n = tl.load(group_count + b) % ARRIVED
    if n > LIMIT:
        group_list += LIMIT
        group = tl.load(group_list + 2 * b * LIMIT + item, mask=item < KEPT, other=0)
        n = KEPT
    group_list += 2 * b * LIMIT
    stride = tl.num_programs(1) * GROUPS
    for begin in range(tl.program_id(1) * GROUPS, n, stride):
        item = begin + slot // GROUP
        group = tl.where(item < n, group, 0)
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
        group = tl.load(group_list + item + stride, mask=item + stride < n, other=0)
