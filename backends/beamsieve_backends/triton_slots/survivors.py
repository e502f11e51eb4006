"""Selection among slots: a threshold, what reaches it, ranks, new beams.

Where a request's slots are more than a program holds, the threshold comes from the units: each
unit's largest slot is a slot of its own, so at least ``width`` slots reach the ``width``-th best of
the units' largest. Units below it are never read, so a wide row costs what its best tokens cost.

Several programs of a request find the same survivors, each for itself, and write the same numbers
to the same places; then each ranks its own share. Nobody waits for anybody.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import (
    DEAD,
    LOWEST,
    NOTHING,
    best_from,
    ordered,
    packed,
    threshold_held,
    usable,
)
from beamsieve_backends.triton_slots.rank import BY_SLOT, rank_and_write
from beamsieve_backends.triton_slots.shares import write_normalizers
from beamsieve_backends.triton_slots.slots import EMPTY, FINISHED


@triton.jit
def _totals(scores, tops, log_sums, m, largest, there):
    """Cumulative scores of logits of beams ``m``. What is not there is -inf, whatever the rest."""
    score = tl.load(scores + m, mask=there, other=0.0)
    top = tl.load(tops + m, mask=there, other=0.0)
    return score + ((largest - top) - tl.load(log_sums + m, mask=there, other=0.0))


@triton.jit
def _keys_of(
    scores, tops, log_sums, bonus, nudge, logit, identity, there, beams_at, V, has_bonus, has_nudge
):
    """Key, score and identity ``m * V + token`` of slots; -inf where one is empty."""
    is_token = identity >= 0
    m = tl.where(is_token, identity // V, tl.maximum(-identity + FINISHED, 0))
    total = _totals(scores, tops, log_sums, m, logit, there)
    at = beams_at * V + identity
    if has_bonus != 0:
        total += tl.load(bonus + at, mask=is_token, other=0.0)
    total = usable(total)
    key = total
    if has_nudge != 0:
        key = usable(key + tl.load(nudge + at, mask=is_token, other=0.0))
    return key, total, tl.where(is_token, identity, m * V)


@triton.jit
def _append(
    candidates, candidate_scores, candidate_slots, key, total, identity, slot, keep, kept, has_nudge
):
    """Write what is kept behind the ``kept`` ones before it; returns how many there are then."""
    flag = keep.to(tl.int32)
    place = kept + tl.cumsum(flag, 0) - flag
    tl.store(candidates + place, packed(key, identity), mask=keep)
    tl.store(candidate_slots + place, slot, mask=keep)
    tl.store(candidate_scores + place, total, mask=keep & (has_nudge != 0))
    return kept + tl.sum(flag)


@triton.jit
def _unit_keys(scores, tops, log_sums, unit_best, unit_beam, unit, n, M):
    """int32: the ordered key of each unit's largest."""
    there = unit < n
    m = tl.load(unit_beam + unit - M, mask=there & (unit >= M), other=0)
    m = tl.where(unit < M, unit, m)
    best = tl.load(unit_best + unit, mask=there, other=float("-inf"))
    key = ordered(usable(_totals(scores, tops, log_sums, m, best, there)))
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
def _append_units(
    scores, slot_ids, slot_scores, bonus, nudge, tops, log_sums, unit_list, listed, candidates,
    candidate_scores, candidate_slots, beams_at, M, V, tau, kept, has_bonus, has_nudge,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Keep what reaches ``tau`` in the ``listed`` units of FURTHER slots, numbered from the first
    further one; returns how many are kept then."""
    lane = tl.arange(0, CHUNK)
    for begin in range(0, listed * FURTHER, CHUNK):
        i = begin + lane
        there = i < listed * FURTHER
        unit = tl.load(unit_list + i // FURTHER, mask=there, other=0)
        slot = M * SLOTS + unit * FURTHER + i % FURTHER
        logit = tl.load(slot_scores + slot, mask=there, other=float("-inf"))
        identity = tl.load(slot_ids + slot, mask=there, other=EMPTY)
        key, total, identity = _keys_of(
            scores, tops, log_sums, bonus, nudge, logit, identity, there, beams_at, V, has_bonus,
            has_nudge,
        )  # fmt: skip
        keep = there & (ordered(key) >= tau)
        kept = _append(
            candidates, candidate_scores, candidate_slots, key, total, identity, slot, keep, kept,
            has_nudge,
        )  # fmt: skip
    return kept


@triton.jit
def _by_units(
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
            key, total, identity = _keys_of(
                scores, tops, log_sums, bonus, nudge, logit, identity, there, beams_at, V,
                has_bonus, has_nudge,
            )  # fmt: skip
            keep = there & (ordered(key) >= tau)
            kept = _append(
                candidates, candidate_scores, candidate_slots, key, total, identity, slot, keep,
                kept, has_nudge,
            )  # fmt: skip
    return _append_units(
        scores, slot_ids, slot_scores, bonus, nudge, tops, log_sums, unit_list, listed, candidates,
        candidate_scores, candidate_slots, beams_at, M, V, tau, kept, has_bonus, has_nudge, SLOTS,
        FURTHER, CHUNK,
    )  # fmt: skip


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "search_steps", "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last", "ragged",
    "SLACK", "CAPACITY", "UNIT_CAPACITY", "has_bonus", "has_nudge", "has_normalizers",
])  # fmt: skip
def finish_slots(
    scores, slot_ids, slot_scores, unit_peak, unit_sum, unit_best, unit_starts, unit_beam,
    first_entry, bonus, nudge, tops, log_sums, unit_keys, unit_list, candidates, candidate_scores,
    candidate_slots,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, CAPACITY, UNIT_CAPACITY, has_bonus, has_nudge,
    has_normalizers,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, BEAM_BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    DIRECT: tl.constexpr, T_UP: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The W best of what ``score_slots`` wrote, as beams.

    Args:
        tops, log_sums: float32 [B, M], in if ``has_normalizers`` (:func:`shares.add_shares`), else
            workspace.
        unit_keys, unit_list: workspace, int32 [B, M + UNIT_CAPACITY].
        candidates: int64, candidate_scores: float32, candidate_slots: int32, all workspace
            [B, CAPACITY + W + SLACK].
        DIRECT: slots are few, so all of them are ranked, without a threshold before.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    scores += b * M
    tops += b * M
    log_sums += b * M
    slot_ids += b * CAPACITY
    slot_scores += b * CAPACITY
    candidates += b * (CAPACITY + W + SLACK)
    candidate_scores += b * (CAPACITY + W + SLACK)
    candidate_slots += b * (CAPACITY + W + SLACK)
    units_at = b * (M + UNIT_CAPACITY)
    starts = unit_starts + b * (M + 1)
    n = M * SLOTS + tl.load(starts + M) * FURTHER
    further = tl.load(starts + M)
    own = M * SLOTS
    whole = n <= CHUNK
    mixed = (n > CHUNK) & (own + further <= CHUNK) & (has_bonus + has_nudge == 0)
    # Before the normalizers, which they need not wait for. Where a program cannot hold all slots,
    # a further unit's largest stands for it: that is a slot of its own, too.
    slot = tl.arange(0, CHUNK)
    real = slot < tl.where(whole, n, own)
    logit = tl.load(slot_scores + slot, mask=real & (whole | mixed), other=float("-inf"))
    identity = tl.load(slot_ids + slot, mask=real & (whole | mixed), other=EMPTY)
    stands = mixed & (slot >= own) & (slot < own + further)
    if mixed:
        best = tl.load(unit_best + units_at + M + slot - own, mask=stands, other=float("-inf"))
        beam = tl.load(unit_beam + b * UNIT_CAPACITY + slot - own, mask=stands, other=0)
        logit = tl.where(stands, best, logit)
        identity = tl.where(stands, beam * V, identity)
    if has_normalizers == 0:
        for begin in range(0, M, BEAM_BLOCK):
            write_normalizers(
                unit_peak + units_at, unit_sum + units_at, starts, tops, log_sums, begin, M,
                BEAM_BLOCK,
            )  # fmt: skip
        tl.debug_barrier()
    if whole | mixed:
        key, total, identity = _keys_of(
            scores, tops, log_sums, bonus, nudge, logit, identity, real | stands, b * M, V,
            has_bonus, has_nudge,
        )  # fmt: skip
        if DIRECT & whole:
            kept = n
            tl.store(candidates + slot, packed(key, identity), mask=real)
            tl.store(candidate_slots + slot, slot, mask=real)
            tl.store(candidate_scores + slot, total, mask=real & (has_nudge != 0))
        else:
            key32 = tl.where(real | stands, ordered(key), LOWEST)
            # Units that stand for their slots let others of theirs through, so there may be fewer.
            tau, _ = threshold_held(key32, W, tl.where(mixed, SLACK // 4, SLACK))
            kept = _append(
                candidates, candidate_scores, candidate_slots, key, total, identity, slot,
                real & (key32 >= tau), 0, has_nudge,
            )  # fmt: skip
            if mixed:
                flag = (stands & (key32 >= tau)).to(tl.int32)
                place = tl.cumsum(flag, 0) - flag
                tl.store(unit_list + units_at + place, slot - own, mask=flag > 0)
                tl.debug_barrier()
                kept = _append_units(
                    scores, slot_ids, slot_scores, bonus, nudge, tops, log_sums,
                    unit_list + units_at, tl.sum(flag), candidates, candidate_scores,
                    candidate_slots, b * M, M, V, tau, kept, has_bonus, has_nudge, SLOTS, FURTHER,
                    CHUNK,
                )  # fmt: skip
    else:
        kept = _by_units(
            scores, slot_ids, slot_scores, unit_best + units_at, starts,
            unit_beam + b * UNIT_CAPACITY, bonus, nudge, tops, log_sums, unit_keys + units_at,
            unit_list + units_at, candidates, candidate_scores, candidate_slots, b * M, M, V, W,
            SLACK, has_bonus, has_nudge, SLOTS, FURTHER, CHUNK,
        )  # fmt: skip
    tl.debug_barrier()
    at = 0
    enough: tl.constexpr = CHUNK if DIRECT else 0
    PART: tl.constexpr = CHUNK if CHUNK < 1024 else 1024
    if kept > tl.maximum(enough, W + W // 2 + SLACK):
        # Many are equal, or units are few: the rest of the order tells which.
        tau64 = best_from(candidates, kept, W, SLACK, PART)
        left = 0
        for begin in range(0, kept, PART):
            i = begin + tl.arange(0, PART)
            code = tl.load(candidates + i, mask=i < kept, other=NOTHING)
            keep = code >= tau64
            flag = keep.to(tl.int32)
            place = CAPACITY + left + tl.cumsum(flag, 0) - flag
            left += tl.sum(flag)
            source = tl.load(candidate_slots + i, mask=keep, other=0)
            score = tl.load(candidate_scores + i, mask=keep & (has_nudge != 0), other=0.0)
            tl.store(candidates + place, code, mask=keep)
            tl.store(candidate_slots + place, source, mask=keep)
            tl.store(candidate_scores + place, score, mask=keep & (has_nudge != 0))
        at = CAPACITY
        kept = left
        tl.debug_barrier()
    rank_and_write(
        candidates + at, candidate_scores + at, candidate_slots + at, kept, has_nudge, b,
        tl.program_id(1) * OWN, tl.num_programs(1) * OWN, rows, finished, history,
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, BY_SLOT, search_steps,
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
        first_entry, unit_starts, SLOTS, FURTHER, False,
        out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
        M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
    )  # fmt: skip
