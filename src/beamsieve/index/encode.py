"""From plain row starts to the kind of fewest bytes; ``starts`` says what each kind holds.

The sampled kind's parts can be sized and filled chunk by chunk, so that threads may share the work.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from beamsieve.index.starts import (
    BLOCKS,
    CHUNK_WORDS,
    PADDING,
    SPAN,
    WORD,
    RowStarts,
    starts_dtype,
)


def start_candidates(starts: NDArray[np.integer]) -> dict[str, int]:
    """The bytes of every kind that can hold these starts, by name ("plain", "sampled/8" …).

    ``starts`` are integers [rows + 1]. "identity" is there only where it holds.
    """
    gap = _gap(starts)
    exceptional = {
        block: int(np.count_nonzero(_spans(starts, block, gap) >= SPAN)) for block in BLOCKS
    }
    return kind_bytes(len(starts) - 1, int(starts[-1]), gap, exceptional)


def kind_bytes(rows: int, entries: int, gap: int, exceptional: Mapping[int, int]) -> dict[str, int]:
    """The bytes of every kind, by name; ``exceptional`` blocks by their K."""
    candidates = {"plain": (rows + 1) * starts_dtype(entries).itemsize}
    if rows == entries and not gap:
        candidates["identity"] = 0
    words = bit_words(rows, entries, gap)
    for block in BLOCKS:
        numbers = -(-(rows + 1) // block) + exceptional[block] * block
        size = words * 8 + numbers * starts_dtype(entries + gap * rows).itemsize
        candidates[f"sampled/{block}"] = size
    return candidates


def encode_starts(starts: NDArray[np.integer], kind: str | None = None) -> RowStarts:
    """Hold these starts in the kind of fewest bytes: the first of equals, plain before others.

    Args:
        starts: integers [rows + 1], ascending from 0.
        kind: the name of a candidate, to force it.
    """
    rows, entries = len(starts) - 1, int(starts[-1])
    candidates = start_candidates(starts)
    kind = kind or min(candidates, key=candidates.__getitem__)
    if kind == "identity":
        return RowStarts(rows, entries, candidates=candidates)
    if kind == "plain":
        plain = starts.astype(starts_dtype(entries), copy=False)
        return RowStarts(rows, entries, plain, candidates=candidates)
    block, gap = int(kind.removeprefix("sampled/")), _gap(starts)
    bits = start_bits(starts, gap)
    samples, exceptions = sampled_places(starts, block, gap)
    return RowStarts(
        rows,
        entries,
        bits=bits,
        samples=samples,
        exceptions=exceptions,
        block=block,
        gap=gap,
        candidates=candidates,
    )


def bit_words(rows: int, entries: int, gap: int) -> int:
    """How many words the bits of a sampled table take."""
    return -(-(entries + gap * rows + 1) // WORD) + PADDING


def start_bits(starts: NDArray[np.integer], gap: int) -> NDArray[np.uint64]:
    """The bits of a sampled table with these starts, integers [rows + 1]."""
    bits = np.zeros(bit_words(len(starts) - 1, int(starts[-1]), gap), np.uint64)
    for first in range(0, len(bits), CHUNK_WORDS):
        fill_bits(starts, gap, bits, first, first + CHUNK_WORDS)
    return bits


def fill_bits(
    starts: NDArray[np.integer], gap: int, bits: NDArray[np.uint64], first: int, end: int
) -> None:
    """Set the words ``first : end`` of a sampled table's bits, and no other.

    Threads may fill different words of one array at once.
    """
    end = min(end, len(bits))
    low, high = (_rows_before(starts, gap, WORD * word) for word in (first, end))
    places = starts[low:high].astype(np.int64)
    if gap:
        places += np.arange(low, high)
    places -= WORD * first
    cells = np.zeros((end - first) * WORD, np.bool_)
    cells[places] = True
    bits[first:end] = np.packbits(cells, bitorder="little").view(np.uint64)


def _rows_before(starts: NDArray[np.integer], gap: int, place: int) -> int:
    """How many rows have their place before this one."""
    if not gap:
        if place > np.iinfo(starts.dtype).max:
            return len(starts)
        return int(np.searchsorted(starts, starts.dtype.type(place)))
    low, high = 0, len(starts)  # by bisection, as places are not stored
    while low < high:
        middle = (low + high) // 2
        if int(starts[middle]) + gap * middle < place:
            low = middle + 1
        else:
            high = middle
    return low


def _gap(starts: NDArray[np.integer]) -> int:
    return int(np.any(starts[1:] == starts[:-1]))


def _first_places(starts: NDArray[np.integer], block: int, gap: int) -> NDArray[np.int64]:
    places = starts[::block].astype(np.int64)
    if gap:
        places += np.arange(0, len(starts), block)
    return places


def _spans(starts: NDArray[np.integer], block: int, gap: int) -> NDArray[np.int64]:
    """int64 [blocks]; how far the last row of each block lies behind its first."""
    last = starts[block - 1 :: block].astype(np.int64)
    if gap:
        last += np.arange(block - 1, len(starts), block)
    if len(starts) % block:
        last = np.append(last, int(starts[-1]) + gap * (len(starts) - 1))
    return np.asarray(last - _first_places(starts, block, gap))


def sampled_places(
    starts: NDArray[np.integer], block: int, gap: int
) -> tuple[NDArray[np.signedinteger], NDArray[np.signedinteger]]:
    """What the kind sampled holds beside its bits: ``samples`` and ``exceptions``."""
    rows, entries = len(starts) - 1, int(starts[-1])
    dtype = starts_dtype(entries + gap * rows)
    samples = _first_places(starts, block, gap).astype(dtype)
    exceptional = np.flatnonzero(_spans(starts, block, gap) >= SPAN)
    samples[exceptional] = -1 - np.arange(len(exceptional))
    listed = exceptional[:, None] * block + np.arange(block)
    return samples, starts[np.minimum(listed, rows)].ravel().astype(dtype)
