"""Streams of small numbers in words, with entries taken out and others put in.

Packed tokens and the bits of row starts are streams of b bits per entry. Where few entries change,
whatever lies between two changes only moves by some bits, so whole words are moved, not entries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.merge import Merge
from beamsieve.index.sets import Places
from beamsieve.index.starts import WORD

_RUNS = 1 << 11
_ONES = np.uint64(2**64 - 1)
_LAST = np.uint64(WORD - 1)


def spliced(
    source: NDArray[np.unsignedinteger],
    bits: int,
    merge: Merge,
    values: NDArray[np.integer] | None,
    size: int,
    threads: int | None,
) -> NDArray[np.uint64]:
    """A stream afterwards.

    Args:
        source: its words, contiguous: entry i is the bits ``i * bits : (i + 1) * bits``, the least
            significant first.
        bits: of an entry, up to 32.
        merge: what becomes of the entries.
        values: [inserted]; what the inserted entries hold; None for zeros.
        size: how many words of 64 bits to make; those behind the last entry are zero.
        threads: how many to use.
    """
    words = _whole_words(source)
    runs = merge.runs
    begin, end = runs.now * bits, (runs.now + runs.length) * bits
    ahead = (runs.first - runs.now) * bits  # where a bit was, seen from where it is
    if not len(begin):
        words, begin = np.zeros(1, np.uint64), np.zeros(1, np.int64)
        end, ahead = begin, begin
    word = -(-begin // WORD)  # the first word that begins within the run, or behind it
    behind = np.append(word[1:], size)
    found = np.zeros(size, np.uint64)

    def move(group: tuple[int, int]) -> None:
        low, high = group
        own = word[low:high]
        count = behind[low:high] - own
        start, stop = int(own[0]), int(behind[high - 1])
        at = np.arange(start, stop) << 6
        moved = _read(words, at + np.repeat(ahead[low:high], count))
        # A run's last word is full to its end only, and words behind it hold what is inserted.
        left = np.repeat(end[low:high], count) - at
        short = np.flatnonzero(left < WORD)
        moved[short] &= _low_bits(np.maximum(left[short], 0))
        found[start:stop] = moved

    groups = parallel.pieces(len(begin), _RUNS)
    parallel.run(move, groups, threads)
    inner = np.flatnonzero(begin % WORD)  # these begin within a word that begins before them
    place = begin[inner] >> 6
    part = _read(words, (place << 6) + ahead[inner])
    part &= ~_low_bits(begin[inner] % WORD)
    part &= _low_bits(np.minimum(end[inner] - (place << 6), WORD))
    np.bitwise_or.at(found, place, part)
    if values is not None:
        put(found, merge.inserted * bits, values)
    return found


def put(words: NDArray[np.uint64], places: Places, values: NDArray[np.integer]) -> None:
    """Write values into bits that are zero; ``places`` are their first bits."""
    value, shift = values.astype(np.uint64), (places % WORD).astype(np.uint64)
    np.bitwise_or.at(words, places >> 6, value << shift)
    over = value >> (_LAST - shift) >> np.uint64(1)
    more = np.flatnonzero(over)
    np.bitwise_or.at(words, (places[more] >> 6) + 1, over[more])


def _whole_words(source: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    octets = np.zeros(-(-source.nbytes // 8) * 8, np.uint8)
    octets[: source.nbytes] = source.reshape(-1).view(np.uint8)
    return octets.view(np.uint64)


def _read(words: NDArray[np.uint64], places: Places) -> NDArray[np.uint64]:
    """The 64 bits from each place on; any bits where that lies outside."""
    word, shift = places >> 6, (places & 63).astype(np.uint64)
    low = words.take(word, mode="clip")
    low >>= shift
    word += 1
    high = words.take(word, mode="clip")
    high <<= _LAST - shift
    high <<= np.uint64(1)
    low |= high
    return low


def _low_bits(count: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Words with so many bits set, from the least significant on; up to 64."""
    none = count == 0
    kept = _ONES >> np.where(none, 0, WORD - count).astype(np.uint64)
    return np.where(none, np.uint64(0), kept)
