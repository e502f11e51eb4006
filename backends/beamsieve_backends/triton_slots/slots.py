"""Selective projection: only the valid tokens of each beam, their head rows read in place.

One kernel counts the units that they take (:mod:`units`), one finds and scores them (and counts
too, where programs are few), and ``finish_slots`` normalises and chooses. Further units are dealt
to all programs, whosever they are, so that a request that met a wide row waits for it no longer
than the others.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import usable
from beamsieve_backends.triton_slots.targeting import permitted
from beamsieve_backends.triton_slots.units import (
    DONE,
    beam_of,
    bounds_of,
    count_units,
    tokens_of,
    unit_at,
)

EMPTY = tl.constexpr(-1)
"""In place of a slot's identity ``m * V + token``: there is none."""
FINISHED = tl.constexpr(-2)
"""That minus m in place of it: beam m is finished, and goes on as it is."""


@triton.jit(do_not_specialize=["start_kind", "start_shift", "start_gap", "M"])
def find_units(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    first_entry, degrees, unit_starts, widest, M,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, BEAMS_UP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """:func:`units.count_units`, one program per request."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    count_units(
        rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
        start_gap, first_entry, degrees, unit_starts, widest, tl.program_id(0).to(tl.int64), M,
        SLOTS, FURTHER, BEAMS_UP,
    )  # fmt: skip


@triton.jit
def write_units(
    slot_ids, slot_scores, unit_peak, unit_sum, unit_best, b, m, there, unit, token, logit, entry,
    real, ends, V,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    over_kept,
    SLOTS: tl.constexpr, TARGETED: tl.constexpr,
):  # fmt: skip
    """Write units [n] of beams ``m`` [n] of request b: tokens, logits and table entries [n, SLOTS],
    where ``real``; ``ends`` is where a finished beam's one slot is."""
    logit = tl.where(real, usable(logit), tl.where(ends, 0.0, float("-inf")))
    counted = logit
    if TARGETED:
        kept = permitted(
            entry, real, b,
            part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
            bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
            leaf_end, has_sets, batch,
        )  # fmt: skip
        logit = tl.where(kept | ends, logit, float("-inf"))
        counted = tl.where(over_kept != 0, logit, counted)
        tl.store(unit_best + unit, tl.max(logit, 1), mask=there)
    peak = tl.max(counted, 1)
    reference = tl.where(peak == float("-inf"), 0.0, peak)
    mass = tl.sum(tl.exp(counted - reference[:, None]), 1)
    tl.store(unit_peak + unit, peak, mask=there)
    tl.store(unit_sum + unit, mass, mask=there)
    at = unit[:, None] * SLOTS + tl.arange(0, SLOTS)[None, :]
    identity = tl.where(real, m[:, None] * V + token, tl.where(ends, -m[:, None] + FINISHED, EMPTY))
    tl.store(slot_ids + at, identity, mask=there[:, None])
    tl.store(slot_scores + at, logit, mask=there[:, None])


@triton.jit
def _score(
    rows, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, logits, has_bias, slot_ids, slot_scores, unit_peak, unit_sum, unit_best,
    b, m, there, first, degree, passed, to, M, V, D,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    over_kept,
    DENSE: tl.constexpr, UNITS: tl.constexpr, SLOTS: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_K: tl.constexpr, HAS_LOGITS: tl.constexpr, TARGETED: tl.constexpr,
):  # fmt: skip
    """Score UNITS units, of beams ``m`` [UNITS] with those ``units.bounds_of``, that ``passed``
    [UNITS] of their tokens come before; ``to`` is the place of the first of them."""
    beam = b * M + m
    slot = tl.arange(0, SLOTS)
    rank = passed[:, None] + slot[None, :]
    real = rank < degree[:, None]
    row = first
    if DENSE:
        row = tl.load(rows + beam, mask=there, other=0)
    token = tokens_of(
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, row, first, rank, real,
        DENSE,
    )  # fmt: skip
    if HAS_LOGITS:
        logit = tl.load(logits + beam[:, None] * V + token, mask=real, other=0.0).to(tl.float32)
    else:
        logit = tl.zeros((UNITS, SLOTS), tl.float32)
        at_head = token.to(tl.int64) * D
        for first_k in range(0, D, BLOCK_K):
            k = first_k + tl.arange(0, BLOCK_K)
            h_there = there[:, None]
            w_there = real[:, :, None]
            if EVEN == 0:
                h_there = h_there & (k < D)[None, :]
                w_there = w_there & (k < D)[None, None, :]
            h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=h_there, other=0.0)
            w = tl.load(head + at_head[:, :, None] + k[None, None, :], mask=w_there, other=0.0)
            logit += tl.sum(h.to(tl.float32)[:, None, :] * w.to(tl.float32), 2)
        if has_bias != 0:
            logit += tl.load(bias + token, mask=real, other=0.0)
    ends = (degree == DONE)[:, None] & (rank == 0)
    write_units(
        slot_ids, slot_scores, unit_peak, unit_sum, unit_best, b, m, there,
        to + tl.arange(0, UNITS), token, logit, first[:, None] + rank.to(tl.int64), real, ends, V,
        part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
        bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
        leaf_end, has_sets, batch, over_kept, SLOTS, TARGETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "has_bias", "M", "V", "CAPACITY", "UNIT_CAPACITY", "OF_FIRST", "AT_ONCE", "has_parts",
    "segments", "bit_words", "has_sets", "batch", "over_kept",
])  # fmt: skip
def score_slots(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, logits, has_bias, first_entry, degrees, unit_starts, widest, unit_beam,
    slot_ids, slot_scores, unit_peak, unit_sum, unit_best, M, V, D, CAPACITY, UNIT_CAPACITY,
    OF_FIRST, AT_ONCE,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    over_kept,
    FIND: tl.constexpr, BEAMS_UP: tl.constexpr, BATCH_UP: tl.constexpr, BEAM_BLOCK: tl.constexpr,
    DENSE: tl.constexpr, UNITS: tl.constexpr, SLOTS: tl.constexpr, FURTHER: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_LOGITS: tl.constexpr, TARGETED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The logit of every slot, and each unit's share of the log-softmax.

    The first OF_FIRST programs of a request score UNITS beams' own units each; the others of all
    requests share all requests' further units, of which about AT_ONCE keep the device busy.

    Args:
        slot_ids: out, int32 [B, CAPACITY]; ``m * V + token``, EMPTY, or FINISHED - m. The slots of
            all beams' own units come first, then those of the further ones.
        slot_scores: out, float32 [B, CAPACITY]; the logit; -inf where a slot is empty.
        unit_peak, unit_sum: out, float32 [B, M + UNIT_CAPACITY].
        unit_best: out, the same; the largest logit that may win; ``unit_peak`` is, where not
            TARGETED.
        unit_beam: out, int32 [B, UNIT_CAPACITY]; whose each further unit is.
        TARGETED: the arguments from ``part_starts`` on are those of ``targeting.permitted``, and
            what it does not permit scores -inf; ``over_kept``: and is no part of the log-softmax.
        FIND: ``find_units`` is done here, by every program of further units for its request,
            which saves a launch where programs are few; there is at least one, and a request's
            further units are its own programs' then.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1)
    if number < OF_FIRST:
        m = number * UNITS + tl.arange(0, UNITS)
        if FIND:
            _, entry, degree = bounds_of(
                rows, finished, start_array, start_bits, start_exceptions, start_kind,
                start_shift, start_gap, b * M + m, m < M,
            )  # fmt: skip
        else:
            degree = tl.load(degrees + b * M + m, mask=m < M, other=0)
            entry = tl.load(first_entry + b * M + m, mask=m < M, other=0)
        units_at = b * (M + UNIT_CAPACITY)
        _score(
            rows, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
            hidden, head, bias, logits, has_bias, slot_ids + b * CAPACITY,
            slot_scores + b * CAPACITY, unit_peak + units_at, unit_sum + units_at,
            unit_best + units_at, b, m, m < M, entry, degree, tl.zeros((UNITS,), tl.int32),
            number * UNITS, M, V, D, part_starts, has_parts, segment_numbers, segments, index,
            matcher_rows, asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts,
            leaves, leaf_first, leaf_end, has_sets, batch, over_kept, DENSE, UNITS, SLOTS, EVEN,
            BLOCK_K, HAS_LOGITS, TARGETED,
        )  # fmt: skip
    else:
        # A program takes a unit of one request, or the same unit of several where there are many.
        of_request = tl.num_programs(1) - OF_FIRST
        begin, step, together, groups = number - OF_FIRST, of_request, 1, 1
        requests = 1
        if FIND:
            count_units(
                rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
                start_gap, first_entry, degrees, unit_starts, widest, b, M, SLOTS, FURTHER,
                BEAMS_UP,
            )  # fmt: skip
            tl.debug_barrier()
            items = tl.load(unit_starts + b * (M + 1) + M)
        else:
            requests = tl.num_programs(0)
            begin = begin * requests + tl.program_id(0)
            step = of_request * requests
            request = tl.arange(0, BATCH_UP)
            of_each = tl.load(
                unit_starts + request.to(tl.int64) * (M + 1) + M, mask=request < requests, other=0
            )
            ends = tl.cumsum(of_each, 0)
            items = tl.sum(of_each)
            together = tl.minimum(tl.maximum(items // AT_ONCE, 1), 8)
            groups = tl.cdiv(requests, together)
            items = tl.where(together > 1, tl.max(of_each) * groups, items)
        for item in range(begin, items, step):
            first = item % groups * together
            place = item // groups
            last = tl.minimum(first + together, requests)
            if FIND == 0:  # noqa: SIM102 - known when it is compiled, the other is not
                if together == 1:
                    passed_by = ends <= item
                    first = tl.sum(passed_by.to(tl.int32))
                    place = item - tl.sum(tl.where(passed_by, of_each, 0))
                    last = first + 1
            for other in range(first, last):
                own = b if FIND else b * 0 + other
                starts = unit_starts + own * (M + 1)
                if place < tl.load(starts + M):
                    unit = unit_at(place, tl.load(widest + own * 2), tl.load(widest + own * 2 + 1))
                    beam = beam_of(starts, unit, M, BEAM_BLOCK)
                    passed = SLOTS + (unit - tl.load(starts + beam)) * FURTHER
                    tl.store(unit_beam + own * UNIT_CAPACITY + unit, beam)
                    units_at = own * (M + UNIT_CAPACITY) + M
                    slots_at = own * CAPACITY + M * SLOTS
                    one = tl.zeros((1,), tl.int32)
                    _score(
                        rows, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
                        hidden, head, bias, logits, has_bias,
                        slot_ids + slots_at, slot_scores + slots_at, unit_peak + units_at,
                        unit_sum + units_at, unit_best + units_at, own, beam + one, one == 0,
                        tl.load(first_entry + own * M + beam) + one,
                        tl.load(degrees + own * M + beam) + one, passed + one, unit, M, V, D,
                        part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
                        asks, bits, bit_words, counts, table_starts,
                        tables, mode, leaf_starts, leaves, leaf_first, leaf_end, has_sets, batch,
                        over_kept, DENSE, 1, FURTHER, EVEN, BLOCK_K, HAS_LOGITS, TARGETED,
                    )  # fmt: skip
