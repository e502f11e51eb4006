"""What targeting leaves of beams' rows, as bits: by token, where the whole codebook is scored, and
by unit (:mod:`units`), where the valid tokens are.

All entries are tested here, in kernels that do nothing else: what scores them looks at a bit. The
arguments from ``part_starts`` to ``batch`` are ``targeting.permitted``'s rules.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import ones, row_start, token_at
from beamsieve_backends.triton_slots.operands import cleared_row
from beamsieve_backends.triton_slots.targeting import permitted

_RUNTIME = [
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "has_parts", "segments", "bit_words", "has_sets", "batch", "M", "UNIT_CAPACITY", "SEARCHES",
]  # fmt: skip


@triton.jit
def _dealt_out(source, places):
    """The lowest bits of ``source``, one after the other, at the set bits of ``places``, from the
    lowest on: uint32."""
    out = source & 0
    for _ in tl.static_range(32):
        others = places & (places - 1)
        out |= tl.where((source & 1) != 0, places ^ others, 0)
        places = others
        source = source >> 1
    return out


@triton.jit(do_not_specialize=_RUNTIME)
def permitted_tokens_dense(
    rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    bitmaps, ranks, rank_mask, words, rank_words, found, out, M,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    WORD_BLOCK: tl.constexpr, ENTRIES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Bitmaps of what targeting leaves of each beam's row: WORD_BLOCK words of one beam a program.

    What is tested are entries, ENTRIES of them at once, as these lie side by side; their bits are
    dealt out to the places of their tokens at the end.

    Args:
        bitmaps: the table's, int32 [rows, words]; WORD_BLOCK is a multiple of the 8 of them that
            have a rank.
        found: workspace, int32 [B * M, parts of a bitmap, WORD_BLOCK].
        out: int32 [B * M, words].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    rules = (
        part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
        bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first, leaf_end,
        has_sets, batch,
    )  # fmt: skip
    beam = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    row = tl.load(rows + beam)
    live = (row >= 0) & (tl.load(finished + beam) == 0)
    row = tl.where(live, row, 0)
    lane = tl.arange(0, WORD_BLOCK)
    word = part * WORD_BLOCK + lane
    places = tl.load(bitmaps + row * words + word, mask=live & (word < words), other=0)
    before = tl.load(ranks + row * rank_words + part * (WORD_BLOCK // 8), mask=live, other=0)
    one = row + tl.zeros((1,), tl.int64)
    first_entry = tl.sum(
        row_start(
            start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, one,
            (one >= 0) & live,
        )
    )  # fmt: skip
    first_entry += before.to(tl.int64) & rank_mask
    places = places.to(tl.uint32, bitcast=True)
    count = ones(places.to(tl.int64)).to(tl.int32)
    first = tl.cumsum(count, 0) - count
    total = tl.sum(count)
    found += (beam * tl.num_programs(1) + part) * WORD_BLOCK
    number = tl.arange(0, ENTRIES)
    of_word = tl.arange(0, ENTRIES // 32)
    for begin in range(0, total, ENTRIES):
        inside = begin + number < total
        keep = permitted(first_entry + begin + number, inside, beam // M, rules)
        bit = tl.where(keep, tl.full((ENTRIES,), 1, tl.int32) << (number & 31), 0)
        # The bits differ, so their sum is their union.
        whole = tl.sum(tl.reshape(bit, (ENTRIES // 32, 32)), 1)
        tl.store(found + begin // 32 + of_word, whole, mask=begin + of_word * 32 < total)
    tl.debug_barrier()
    at = first >> 5
    low = tl.load(found + at, mask=count > 0, other=0).to(tl.uint32, bitcast=True)
    high = tl.load(found + at + 1, mask=(at + 1) * 32 < first + count, other=0)
    high = high.to(tl.uint32, bitcast=True)
    both = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
    source = (both >> (first & 31).to(tl.uint64)).to(tl.uint32)
    kept = _dealt_out(source, places).to(tl.int32, bitcast=True)
    tl.store(out + beam * words + word, kept, mask=word < words)


@triton.jit(do_not_specialize=_RUNTIME)
def permitted_tokens_sparse(
    rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, out, M, words,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    WORD_BLOCK: tl.constexpr, ENTRIES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The same of a sparse table, [B * M, words]: one beam a program, ENTRIES of a row at once."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    rules = (
        part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
        bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first, leaf_end,
        has_sets, batch,
    )  # fmt: skip
    beam = tl.program_id(0).to(tl.int64)
    out += beam * words
    start, end = cleared_row(
        rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
        start_gap, beam, out, words, WORD_BLOCK,
    )  # fmt: skip
    for begin in range(start, end, ENTRIES):
        entry = begin + tl.arange(0, ENTRIES).to(tl.int64)
        inside = entry < end
        token = token_at(tokens, token_bits, entry, inside)
        keep = permitted(entry, inside, beam // M, rules)
        bit = tl.full((ENTRIES,), 1, tl.int32) << (token & 31)
        tl.atomic_or(out + (token >> 5), bit, mask=keep, sem="relaxed")


@triton.jit(do_not_specialize=_RUNTIME)
def permitted_units(
    first_entry, degrees, unit_starts, out, M, UNIT_CAPACITY, SEARCHES,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, UNITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The same by units (:mod:`units`): int32 [B, M + UNIT_CAPACITY], in which bit i is a unit's
    slot i. UNITS of a request's units at once; all its programs share them.

    Args:
        first_entry, degrees, unit_starts: as ``units.count_units`` writes them.
        SEARCHES: how often M + 1 can be halved.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    rules = (
        part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
        bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first, leaf_end,
        has_sets, batch,
    )  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    first_entry += b * M
    degrees += b * M
    unit_starts += b * (M + 1)
    out += b * (M + UNIT_CAPACITY)
    n = M + tl.load(unit_starts + M)
    lane = tl.arange(0, UNITS * FURTHER)
    each = tl.arange(0, UNITS)
    for begin in range(tl.program_id(1) * UNITS, n, tl.num_programs(1) * UNITS):
        unit = begin + lane // FURTHER
        slot = lane % FURTHER
        there = unit < n
        # The last beam whose further units begin no later than this one, if it is one.
        further = there & (unit >= M)
        low = tl.zeros(lane.shape, tl.int32)
        high = low + M
        for _ in range(SEARCHES):
            middle = (low + high) // 2
            searching = further & (high - low > 1)
            reached = tl.load(unit_starts + middle, mask=searching, other=0) <= unit - M
            low = tl.where(searching & reached, middle, low)
            high = tl.where(searching & (reached == 0), middle, high)
        m = tl.where(further, low, tl.minimum(unit, M - 1))
        before = unit - M - tl.load(unit_starts + m, mask=further, other=0)
        rank = tl.where(further, SLOTS + before * FURTHER, 0) + slot
        degree = tl.load(degrees + m, mask=there, other=0)
        entry = tl.load(first_entry + m, mask=there, other=0)
        real = there & (rank < degree) & (further | (slot < SLOTS))
        keep = permitted(entry + rank.to(tl.int64), real, b, rules)
        bit = tl.where(keep, tl.full(lane.shape, 1, tl.int32) << slot, 0)
        whole = tl.sum(tl.reshape(bit, (UNITS, FURTHER)), 1)
        tl.store(out + begin + each, whole, mask=begin + each < n)
