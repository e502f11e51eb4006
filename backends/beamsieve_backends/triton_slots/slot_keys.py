"""Device helpers: the keys of slots, and the list of those that are kept."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import packed, usable
from beamsieve_backends.triton_slots.scored import FINISHED


@triton.jit
def totals(scores, tops, log_sums, m, largest, there):
    """Cumulative scores of logits of beams ``m``. What is not there is -inf, whatever the rest."""
    score = tl.load(scores + m, mask=there, other=0.0)
    top = tl.load(tops + m, mask=there, other=0.0)
    return score + ((largest - top) - tl.load(log_sums + m, mask=there, other=0.0))


@triton.jit
def keys_of(
    scores, tops, log_sums, bonus, nudge, logit, identity, there, beams_at, V, has_bonus, has_nudge
):
    """Key, score and identity ``m * V + token`` of slots; -inf where one is empty."""
    is_token = identity >= 0
    m = tl.where(is_token, identity // V, tl.maximum(-identity + FINISHED, 0))
    total = totals(scores, tops, log_sums, m, logit, there)
    at = beams_at * V + identity
    if has_bonus != 0:
        total += tl.load(bonus + at, mask=is_token, other=0.0)
    total = usable(total)
    key = total
    if has_nudge != 0:
        key = usable(key + tl.load(nudge + at, mask=is_token, other=0.0))
    return key, total, tl.where(is_token, identity, m * V)


@triton.jit
def append(
    candidates, candidate_scores, candidate_slots, key, total, identity, slot, keep, kept, has_nudge
):
    """Write what is kept behind the ``kept`` ones before it; returns how many there are then."""
    flag = keep.to(tl.int32)
    place = kept + tl.cumsum(flag, 0) - flag
    tl.store(candidates + place, packed(key, identity), mask=keep)
    tl.store(candidate_slots + place, slot, mask=keep)
    tl.store(candidate_scores + place, total, mask=keep & (has_nudge != 0))
    return kept + tl.sum(flag)
