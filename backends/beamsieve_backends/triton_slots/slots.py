"""Selective projection: only the valid tokens of each beam, their head rows read in place.

Beam m's j-th valid token has slot j of that beam. A program takes a few beams and the first slots
of each, which needs neither search nor compaction, and then whatever is left of wide rows, so its
work follows the sum of the degrees. What it writes is dense: candidates of a request lie side by
side in the order of their beams and tokens.
"""

from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import packed, usable


@triton.jit
def _degrees(rows, finished, row_starts, m, M):
    """First entry (a finished beam's: its leaf), number of candidates, and whether finished."""
    row = tl.load(rows + m, mask=m < M, other=-1)
    done = (row >= 0) & (tl.load(finished + m, mask=m < M, other=0) != 0)
    live = (row >= 0) & (done == 0)
    start = tl.load(row_starts + row, mask=live, other=0).to(tl.int64)
    end = tl.load(row_starts + row + 1, mask=live, other=0).to(tl.int64)
    return tl.where(done, row, start), tl.where(done, 1, (end - start).to(tl.int32)), done


@triton.jit
def _first_logits(
    head, bias, logits, hidden, tokens, h, slot, first, real, beam, V,
    D: tl.constexpr, TOKEN_MASK: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_LOGITS: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Logits and tokens [BEAMS, SLOTS] of the first slots of each beam."""
    token = tl.load(tokens + first[:, None] + slot[None, :], mask=real, other=0).to(tl.int32)
    token = token & TOKEN_MASK
    if HAS_LOGITS:
        logit = tl.load(logits + beam[:, None] * V + token, mask=real, other=0.0).to(tl.float32)
    else:
        logit = tl.zeros(token.shape, tl.float32)
        at_head = head + token.to(tl.int64)[:, :, None] * D
        for begin in tl.static_range(0, D, BLOCK_K):
            k = begin + tl.arange(0, BLOCK_K)
            there = real[:, :, None]
            if D % BLOCK_K != 0:
                there = there & (k < D)[None, None, :]
            w = tl.load(at_head + k[None, None, :], mask=there, other=0.0).to(tl.float32)
            if D <= BLOCK_K:
                logit += tl.sum(h * w, 2)
            else:
                part = tl.load(
                    hidden + beam[:, None] * D + k[None, :], mask=(k < D)[None, :], other=0.0
                )
                logit += tl.sum(part.to(tl.float32)[:, None, :] * w, 2)
        if HAS_BIAS:
            logit += tl.load(bias + token, mask=real, other=0.0).to(tl.float32)
    return logit, token


@triton.jit
def _more_logits(
    hidden, head, bias, logits, tokens, entry, real, beam, V,
    D: tl.constexpr, TOKEN_MASK: tl.constexpr, SLOTS: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_LOGITS: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Logits and tokens [SLOTS] of slots of any beams."""
    token = tl.load(tokens + entry, mask=real, other=0).to(tl.int32) & TOKEN_MASK
    if HAS_LOGITS:
        logit = tl.load(logits + beam * V + token, mask=real, other=0.0).to(tl.float32)
    else:
        logit = tl.zeros((SLOTS,), tl.float32)
        for begin in tl.static_range(0, D, BLOCK_K):
            k = begin + tl.arange(0, BLOCK_K)
            there = real[:, None]
            if D % BLOCK_K != 0:
                there = there & (k < D)[None, :]
            h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=there, other=0.0)
            w = tl.load(head + token.to(tl.int64)[:, None] * D + k[None, :], mask=there, other=0.0)
            logit += tl.sum(h.to(tl.float32) * w.to(tl.float32), 1)
        if HAS_BIAS:
            logit += tl.load(bias + token, mask=real, other=0.0).to(tl.float32)
    return tl.where(real, usable(logit), float("-inf")), token


@triton.jit
def _finish(
    logit, token, inside, real, score, log_sum, beam, m, V, at, bonus, nudge,
    candidate_keys, candidate_scores, HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr,
):  # fmt: skip
    """Write order key and score of some slots."""
    final = score + (logit - log_sum)
    if HAS_BONUS:
        final += tl.load(bonus + beam * V + token, mask=real, other=0.0)
    final = usable(final)
    key = final
    if HAS_NUDGE:
        key = usable(key + tl.load(nudge + beam * V + token, mask=real, other=0.0))
    tl.store(candidate_scores + at, final, mask=inside)
    tl.store(candidate_keys + at, packed(key, m.to(tl.int64) * V + token), mask=inside)


@triton.jit
def score_slots(
    hidden, head, bias, logits, bonus, nudge, rows, finished, scores, row_starts, tokens,
    candidate_keys, candidate_scores, candidate_rows, candidate_count,
    M, V, CAPACITY,
    D: tl.constexpr, TOKEN_MASK: tl.constexpr, BEAMS: tl.constexpr, SLOTS: tl.constexpr,
    REST: tl.constexpr, BLOCK_K: tl.constexpr, ALL_BEAMS: tl.constexpr, HAS_LOGITS: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Every candidate of every beam: order key, score and child row.

    Args:
        row_starts, tokens: the sparse table.
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY];
            candidate_rows: out, int64 [B, CAPACITY]; candidate_count: out, int32 [B].
        BEAMS, SLOTS: beams of a program, and slots of each that it takes first; REST: slots that
            it takes at a time of those that are left.
        ALL_BEAMS: the power of two from M on. Every program counts the candidates of all beams
            before its own, which costs less than a kernel that does it for all.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    first_m = tl.program_id(1) * BEAMS
    m = first_m + tl.arange(0, BEAMS)
    beam = b * M + m
    first, degree, done = _degrees(rows + b * M, finished + b * M, row_starts, m, M)
    score = tl.load(scores + beam, mask=m < M, other=float("-inf"))
    if HAS_LOGITS or D > BLOCK_K:
        h = score
    else:
        k = tl.arange(0, BLOCK_K)
        read = (m < M)[:, None]
        if D % BLOCK_K != 0:
            read = read & (k < D)[None, :]
        h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=read, other=0.0)
        h = h.to(tl.float32)[:, None, :]
    everyone = tl.arange(0, ALL_BEAMS)
    # The last program needs every beam, for the count; the others, those before them.
    last = tl.program_id(1) == tl.num_programs(1) - 1
    _first, degrees, _done = _degrees(
        rows + b * M, finished + b * M, row_starts, everyone, M if last else first_m
    )
    before = tl.sum(tl.where(everyone < first_m, degrees, 0))
    if last:
        tl.store(candidate_count + b, tl.sum(degrees))
    place = b * CAPACITY + before + (tl.cumsum(degree, 0) - degree)
    most = tl.max(degree)

    slot = tl.arange(0, SLOTS)
    inside = slot[None, :] < degree[:, None]
    real = inside & (done == 0)[:, None]
    logit, token = _first_logits(
        head, bias, logits, hidden, tokens, h, slot, first, real, beam, V,
        D, TOKEN_MASK, BLOCK_K, HAS_LOGITS, HAS_BIAS,
    )  # fmt: skip
    # A finished beam's log-probability is 0.
    logit = tl.where(real, usable(logit), tl.where(inside, 0.0, float("-inf")))
    at = place[:, None] + slot[None, :]
    tl.store(candidate_rows + at, first[:, None] + slot[None, :], mask=inside)
    peak = tl.max(logit, 1)
    reference = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.sum(tl.exp(logit - reference[:, None]), 1)

    # Whatever wide rows have beyond the first slots, side by side.
    lane = tl.arange(0, BEAMS)
    rest = tl.maximum(degree - SLOTS, 0)
    behind = tl.cumsum(rest, 0)
    before_rest = behind - rest
    total = tl.sum(rest)
    for begin in range(0, total, REST):
        later = begin + tl.arange(0, REST)
        there = later < total
        owner = tl.sum((later[:, None] >= behind[None, :]).to(tl.int32), 1)
        mine = (owner[:, None] == lane[None, :]) & there[:, None]
        shift = SLOTS - before_rest
        entry = later + tl.sum(tl.where(mine, (first + shift)[None, :], 0), 1)
        at_later = later + tl.sum(tl.where(mine, (place + shift)[None, :], 0), 1)
        beam_later = b * M + first_m + tl.where(there, owner, 0)
        logit_later, token_later = _more_logits(
            hidden, head, bias, logits, tokens, entry, there, beam_later, V,
            D, TOKEN_MASK, REST, BLOCK_K, HAS_LOGITS, HAS_BIAS,
        )  # fmt: skip
        tl.store(candidate_rows + at_later, entry, mask=there)
        tl.store(candidate_scores + at_later, logit_later, mask=there)
        tl.store(candidate_keys + at_later, token_later.to(tl.int64), mask=there)
        counted = tl.where(mine, logit_later[:, None], float("-inf"))
        new_peak = tl.maximum(peak, tl.max(counted, 0))
        reference = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        mass = mass * tl.exp(peak - reference)
        mass += tl.sum(tl.exp(counted - reference[None, :]), 0)
        peak = new_peak
    log_sum = tl.where(mass > 0.0, reference + tl.log(mass), 0.0)

    _finish(
        logit, token, inside, real, score[:, None], log_sum[:, None], beam[:, None], m[:, None],
        V, at, bonus, nudge, candidate_keys, candidate_scores, HAS_BONUS, HAS_NUDGE,
    )  # fmt: skip
    if total > 0:
        tl.debug_barrier()
        for begin in range(0, total, REST):
            later = begin + tl.arange(0, REST)
            there = later < total
            owner = tl.sum((later[:, None] >= behind[None, :]).to(tl.int32), 1)
            mine = (owner[:, None] == lane[None, :]) & there[:, None]
            shift = SLOTS - before_rest
            at_later = later + tl.sum(tl.where(mine, (place + shift)[None, :], 0), 1)
            m_later = first_m + tl.where(there, owner, 0)
            logit_kept = tl.load(candidate_scores + at_later, mask=there, other=float("-inf"))
            token_kept = tl.load(candidate_keys + at_later, mask=there, other=0).to(tl.int32)
            _finish(
                logit_kept, token_kept, there, there,
                tl.sum(tl.where(mine, score[None, :], 0.0), 1),
                tl.sum(tl.where(mine, log_sum[None, :], 0.0), 1),
                b * M + m_later, m_later, V, at_later, bonus, nudge, candidate_keys,
                candidate_scores, HAS_BONUS, HAS_NUDGE,
            )  # fmt: skip
