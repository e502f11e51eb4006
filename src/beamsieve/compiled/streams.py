"""Streams of small numbers, and arrays of large ones, with entries taken out and others put in.

``index.splice`` and ``index.merge`` say what is wanted. Entries go to their places in one pass: the
new place of an inserted entry is known, and the others fill what is left in their order, so the two
ascending lists of changes are followed as the entries come. (Those of a damaged index may not
ascend: the result is wrong then, but nothing is read or written elsewhere.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve.compiled.types import boolean, given, int64, loop, part, uint64, void, written

_WORD = np.uint64(64)
_BITS = np.int64(63)
_ALL = np.uint64(2**64 - 1)
_NONE = np.uint64(0)
_NEAR = 32
"""Members that are gone through one by one; beyond, a search is quicker."""


@part
def _word(words: Any, tail: Any, number: Any) -> Any:
    if number < len(words):
        return words[number]
    return tail if number == len(words) else _NONE


@part
def read(words: Any, tail: Any, place: Any) -> Any:
    """The 64 bits from ``place`` on; ``tail`` is the word behind the last one."""
    number, shift = place >> 6, np.uint64(place & _BITS)
    low = _word(words, tail, number)
    if shift == _NONE:
        return low
    return (low >> shift) | (_word(words, tail, number + 1) << (_WORD - shift))


@part
def _low_bits(count: Any) -> Any:
    """A word with so many bits set, from the least significant on; 1 to 64."""
    return _ALL >> np.uint64(64 - count)


@part
def first_not_before(values: Any, wanted: Any) -> Any:
    """The place of the first of ascending values that is not below ``wanted``."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@part
def _gone_before(deleted: Any, rank: Any) -> Any:
    """How many deleted entries lie in front of the one that stays as the ``rank``-th."""
    low, high = 0, len(deleted)
    while low < high:
        middle = (low + high) >> 1
        if deleted[middle] - middle <= rank:
            low = middle + 1
        else:
            high = middle
    return low


@part
def _begin(deleted: Any, inserted: Any, first: Any) -> Any:
    """For the entry ``first`` of what comes out: the next insertion, the next deletion, and the old
    place to go on from.
    """
    put = first_not_before(inserted, first)
    gone = _gone_before(deleted, first - put)
    return put, gone, max(np.int64(0), first - put + gone)


@part
def _stretch(
    deleted: Any, inserted: Any, put: Any, gone: Any, source: Any, new: Any, last: Any
) -> Any:
    """Pass by what is deleted at ``source``: the next deletion, the old place to go on from, and
    how many entries stay side by side from there.
    """
    while gone < len(deleted) and deleted[gone] <= source:
        source += deleted[gone] == source
        gone += 1
    count = last - new
    if put < len(inserted):
        count = min(count, inserted[put] - new)
    if gone < len(deleted):
        count = min(count, deleted[gone] - source)
    return gone, source, count


@loop(void, given(int64), given(int64), boolean, written(int64))
def ranks(members: Any, values: Any, right: Any, out: Any) -> None:
    """How many of ascending ``members`` lie below each of ``values``; ``right`` counts equal ones.

    Quick where values ascend, too; right in any order.
    """
    at, before = np.int64(0), np.int64(-(2**63))
    for number in range(len(values)):
        value = values[number]
        ahead = at + _NEAR
        if value < before or (ahead < len(members) and members[ahead] < value):
            at = first_not_before(members, value)
        while at < len(members) and (members[at] < value or (right and members[at] == value)):
            at += 1
        out[number] = at
        before = value


@loop(
    void,
    given(uint64),
    uint64,
    int64,
    given(int64),
    given(int64),
    given(uint64),
    written(uint64),
    int64,
    int64,
)
def splice(
    words: Any,
    tail: Any,
    bits: Any,
    deleted: Any,
    inserted: Any,
    values: Any,
    out: Any,
    first: Any,
    last: Any,
) -> None:
    """Write the entries ``first : last`` of a stream as it is afterwards.

    Args:
        words: the stream before: entry i is the bits ``i * bits : (i + 1) * bits``.
        tail: what lies behind the last whole word.
        bits: of an entry, 1 to 64.
        deleted: ascending; the old places that go.
        inserted: ascending; the new places of what comes.
        values: what the inserted entries hold.
        out: the stream afterwards; the words of these entries are written.
        first: a multiple of 64, so that it begins a word.
        last: likewise, or the number of entries.
    """
    put, gone, source = _begin(deleted, inserted, first)
    new = first
    word, held, filled = (first * bits) >> 6, _NONE, np.int64(0)
    while new < last:
        if put < len(inserted) and inserted[put] <= new:
            value = values[put]
            held |= value << np.uint64(filled)
            filled += bits
            if filled >= 64:
                out[word] = held
                word += 1
                filled -= 64
                held = value >> np.uint64(bits - filled) if filled > 0 else _NONE
            put += 1
            new += 1
            continue
        gone, source, count = _stretch(deleted, inserted, put, gone, source, new, last)
        place, left = source * bits, count * bits
        source += count
        new += count
        if filled > 0:
            taken = min(64 - filled, left)
            held |= (read(words, tail, place) & _low_bits(taken)) << np.uint64(filled)
            filled += taken
            place += taken
            left -= taken
            if filled < 64:
                continue
            out[word] = held
            word += 1
            filled, held = np.int64(0), _NONE
        whole, number, shift = left >> 6, place >> 6, np.uint64(place & _BITS)
        inside = max(np.int64(0), min(whole, len(words) - 1 - number))
        if shift == _NONE:
            for step in range(inside):
                out[word + step] = words[number + step]
        else:
            up = _WORD - shift
            for step in range(inside):
                out[word + step] = (words[number + step] >> shift) | (
                    words[number + step + 1] << up
                )
        for step in range(inside, whole):
            out[word + step] = read(words, tail, place + (step << 6))
        word += whole
        place += whole << 6
        left &= _BITS
        if left > 0:
            held, filled = read(words, tail, place) & _low_bits(left), left
    if filled > 0:
        out[word] = held


@loop(
    void,
    given(int64),
    given(int64),
    given(int64),
    given(int64),
    written(int64),
    int64,
    int64,
)
def change(
    old: Any,
    deleted: Any,
    inserted: Any,
    values: Any,
    out: Any,
    first: Any,
    last: Any,
) -> None:
    """Write the entries ``first : last`` of an array as it is afterwards.

    Args:
        old: before.
        deleted: ascending; the old places that go.
        inserted: ascending; the new places of what comes.
        values: what the inserted entries hold.
        out: afterwards.
        first: the first new place to write.
        last: the one behind the last.
    """
    put, gone, source = _begin(deleted, inserted, first)
    new = first
    while new < last:
        if put < len(inserted) and inserted[put] <= new:
            out[new] = values[put]
            put += 1
            new += 1
            continue
        gone, source, count = _stretch(deleted, inserted, put, gone, source, new, last)
        for step in range(min(count, len(old) - source)):
            out[new + step] = old[source + step]
        source += count
        new += count
