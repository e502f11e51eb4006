"""Streams of small numbers in words, with entries taken out and others put in.

Packed tokens and the bits of row starts are streams of b bits per entry. Where few entries change,
whatever lies between two changes only moves by some bits, so whole words are moved, not entries.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.merge import Merge
from beamsieve.index.sets import Places
from beamsieve.index.starts import WORD
from beamsieve.index.words import whole_words

_WORDS = 1 << 17
"""Words that one job makes."""
_ONES = np.uint64(2**64 - 1)
_LAST = np.uint64(WORD - 1)

Words = NDArray[np.uint64]


class _Runs(NamedTuple):
    """Runs of entries that stay side by side, in bits: where they begin and end, and how far what
    they hold lay ahead.
    """

    begin: Places
    end: Places
    ahead: Places


class _Source(NamedTuple):
    """A stream's words, and the bytes behind the last whole one as one more."""

    words: Words
    tail: int


def splice_jobs(
    source: NDArray[np.unsignedinteger],
    bits: int,
    merge: Merge,
    values: NDArray[np.integer] | None,
    out: Words,
) -> list[parallel.Job]:
    """What makes a stream as it is afterwards; the jobs may be done in any order.

    Args:
        source: its words, contiguous: entry i is the bits ``i * bits : (i + 1) * bits``, the least
            significant first.
        bits: of an entry, up to 32.
        merge: what becomes of the entries; also says whether to work in compiled loops.
        values: [inserted]; what the inserted entries hold; None for zeros.
        out: uint64; every word is written, those behind the last entry as zero.
    """
    if merge.compiled:
        return _compiled_jobs(source, bits, merge, values, out)
    found = merge.runs
    runs = _Runs(
        found.now * bits,
        (found.now + found.length) * bits,
        (found.first - found.now) * bits,
    )
    given = _source(source)
    inserted, wanted = merge.inserted * bits, None if values is None else values.astype(np.uint64)

    def make(first: int, last: int) -> None:
        for start, stop in parallel.blocks(first, last):
            part = out[start:stop]
            _move(given, runs, start, part)
            if wanted is not None:
                _put_part(part, start, inserted, wanted)

    return [partial(make, *piece) for piece in parallel.pieces(len(out), _WORDS)]


def _compiled_jobs(
    source: NDArray[np.unsignedinteger],
    bits: int,
    merge: Merge,
    values: NDArray[np.integer] | None,
    out: Words,
) -> list[parallel.Job]:
    from beamsieve.compiled.streams import splice

    words, tail = whole_words(source)
    out[-(-merge.size * bits // WORD) :] = 0
    held = np.zeros(len(merge.at), np.uint64) if values is None else values.astype(np.uint64)
    change = (words, np.uint64(tail), bits, merge.deleted, merge.inserted, held, out)
    # A run of entries that are a multiple of 64 begins and ends with a word, whatever their bits.
    entries = max(WORD, _WORDS * WORD // bits // WORD * WORD)
    return [partial(splice, *change, *piece) for piece in parallel.pieces(merge.size, entries)]


def put(words: Words, places: Places, values: NDArray[np.integer]) -> None:
    """Write values into bits that are zero; ``places`` are their first bits."""
    value, shift = values.astype(np.uint64), (places % WORD).astype(np.uint64)
    np.bitwise_or.at(words, places >> 6, value << shift)
    over = value >> (_LAST - shift) >> np.uint64(1)
    more = np.flatnonzero(over)
    np.bitwise_or.at(words, (places[more] >> 6) + 1, over[more])


def _move(source: _Source, runs: _Runs, start: int, out: Words) -> None:
    """Write the words from ``start`` on: the bits of every run in their places, zeros elsewhere."""
    stop = start + len(out)
    low = int(np.searchsorted(runs.end, start * WORD, side="right"))
    high = int(np.searchsorted(runs.begin, stop * WORD))
    if low >= high:
        out[:] = 0
        return
    begin, end, ahead = (part[low:high] for part in runs)
    # Each word as if the run that holds its first bit held all of it.
    first = np.minimum(np.maximum((begin + 63) >> 6, start), stop)
    count = np.append(first[1:], stop) - first
    lead = int(first[0]) - start
    out[:lead] = 0
    place = np.repeat(ahead, count)
    place += np.arange((start + lead) << 6, stop << 6, WORD)
    _read_rows(source, place, out[lead:])
    # Then the words that a run begins or ends in, and those between two runs.
    heads = np.flatnonzero((begin & 63 != 0) & (begin >= start * WORD))
    at_start = begin[heads] >> 6
    tails = np.flatnonzero(end <= stop * WORD)
    at_end = (end[tails] - 1) >> 6
    behind = (end + 63) >> 6
    gap = np.append(begin[1:] >> 6, stop) - behind
    wide = np.flatnonzero(gap > 0)
    for words in (at_start, at_end, _ranges(behind[wide], gap[wide])):
        out[words - start] = 0
    both = begin[tails] > at_end << 6  # its head is its tail
    tails, at_end = tails[~both], at_end[~both]
    mask = _low_bits(np.minimum(end[heads] - (at_start << 6), WORD))
    mask &= _ONES << (begin[heads] & 63).view(np.uint64)
    part = _read(source, (at_start << 6) + ahead[heads])
    np.bitwise_or.at(out, at_start - start, part & mask)
    part = _read(source, (at_end << 6) + ahead[tails])
    np.bitwise_or.at(out, at_end - start, part & _low_bits(end[tails] - (at_end << 6)))


def _ranges(first: Places, count: Places) -> Places:
    """The numbers from each first one on, so many of each."""
    ends = np.cumsum(count)
    return np.repeat(first - ends + count, count) + np.arange(int(ends[-1]) if len(ends) else 0)


def _put_part(out: Words, start: int, places: Places, values: NDArray[np.uint64]) -> None:
    """Write those of the values that lie in the words from ``start`` on."""
    low, high = np.searchsorted(places, [start * WORD, (start + len(out)) * WORD])
    low = max(0, int(low) - 1)  # it may reach into the first word
    place, value = places[low:high], values[low:high]
    word, shift = (place >> 6) - start, (place & 63).astype(np.uint64)
    own = slice(int(len(word) > 0 and word[0] < 0), None)
    np.bitwise_or.at(out, word[own], value[own] << shift[own])
    over = value >> (_LAST - shift) >> np.uint64(1)
    more = np.flatnonzero((over > 0) & (word + 1 < len(out)) & (word >= -1))
    np.bitwise_or.at(out, word[more] + 1, over[more])


def _source(source: NDArray[np.unsignedinteger]) -> _Source:
    words, tail = whole_words(source)
    # NumPy would copy unaligned words, as a mapped file may hold, at every look.
    return _Source(words if words.flags.aligned else words.copy(), tail)


def _near(source: _Source, word: Places) -> tuple[Words, Places]:
    """The words that hold these (ascending), and where they are there."""
    if not len(word) or int(word[-1]) + 1 < len(source.words):
        return source.words, word
    first = max(0, min(int(word[0]), len(source.words)))
    return np.append(source.words[first:], np.array([source.tail, 0], np.uint64)), word - first


def _read_rows(source: _Source, places: Places, out: Words) -> None:
    """The 64 bits from each place on (ascending); the upper ones from the word of the next place.

    They are right wherever the next place is 64 bits ahead.
    """
    if not len(places):
        return
    words, word = _near(source, places >> 6)
    shift = (places & 63).view(np.uint64)
    held = np.empty(len(places) + 1, np.uint64)
    np.take(words, word, out=held[:-1], mode="clip")
    held[-1:] = words.take(word[-1:] + 1, mode="clip")
    np.right_shift(held[:-1], shift, out=out)
    upper = held[1:]
    np.subtract(_LAST, shift, out=shift)
    upper <<= shift
    upper <<= np.uint64(1)
    out |= upper


def _read(source: _Source, places: Places) -> Words:
    """The 64 bits from each place on (ascending); any bits where that lies outside."""
    words, word = _near(source, places >> 6)
    shift = (places & 63).astype(np.uint64)
    low = words.take(word, mode="clip") >> shift
    high = words.take(word + 1, mode="clip") << (_LAST - shift) << np.uint64(1)
    return np.asarray(low | high)


def _low_bits(count: Places) -> Words:
    """Words with so many bits set, from the least significant on; 1 to 64."""
    return np.asarray(_ONES >> (WORD - count).view(np.uint64))
