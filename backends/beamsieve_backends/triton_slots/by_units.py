"""Device helpers: selection among more slots than a program holds, by their units.

The threshold comes from the units: each unit's largest slot is a slot of its own, so at least
``width`` slots reach the ``width``-th best of the units' largest. Units below it are never read, so
a wide row costs what its best tokens cost.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.intervals import ABOVE_ALL
from beamsieve_backends.triton_slots.ordering import (
    DEAD,
    LOWEST,
    ordered,
    packed,
    threshold_held,
    usable,
)
from beamsieve_backends.triton_slots.scored import EMPTY
from beamsieve_backends.triton_slots.slot_keys import append, keys_of, totals

FEW_UNITS = tl.constexpr(32)
"""Units looked at at once where most lie below the threshold."""


@triton.jit
def _unit_keys(scores, tops, log_sums, unit_best, unit_beam, unit, n, M):
    """int32: the ordered key of each unit's largest."""
    there = unit < n
    m = tl.load(unit_beam + unit - M, mask=there & (unit >= M), other=0)
    m = tl.where(unit < M, unit, m)
    best = tl.load(unit_best + unit, mask=there, other=float("-inf"))
    key = ordered(usable(totals(scores, tops, log_sums, m, best, there)))
    return tl.where(there, key, LOWEST)


@triton.jit
def _threshold_of_units(held, unit_keys, n, k, slack, CHUNK: tl.constexpr):
    """As ``ordering.threshold_held``, of n keys of which CHUNK are ``held`` and the others lie in
    ``unit_keys``: what at least ``k`` of them reach; below all that live, if fewer do."""
    if n <= CHUNK:
        tau, _ = threshold_held(held, k, slack)
    else:
        lane = tl.arange(0, CHUNK)
        reached = tl.sum((held > DEAD).to(tl.int32))
        low = tl.min(tl.where(held > DEAD, held, 2147483647)).to(tl.int64)
        high = tl.max(held).to(tl.int64) + 1
        for begin in range(CHUNK, n, CHUNK):
            part = tl.load(unit_keys + begin + lane, mask=begin + lane < n, other=LOWEST)
            reached += tl.sum((part > DEAD).to(tl.int32))
            low = tl.minimum(low, tl.min(tl.where(part > DEAD, part, 2147483647)).to(tl.int64))
            high = tl.maximum(high, tl.max(part).to(tl.int64) + 1)
        low = tl.where(reached < k, DEAD + 1, low)
        while (reached > k + slack) & (high - low > 1):
            middle = low + (high - low) // 2
            count = tl.sum((held >= middle.to(tl.int32)).to(tl.int32))
            for begin in range(CHUNK, n, CHUNK):
                part = tl.load(unit_keys + begin + lane, mask=begin + lane < n, other=LOWEST)
                count += tl.sum((part >= middle.to(tl.int32)).to(tl.int32))
            enough = count >= k
            low = tl.where(enough, middle, low)
            reached = tl.where(enough, count, reached)
            high = tl.where(enough, high, middle)
        tau = low.to(tl.int32)
    return tau


@triton.jit
def append_units(
    scores, slot_ids, slot_scores, bonus, nudge, tops, log_sums, unit_beam, unit_list, listed,
    candidates, candidate_scores, candidate_slots, beams_at, M, V, tau, upper, kept, has_bonus,
    has_nudge, SLOTS: tl.constexpr, FURTHER: tl.constexpr, UNITS: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Keep what reaches ``tau``, but not ``upper``, in the ``listed`` units of FURTHER slots,
    numbered from the first further one (a beam's own lie before it); returns how many are kept
    then, and how many of these units' slots reach ``upper``. A unit's beam is looked up once, and
    what a slot is only where it is kept.

    FEW: waits count more than loads. So ``unit_beam`` is in the list's order, and what slots are is
    read before it is known which are kept.
    """
    beyond = 0
    for begin in range(0, listed, UNITS):
        i = begin + tl.arange(0, UNITS)
        there = i < listed
        unit = tl.load(unit_list + i, mask=there, other=0)
        if FEW:
            m = tl.load(unit_beam + i, mask=there, other=0)
        else:
            m = tl.load(unit_beam + unit, mask=there & (unit >= 0), other=0)
            m = tl.where(unit < 0, unit + M, m)
        slot = (M * SLOTS + unit * FURTHER)[:, None] + tl.arange(0, FURTHER)[None, :]
        here = there[:, None] & (slot >= 0)
        logit = tl.load(slot_scores + slot, mask=here, other=float("-inf"))
        if FEW:
            identity = tl.load(slot_ids + slot, mask=here, other=EMPTY)
        score = tl.load(scores + m, mask=there, other=0.0)[:, None]
        top = tl.load(tops + m, mask=there, other=0.0)[:, None]
        log_sum = tl.load(log_sums + m, mask=there, other=0.0)[:, None]
        total = score + ((logit - top) - log_sum)
        key = usable(total)
        if has_bonus + has_nudge != 0:
            identity = tl.load(slot_ids + slot, mask=here, other=EMPTY)
            at = beams_at * V + identity
            if has_bonus != 0:
                total += tl.load(bonus + at, mask=identity >= 0, other=0.0)
            key = usable(total)
            if has_nudge != 0:
                key = usable(key + tl.load(nudge + at, mask=identity >= 0, other=0.0))
        over = here & (ordered(key) >= upper)
        keep = here & (ordered(key) >= tau) & (over == 0)
        flag = keep.to(tl.int32)
        # Both counts, of fewer than 2**15 slots, share one sum.
        of_unit = tl.sum(flag + (over.to(tl.int32) << 16), 1)
        counts = tl.sum(of_unit)
        of_unit = of_unit & 0xFFFF
        place = kept + (tl.cumsum(of_unit, 0) - of_unit)[:, None] + tl.cumsum(flag, 1) - flag
        kept += counts & 0xFFFF
        beyond += counts >> 16
        if FEW == 0:
            identity = tl.load(slot_ids + slot, mask=keep, other=EMPTY)
        identity = tl.where(identity >= 0, identity, m[:, None] * V)
        tl.store(candidates + place, packed(key, identity), mask=keep)
        tl.store(candidate_slots + place, slot, mask=keep)
        tl.store(candidate_scores + place, usable(total), mask=keep & (has_nudge != 0))
    return kept, beyond


@triton.jit
def by_units(
    scores, slot_ids, slot_scores, unit_best, unit_starts, unit_beam, bonus, nudge, tops, log_sums,
    unit_keys, unit_list, candidates, candidate_scores, candidate_slots, beams_at, M, V, W, SLACK,
    has_bonus, has_nudge, SLOTS: tl.constexpr, FURTHER: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The candidates that reach the threshold of the units; returns how many they are."""
    lane = tl.arange(0, CHUNK)
    n = M + tl.load(unit_starts + M)
    held = _unit_keys(scores, tops, log_sums, unit_best, unit_beam, lane, n, M)
    for begin in range(CHUNK, n, CHUNK):
        unit = begin + lane
        part = _unit_keys(scores, tops, log_sums, unit_best, unit_beam, unit, n, M)
        tl.store(unit_keys + unit, part, mask=unit < n)
    tl.debug_barrier()
    tau = tl.full((), DEAD + 1, tl.int32)
    if has_bonus + has_nudge == 0:  # else the largest logit says nothing of the largest key
        tau = _threshold_of_units(held, unit_keys, n, W, SLACK, CHUNK)
    # Where all units are of one size, beams' own are listed as the others are.
    UNIFORM: tl.constexpr = SLOTS == FURTHER
    flag = ((UNIFORM | (lane >= M)) & (held >= tau)).to(tl.int32)
    tl.store(unit_list + tl.cumsum(flag, 0) - flag, lane - M, mask=flag > 0)
    listed = tl.sum(flag)
    for begin in range(CHUNK, n, CHUNK):
        unit = begin + lane
        part = tl.load(unit_keys + unit, mask=unit < n, other=LOWEST)
        flag = ((UNIFORM | (unit >= M)) & (part >= tau)).to(tl.int32)
        tl.store(unit_list + listed + tl.cumsum(flag, 0) - flag, unit - M, mask=flag > 0)
        listed += tl.sum(flag)
    tl.debug_barrier()
    kept = 0
    if UNIFORM == 0:
        for begin in range(0, M * SLOTS, CHUNK):
            slot = begin + lane
            there = slot < M * SLOTS
            logit = tl.load(slot_scores + slot, mask=there, other=float("-inf"))
            identity = tl.load(slot_ids + slot, mask=there, other=EMPTY)
            key, total, identity = keys_of(
                scores, tops, log_sums, bonus, nudge, logit, identity, there, beams_at, V,
                has_bonus, has_nudge,
            )  # fmt: skip
            keep = there & (ordered(key) >= tau)
            kept = append(
                candidates, candidate_scores, candidate_slots, key, total, identity, slot, keep,
                kept, has_nudge,
            )  # fmt: skip
    kept, _ = append_units(
        scores, slot_ids, slot_scores, bonus, nudge, tops, log_sums, unit_beam, unit_list, listed,
        candidates, candidate_scores, candidate_slots, beams_at, M, V, tau, ABOVE_ALL, kept,
        has_bonus, has_nudge, SLOTS, FURTHER, CHUNK // FURTHER, False,
    )  # fmt: skip
    return kept
