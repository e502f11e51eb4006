"""Sorting semantic IDs in threads.

A semantic ID and its row are one 64-bit number, so that a plain sort of numbers is the stable sort
wanted, and what is sorted holds everything. The rows are first dealt into pieces by the leading
bits of their semantic IDs: pieces are sorted side by side, fit the cache, and leave out of every
number what its piece says already, which is what makes room for the row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.keys import WORD, Coding, TokenRanges
from beamsieve.catalog.order import Block, SidOrder, WideOrder, lexicographic_order

_BUCKET_BITS = 16
_SAMPLE = 1 << 17
_DEAL_ROWS = 1 << 18
_PART_ROWS = 1 << 18
_PIECE_ROWS = 1 << 16
_USUAL_PIECES = 128
_MOST_PIECES = 1 << 12


class PackedOrder(SidOrder):
    """Of semantic IDs of up to 64 bits: 8 bytes for each row, sorted in pieces.

    Attributes:
        packed: uint64 [n]; ``(key - base) << row_bits | row``, ascending within a piece.
        starts: where each piece begins; behind the last, n.
        bases: the number below which no key of a piece lies.
        row_bits: bits of a row.
        coding: how a key spells its semantic ID.
    """

    def __init__(
        self,
        packed: NDArray[np.uint64],
        starts: list[int],
        bases: list[int],
        row_bits: int,
        coding: Coding,
        threads: int | None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._packed, self._starts, self._bases = packed, starts, bases
        self._row_bits, self._coding, self._threads = row_bits, coding, threads
        self.length = coding.length
        self.padded = coding.offset > 0
        self.difference = np.empty(len(packed), np.uint8 if coding.length < 256 else np.int32)
        parallel.run(self._compare, self.parts, threads, progress)

    def _keys(self, first: int, last: int) -> NDArray[np.uint64]:
        keys = self._packed[first:last] >> np.uint64(self._row_bits)
        piece = bisect_right(self._starts, first) - 1
        while self._starts[piece] < last:
            own = slice(max(0, self._starts[piece] - first), self._starts[piece + 1] - first)
            keys[own] += np.uint64(self._bases[piece])
            piece += 1
        return keys

    def _compare(self, part: tuple[int, int]) -> None:
        before = None if part[0] == 0 else int(self._keys(part[0] - 1, part[0])[0])
        for first, last in parallel.blocks(*part):
            keys = self._keys(first, last)
            self._coding.differences(keys, before, self.difference[first:last])
            before = int(keys[-1])

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Equal runs of rows."""
        return parallel.shares(len(self._packed), _PART_ROWS, self._threads)

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """One part, block by block."""
        for first, last in parallel.blocks(start, stop):
            yield Block(first, last, partial(self._codes, self._keys(first, last)))

    def _codes(
        self, keys: NDArray[np.uint64], level: int, rows: NDArray[np.int64] | None
    ) -> NDArray[np.uint64]:
        return self._coding.tokens(keys if rows is None else keys.take(rows, mode="clip"), level)

    def rows_of(self, start: int, stop: int) -> NDArray[np.int64]:
        """The catalog's rows at these places."""
        rows = self._packed[start:stop] & np.uint64((1 << self._row_bits) - 1)
        return rows.view(np.int64)

    def without(self, places: NDArray[np.int64]) -> PackedOrder:
        """The order without these sorted rows."""
        gone = np.searchsorted(np.sort(places), self._starts)
        starts = [start - int(less) for start, less in zip(self._starts, gone, strict=True)]
        kept = [at for at, start in enumerate(starts[:-1]) if start < starts[at + 1]]
        return PackedOrder(
            np.delete(self._packed, places),
            [starts[at] for at in kept] + starts[-1:],
            [self._bases[at] for at in kept],
            self._row_bits,
            self._coding,
            self._threads,
        )


def sort_sids(
    sids: NDArray[np.integer],
    ranges: TokenRanges | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SidOrder:
    """Sort the rows of ``sids``.

    Args:
        sids: integers [n, L], n > 0; -1 behind the end of a shorter one.
        ranges: the smallest and the largest token of every level.
        threads: how many to use; see :func:`beamsieve.parallel.thread_count`. The order is the
            same with any number of them.
        progress: called with how much is done, and how much there is.
    """
    coding = Coding.of(ranges or TokenRanges.of(sids, threads))
    report = progress or (lambda done, total: None)
    row_bits = (len(sids) - 1).bit_length()
    cuts = _cut(sids, coding, WORD - row_bits)
    if cuts is None:
        rows = lexicographic_order(sids)
        return WideOrder(rows, sids[rows].astype(np.int32, copy=False))
    packed, starts, bases = _sorted_pieces(sids, coding, row_bits, cuts, threads, report)
    return PackedOrder(
        packed,
        starts,
        bases,
        row_bits,
        coding,
        threads,
        lambda done, total: report(done + 2 * total, 3 * total),
    )


def _sorted_pieces(
    sids: NDArray[np.integer],
    coding: Coding,
    row_bits: int,
    cuts: tuple[NDArray[np.unsignedinteger], int],
    threads: int | None,
    report: Callable[[int, int], None],
) -> tuple[NDArray[np.uint64], list[int], list[int]]:
    """Deal the rows into pieces and sort these; see :class:`PackedOrder` for what comes back."""
    piece_of_bucket, bucket_shift = cuts
    first_bucket = np.flatnonzero(np.diff(piece_of_bucket, prepend=-1))
    bases = first_bucket.astype(np.uint64) << np.uint64(bucket_shift)
    chunks = parallel.shares(len(sids), _DEAL_ROWS, threads)
    dealt = np.empty(len(sids), np.uint64)

    def deal(chunk: tuple[int, int]) -> NDArray[np.int64]:
        start, stop = chunk
        keys = np.empty(stop - start, np.uint64)
        piece = np.empty(stop - start, piece_of_bucket.dtype)
        for first, last in parallel.blocks(0, stop - start):
            key = coding.keys(sids[start + first : start + last], keys[first:last])
            bucket = (key >> np.uint64(bucket_shift)).view(np.int64)
            np.take(piece_of_bucket, bucket, out=piece[first:last], mode="clip")
            key -= bases[piece[first:last]]
            np.left_shift(key, np.uint64(row_bits), out=key)
            key |= np.arange(start + first, start + last, dtype=np.uint64)
        order = np.argsort(piece, kind="stable")
        np.take(keys, order, out=dealt[start:stop], mode="clip")
        # bincount would keep the interpreter's lock from all other threads.
        ends = np.searchsorted(piece.take(order, mode="clip"), np.arange(len(bases)), side="right")
        return np.diff(ends, prepend=0)

    counts = np.array(
        parallel.run(deal, chunks, threads, lambda done, total: report(done, 3 * total))
    )
    ends = np.cumsum(counts, axis=1) + np.array([[start] for start, _ in chunks])
    filled = np.flatnonzero(counts.sum(axis=0))
    starts = [0, *np.cumsum(counts.sum(axis=0)[filled]).tolist()]
    packed = np.empty(len(sids), np.uint64)

    def collect(number: int) -> None:
        piece = filled[number]
        mine = packed[starts[number] : starts[number + 1]]
        first, last = ends[:, piece] - counts[:, piece], ends[:, piece]
        runs = zip(first.tolist(), last.tolist(), strict=True)
        np.concatenate([dealt[a:b] for a, b in runs], out=mine)
        mine.sort()

    numbers = range(len(filled))
    parallel.run(collect, numbers, threads, lambda done, total: report(done + total, 3 * total))
    return packed, starts, bases[filled].tolist()


def _cut(
    sids: NDArray[np.integer], coding: Coding, room: int
) -> tuple[NDArray[np.unsignedinteger], int] | None:
    """Into which pieces to deal.

    A piece is a run of buckets, and a bucket is what the leading bits of a key say. A sample tells
    how many rows a bucket has, so that pieces are of about one size.

    Args:
        sids: integers [n, L].
        coding: of their keys.
        room: the bits that the keys of one piece may take.

    Returns:
        Each bucket's piece, ascending, and how many bits of a key lie below those of its bucket;
        None where that takes too many pieces.
    """
    count = len(sids)
    shift = max(0, coding.total - _BUCKET_BITS)
    if coding.total > WORD or shift > room:
        return None
    buckets = 1 << (coding.total - shift)
    if count <= 2 * _PIECE_ROWS and coding.total <= room:
        return np.zeros(buckets, np.uint8), shift
    sample = coding.keys(sids[:: -(-count // _SAMPLE)]) >> np.uint64(shift)
    found = np.bincount(sample.view(np.int64), minlength=buckets)
    wanted = min(_USUAL_PIECES, -(-count // _PIECE_ROWS))
    share = (np.cumsum(found) - found) * wanted // len(sample)
    block = np.arange(buckets) >> min(room - shift, _BUCKET_BITS)
    piece = np.cumsum((np.diff(share, prepend=0) > 0) | (np.diff(block, prepend=0) > 0))
    if piece[-1] >= _MOST_PIECES:
        return None
    return piece.astype(np.uint8 if piece[-1] < 256 else np.uint16), shift
