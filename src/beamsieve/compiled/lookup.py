"""Which of many ids are among a few that are asked for: a hash table behind a Bloom filter.

Most ids are none of those asked for, which two bits of one word tell; the words are few enough for
the cache of a core. What passes is noted first and looked up afterwards, so that nothing waits for
the answer of a look that could be guessed wrong. (F. Putze, P. Sanders, J. Singler, Cache-, Hash-
and Space-Efficient Bloom Filters, WEA 2007, blocks of one word.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from beamsieve.compiled.types import given, int64, loop, part, uint64, written

_ODD = np.uint64(0x9E3779B97F4A7C15)
_ONE, _SIX_BITS = np.uint64(1), np.uint64(63)
_AT_ONCE = 4096
_LEAST_CELLS = 1 << 16


@part
def _bits(size: Any) -> Any:
    found = 0
    while (1 << found) < size:
        found += 1
    return found


@part
def _mark(product: Any, bits: Any) -> Any:
    """The two bits of an id in its word, which the top ``bits`` bits of its product name."""
    one = (product >> np.uint64(58 - bits)) & _SIX_BITS
    other = (product >> np.uint64(52 - bits)) & _SIX_BITS
    return (_ONE << one) | (_ONE << other)


@loop(types.void, given(int64), written(uint64), written(types.int32), written(int64))
def enter(ids: Any, marks: Any, table: Any, place: Any) -> None:
    """Enter the ids asked for.

    Args:
        ids: [n], fewer than 2**31.
        marks: zeros [words], a power of two.
        table: [cells], all -1; a power of two, more than n.
        place: [n]; written: the first of the ids that equals each.
    """
    words, cells = _bits(len(marks)), _bits(len(table))
    mask = np.uint64(len(table) - 1)
    for number in range(len(ids)):
        product = np.uint64(ids[number]) * _ODD
        marks[product >> np.uint64(64 - words)] |= _mark(product, words)
        cell = product >> np.uint64(64 - cells)
        while table[cell] >= 0 and ids[table[cell]] != ids[number]:
            cell = (cell + _ONE) & mask
        if table[cell] < 0:
            table[cell] = number
        place[number] = table[cell]


@loop(
    types.void,
    given(int64),
    given(int64),
    given(uint64),
    given(types.int32),
    written(int64),
    written(int64),
    int64,
    int64,
)
def _find(
    own: Any, ids: Any, marks: Any, table: Any, numbers: Any, passed: Any, first: Any, last: Any
) -> None:
    words, cells = _bits(len(marks)), _bits(len(table))
    mask, shift = np.uint64(len(table) - 1), np.uint64(64 - words)
    for start in range(first, last, _AT_ONCE):
        count = np.int64(0)
        for number in range(start, min(last, start + _AT_ONCE)):
            product = np.uint64(own[number]) * _ODD
            mark = _mark(product, words)
            passed[count] = number
            count += np.int64((marks[product >> shift] & mark) == mark)
        for at in range(count):
            number = passed[at]
            value = own[number]
            cell = (np.uint64(value) * _ODD) >> np.uint64(64 - cells)
            while table[cell] >= 0:
                if ids[table[cell]] == value:
                    numbers[table[cell]] = number
                    break
                cell = (cell + _ONE) & mask


class Asked:
    """Ids that are asked for.

    Args:
        ids: int64 [n].
    """

    def __init__(self, ids: NDArray[np.int64]) -> None:
        cells = max(_LEAST_CELLS, 1 << (4 * len(ids)).bit_length())
        self._ids = np.ascontiguousarray(ids)
        self._marks = np.zeros(cells // 8, np.uint64)
        self._table = np.full(cells, -1, np.int32)
        self._place = np.empty(len(ids), np.int64)
        self._numbers = np.full(len(ids), -1, np.int64)
        enter(self._ids, self._marks, self._table, self._place)

    def look(self, own: NDArray[np.int64], first: int, last: int) -> None:
        """Find them among these places of ``own`` [m], contiguous, all of which differ. Threads may
        look at different places at once.
        """
        passed = np.empty(_AT_ONCE, np.int64)
        _find(own, self._ids, self._marks, self._table, self._numbers, passed, first, last)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """int64 [n]; where each was found, -1 where it was not."""
        return self._numbers[self._place]
