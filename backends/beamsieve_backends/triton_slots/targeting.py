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

SEGMENT_NUMBERS = tl.constexpr(4)
"""Of a segment: words of a row, where its rows begin, where its index begins, and which Bloom
attribute it is, -1 for the bit attributes."""


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
