"""A step table after a change, in its plain parts or as its layout holds them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.encode import bit_words
from beamsieve.index.levels import Level
from beamsieve.index.merge import LevelChange, Merge
from beamsieve.index.reader import TableReader
from beamsieve.index.sets import Places, among, ascending
from beamsieve.index.splice import put, spliced
from beamsieve.index.starts import WORD, starts_dtype
from beamsieve.index.tokens import packed_words, token_bits

_WORDS = 1 << 12


def changed_level(
    reader: TableReader, change: LevelChange, before: Merge | None, threads: int | None
) -> Level:
    """A table after a change; ``before`` is the change of the entries of the level above."""
    table, merge = reader.table, change.merge
    rows = 1 if before is None else before.size
    words = bit_words(rows, merge.size, 0)
    bits = spliced(reader.start_bits(), 1, merge, None, words, threads)
    _set_first(reader, change, before, bits)
    put(bits, np.array([merge.size]), np.ones(1, np.int64))
    starts = _listed(bits, rows, merge.size, threads)
    if reader.plain is not None:
        width = 8 * reader.plain.itemsize
        size = -(-merge.size * width // WORD)
        moved = spliced(reader.plain, width, merge, change.tokens, size, threads)
        tokens = moved.view(reader.plain.dtype)[: merge.size]
        return Level(table.vocabulary, starts, tokens, bits=bits)
    assert table.packed is not None
    width = token_bits(table.vocabulary)
    size = packed_words(merge.size, width)
    moved = spliced(table.packed, width, merge, change.tokens, -(-size // 2), threads)
    return Level(table.vocabulary, starts, packed=moved.view(np.uint32)[:size], bits=bits)


def _set_first(
    reader: TableReader, change: LevelChange, before: Merge | None, bits: NDArray[np.uint64]
) -> None:
    """Correct which entries are the first of their rows, in the rows that change."""
    merge, starts = change.merge, reader.table.starts
    # Old rows that lose or get entries, and stay.
    new = change.parents < 0
    rows = ascending(np.concatenate([reader.rows_of(merge.deleted), change.parents[~new]]))
    if before is not None:
        rows = rows[~among(rows, before.deleted)]
    old_first = starts.start(rows)
    stays = ~among(old_first, merge.deleted)
    _clear(bits, merge.moved(old_first[stays]))
    now = rows if before is None else before.moved(rows)
    earlier = np.searchsorted(change.rows, now)
    _set(bits, old_first - np.searchsorted(merge.deleted, old_first) + earlier)
    # Rows that are new: their first entry is the first inserted one.
    begins = np.ones(len(new), np.bool_)
    begins[1:] = change.rows[1:] != change.rows[:-1]
    _set(bits, merge.inserted[new & begins])


def _set(bits: NDArray[np.uint64], places: Places) -> None:
    np.bitwise_or.at(bits, places >> 6, _masks(places))


def _clear(bits: NDArray[np.uint64], places: Places) -> None:
    np.bitwise_and.at(bits, places >> 6, ~_masks(places))


def _masks(places: Places) -> NDArray[np.uint64]:
    return np.uint64(1) << (places % WORD).astype(np.uint64)


def _listed(
    bits: NDArray[np.uint64], rows: int, entries: int, threads: int | None
) -> NDArray[np.signedinteger]:
    """The places of the set bits, which are the row starts."""
    starts = np.empty(rows + 1, starts_dtype(entries))
    parts = parallel.pieces(len(bits), _WORDS)
    counts = parallel.run(
        lambda part: int(np.bitwise_count(bits[slice(*part)]).sum(dtype=np.int64)), parts, threads
    )
    ends = np.cumsum(counts).tolist()

    def fill(number: int) -> None:
        done = ends[number] - counts[number]
        for first, last in parallel.blocks(*parts[number], parallel.BLOCK_ROWS // WORD):
            octets = bits[first:last].view(np.uint8)
            places = np.flatnonzero(np.unpackbits(octets, bitorder="little").view(np.bool_))
            starts[done : done + len(places)] = places + first * WORD
            done += len(places)

    parallel.run(fill, range(len(parts)), threads)
    return starts
