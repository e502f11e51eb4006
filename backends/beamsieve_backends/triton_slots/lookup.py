"""Device helpers: where a row begins, which tokens it has, and which child a token leads to.

The forms of the arrays are ``beamsieve.index.starts``, ``tokens`` and ``tables``. Which of them a
table has is a number that the kernel is given, not compiled in: one kernel serves every table.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

IDENTITY = tl.constexpr(1)
SAMPLED = tl.constexpr(2)


@triton.jit
def ones(x):
    """How many bits of an int64 are set."""
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((x * 0x0101010101010101) >> 56) & 0xFF


@triton.jit
def ones_below(word, bit):
    """How many of the lowest ``bit`` bits (0 to 63) of an int64 are set."""
    return ones(word & ((tl.full(bit.shape, 1, tl.int64) << bit.to(tl.int64)) - 1))


@triton.jit
def _place_of_one(word, left):
    """The place of the ``left``-th set bit (from 0) of an int64 that has so many."""
    pairs = word - ((word >> 1) & 0x5555555555555555)
    nibbles = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    octets = (nibbles + (nibbles >> 4)) & 0x0F0F0F0F0F0F0F0F
    # Octet j of this sum counts the octets 0 … j.
    running = octets * 0x0101010101010101
    place = tl.where(left >= ((running >> 24) & 0xFF), 32, 0).to(tl.int64)
    place += tl.where(left >= ((running >> (place + 8)) & 0xFF), 16, 0)
    place += tl.where(left >= ((running >> place) & 0xFF), 8, 0)
    before = tl.where(place > 0, (running >> tl.maximum(place - 8, 0)) & 0xFF, 0)
    left = left - before
    # How many bits are set in 0 to 15, four bits each.
    table = tl.full(place.shape, 0x4332322132212110, tl.int64)
    count = (table >> (((word >> place) & 15) * 4)) & 15
    behind = left >= count
    left = tl.where(behind, left - count, left)
    place += tl.where(behind, 4, 0)
    count = ((word >> place) & 1) + ((word >> (place + 1)) & 1)
    behind = left >= count
    left = tl.where(behind, left - count, left)
    place += tl.where(behind, 2, 0)
    return place + tl.where(left >= ((word >> place) & 1), 1, 0)


@triton.jit
def _lowest_one(word):
    """The place of the lowest set bit of an int64 that is not 0."""
    return ones((word & -word) - 1)


@triton.jit
def _sampled(array, bits, exceptions, shift, gap, row, mask):
    """The first entry of each row whose starts are SAMPLED, and where its set bit was found.

    Returns ``(found, exception, begin, bit, word, second, third)``: where a start is listed among
    the exceptions, so that there is no bit, its place there, else -1; the place of the word's first
    bit; the bit in the word; the word; and the two words behind it, 0 where they were not read.
    """
    left = row & ((1 << shift) - 1)
    sample = tl.load(array + (row >> shift), mask=mask, other=0).to(tl.int64)
    regular = mask & (sample >= 0)
    place = tl.where(regular, sample, 0)
    at = place >> 6
    shifted = place & 63
    first = tl.load(bits + at, mask=regular, other=0)
    second = tl.load(bits + at + 1, mask=regular, other=0)
    third = tl.load(bits + at + 2, mask=regular, other=0)
    # Bits below the sample are none of this block's; those of a sign stay where they are.
    first = (first >> shifted) << shifted
    count = ones(first)
    in_second = left >= count
    rest = tl.where(in_second, left - count, left)
    count = tl.where(in_second, ones(second), 1 << 20)
    in_third = rest >= count
    rest = tl.where(in_third, rest - count, rest)
    word = tl.where(in_third, third, tl.where(in_second, second, first))
    begin = (at << 6) + tl.where(in_third, 128, tl.where(in_second, 64, 0))
    bit = _place_of_one(word, rest)
    listed = mask & (sample < 0)
    exception = tl.where(listed, ((-1 - sample) << shift) + left, -1)
    other = tl.load(exceptions + exception, mask=listed, other=0).to(tl.int64)
    found = tl.where(listed, other, begin + bit - gap * row)
    behind = tl.where(in_third, 0, tl.where(in_second, third, second))
    last = tl.where(in_second | in_third, 0, third)
    return found, exception, begin, bit, word, behind, last


@triton.jit
def row_start(array, bits, exceptions, kind, shift, gap, row, mask):
    """int64: the first entry of each row; 0 where masked.

    Args:
        array: int32 or int64; every start (plain) or the samples (SAMPLED).
        bits, exceptions: int64 words, and starts in the type of ``array``, of SAMPLED.
        kind: 0 plain, IDENTITY or SAMPLED; shift: log2 of K; gap: z.
        row: int64.
    """
    found = row
    if kind == SAMPLED:
        found, _, _, _, _, _, _ = _sampled(array, bits, exceptions, shift, gap, row, mask)
    elif kind != IDENTITY:
        found = tl.load(array + row, mask=mask, other=0).to(tl.int64)
    return tl.where(mask, found, 0)


@triton.jit
def row_bounds(array, bits, exceptions, kind, shift, gap, row, mask):
    """int64, int64: the first entry of each row and of the one behind it; 0 where masked.

    Arguments as of :func:`row_start`. Of SAMPLED, the next row of a block is the next set bit or
    the next exception, and a block's first row is its sample, so both take the waits of one.
    """
    found = row
    behind = row + 1
    if kind == SAMPLED:
        ends = mask & ((behind & ((1 << shift) - 1)) == 0)
        sample = tl.load(array + (behind >> shift), mask=ends, other=0).to(tl.int64)
        found, exception, begin, bit, word, second, third = _sampled(
            array, bits, exceptions, shift, gap, row, mask
        )
        above = (((word >> bit) >> 1) << bit) << 1
        word = tl.where(above != 0, above, tl.where(second != 0, second, third))
        further = tl.where(above != 0, 0, tl.where(second != 0, 64, 128))
        place = tl.where(ends, sample, begin + further + _lowest_one(word))
        listed = tl.where(ends, sample < 0, exception >= 0)
        exception = tl.where(ends, (-1 - sample) << shift, exception + 1)
        other = tl.load(exceptions + exception, mask=mask & listed, other=0).to(tl.int64)
        behind = tl.where(listed, other, place - gap * behind)
    elif kind != IDENTITY:
        found = tl.load(array + row, mask=mask, other=0).to(tl.int64)
        behind = tl.load(array + row + 1, mask=mask, other=0).to(tl.int64)
    return tl.where(mask, found, 0), tl.where(mask, behind, 0)


@triton.jit
def token_at(tokens, token_bits, entry, mask):
    """int32: the token of each entry (int64); 0 where masked.

    ``tokens`` are int32 words that hold ``token_bits`` bits per entry, 8, 16 and 32 among them.
    """
    place = entry * token_bits
    word = place >> 5
    shift = (place & 31).to(tl.int64)
    low = tl.load(tokens + word, mask=mask, other=0).to(tl.int64) & 0xFFFFFFFF
    crosses = mask & (shift + token_bits > 32)
    high = tl.load(tokens + word + 1, mask=crosses, other=0).to(tl.int64)
    two = low | (high << 32)
    return ((two >> shift) & ((tl.full(shift.shape, 1, tl.int64) << token_bits) - 1)).to(tl.int32)


@triton.jit
def rank_in_row(bitmaps, ranks, rank_mask, words, rank_words, row, token, mask):
    """int64: how many tokens of a dense table's row come before ``token``.

    Args:
        bitmaps: int64 [rows, words]; ranks: int16 or int32 [rows, rank_words], per four words.
        rank_mask: what undoes the sign of a stored rank.
    """
    word = token >> 6
    group = word >> 2
    found = tl.load(ranks + row * rank_words + group, mask=mask, other=0).to(tl.int64) & rank_mask
    cell = row * words + word
    own = tl.load(bitmaps + cell, mask=mask, other=0)
    for back in tl.static_range(1, 4):
        earlier = mask & (word - back >= group * 4)
        found += ones(tl.load(bitmaps + cell - back, mask=earlier, other=0))
    return found + ones_below(own, token & 63)


@triton.jit
def token_of_rank(bitmaps, ranks, rank_mask, words, rank_words, row, rank, mask):
    """int32: the token of a dense table's row that so many others (int64) come before; 0 where
    masked."""
    low = tl.zeros(rank.shape, tl.int32)
    high = low + rank_words
    width = rank_words
    # The last group of words that begins with no more than ``rank`` tokens before it.
    while width > 1:
        middle = (low + high) // 2
        searching = mask & (high - low > 1)
        before = tl.load(ranks + row * rank_words + middle, mask=searching, other=0)
        reached = searching & ((before.to(tl.int64) & rank_mask) <= rank)
        low = tl.where(reached, middle, low)
        high = tl.where(searching & (reached == 0), middle, high)
        width = (width + 1) // 2
    before = tl.load(ranks + row * rank_words + low, mask=mask, other=0).to(tl.int64) & rank_mask
    left = rank - before
    at = low * 4
    found = tl.zeros(rank.shape, tl.int64)
    place = tl.zeros(rank.shape, tl.int32)
    searching = mask
    for each in tl.static_range(4):
        inside = searching & (at + each < words)
        word = tl.load(bitmaps + row * words + at + each, mask=inside, other=0)
        count = ones(word)
        here = inside & (left < count)
        found = tl.where(here, word, found)
        place = tl.where(here, (at + each) * 64, place)
        left = tl.where(inside & (here == 0), left - count, left)
        searching = inside & (here == 0)
    token = place + _place_of_one(found, left).to(tl.int32)
    return tl.where(mask, token, 0)
