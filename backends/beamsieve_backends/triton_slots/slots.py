"""Selective projection: only the valid tokens of each beam, their head rows read in place.

A program takes a few beams, counts their slots, and walks the slots in blocks; a slot belongs to
the beam whose running count it falls under, so work follows the sum of the degrees.
"""

from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import packed, usable


@triton.jit
def score_slots(
    hidden, head, bias, logits, bonus, nudge, rows, finished, scores, row_starts, tokens,
    candidate_keys, candidate_scores, candidate_rows, candidate_count,
    M, V, CAPACITY,
    D: tl.constexpr, TOKEN_MASK: tl.constexpr, BEAMS: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_K: tl.constexpr, HAS_LOGITS: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Every candidate of every beam: order key, score and child row.

    Args:
        row_starts, tokens: the sparse table.
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY];
            candidate_rows: out, int64 [B, CAPACITY].
        candidate_count: int32 [B]; 0 at the start.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BEAMS)
    m = tl.program_id(1) * BEAMS + lane
    beam = b * M + m
    row = tl.load(rows + beam, mask=m < M, other=-1)
    done = (row >= 0) & (tl.load(finished + beam, mask=m < M, other=0) != 0)
    live = (row >= 0) & (done == 0)
    score = tl.load(scores + beam, mask=m < M, other=float("-inf"))
    start = tl.load(row_starts + row, mask=live, other=0).to(tl.int64)
    end = tl.load(row_starts + row + 1, mask=live, other=0).to(tl.int64)
    degree = tl.where(done, 1, (end - start).to(tl.int32))
    behind = tl.cumsum(degree, 0)
    total = tl.sum(degree)
    base = b * CAPACITY + tl.atomic_add(candidate_count + b, total)
    # A slot's entry is its number plus this; a finished beam's is its leaf.
    shift = tl.where(done, row, start) - (behind - degree)

    peak = tl.full((BEAMS,), float("-inf"), tl.float32)
    mass = tl.zeros((BEAMS,), tl.float32)
    for begin in range(0, total, SLOTS):
        slot = begin + tl.arange(0, SLOTS)
        inside = slot < total
        owner = tl.sum((slot[:, None] >= behind[None, :]).to(tl.int32), 1)
        mine = owner[:, None] == lane[None, :]
        entry = slot + tl.sum(tl.where(mine, shift[None, :], 0), 1)
        real = inside & (tl.sum((mine & done[None, :]).to(tl.int32), 1) == 0)
        token = tl.load(tokens + entry, mask=real, other=0).to(tl.int32) & TOKEN_MASK
        own_beam = tl.where(inside, b * M + tl.program_id(1) * BEAMS + owner, 0)
        if HAS_LOGITS:
            logit = tl.load(logits + own_beam * V + token, mask=real, other=0.0).to(tl.float32)
        else:
            logit = tl.zeros((SLOTS,), tl.float32)
            for k_begin in range(0, D, BLOCK_K):
                k = k_begin + tl.arange(0, BLOCK_K)
                there = real[:, None] & (k < D)[None, :]
                h = tl.load(hidden + own_beam[:, None] * D + k[None, :], mask=there, other=0.0)
                w = tl.load(
                    head + token.to(tl.int64)[:, None] * D + k[None, :], mask=there, other=0.0
                )
                logit += tl.sum(h.to(tl.float32) * w.to(tl.float32), 1)
            if HAS_BIAS:
                logit += tl.load(bias + token, mask=real, other=0.0).to(tl.float32)
        # A finished beam's log-probability is 0.
        logit = tl.where(real, usable(logit), 0.0)
        counted = tl.where(mine & inside[:, None], logit[:, None], float("-inf"))
        new_peak = tl.maximum(peak, tl.max(counted, 0))
        reference = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        mass = mass * tl.exp(peak - reference) + tl.sum(tl.exp(counted - reference[None, :]), 0)
        peak = new_peak
        tl.store(candidate_scores + base + slot, logit, mask=inside)
        tl.store(candidate_keys + base + slot, token.to(tl.int64), mask=inside)
        tl.store(candidate_rows + base + slot, entry, mask=inside)

    reference = tl.where(peak == float("-inf"), 0.0, peak)
    log_sum = tl.where(mass > 0.0, reference + tl.log(mass), 0.0)
    tl.debug_barrier()
    for begin in range(0, total, SLOTS):
        slot = begin + tl.arange(0, SLOTS)
        inside = slot < total
        owner = tl.sum((slot[:, None] >= behind[None, :]).to(tl.int32), 1)
        mine = owner[:, None] == lane[None, :]
        of_beam = tl.sum(tl.where(mine, score[None, :], 0.0), 1)
        normalizer = tl.sum(tl.where(mine, log_sum[None, :], 0.0), 1)
        real = inside & (tl.sum((mine & done[None, :]).to(tl.int32), 1) == 0)
        logit = tl.load(candidate_scores + base + slot, mask=inside, other=0.0)
        token = tl.load(candidate_keys + base + slot, mask=inside, other=0)
        own_m = tl.program_id(1) * BEAMS + owner
        final = of_beam + (logit - normalizer)
        at = (b * M + own_m) * V + token
        if HAS_BONUS:
            final += tl.load(bonus + at, mask=real, other=0.0)
        final = usable(final)
        key = final
        if HAS_NUDGE:
            key = usable(key + tl.load(nudge + at, mask=real, other=0.0))
        tl.store(candidate_scores + base + slot, final, mask=inside)
        identity = own_m.to(tl.int64) * V + token
        tl.store(candidate_keys + base + slot, packed(key, identity), mask=inside)
