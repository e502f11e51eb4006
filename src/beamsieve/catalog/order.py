"""The lexicographic order of semantic IDs, and where each sorted row differs from the one before.

Everything that the index and the report need follows from these two, so a catalog is sorted once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.keys import WORD

Codes = Callable[[int, "NDArray[np.int64] | None"], "NDArray[np.unsignedinteger]"]


@dataclass(frozen=True)
class Block:
    """A run of sorted rows, small enough for the cache.

    Attributes:
        start, stop: which rows.
        codes: of a level (from 0) and of rows (int64, from the run's own first one; None for all),
            unsigned integers: the tokens, plus 1 in padded orders.
    """

    start: int
    stop: int
    codes: Codes


class SidOrder(ABC):
    """A catalog's rows in lexicographic order of their semantic IDs.

    Rows with one semantic ID keep their order.

    Attributes:
        length: L, the number of levels.
        padded: whether a semantic ID may end above the last level.
        difference: uint8 or int32 [n]; the first level, from 0, at which a sorted semantic ID
            differs from the one before it; L where both are equal; 0 for the first.
    """

    length: int
    padded: bool
    difference: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.difference)

    @property
    @abstractmethod
    def parts(self) -> list[tuple[int, int]]:
        """Runs of sorted rows to be worked on in parallel: where each begins and ends."""

    @abstractmethod
    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """One part, block by block."""

    @abstractmethod
    def without(self, places: NDArray[np.int64]) -> SidOrder:
        """The order without the sorted rows at these places, each of which repeats another."""

    @abstractmethod
    def rows_of(self, start: int, stop: int) -> NDArray[np.int64]:
        """int64 [stop - start]; the catalog's rows at these places."""

    def list_rows(self, threads: int | None = None) -> NDArray[np.int64]:
        """int64 [n]; the catalog's rows, sorted."""
        found = np.empty(len(self), np.int64)

        def fill(part: tuple[int, int]) -> None:
            for first, last in parallel.blocks(*part):
                found[first:last] = self.rows_of(first, last)

        parallel.run(fill, parallel.pieces(len(self), 1 << 18), threads)
        return found

    @property
    def rows(self) -> NDArray[np.int64]:
        """int64 [n]; the catalog's rows, sorted. Made anew at every call."""
        return self.list_rows(1)

    @property
    def sids(self) -> NDArray[np.int32]:
        """int32 [n, L]; the sorted semantic IDs, -1 behind the end. Made anew at every call."""
        found = np.empty((len(self), self.length), np.int32)
        for part in self.parts:
            for block in self.blocks(*part):
                for level in range(self.length):
                    found[block.start : block.stop, level] = block.codes(level, None)
        if self.padded:
            found -= 1
        return found

    def leaf_of_row(self) -> NDArray[np.int64]:
        """int64 [n]; for each sorted row, the place of its semantic ID among all distinct ones."""
        return np.cumsum(self.difference < self.length) - 1


class WideOrder(SidOrder):
    """Of semantic IDs whose levels together pass 64 bits: the matrix itself, sorted."""

    def __init__(self, rows: NDArray[np.int64], sids: NDArray[np.int32]) -> None:
        self._rows, self._sids = rows, sids
        self.length = int(sids.shape[1])
        self.padded = bool(sids.min(initial=0) < 0)
        self.difference = first_differences(sids)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Equal runs."""
        return parallel.pieces(len(self._rows), 1 << 18)

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """One part, block by block."""
        for first, last in parallel.blocks(start, stop):
            yield Block(first, last, partial(self._codes, self._sids[first:last]))

    def _codes(
        self, sids: NDArray[np.int32], level: int, rows: NDArray[np.int64] | None
    ) -> NDArray[np.uint32]:
        column = sids[:, level]
        column = np.ascontiguousarray(column) if rows is None else column[rows]
        if self.padded:
            column = column + np.int32(1)
        return column.view(np.uint32)

    def rows_of(self, start: int, stop: int) -> NDArray[np.int64]:
        """The catalog's rows at these places."""
        return self._rows[start:stop]

    def without(self, places: NDArray[np.int64]) -> WideOrder:
        """The order without these sorted rows."""
        return WideOrder(np.delete(self._rows, places), np.delete(self._sids, places, axis=0))


def first_differences(ordered: NDArray[np.int32]) -> NDArray[np.integer]:
    """The first level at which each row of ``ordered`` differs from the row before it."""
    count, length = ordered.shape
    dtype = np.uint8 if length < 256 else np.int32
    difference: NDArray[np.integer] = np.full(count, length, dtype)
    for level in range(length - 1, -1, -1):
        column = ordered[:, level]
        difference[1:][column[1:] != column[:-1]] = level
    difference[:1] = 0
    return difference


def lexicographic_order(sids: NDArray[np.integer]) -> NDArray[np.int64]:
    """The stable order that sorts the rows of ``sids`` (integers [n, L], tokens from -1 up).

    As many levels as fit are packed above the row number into one 64-bit key, so that a plain sort
    of numbers gives the order. When levels are left, the rows' ranks so far take the place of the
    levels already sorted, and the next levels follow.
    """
    count, length = sids.shape
    if count < 2:
        return np.arange(count, dtype=np.int64)
    row_bits = (count - 1).bit_length()
    lowest = sids.min(axis=0)
    bits = [int(top - low).bit_length() for top, low in zip(sids.max(axis=0), lowest, strict=True)]
    if max(bits) + 2 * row_bits > WORD:
        return np.lexsort(sids.T[::-1]).astype(np.int64, copy=False)

    order = np.arange(count, dtype=np.uint64)
    rank = np.zeros(count, np.uint64)
    rank_bits = 0
    level = 0
    while level < length:
        key = rank
        used = rank_bits + row_bits
        while level < length and used + bits[level] <= WORD:
            column = sids[:, level] if rank_bits == 0 else sids[order, level]
            token = (column - lowest[level]).astype(np.uint64)
            key = (key << np.uint64(bits[level])) | token
            used += bits[level]
            level += 1
        key = (key << np.uint64(row_bits)) | order
        key.sort()
        order = key & np.uint64((1 << row_bits) - 1)
        if level < length:
            prefix = key >> np.uint64(row_bits)
            rank = np.zeros(count, np.uint64)
            np.cumsum(prefix[1:] != prefix[:-1], out=rank[1:])
            rank_bits = int(rank[-1]).bit_length()
    return order.astype(np.int64)
