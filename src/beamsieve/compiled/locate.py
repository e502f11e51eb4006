"""Where tokens stand in the rows of a step table, for many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from beamsieve.compiled.starts import COUNT, kth_set_bit
from beamsieve.compiled.streams import read
from beamsieve.compiled.types import bool_, given, int64, loop, part, uint64, written

PLAIN, IDENTITY, SAMPLED = 0, 1, 2
"""How row starts are held."""

_ONE = np.uint64(1)
_NONE = np.uint64(0)
_BYTE = np.uint64(255)


@part
def _ones(word: Any) -> Any:
    found = np.int64(0)
    while word != _NONE:
        found += np.int64(COUNT[np.int64(word & _BYTE)])
        word >>= np.uint64(8)
    return found


@part
def _start(
    kind: Any,
    plain: Any,
    bits: Any,
    samples: Any,
    exceptions: Any,
    shift: Any,
    row: Any,
) -> Any:
    if kind == PLAIN:
        return np.int64(plain[row])
    if kind == IDENTITY:
        return row
    place, left = np.int64(samples[row >> shift]), row & ((1 << shift) - 1)
    if place < 0:
        return np.int64(exceptions[((-1 - place) << shift) + left])
    return kth_set_bit(bits, place, left)


@loop(
    types.void,
    int64,
    given(types.int32),
    given(uint64),
    given(types.int32),
    given(types.int32),
    int64,
    bool_,
    given(uint64),
    uint64,
    int64,
    given(types.uint16),
    int64,
    int64,
    given(int64),
    given(bool_),
    given(types.int32),
    written(int64),
    written(bool_),
    written(int64),
    int64,
    int64,
)
def find(
    kind: Any,
    plain: Any,
    bits: Any,
    samples: Any,
    exceptions: Any,
    shift: Any,
    dense: Any,
    words: Any,
    tail: Any,
    width: Any,
    ranks: Any,
    group: Any,
    groups: Any,
    rows: Any,
    known: Any,
    tokens: Any,
    place: Any,
    here: Any,
    held: Any,
    begin: Any,
    end: Any,
) -> None:
    """For the questions ``begin : end``: where a token stands in a row, or where it would go.

    Args:
        kind: of the row starts; no row may be empty.
        plain: the starts.
        bits: their bits.
        samples: with the bits.
        exceptions: likewise.
        shift: the logarithm of a block's rows.
        dense: whether the tokens are a bitmap.
        words: the tokens as a stream; or the bitmap, row by row.
        tail: what lies behind the stream's last word.
        width: the bits of a token; or the words of a row.
        ranks: of the bitmap, row by row.
        group: the words that share a rank.
        groups: the ranks of a row.
        rows: [n]; of the questions.
        known: [n]; whether there is such a row. Where there is none, its place is that of the entry
            in front of which it would go, and where a token of it would go is where that begins.
        tokens: [n]; of the questions.
        place: [n]; written: the entry.
        here: [n]; written: whether the token stands there.
        held: [n]; written: how many entries the row has; 0 where there is no such row.
        begin: the first question.
        end: the one behind the last.
    """
    for number in range(begin, end):
        row, token = rows[number], np.int64(tokens[number])
        low = _start(kind, plain, bits, samples, exceptions, shift, row)
        place[number], here[number], held[number] = low, False, 0
        if not known[number]:
            continue
        if kind == SAMPLED:
            high = kth_set_bit(bits, low + 1, np.int64(0))
        else:
            high = _start(kind, plain, bits, samples, exceptions, shift, row + 1)
        held[number] = high - low
        if dense:
            cell = token >> 6
            first = cell // group
            before = np.int64(ranks[row * groups + first])
            for other in range(first * group, cell):
                before += _ones(words[row * width + other])
            word = words[row * width + cell]
            bit = np.uint64(token & 63)
            before += _ones(word & ((_ONE << bit) - _ONE))
            place[number] = low + before
            here[number] = ((word >> bit) & _ONE) == _ONE
            continue
        mask, top = (_ONE << np.uint64(width)) - _ONE, high
        while low < high:
            middle = (low + high) >> 1
            if np.int64(read(words, tail, middle * width) & mask) < token:
                low = middle + 1
            else:
                high = middle
        place[number] = low
        here[number] = low < top and np.int64(read(words, tail, low * width) & mask) == token
