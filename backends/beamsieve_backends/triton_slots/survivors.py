"""Selection among slots: a threshold, what reaches it, ranks, new beams.

Several programs of a request find the same threshold, each for itself. Then each takes what lies
between two values, which it ranks alone; or, where that is not known to be few, all write the same
list, of which each ranks its own share. Nobody waits for anybody.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.by_units import FEW_UNITS, append_units, by_units
from beamsieve_backends.triton_slots.intervals import ABOVE_ALL, interval_of
from beamsieve_backends.triton_slots.ordering import (
    LOWEST,
    NOTHING,
    best_from,
    ordered,
    packed,
    threshold_held,
)
from beamsieve_backends.triton_slots.rank import rank_and_write
from beamsieve_backends.triton_slots.scored import EMPTY
from beamsieve_backends.triton_slots.shares import write_normalizers
from beamsieve_backends.triton_slots.slot_keys import keys_of
from beamsieve_backends.triton_slots.units import WIDEST


@triton.jit(do_not_specialize=[
    "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last", "ragged",
    "SLACK", "CAPACITY", "UNIT_CAPACITY", "ROOM", "has_bonus", "has_nudge", "has_normalizers",
])  # fmt: skip
def finish_slots(
    scores, slot_ids, slot_scores, unit_peak, unit_sum, unit_best, unit_starts, widest, unit_beam,
    first_entry, bonus, nudge, tops, log_sums, unit_keys, unit_list, candidates, candidate_scores,
    candidate_slots,
    rows, finished, history,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, CAPACITY, UNIT_CAPACITY, ROOM, has_bonus, has_nudge,
    has_normalizers,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, BEAM_BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    DIRECT: tl.constexpr, INTERVALS: tl.constexpr, T_UP: tl.constexpr, OWN: tl.constexpr,
    OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The W best of what ``score_slots`` wrote, as beams.

    Args:
        tops, log_sums: float32 [B, M], in if ``has_normalizers`` (:func:`shares.add_shares`), else
            workspace.
        unit_keys, unit_list: workspace, int32 [B, M + UNIT_CAPACITY].
        candidates: int64, candidate_scores: float32, candidate_slots: int32, all workspace
            [B, ROOM], at least CAPACITY + W + SLACK.
        DIRECT: slots are few, so all of them are ranked, without a threshold before.
        INTERVALS: a program's candidates are those of an interval, where these are known to be few.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    beams, units = (rows, finished, history), (first_entry, unit_starts, SLOTS, FURTHER)
    following = (
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    )  # fmt: skip
    out = (out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count)
    b = tl.program_id(0).to(tl.int64)
    scores += b * M
    tops += b * M
    log_sums += b * M
    slot_ids += b * CAPACITY
    slot_scores += b * CAPACITY
    number, programs = tl.program_id(1), tl.num_programs(1)
    candidates += b * ROOM
    candidate_scores += b * ROOM
    candidate_slots += b * ROOM
    # Half of each program's part is for what it keeps, half for the best of that.
    part = ROOM // programs
    split = False
    before = 0
    units_at = b * (M + UNIT_CAPACITY)
    starts = unit_starts + b * (M + 1)
    # Slots and normalizers do not wait for each other, nor to know how many there are. Where a
    # program cannot hold all slots, a further unit's largest stands for it: that is a slot, too.
    slot = tl.arange(0, CHUNK)
    logit = tl.load(slot_scores + slot, mask=slot < CAPACITY, other=float("-inf"))
    identity = tl.load(slot_ids + slot, mask=slot < CAPACITY, other=EMPTY)
    further = tl.load(starts + M)
    own = M * SLOTS
    n = own + further * FURTHER
    whole = n <= CHUNK
    mixed = (n > CHUNK) & (own + further <= CHUNK) & (has_bonus + has_nudge == 0)
    real = slot < tl.where(whole, n, own)
    identity = tl.where(real, identity, EMPTY)
    stands = mixed & (slot >= own) & (slot < own + further)
    if mixed:
        best = tl.load(unit_best + units_at + M + slot - own, mask=stands, other=float("-inf"))
        beam = tl.load(unit_beam + b * UNIT_CAPACITY + slot - own, mask=stands, other=0)
        logit = tl.where(stands, best, logit)
        identity = tl.where(stands, beam * V, identity)
    if has_normalizers == 0:
        for begin in range(0, M, BEAM_BLOCK):
            write_normalizers(
                unit_peak + units_at, unit_sum + units_at, starts, widest + b * WIDEST, tops,
                log_sums, begin, M, BEAM_BLOCK,
            )  # fmt: skip
        tl.debug_barrier()
    if whole | mixed:
        key, total, identity = keys_of(
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
            listing = stands & (key32 >= tau)
            both = tl.sum((real & (key32 >= tau)).to(tl.int32) + (listing.to(tl.int32) << 16))
            kept, listed = both & 0xFFFF, both >> 16
            upper = tl.full((), ABOVE_ALL, tl.int32)
            split = (
                INTERVALS
                & (kept + listed <= W + W // 2 + SLACK)
                & (listed <= FEW_UNITS)
                & (kept + listed * FURTHER <= part // 2)
            )
            if split:
                lower, upper = interval_of(key32, tau, kept + listed, number, programs, OWN)
                tau = lower
                candidates += number * part
                candidate_scores += number * part
                candidate_slots += number * part
            # Both counts share a sum, and both lists' places a scan.
            keep = real & (key32 >= tau) & (key32 < upper)
            flag = keep.to(tl.int32)
            both = tl.sum(flag + ((real & (key32 >= upper)).to(tl.int32) << 16))
            kept, before = both & 0xFFFF, both >> 16
            flag += listing.to(tl.int32) << 16
            places = tl.cumsum(flag, 0) - flag
            place = places & 0xFFFF
            tl.store(candidates + place, packed(key, identity), mask=keep)
            tl.store(candidate_slots + place, slot, mask=keep)
            tl.store(candidate_scores + place, total, mask=keep & (has_nudge != 0))
            if mixed:
                place = places >> 16
                tl.store(unit_list + units_at + place, slot - own, mask=listing)
                tl.store(unit_keys + units_at + place, identity // V, mask=listing)
                tl.debug_barrier()
                kept, beyond = append_units(
                    scores, slot_ids, slot_scores, bonus, nudge, tops, log_sums,
                    unit_keys + units_at, unit_list + units_at, listed, candidates,
                    candidate_scores, candidate_slots, b * M, M, V, tau, upper, kept, has_bonus,
                    has_nudge, SLOTS, FURTHER, FEW_UNITS, True,
                )  # fmt: skip
                before += beyond
    else:
        kept = by_units(
            scores, slot_ids, slot_scores, unit_best + units_at, starts,
            unit_beam + b * UNIT_CAPACITY, bonus, nudge, tops, log_sums, unit_keys + units_at,
            unit_list + units_at, candidates, candidate_scores, candidate_slots, b * M, M, V, W,
            SLACK, has_bonus, has_nudge, SLOTS, FURTHER, CHUNK,
        )  # fmt: skip
    tl.debug_barrier()
    at = 0
    best_at = tl.where(split, part // 2, CAPACITY)
    wanted = tl.maximum(W - before, 0)
    kept = tl.where(wanted > 0, kept, 0)
    enough: tl.constexpr = CHUNK if DIRECT else 0
    PART: tl.constexpr = CHUNK if CHUNK < 1024 else 1024
    if kept > tl.maximum(enough, wanted + W // 2 + SLACK):
        # Many are equal, or units are few: the rest of the order tells which.
        tau64 = best_from(candidates, kept, wanted, SLACK, PART)
        left = 0
        for begin in range(0, kept, PART):
            i = begin + tl.arange(0, PART)
            code = tl.load(candidates + i, mask=i < kept, other=NOTHING)
            keep = code >= tau64
            flag = keep.to(tl.int32)
            place = best_at + left + tl.cumsum(flag, 0) - flag
            left += tl.sum(flag)
            source = tl.load(candidate_slots + i, mask=keep, other=0)
            score = tl.load(candidate_scores + i, mask=keep & (has_nudge != 0), other=0.0)
            tl.store(candidates + place, code, mask=keep)
            tl.store(candidate_slots + place, source, mask=keep)
            tl.store(candidate_scores + place, score, mask=keep & (has_nudge != 0))
        at = best_at
        kept = left
        tl.debug_barrier()
    rank_and_write(
        candidates + at, candidate_scores + at, candidate_slots + at, kept, has_nudge, b,
        tl.where(split, 0, number * OWN), tl.where(split, OWN, programs * OWN), before,
        number == tl.where(split, programs - 1, 0), beams, None, following, units, out,
        M, V, W, T, last, ragged, True, T_UP, OWN, OTHERS,
    )  # fmt: skip
