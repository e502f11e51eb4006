"""Selective projection where beams share rows: each row's part of the head is read once.

A table of few rows meets more beams than rows, in one request or in several. So the beams of a row
are linked in a list, and one program scores some of the row's tokens for all of them while their
head rows are in its registers: what is read follows the rows that were met, not the beams.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import row_bounds
from beamsieve_backends.triton_slots.products import COLUMNS, UNIT
from beamsieve_backends.triton_slots.scored import EMPTY, FINISHED, score_shared
from beamsieve_backends.triton_slots.units import DONE, count_units, tokens_of

NOBODY = tl.constexpr(-1)
"""The end of a list."""


@triton.jit(do_not_specialize=["start_kind", "start_shift", "start_gap", "M", "CAPACITY",
                               "UNIT_CAPACITY"])  # fmt: skip
def link_rows(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    first_entry, degrees, unit_starts, widest, first_of_row, next_of_row, slot_ids, slot_scores,
    unit_peak, unit_sum, unit_best, M, CAPACITY, UNIT_CAPACITY,
    BEAMS_UP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """:func:`units.count_units`, one program per request, and lists of the beams of each row.

    Args:
        first_of_row: in and out, int32 [rows], NOBODY before; ``b * M + m`` of one of its beams.
        next_of_row: out, int32 [B * M]; another beam of the same row, or NOBODY. The order is any.
        slot_ids … unit_best: as ``slots.score_slots`` has them; written where a beam has no tokens.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    row, degree = count_units(
        rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
        start_gap, first_entry, degrees, unit_starts, widest, b, M, UNIT, UNIT, BEAMS_UP,
    )  # fmt: skip
    done = degree == DONE
    live = (row >= 0) & (done == 0)
    m = tl.arange(0, BEAMS_UP)
    beam = (b * M + m).to(tl.int32)
    following = tl.atomic_xchg(first_of_row + row, beam, mask=live, sem="relaxed")
    tl.store(next_of_row + beam, following, mask=live)
    alone = (m < M) & (live == 0)
    if tl.max(alone.to(tl.int32), 0) != 0:
        unit = b * (M + UNIT_CAPACITY) + m
        peak = tl.where(done, 0.0, float("-inf"))
        tl.store(unit_peak + unit, peak, mask=alone)
        tl.store(unit_sum + unit, tl.where(done, 1.0, 0.0), mask=alone)
        tl.store(unit_best + unit, peak, mask=alone)
        slot = tl.arange(0, UNIT)
        at = b * CAPACITY + m[:, None] * UNIT + slot[None, :]
        ends = done[:, None] & (slot == 0)[None, :]
        tl.store(slot_ids + at, tl.where(ends, -m[:, None] + FINISHED, EMPTY), mask=alone[:, None])
        tl.store(slot_scores + at, tl.where(ends, 0.0, float("-inf")), mask=alone[:, None])


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "has_bias", "M", "V", "CAPACITY", "UNIT_CAPACITY", "over_kept",
])  # fmt: skip
def score_rows(
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, has_bias, unit_starts, first_of_row, next_of_row, unit_beam,
    slot_ids, slot_scores, unit_peak, unit_sum, unit_best, M, V, D, CAPACITY, UNIT_CAPACITY,
    unit_kept, over_kept,
    DENSE: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr, PART: tl.constexpr,
    MATRIX: tl.constexpr, UPCAST: tl.constexpr, TARGETED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """As ``slots.score_slots``, for all beams of a row, COLUMNS at once: program (r, i) takes every
    so many-th unit of row r's tokens, from the i-th on. Own and further units both have UNIT slots.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    following = tl.load(first_of_row + tl.program_id(0))
    if following != NOBODY:
        row = tl.program_id(0).to(tl.int64) + tl.zeros((1,), tl.int64)
        start, end = row_bounds(
            start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row,
            row >= 0,
        )  # fmt: skip
        degree = tl.sum((end - start).to(tl.int32))
        start = tl.sum(start) + tl.zeros((UNIT,), tl.int64)
        line = tl.program_id(0).to(tl.int64) + tl.zeros((UNIT,), tl.int64)
        n = tl.maximum(tl.cdiv(degree, UNIT), 1)
        column = tl.arange(0, COLUMNS)
        while following != NOBODY:
            beam = tl.zeros((COLUMNS,), tl.int32) + NOBODY
            for each in range(COLUMNS):
                if following != NOBODY:
                    beam = tl.where(column == each, following, beam)
                    following = tl.load(next_of_row + following)
            there = beam != NOBODY
            beam = tl.where(there, beam, 0)
            b, m = (beam // M).to(tl.int64), beam % M
            opens = tl.load(unit_starts + b * (M + 1) + m, mask=there, other=0)
            for number in range(tl.program_id(1), n, tl.num_programs(1)):
                rank = number * UNIT + tl.arange(0, UNIT)
                real = rank < degree
                token = tokens_of(
                    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, line, start,
                    rank, real, DENSE,
                )  # fmt: skip
                before = opens + number - 1
                unit = m
                if number > 0:
                    tl.store(unit_beam + b * UNIT_CAPACITY + before, m, mask=there)
                    unit = M + before
                score_shared(
                    hidden, head, bias, hidden, has_bias, slot_ids, slot_scores, unit_peak,
                    unit_sum, unit_best, b, m, there, b * CAPACITY + unit * UNIT,
                    b * (M + UNIT_CAPACITY) + unit, token, real, V, D, M, unit_kept, over_kept,
                    EVEN, BLOCK_K, PART, False, MATRIX, UPCAST, TARGETED,
                )  # fmt: skip
