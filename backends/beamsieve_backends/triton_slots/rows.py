"""Selective projection where beams share rows: each row's part of the head is read once.

A table of few rows meets about as many beams as rows, in one request or in several. So the beams of
a row are linked in a list, and one program scores some of the row's tokens for all of them by a
matrix product, whose head rows come in while others are multiplied: what is read follows the rows
that were met, not the beams.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import token_at, token_of_rank
from beamsieve_backends.triton_slots.ordering import usable
from beamsieve_backends.triton_slots.slots import EMPTY, FINISHED
from beamsieve_backends.triton_slots.targeting import permitted
from beamsieve_backends.triton_slots.units import DONE, count_units

NOBODY = tl.constexpr(-1)
"""The end of a list."""


@triton.jit(do_not_specialize=["start_kind", "start_shift", "start_gap", "M", "CAPACITY",
                               "UNIT_CAPACITY"])  # fmt: skip
def link_rows(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    first_entry, degrees, unit_starts, widest, first_of_row, next_of_row, slot_ids, slot_scores,
    unit_peak, unit_sum, unit_best, M, CAPACITY, UNIT_CAPACITY,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, BEAMS_UP: tl.constexpr, PDL: tl.constexpr,
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
        start_gap, first_entry, degrees, unit_starts, widest, b, M, SLOTS, FURTHER, BEAMS_UP,
    )  # fmt: skip
    done = degree == DONE
    live = (row >= 0) & (done == 0)
    m = tl.arange(0, BEAMS_UP)
    beam = (b * M + m).to(tl.int32)
    following = tl.atomic_xchg(first_of_row + row, beam, mask=live, sem="relaxed")
    tl.store(next_of_row + beam, following, mask=live)
    alone = (m < M) & ((live == 0) | (degree == 0))
    if tl.max(alone.to(tl.int32), 0) != 0:
        unit = b * (M + UNIT_CAPACITY) + m
        peak = tl.where(done, 0.0, float("-inf"))
        tl.store(unit_peak + unit, peak, mask=alone)
        tl.store(unit_sum + unit, tl.where(done, 1.0, 0.0), mask=alone)
        tl.store(unit_best + unit, peak, mask=alone)
        slot = tl.arange(0, SLOTS)
        at = b * CAPACITY + m[:, None] * SLOTS + slot[None, :]
        ends = done[:, None] & (slot == 0)[None, :]
        tl.store(slot_ids + at, tl.where(ends, -m[:, None] + FINISHED, EMPTY), mask=alone[:, None])
        tl.store(slot_scores + at, tl.where(ends, 0.0, float("-inf")), mask=alone[:, None])


@triton.jit
def _permitted_of(
    first, rank, real, ids, M,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    TOGETHER: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """[TOGETHER, TILE]: what each beam's request leaves of the row's tokens."""
    lane = tl.arange(0, TOGETHER)
    kept = (lane < 0)[:, None] & (rank < 0)[None, :]
    for number in range(TOGETHER):
        beam = tl.max(tl.where(lane == number, ids, NOBODY))
        if beam != NOBODY:
            own = permitted(
                first + rank.to(tl.int64), real, (beam // M).to(tl.int64),
                part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
                bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
                leaf_end, has_sets, batch,
            )  # fmt: skip
            kept = kept | ((lane == number)[:, None] & own[None, :])
    return kept


@triton.jit(do_not_specialize=[
    "token_bits", "rank_mask", "words", "rank_words", "has_bias", "M", "V", "CAPACITY",
    "UNIT_CAPACITY", "has_parts", "segments", "bit_words", "has_sets", "batch", "over_kept",
])  # fmt: skip
def score_rows(
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    hidden, head, bias, has_bias, first_entry, degrees, unit_starts, first_of_row, next_of_row,
    unit_beam, slot_ids, slot_scores, unit_peak, unit_sum, unit_best, M, V, D, CAPACITY,
    UNIT_CAPACITY,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    over_kept,
    DENSE: tl.constexpr, SLOTS: tl.constexpr, TILE: tl.constexpr, TOGETHER: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, TARGETED: tl.constexpr, UPCAST: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """As ``slots.score_slots``, for TOGETHER beams of a row at once by a matrix product, whose rows
    do not depend on each other: program (r, i) takes every so many-th TILE of row r's tokens, from
    the i-th on. Own and further units both have SLOTS slots. UPCAST: see ``project.statistics``."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    beam = tl.load(first_of_row + row)
    if beam != NOBODY:
        leader = beam
        first = tl.load(first_entry + leader)
        degree = tl.load(degrees + leader)
        lane = tl.arange(0, TOGETHER)
        for tile in range(tl.program_id(1), tl.cdiv(degree, TILE), tl.num_programs(1)):
            rank = tile * TILE + tl.arange(0, TILE)
            real = rank < degree
            if DENSE:
                token = token_of_rank(
                    bitmaps, ranks, rank_mask, words, rank_words, row + tl.zeros((TILE,), tl.int64),
                    rank.to(tl.int64), real,
                )  # fmt: skip
            else:
                token = token_at(tokens, token_bits, first + rank.to(tl.int64), real)
            at_head = head + token.to(tl.int64)[:, None] * D
            beam = leader
            while beam != NOBODY:
                ids = tl.full((TOGETHER,), NOBODY, tl.int32)
                number = 0
                while (beam != NOBODY) & (number < TOGETHER):
                    ids = tl.where(lane == number, beam, ids)
                    beam = tl.load(next_of_row + beam)
                    number += 1
                there = ids != NOBODY
                own = tl.where(there, ids, 0)
                at_hidden = hidden + own.to(tl.int64)[:, None] * D
                logit = tl.zeros((TOGETHER, TILE), tl.float32)
                for begin in range(0, D, BLOCK_K):
                    k = begin + tl.arange(0, BLOCK_K)
                    if EVEN:
                        h = tl.load(at_hidden + k[None, :])
                        w = tl.load(at_head + k[None, :])
                    else:
                        h = tl.load(at_hidden + k[None, :], mask=(k < D)[None, :], other=0.0)
                        w = tl.load(at_head + k[None, :], mask=(k < D)[None, :], other=0.0)
                    if UPCAST:
                        both = h.to(tl.float32)[:, None, :] * w.to(tl.float32)[None, :, :]
                        logit += tl.sum(both, 2)
                    else:
                        logit = tl.dot(h, w.T, logit)
                if has_bias != 0:
                    logit += tl.load(bias + token, mask=real, other=0.0)[None, :]
                b, m = (own // M).to(tl.int64), own % M
                logit = tl.where(real[None, :], usable(logit), float("-inf"))
                counted = logit
                if TARGETED:
                    kept = _permitted_of(
                        first, rank, real, ids, M, part_starts, has_parts, segment_numbers,
                        segments, index, matcher_rows, asks, bits, bit_words, counts, table_starts,
                        tables, mode, leaf_starts, leaves, leaf_first, leaf_end, has_sets, batch,
                        TOGETHER, TILE,
                    )  # fmt: skip
                    logit = tl.where(kept, logit, float("-inf"))
                    counted = tl.where(over_kept != 0, logit, counted)
                before = tl.load(unit_starts + b * (M + 1) + m, mask=there, other=0)
                # A row's first unit is at its beam's own place, the others lie one after the other.
                base = tl.where((rank < SLOTS)[None, :], m[:, None], (M - 1 + before)[:, None])
                at = b[:, None] * CAPACITY + base * SLOTS + rank[None, :]
                units = (degree + SLOTS - 1) // SLOTS
                written = there[:, None] & (rank < units * SLOTS)[None, :]
                identity = tl.where(real[None, :], m[:, None] * V + token[None, :], EMPTY)
                tl.store(slot_ids + at, identity, mask=written)
                tl.store(slot_scores + at, logit, mask=written)
                for part in tl.static_range(0, TILE // SLOTS):
                    unit = tile * (TILE // SLOTS) + part
                    inside = (rank // SLOTS == unit)[None, :]
                    of_unit = tl.where(inside, counted, float("-inf"))
                    peak = tl.max(of_unit, 1)
                    reference = tl.where(peak == float("-inf"), 0.0, peak)
                    mass = tl.sum(tl.exp(of_unit - reference[:, None]), 1)
                    place = tl.where(unit == 0, m, M - 1 + before + unit)
                    to = b * (M + UNIT_CAPACITY) + place
                    exists = there & (unit < units)
                    tl.store(unit_peak + to, peak, mask=exists)
                    tl.store(unit_sum + to, mass, mask=exists)
                    if TARGETED:
                        best = tl.max(tl.where(inside, logit, float("-inf")), 1)
                        tl.store(unit_best + to, best, mask=exists)
                    tl.store(
                        unit_beam + b * UNIT_CAPACITY + before + unit - 1, m,
                        mask=exists & (unit > 0),
                    )  # fmt: skip
