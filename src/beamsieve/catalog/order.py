"""The lexicographic order of semantic IDs, and where each sorted row differs from the one before.

Everything that the index and the report need follows from these two, so a catalog is sorted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WORD = 64


@dataclass(frozen=True)
class SidOrder:
    """A catalog's rows in lexicographic order of their semantic IDs.

    Attributes:
        rows: int64 [n]; the catalog's rows, sorted; rows with one semantic ID keep their order.
        sids: int32 [n, L]; the semantic IDs in that order, -1 behind the end of a shorter one.
        difference: uint8 or int32 [n]; the first level, from 0, at which a sorted semantic ID
            differs from the one before it; L where both are equal; 0 for the first.
    """

    rows: NDArray[np.int64]
    sids: NDArray[np.int32]
    difference: NDArray[np.integer]

    @property
    def length(self) -> int:
        """L, the number of levels."""
        return int(self.sids.shape[1])

    def is_new(self, depth: int) -> NDArray[np.bool_]:
        """bool [n]; where a prefix of ``depth`` tokens appears for the first time."""
        found = np.asarray(self.difference < depth)
        if depth and len(found) and self.sids[:, depth - 1].min() < 0:
            found &= self.sids[:, depth - 1] >= 0
        return found

    def leaf_of_row(self) -> NDArray[np.int64]:
        """int64 [n]; for each sorted row, the place of its semantic ID among all distinct ones."""
        return np.cumsum(self.difference < self.length) - 1

    def levels(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each level, what a step table is made of.

        Yields:
            int64 [rows + 1], where the entries of each prefix of the level above begin, and int64
            [entries], the sorted row in which each entry's prefix appears for the first time.
        """
        parents = np.zeros(1, np.int64)
        for step in range(1, self.length + 1):
            places = np.flatnonzero(self.is_new(step))
            first_children = np.flatnonzero(self.difference[places] < step - 1)
            if step == 1:
                first_children = np.zeros(1, np.int64)
            if len(first_children) < len(parents):  # some semantic IDs end above this level
                first_children = np.searchsorted(places, parents)
            row_starts = np.append(first_children, len(places))
            yield row_starts, places
            parents = places


def sort_sids(sids: NDArray[np.integer]) -> SidOrder:
    """Sort the rows of ``sids`` (integers [n, L], -1 behind the end)."""
    rows = lexicographic_order(sids)
    ordered = sids[rows].astype(np.int32, copy=False)
    return SidOrder(rows, ordered, first_differences(ordered))


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
    if max(bits) + 2 * row_bits > _WORD:
        return np.lexsort(sids.T[::-1]).astype(np.int64, copy=False)

    order = np.arange(count, dtype=np.uint64)
    rank = np.zeros(count, np.uint64)
    rank_bits = 0
    level = 0
    while level < length:
        key = rank
        used = rank_bits + row_bits
        while level < length and used + bits[level] <= _WORD:
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
