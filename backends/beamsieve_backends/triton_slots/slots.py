"""Selective projection: only the valid tokens of each beam, their head rows read in place.

One kernel counts the units that they take (:mod:`units`), one finds and scores them, and
``finish_slots`` normalises and chooses. Further units are dealt to programs of their own, whosever
they are, so that a request that met a wide row waits for it no longer than the others. Requests
often meet the same wide row: its units are scored for eight at once.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.products import (
    COLUMNS,
    UNIT,
    logits_by_matrix,
    logits_by_sums,
    share_of,
)
from beamsieve_backends.triton_slots.scored import EMPTY, FINISHED, score_shared, settled
from beamsieve_backends.triton_slots.units import (
    DONE,
    WIDEST,
    beam_of,
    count_units,
    tokens_of,
)

WIDE = tl.constexpr(32)
"""A request's widest beam has a wide row if it has so many further units."""


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
def _score_own(
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, logits, has_bias, slot_ids, slot_scores, unit_peak, unit_sum, unit_best,
    b, number, row, first, degree, M, V, D, unit_kept, over_kept,
    DENSE: tl.constexpr, SLOTS: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr,
    PART: tl.constexpr, HAS_LOGITS: tl.constexpr, MATRIX: tl.constexpr, UPCAST: tl.constexpr,
    TARGETED: tl.constexpr,
):  # fmt: skip
    """Score the own units of the ``number``-th UNIT / SLOTS beams of request b, whose pointers all
    are; row, first and degree are [UNIT], each slot's beam's as ``units.bounds_of`` gives them."""
    UNITS: tl.constexpr = UNIT // SLOTS
    slot = tl.arange(0, UNIT)
    of = slot // SLOTS
    m = number * UNITS + of
    rank = slot % SLOTS
    real = rank < degree
    token = tokens_of(
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, row, first, rank, real,
        DENSE,
    )  # fmt: skip
    column = tl.arange(0, COLUMNS)
    if HAS_LOGITS:
        logit = tl.load(logits + (b * M + m) * V + token, mask=real, other=0.0).to(tl.float32)
    elif MATRIX:
        there = (column < UNITS) & (number * UNITS + column < M)
        every = logits_by_matrix(
            hidden, head, b * M + number * UNITS + column, there, token, real, D, EVEN, BLOCK_K,
            PART, UPCAST,
        )  # fmt: skip
        logit = tl.sum(tl.where(column[:, None] == of[None, :], every, 0.0), 0)
    else:
        logit = logits_by_sums(hidden, head, b * M + m, token, real, D, EVEN, BLOCK_K, PART)
    if has_bias != 0:
        logit += tl.load(bias + token, mask=real, other=0.0)
    ends = (degree == DONE) & (rank == 0)
    kept = real
    if TARGETED:
        kept = (tl.load(unit_kept + m, mask=real, other=0) >> rank) & 1
    logit, counted = settled(logit, real, ends, kept, over_kept, TARGETED)
    identity = tl.where(real, m * V + token, tl.where(ends, FINISHED - m, EMPTY))
    there = m < M
    tl.store(slot_ids + number * UNIT + slot, identity, mask=there)
    tl.store(slot_scores + number * UNIT + slot, logit, mask=there)
    unit = tl.arange(0, UNITS)
    mine = unit[:, None] == of[None, :]
    peak, mass = share_of(tl.where(mine, counted[None, :], float("-inf")))
    unit = number * UNITS + unit
    tl.store(unit_peak + unit, peak, mask=unit < M)
    tl.store(unit_sum + unit, mass, mask=unit < M)
    if TARGETED:
        best = tl.max(tl.where(mine, logit[None, :], float("-inf")), 1)
        tl.store(unit_best + unit, best, mask=unit < M)


@triton.jit
def _score_further(
    rows, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, logits, has_bias, unit_beam, slot_ids, slot_scores, unit_peak, unit_sum,
    unit_best, b, m, there, unit, before, entry, degree, M, V, D, CAPACITY, UNIT_CAPACITY,
    unit_kept, over_kept,
    DENSE: tl.constexpr, SLOTS: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr,
    PART: tl.constexpr, HAS_LOGITS: tl.constexpr, MATRIX: tl.constexpr, UPCAST: tl.constexpr,
    TARGETED: tl.constexpr,
):  # fmt: skip
    """Score further units ``unit`` of beams m of requests b, [n], where ``there``; those that
    have the same tokens together. ``before`` counts the beam's further units before each; entry and
    degree are the beams'."""
    passed = SLOTS + before * UNIT
    begin = entry + passed.to(tl.int64)
    row = entry
    if DENSE:
        row = tl.load(rows + b * M + m, mask=there, other=0)
    tl.store(unit_beam + b * UNIT_CAPACITY + unit, m, mask=there)
    slots_at = b * CAPACITY + M * SLOTS + unit * UNIT
    units_at = b * (M + UNIT_CAPACITY) + M + unit
    n: tl.constexpr = there.shape[0]
    column = tl.arange(0, n)
    left = there
    leader = tl.min(tl.where(left, column, n))
    while leader < n:
        lead = column == leader
        opens = tl.sum(tl.where(lead, begin, 0))
        together = left & (begin == opens)
        skipped = tl.sum(tl.where(lead, passed, 0))
        rank = skipped + tl.arange(0, UNIT)
        real = rank < tl.sum(tl.where(lead, degree, 0))
        first = tl.zeros((UNIT,), tl.int64) + tl.sum(tl.where(lead, entry, 0))
        line = tl.zeros((UNIT,), tl.int64) + tl.sum(tl.where(lead, row, 0))
        token = tokens_of(
            tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, line, first, rank,
            real, DENSE,
        )  # fmt: skip
        score_shared(
            hidden, head, bias, logits, has_bias, slot_ids, slot_scores, unit_peak, unit_sum,
            unit_best, b, m, together, slots_at, units_at, token, real, V, D, M,
            unit_kept, over_kept, EVEN, BLOCK_K, PART, HAS_LOGITS, MATRIX, UPCAST, TARGETED,
        )  # fmt: skip
        left = left & (together == 0)
        leader = tl.min(tl.where(left, column, n))


@triton.jit
def _widest_of(widest, request, requests):
    """What ``units.count_units`` noted of the widest beams of requests (int64 [n]): int32
    beam, first further unit and count, 0 where the row is not WIDE; int64 entry; int32 degree."""
    at = widest + request * WIDEST
    inside = request < requests
    count = tl.load(at + 2, mask=inside, other=0).to(tl.int32)
    beam = tl.load(at, mask=inside, other=0).to(tl.int32)
    opens = tl.load(at + 1, mask=inside, other=0).to(tl.int32)
    entry = tl.load(at + 3, mask=inside, other=-1)
    degree = tl.load(at + 4, mask=inside, other=0).to(tl.int32)
    return beam, opens, tl.where(count >= WIDE, count, 0), entry, degree


@triton.jit(do_not_specialize=[
    "token_bits", "rank_mask", "words", "rank_words", "has_bias", "M", "V", "CAPACITY",
    "UNIT_CAPACITY", "OF_FIRST", "over_kept",
])  # fmt: skip
def score_slots(
    rows, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, logits, has_bias, first_entry, degrees, unit_starts, widest, unit_beam,
    slot_ids, slot_scores, unit_peak, unit_sum, unit_best, M, V, D, CAPACITY, UNIT_CAPACITY,
    OF_FIRST,
    unit_kept, over_kept,
    BATCH_UP: tl.constexpr, BEAM_BLOCK: tl.constexpr, DENSE: tl.constexpr, SLOTS: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, PART: tl.constexpr, HAS_LOGITS: tl.constexpr,
    MATRIX: tl.constexpr, UPCAST: tl.constexpr, TARGETED: tl.constexpr, TOGETHER: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The logit of every slot, and each unit's share of the log-softmax.

    The last OF_FIRST programs of a request score UNIT slots of beams' own units each; those before
    them, which have more to wait for, of all requests share all requests' further units. Those of
    each request's widest beam, if it is WIDE, come first, the same of up to TOGETHER requests at
    once; then all others, one by one.

    Args:
        slot_ids: out, int32 [B, CAPACITY]; ``m * V + token``, EMPTY, or FINISHED - m. The slots of
            all beams' own units come first, then those of the further ones.
        slot_scores: out, float32 [B, CAPACITY]; the logit; -inf where a slot is empty.
        unit_peak, unit_sum: out, float32 [B, M + UNIT_CAPACITY].
        unit_best: out, the same; the largest logit that may win; ``unit_peak`` is, where not
            TARGETED.
        unit_beam: out, int32 [B, UNIT_CAPACITY]; whose each further unit is.
        unit_kept: as ``permitted.permitted_units`` writes it, if TARGETED: what is not kept scores
            -inf; ``over_kept``: and is no part of the log-softmax.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    of_request = tl.num_programs(1) - OF_FIRST
    number = tl.program_id(1) - of_request
    if number >= 0:
        m = number * (UNIT // SLOTS) + tl.arange(0, UNIT) // SLOTS
        own_degree = tl.load(degrees + b * M + m, mask=m < M, other=0)
        own_entry = tl.load(first_entry + b * M + m, mask=m < M, other=0)
        row = own_entry
        if DENSE:
            row = tl.load(rows + b * M + m, mask=m < M, other=0)
        units_at = b * (M + UNIT_CAPACITY)
        _score_own(
            tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
            hidden, head, bias, logits, has_bias, slot_ids + b * CAPACITY,
            slot_scores + b * CAPACITY, unit_peak + units_at, unit_sum + units_at,
            unit_best + units_at, b, number, row, own_entry, own_degree, M, V, D,
            unit_kept + units_at, over_kept, DENSE, SLOTS, EVEN, BLOCK_K, PART, HAS_LOGITS, MATRIX,
            UPCAST, TARGETED,
        )  # fmt: skip
    else:
        requests = tl.num_programs(0)
        item = tl.program_id(1) * requests + tl.program_id(0)
        column = tl.arange(0, TOGETHER)
        groups = tl.cdiv(requests, TOGETHER)
        # Read before it is known whether there is such a unit, so that this is one wait.
        own = item % groups * TOGETHER + column.to(tl.int64)
        beam, opens, of_own, entry, degree = _widest_of(widest, own, requests)
        every = tl.arange(0, BATCH_UP).to(tl.int64)
        of_each = tl.load(unit_starts + every * (M + 1) + M, mask=every < requests, other=0)
        wide = tl.load(widest + every * WIDEST + 2, mask=every < requests, other=0).to(tl.int32)
        wide = tl.where(wide >= WIDE, wide, 0)
        of_others = of_each - wide
        of_wide = tl.max(wide) * groups
        ends = tl.cumsum(of_others, 0)
        n = of_wide + tl.sum(of_others)
        while item < n:
            before = item // groups + tl.zeros((TOGETHER,), tl.int32)
            there = before < of_own
            if item >= of_wide:
                place = item - of_wide
                passed_by = ends <= place
                request = tl.sum(passed_by.to(tl.int64))
                place -= tl.sum(tl.where(passed_by, of_others, 0))
                # The widest beam's are others' work.
                count = tl.load(widest + request * WIDEST + 2).to(tl.int32)
                first = tl.load(widest + request * WIDEST + 1).to(tl.int32)
                place += tl.where((count >= WIDE) & (place >= first), count, 0)
                found = beam_of(unit_starts + request * (M + 1), place, M, BEAM_BLOCK)
                there = column == 0
                own = tl.where(there, request, 0)
                beam = tl.where(there, found, 0)
                entry = tl.load(first_entry + own * M + beam, mask=there, other=-1)
                degree = tl.load(degrees + own * M + beam, mask=there, other=0)
                opens = tl.load(unit_starts + own * (M + 1) + beam, mask=there, other=0)
                before = place - opens
            _score_further(
                rows, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
                hidden, head, bias, logits, has_bias, unit_beam, slot_ids, slot_scores, unit_peak,
                unit_sum, unit_best, own, beam, there, opens + before, before, entry, degree, M, V,
                D, CAPACITY, UNIT_CAPACITY, unit_kept, over_kept, DENSE, SLOTS, EVEN, BLOCK_K, PART,
                HAS_LOGITS, MATRIX, UPCAST, TARGETED,
            )  # fmt: skip
            item += of_request * requests
            own = item % groups * TOGETHER + column.to(tl.int64)
            beam, opens, of_own, entry, degree = _widest_of(widest, own, requests)
