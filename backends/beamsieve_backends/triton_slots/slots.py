"""Selective projection: only the valid tokens of each beam, their head rows read in place.

Beam m's j-th valid token has slot j of that beam, so slots need no search and no compaction; a
program takes a few beams and walks their slots a few at a time. What it writes is dense all the
same: candidates of a request lie side by side in the order of their beams and tokens.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
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
def _logits(
    hidden, head, bias, logits, tokens, h, slot, first, degree, done, beam, V,
    D: tl.constexpr, TOKEN_MASK: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_LOGITS: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Logits [BEAMS, SLOTS] of slots ``slot`` (0 for a finished beam), -inf where none; tokens."""
    inside = slot[None, :] < degree[:, None]
    real = inside & (done == 0)[:, None]
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
                there = (degree > 0)[:, None] & (k < D)[None, :]
                part = tl.load(hidden + beam[:, None] * D + k[None, :], mask=there, other=0.0)
                logit += tl.sum(part.to(tl.float32)[:, None, :] * w, 2)
        if HAS_BIAS:
            logit += tl.load(bias + token, mask=real, other=0.0).to(tl.float32)
    logit = tl.where(real, usable(logit), tl.where(inside, 0.0, float("-inf")))
    return logit, token, inside, real


@triton.jit
def _finish(
    logit, token, inside, real, score, top, log_sum, beam, m, V, at, bonus, nudge,
    candidate_keys, candidate_scores, HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr,
):  # fmt: skip
    """Write order key and score of some slots."""
    final = score[:, None] + ((logit - top[:, None]) - log_sum[:, None])
    if HAS_BONUS:
        final += tl.load(bonus + beam[:, None] * V + token, mask=real, other=0.0)
    final = usable(final)
    key = final
    if HAS_NUDGE:
        key = usable(key + tl.load(nudge + beam[:, None] * V + token, mask=real, other=0.0))
    tl.store(candidate_scores + at, final, mask=inside)
    identity = m.to(tl.int64)[:, None] * V + token
    tl.store(candidate_keys + at, packed(key, identity), mask=inside)


@triton.jit
def score_slots(
    hidden, head, bias, logits, bonus, nudge, rows, finished, scores, row_starts, tokens,
    candidate_keys, candidate_scores, candidate_rows, candidate_count,
    M, V, CAPACITY,
    D: tl.constexpr, TOKEN_MASK: tl.constexpr, BEAMS: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_K: tl.constexpr, ALL_BEAMS: tl.constexpr, HAS_LOGITS: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_BONUS: tl.constexpr, HAS_NUDGE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Every candidate of every beam: order key, score and child row.

    Args:
        row_starts, tokens: the sparse table.
        candidate_keys: out, int64 [B, CAPACITY]; candidate_scores: out, float32 [B, CAPACITY];
            candidate_rows: out, int64 [B, CAPACITY]; candidate_count: out, int32 [B].
        BEAMS, SLOTS: beams of a program, and slots of each that it takes at a time.
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
        there = (m < M)[:, None]
        if D % BLOCK_K != 0:
            there = there & (k < D)[None, :]
        h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=there, other=0.0)
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
    logit, token, inside, real = _logits(
        hidden, head, bias, logits, tokens, h, slot, first, degree, done, beam, V,
        D, TOKEN_MASK, BLOCK_K, HAS_LOGITS, HAS_BIAS,
    )  # fmt: skip
    at = place[:, None] + slot[None, :]
    tl.store(candidate_rows + at, first[:, None] + slot[None, :], mask=inside)
    peak = tl.max(logit, 1)
    reference = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.sum(tl.exp(logit - reference[:, None]), 1)
    for begin in range(SLOTS, most, SLOTS):
        later = begin + tl.arange(0, SLOTS)
        logit_later, token_later, inside_later, _real = _logits(
            hidden, head, bias, logits, tokens, h, later, first, degree, done, beam, V,
            D, TOKEN_MASK, BLOCK_K, HAS_LOGITS, HAS_BIAS,
        )  # fmt: skip
        at_later = place[:, None] + later[None, :]
        tl.store(candidate_rows + at_later, first[:, None] + later[None, :], mask=inside_later)
        tl.store(candidate_scores + at_later, logit_later, mask=inside_later)
        tl.store(candidate_keys + at_later, token_later.to(tl.int64), mask=inside_later)
        new_peak = tl.maximum(peak, tl.max(logit_later, 1))
        reference = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        mass = mass * tl.exp(peak - reference)
        mass += tl.sum(tl.exp(logit_later - reference[:, None]), 1)
        peak = new_peak
    top = reference
    log_sum = tl.where(mass > 0.0, tl.log(mass), 0.0)

    _finish(
        logit, token, inside, real, score, top, log_sum, beam, m, V, at, bonus, nudge,
        candidate_keys, candidate_scores, HAS_BONUS, HAS_NUDGE,
    )  # fmt: skip
    if most > SLOTS:
        tl.debug_barrier()
        for begin in range(SLOTS, most, SLOTS):
            later = begin + tl.arange(0, SLOTS)
            at_later = place[:, None] + later[None, :]
            within = later[None, :] < degree[:, None]
            logit_kept = tl.load(candidate_scores + at_later, mask=within, other=float("-inf"))
            token_kept = tl.load(candidate_keys + at_later, mask=within, other=0).to(tl.int32)
            # A finished beam has one candidate, so whatever comes later is real.
            _finish(
                logit_kept, token_kept, within, within, score, top, log_sum, beam, m, V, at_later,
                bonus, nudge, candidate_keys, candidate_scores, HAS_BONUS, HAS_NUDGE,
            )  # fmt: skip
