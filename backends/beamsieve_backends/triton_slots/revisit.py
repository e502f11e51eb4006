"""Selection, second part: the candidates of the chosen groups, scored once more.

The logits were never written, so the few groups that matter are projected again, this time one
product per candidate in float32. A candidate stays when it reaches the threshold (with a margin, as
the two projections may round differently) or is the best of its group.
"""

from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import packed, usable

MARGIN = tl.constexpr(1e-3)


@triton.jit
def score_groups(
    hidden, head, bias, logits, bonus, nudge, rows, finished, bitmaps,
    scores, log_sums, group_list, group_count, threshold,
    candidate_keys, candidate_scores, candidate_count,
    M, V, LIMIT, CAPACITY,
    D: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, GROUPS_UP: tl.constexpr,
    GROUPS_A_TIME: tl.constexpr, BLOCK_K: tl.constexpr, BY_ROW: tl.constexpr,
    HAS_LOGITS: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_BONUS: tl.constexpr,
    HAS_NUDGE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Candidates of the listed groups: order key, and score.

    Args:
        group_list: int32 [B, LIMIT], of which ``group_count`` [B] are set: m * GROUPS_UP + group.
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY].
        candidate_count: int32 [B], in and out; CAPACITY holds every token of every listed group.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(group_count + b)
    tau = tl.load(threshold + b)
    tau -= MARGIN * tl.maximum(tl.abs(tau), 1.0)
    slots: tl.constexpr = GROUPS_A_TIME * GROUP
    for begin in range(tl.program_id(1) * GROUPS_A_TIME, n, tl.num_programs(1) * GROUPS_A_TIME):
        slot = tl.arange(0, slots)
        item = begin + slot // GROUP
        listed = item < n
        identity = tl.load(group_list + b * LIMIT + item, mask=listed, other=0)
        m = identity // GROUPS_UP
        beam = b * M + m
        column = (identity % GROUPS_UP) * GROUP + slot % GROUP
        inside = listed & (column < V)
        at = beam * V + column
        if HAS_LOGITS:
            logit = tl.load(logits + at, mask=inside, other=0.0).to(tl.float32)
        else:
            logit = tl.zeros((slots,), tl.float32)
            for k_begin in range(0, D, BLOCK_K):
                k = k_begin + tl.arange(0, BLOCK_K)
                there = inside[:, None] & (k < D)[None, :]
                h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=there, other=0.0)
                w = tl.load(
                    head + column.to(tl.int64)[:, None] * D + k[None, :], mask=there, other=0.0
                )
                logit += tl.sum(h.to(tl.float32) * w.to(tl.float32), 1)
            if HAS_BIAS:
                logit += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)

        row = tl.load(rows + beam, mask=listed, other=-1)
        done = listed & (row >= 0) & (tl.load(finished + beam, mask=listed, other=0) != 0)
        live = listed & (row >= 0) & (done == 0)
        owner = tl.where(live, row, 0) if BY_ROW else beam
        word = tl.load(bitmaps + owner * WORDS + (column >> 5), mask=live & inside, other=0)
        valid = ((word >> (column & 31)) & 1) != 0
        own = done & (column == 0)
        score = tl.load(scores + beam, mask=listed, other=float("-inf"))
        log_sum = tl.load(log_sums + beam, mask=listed, other=0.0)
        total = score + (usable(logit) - log_sum)
        if HAS_BONUS:
            total += tl.load(bonus + at, mask=valid, other=0.0)
        total = usable(total)
        key = total
        if HAS_NUDGE:
            key = usable(key + tl.load(nudge + at, mask=valid, other=0.0))
        key = tl.where(valid, key, float("-inf"))
        total = tl.where(own, score, total)
        key = tl.where(own, score, key)
        best = tl.max(tl.reshape(key, (GROUPS_A_TIME, GROUP)), 1)
        best = tl.broadcast_to(best[:, None], (GROUPS_A_TIME, GROUP))
        keep = (key > float("-inf")) & (key >= tl.minimum(tau, tl.reshape(best, (slots,))))
        chosen = keep.to(tl.int32)
        place = tl.atomic_add(candidate_count + b, tl.sum(chosen)) + tl.cumsum(chosen, 0) - 1
        where = b * CAPACITY + place
        tl.store(candidate_keys + where, packed(key, m.to(tl.int64) * V + column), mask=keep)
        tl.store(candidate_scores + where, total, mask=keep)
