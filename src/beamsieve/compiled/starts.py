"""Row starts out of their bits, as ``index.starts`` describes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from beamsieve.compiled.types import given, int64, loop, part, uint64, written

_ONE, _NONE = np.uint64(1), np.uint64(0)
_BYTE = np.uint64(255)


def _byte_tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """Of every byte: how many bits are set; at ``8 * byte + k``, which the k-th is; and the widest
    step from one to the next.
    """
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    select, step = np.zeros(256 * 8, np.uint8), np.zeros(256, np.uint8)
    for octet in range(256):
        places = np.flatnonzero(bits[octet])
        select[8 * octet : 8 * octet + len(places)] = places
        step[octet] = np.diff(places).max(initial=0)
    return bits.sum(axis=1, dtype=np.uint8), select, step


COUNT, SELECT, STEP = _byte_tables()


def _ones(context: Any, word: Any) -> Any:
    """How many bits of a word are set, in one instruction; Numba has no name for it."""

    def make(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), make


ones: Any = intrinsic(_ones)


@part
def kth_set_bit(bits: Any, place: Any, left: Any) -> Any:
    """The place of the ``left``-th set bit (from 0) from ``place`` on; behind all for none."""
    number = place >> 6
    if number >= len(bits):
        return len(bits) << 6
    word = (bits[number] >> np.uint64(place & 63)) << np.uint64(place & 63)
    held = np.int64(ones(word))
    while left >= held:
        left -= held
        number += 1
        if number >= len(bits):
            return len(bits) << 6
        word = bits[number]
        held = np.int64(ones(word))
    here = number << 6
    for half in (32, 16, 8):
        low = np.int64(ones(word & ((_ONE << np.uint64(half)) - _ONE)))
        if left >= low:
            left -= low
            here += half
            word >>= np.uint64(half)
    return here + SELECT[8 * np.int64(word & _BYTE) + left]


@loop(
    types.void,
    given(uint64),
    int64,
    int64,
    int64,
    written(types.int32),
    written(types.int32),
    written(int64),
)
def list_eighths(
    bits: Any,
    begin: Any,
    end: Any,
    row: Any,
    first: Any,
    last: Any,
    seam: Any,
) -> None:
    """Look at the rows that begin in the words ``begin : end``.

    Args:
        bits: of the row starts.
        begin: the first word.
        end: the word behind the last.
        row: how many rows begin before.
        first: written: the places of the rows 0, 8, 16 …
        last: written: the places of the rows 7, 15, 23 …
        seam: [3], written: the first place, the last one (-1 where no row begins) and the widest
            step between two neighbours.
    """
    earliest, before, widest = np.int64(-1), np.int64(-1), np.int64(0)
    for number in range(begin, end):
        word, here = bits[number], number << 6
        while word != _NONE:
            octet = np.int64(word & _BYTE)
            count = np.int64(COUNT[octet])
            if count > 0:
                low = here + SELECT[8 * octet]
                if before < 0:
                    earliest = low
                else:
                    widest = max(widest, low - before)
                before = here + SELECT[8 * octet + count - 1]
                widest = max(widest, np.int64(STEP[octet]))
                left = -row & 7
                if left < count and (row + left) >> 3 < len(first):
                    first[(row + left) >> 3] = here + SELECT[8 * octet + left]
                left = (7 - row) & 7
                if left < count and (row + left) >> 3 < len(last):
                    last[(row + left) >> 3] = here + SELECT[8 * octet + left]
                row += count
            word >>= np.uint64(8)
            here += 8
    seam[0], seam[1], seam[2] = earliest, before, widest


@loop(types.void, given(types.int32), given(types.int32), int64, written(int64))
def count_wide(first: Any, last: Any, span: Any, counts: Any) -> None:
    """Add up how many blocks of 8, 16, 32 and 64 rows reach over ``span`` places or more.

    ``first`` and ``last`` are every eighth row's place, and that of the one in front of the next
    (or of the last row); ``counts`` [4] is written.
    """
    size = len(first)
    for step in range(4):
        width, found = 1 << step, 0
        for block in range(0, size, width):
            end = min(block + width, size) - 1
            if np.int64(last[end]) - np.int64(first[block]) >= span:
                found += 1
        counts[step] = found


@loop(
    types.void,
    given(uint64),
    given(types.int32),
    given(int64),
    int64,
    int64,
    int64,
    written(types.int32),
)
def list_blocks(
    bits: Any, first: Any, blocks: Any, size: Any, rows: Any, entries: Any, out: Any
) -> None:
    """List the rows of some blocks.

    Args:
        bits: of the row starts.
        first: every eighth row's place.
        blocks: [n]; which.
        size: rows of a block: 8, 16, 32 or 64.
        rows: of the table.
        entries: of the table.
        out: [n * size]; written: where each row begins; the entries for those behind all.
    """
    for number in range(len(blocks)):
        place = np.int64(first[blocks[number] * (size >> 3)])
        for row in range(size):
            here = blocks[number] * size + row <= rows
            out[number * size + row] = place if here else entries
            if here:
                place = min(kth_set_bit(bits, place + 1, np.int64(0)), entries)
