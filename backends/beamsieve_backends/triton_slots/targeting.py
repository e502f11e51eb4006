"""Which candidates a request may go on to (GRACE, arXiv 2608.00938, sections 3.2 to 3.4).

An entry passes when a leaf that the request permits lies below it, and one part of its matcher has
every bit that the request asks for and, in every Bloom attribute that is asked about, one of the
request's signatures. Signatures are not tried one by one: for every byte of a row and every value
that it may have, ``rule_out`` notes once per request which of 64 signatures this byte rules out, so
that a row takes one look-up per byte.

The arguments from ``part_starts`` to ``batch`` are those of ``matchers.StepTargeting``; device
functions take them together, as ``rules``.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import ones, row_start, token_at

SEGMENT_NUMBERS = tl.constexpr(4)
"""Of a segment: words of a row, where its rows begin, where its index begins, and which Bloom
attribute it is, -1 for the bit attributes."""
_RUNTIME = [
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "has_parts", "segments", "bit_words", "has_sets", "batch", "M",
]  # fmt: skip


@triton.jit(do_not_specialize=["signatures", "words"])
def rule_out(signed, out, signatures, words, PDL: tl.constexpr):
    """Which signatures each value of each byte of a row rules out.

    Args:
        signed: int64 [B, signatures, words].
        out: int64 [B, ceil(signatures / 64), words * 8, 256]; bit i is the i-th signature of 64.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1) // (words * 8)
    octet = tl.program_id(1) % (words * 8)
    bit = tl.arange(0, 64)
    which = chunk * 64 + bit
    at = signed + (b * signatures + which) * words + octet // 8
    asks = (tl.load(at, mask=which < signatures, other=0) >> ((octet % 8) * 8)) & 255
    value = tl.arange(0, 256)
    lacks = (asks[:, None] & (255 - value)[None, :]) != 0
    # The bits differ, so their sum is their union.
    found = tl.sum(tl.where(lacks, (tl.full((64,), 1, tl.int64) << bit)[:, None], 0), 0)
    chunks = tl.num_programs(1) // (words * 8)
    tl.store(out + ((b * chunks + chunk) * words * 8 + octet) * 256 + value, found)


@triton.jit
def _listed_before(leaves, begin, end, leaf, mask):
    """How many of ``leaves[begin:end]``, which ascend, lie before each leaf."""
    low = tl.zeros(leaf.shape, tl.int64) + begin
    high = tl.zeros(leaf.shape, tl.int64) + end
    width = end - begin
    while width > 0:
        middle = (low + high) // 2
        searching = mask & (low < high)
        less = searching & (tl.load(leaves + middle, mask=searching, other=0) < leaf)
        low = tl.where(less, middle + 1, low)
        high = tl.where(searching & (less == 0), middle, high)
        width = width // 2
    return low - begin


@triton.jit
def _contains_one(row, words, table, count, mask):
    """Whether each row (a pointer per lane) contains one of ``count`` signatures."""
    found = mask & (mask == 0)
    octets = words * 8
    for begin in range(0, count, 64):
        ruled_out = tl.zeros(row.shape, tl.int64)
        own = table + begin // 64 * octets * 256
        for word in range(words):
            have = tl.load(row + word, mask=mask, other=0)
            for octet in tl.static_range(8):
                value = (have >> (octet * 8)) & 255
                ruled_out |= tl.load(own + (word * 8 + octet) * 256 + value, mask=mask, other=0)
        real = tl.minimum(count - begin, 64).to(tl.int64)
        every = tl.where(real == 64, -1, (tl.full((), 1, tl.int64) << (real & 63)) - 1)
        found = found | (mask & ((ruled_out & every) != every))
    return found


@triton.jit
def permitted(entry, mask, b, rules):
    """Which entries (int64, where ``mask``) the request b may go on to."""
    (
        part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
        bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first, leaf_end,
        has_sets, batch,
    ) = rules  # fmt: skip
    good = mask
    if tl.load(asks + b) != 0:
        if has_sets != 0:
            kind = tl.load(mode + b)
            if kind != 0:
                first = tl.load(leaf_first + entry, mask=good, other=0).to(tl.int64)
                end = tl.load(leaf_end + entry, mask=good, other=0).to(tl.int64)
                own, own_end = tl.load(leaf_starts + b), tl.load(leaf_starts + b + 1)
                listed = _listed_before(leaves, own, own_end, end, good)
                listed -= _listed_before(leaves, own, own_end, first, good)
                good = good & tl.where(kind == 1, listed > 0, listed < end - first)
        if segments > 0:
            part = entry
            parts = tl.where(good, 1, 0).to(tl.int64)
            most = tl.full((), 1, tl.int32)
            if has_parts != 0:
                part = tl.load(part_starts + entry, mask=good, other=0).to(tl.int64)
                parts = tl.load(part_starts + entry + 1, mask=good, other=0).to(tl.int64) - part
                most = tl.max(tl.ravel(parts)).to(tl.int32)
            matched = good & (parts < 0)
            for number in range(most):
                passes = good & (number < parts) & (matched == 0)
                for segment in range(segments):
                    own = segment_numbers + segment * SEGMENT_NUMBERS
                    words = tl.load(own).to(tl.int32)
                    rows_at, index_at = tl.load(own + 1), tl.load(own + 2)
                    attribute = tl.load(own + 3)
                    which = tl.load(index + index_at + part + number, mask=passes, other=0)
                    row = matcher_rows + rows_at + which.to(tl.int64) * words
                    if attribute < 0:
                        for word in range(words):
                            asked = tl.load(bits + b * bit_words + word)
                            have = tl.load(row + word, mask=passes, other=0)
                            passes = passes & ((have & asked) == asked)
                    else:
                        count = tl.load(counts + attribute * batch + b)
                        if count > 0:
                            begin = tl.load(table_starts + attribute * 2)
                            size = tl.load(table_starts + attribute * 2 + 1)
                            passes = _contains_one(
                                row, words, tables + begin + b * size, count, passes
                            )
                matched = matched | passes
            good = good & matched
    return good


@triton.jit
def _dealt_out(source, places):
    """The lowest bits of ``source``, one after the other, at the set bits of ``places``, from the
    lowest on: uint32."""
    out = source & 0
    for _ in tl.static_range(32):
        lowest = places & (~places + 1)
        out |= tl.where((source & 1) != 0, lowest, 0)
        places = places & (~lowest)
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
    """The same of a sparse table, [B * M, words]: one beam a program."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    rules = (
        part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
        bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first, leaf_end,
        has_sets, batch,
    )  # fmt: skip
    beam = tl.program_id(0).to(tl.int64)
    b = beam // M
    row = tl.load(rows + beam) + tl.zeros((1,), tl.int64)
    live = (row >= 0) & (tl.load(finished + beam) == 0)
    start = row_start(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row, live
    )
    end = row_start(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row + 1, live
    )
    degree = tl.sum(end - start)
    start = tl.sum(start)
    for word_begin in range(0, words, WORD_BLOCK):
        word = word_begin + tl.arange(0, WORD_BLOCK)
        whole = tl.zeros((WORD_BLOCK,), tl.int32)
        for begin in range(0, degree, ENTRIES):
            number = begin + tl.arange(0, ENTRIES)
            inside = number < degree
            entry = start + number
            token = token_at(tokens, token_bits, entry, inside)
            near = inside & (token >= word_begin * 32) & (token < (word_begin + WORD_BLOCK) * 32)
            keep = permitted(entry, near, b, rules)
            here = keep[:, None] & ((token >> 5)[:, None] == word[None, :])
            bit = tl.full((ENTRIES,), 1, tl.int32) << (token & 31)
            whole += tl.sum(tl.where(here, bit[:, None], 0), 0)
        tl.store(out + beam * words + word, whole, mask=word < words)
