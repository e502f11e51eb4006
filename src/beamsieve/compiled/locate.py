"""Where tokens stand in the rows of a step table, for many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from beamsieve.compiled.starts import kth_set_bit, ones
from beamsieve.compiled.streams import read
from beamsieve.compiled.types import boolean, given, int64, loop, part, uint64, written

PLAIN, IDENTITY, SAMPLED = 0, 1, 2
"""How row starts are held."""

_ONE = np.uint64(1)


@part
def _start(
    kind: Any, plain: Any, bits: Any, samples: Any, exceptions: Any, shift: Any, row: Any
) -> Any:
    """Where a row begins; of damaged arrays whatever comes out, but nothing outside is read."""
    if kind == PLAIN:
        return np.int64(plain[max(0, min(row, len(plain) - 1))])
    if kind == IDENTITY:
        return row
    place = np.int64(samples[max(0, min(row >> shift, len(samples) - 1))])
    left = row & ((1 << shift) - 1)
    if place >= 0:
        return kth_set_bit(bits, place, left)
    cell = ((-1 - place) << shift) + left
    return np.int64(exceptions[min(cell, len(exceptions) - 1)]) if len(exceptions) else 0


@loop(
    types.void,
    int64,
    given(types.int32),
    given(uint64),
    given(types.int32),
    given(types.int32),
    int64,
    int64,
    given(int64),
    written(int64),
    written(int64),
)
def bounds(
    kind: Any,
    plain: Any,
    bits: Any,
    samples: Any,
    exceptions: Any,
    shift: Any,
    entries: Any,
    rows: Any,
    start: Any,
    end: Any,
) -> None:
    """Where rows begin and end.

    Args:
        kind: of the row starts; no row may be empty.
        plain: the starts.
        bits: their bits.
        samples: with the bits.
        exceptions: likewise.
        shift: the logarithm of a block's rows.
        entries: of the table.
        rows: [n]; which.
        start: [n]; written: the first entry of each; that behind the last for the row behind all.
        end: [n]; written: the entry behind the last of each.
    """
    for number in range(len(rows)):
        row = rows[number]
        low = _start(kind, plain, bits, samples, exceptions, shift, row)
        low = max(0, min(low, entries))
        start[number] = low
        if kind == SAMPLED:
            high = kth_set_bit(bits, low + 1, np.int64(0))
        else:
            high = _start(kind, plain, bits, samples, exceptions, shift, row + 1)
        end[number] = max(low, min(high, entries))


@loop(
    types.void,
    boolean,
    given(uint64),
    uint64,
    int64,
    given(types.uint16),
    int64,
    int64,
    int64,
    given(int64),
    given(int64),
    given(int64),
    given(boolean),
    given(types.int32),
    written(int64),
    written(boolean),
)
def find(
    dense: Any,
    words: Any,
    tail: Any,
    width: Any,
    ranks: Any,
    group: Any,
    groups: Any,
    entries: Any,
    rows: Any,
    start: Any,
    end: Any,
    known: Any,
    tokens: Any,
    place: Any,
    here: Any,
) -> None:
    """Where tokens stand in rows, or where they would go.

    Args:
        dense: whether the table's tokens are a bitmap.
        words: the tokens as a stream; or the bitmap, row by row.
        tail: what lies behind the stream's last word.
        width: the bits of a token; or the words of a row.
        ranks: of the bitmap, row by row.
        group: the words that share a rank.
        groups: the ranks of a row.
        entries: of the table.
        rows: [n]; in which rows.
        start: [n]; where these begin.
        end: [n]; where they end.
        known: [n]; whether there is such a row. Where there is none, a token of it would go where
            the row that is there in its place begins.
        tokens: [n]; which tokens.
        place: [n]; written: the entry.
        here: [n]; written: whether the token stands there.
    """
    for number in range(len(rows)):
        row, token, low, high = rows[number], np.int64(tokens[number]), start[number], end[number]
        place[number], here[number] = low, False
        if not known[number]:
            continue
        if dense:
            cell = token >> 6
            if row < 0 or (row + 1) * width > len(words) or (row + 1) * groups > len(ranks):
                continue
            first = cell // group
            before = np.int64(ranks[row * groups + first])
            for other in range(first * group, cell):
                before += np.int64(ones(words[row * width + other]))
            word = words[row * width + cell]
            bit = np.uint64(token & 63)
            before += np.int64(ones(word & ((_ONE << bit) - _ONE)))
            place[number] = min(low + before, entries)
            here[number] = ((word >> bit) & _ONE) == _ONE
            continue
        mask = (_ONE << np.uint64(width)) - _ONE
        while low < high:
            middle = (low + high) >> 1
            if np.int64(read(words, tail, middle * width) & mask) < token:
                low = middle + 1
            else:
                high = middle
        place[number] = low
        here[number] = (
            low < end[number] and np.int64(read(words, tail, low * width) & mask) == token
        )
