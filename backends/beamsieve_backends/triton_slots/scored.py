"""Device helpers: what is written of slots once their logits are known."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import usable
from beamsieve_backends.triton_slots.products import (
    UNIT,
    logits_by_matrix,
    logits_by_sums,
    share_of,
)

EMPTY = tl.constexpr(-1)
"""In place of a slot's identity ``m * V + token``: there is none."""
FINISHED = tl.constexpr(-2)
"""That minus m in place of it: beam m is finished, and goes on as it is."""


@triton.jit
def settled(logit, real, ends, kept, over_kept, TARGETED: tl.constexpr):
    """Logits of slots as they may win, and as they count in the log-softmax; 0 where a finished
    beam ``ends``, -inf where a slot is neither that nor ``real``. ``kept``, if TARGETED, is not 0
    where targeting lets a slot win."""
    logit = tl.where(real, usable(logit), tl.where(ends, 0.0, float("-inf")))
    counted = logit
    if TARGETED:
        logit = tl.where((kept != 0) | ends, logit, float("-inf"))
        counted = tl.where(over_kept != 0, logit, counted)
    return logit, counted


@triton.jit
def score_shared(
    hidden, head, bias, logits, has_bias, slot_ids, slot_scores, unit_peak, unit_sum, unit_best,
    b, m, there, slots_at, units_at, token, real, V, D, M, unit_kept, over_kept,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, PART: tl.constexpr, HAS_LOGITS: tl.constexpr,
    MATRIX: tl.constexpr, UPCAST: tl.constexpr, TARGETED: tl.constexpr,
):  # fmt: skip
    """Score the same unit of a row for up to n beams that are at it.

    Args:
        b, m: int64 and int32 [n], beam m of request b, where ``there``.
        slots_at, units_at: int64 [n]; where the unit's slots begin, and its own place.
        token, real: [UNIT]; the unit's tokens.
    """
    state = b * M + m
    COLUMNS: tl.constexpr = state.shape[0]
    column = tl.arange(0, COLUMNS)
    both = there[:, None] & real[None, :]
    if HAS_LOGITS:
        logit = tl.load(
            logits + state[:, None] * V + token[None, :], mask=both, other=0.0
        ).to(tl.float32)  # fmt: skip
    elif MATRIX:
        logit = logits_by_matrix(
            hidden, head, state, there, token, real, D, EVEN, BLOCK_K, PART, UPCAST
        )
    else:
        logit = tl.zeros((COLUMNS, UNIT), tl.float32)
        for each in range(COLUMNS):
            here = there & (column == each)
            if tl.max(here.to(tl.int32)) > 0:
                one = tl.zeros((1,), tl.int64) + tl.sum(tl.where(here, state, 0))
                found = logits_by_sums(hidden, head, one, token, real, D, EVEN, BLOCK_K, PART)
                logit = tl.where((column == each)[:, None], found[None, :], logit)
    if has_bias != 0:
        logit += tl.load(bias + token, mask=real, other=0.0)[None, :]
    at = slots_at[:, None] + tl.arange(0, UNIT)[None, :]
    identity = tl.where(real[None, :], m[:, None] * V + token[None, :], EMPTY)
    tl.store(slot_ids + at, identity, mask=there[:, None])
    kept = real[None, :]
    if TARGETED:
        # Beams that share a row are of different requests, each with a targeting of its own.
        word = tl.load(unit_kept + units_at, mask=there, other=0)
        kept = (word[:, None] >> tl.arange(0, UNIT)[None, :]) & 1
    score, counted = settled(logit, both, both & (both == 0), kept, over_kept, TARGETED)
    tl.store(slot_scores + at, score, mask=there[:, None])
    peak, mass = share_of(counted)
    tl.store(unit_peak + units_at, peak, mask=there)
    tl.store(unit_sum + units_at, mass, mask=there)
    if TARGETED:
        tl.store(unit_best + units_at, tl.max(score, 1), mask=there)
