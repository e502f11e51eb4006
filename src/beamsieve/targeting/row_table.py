"""Rows of bits, equal ones stored once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integer = TypeVar("Integer", bound=np.integer)

_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(0x9E3779B97F4A7C15)),
)
"""Shifts and odd factors that spread every bit over the whole word (those of SplitMix64)."""


@dataclass(frozen=True)
class RowTable:
    """Rows of bits by reference.

    Attributes:
        rows: uint64 [distinct, words]; bit i of a row is bit ``i % 64`` (0 = least significant) of
            word ``i // 64``.
        index: int32 [n]; which row each of the n owners has.
    """

    rows: NDArray[np.uint64]
    index: NDArray[np.int32]

    @property
    def words(self) -> int:
        """64-bit words of a row."""
        return int(self.rows.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.rows.nbytes + self.index.nbytes

    def all_rows(self) -> NDArray[np.uint64]:
        """uint64 [n, words]: every owner's row."""
        return self.rows[self.index]


def distinct_rows(rows: NDArray[np.uint64]) -> RowTable:
    """Store equal rows once, in order of first appearance."""
    count, words = rows.shape
    if count == 0 or words == 0:
        return RowTable(rows[:1], np.zeros(count, np.int32))
    key = np.zeros(count, np.uint64)
    for word in range(words):
        key ^= rows[:, word]
        for shift, factor in _MIX:
            key ^= key >> shift
            key *= factor
    first, place = _groups(key)
    if not np.array_equal(rows[first][place], rows):  # two rows share a key
        _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        place = place.ravel()
    by_appearance = np.argsort(first)
    number = np.empty(len(first), np.int32)
    number[by_appearance] = np.arange(len(first), dtype=np.int32)
    return RowTable(rows[first[by_appearance]], number[place])


def numbered_by_appearance(
    values: NDArray[Integer],
) -> tuple[NDArray[Integer], NDArray[np.int64] | None]:
    """Renumber values (none below 0) by first appearance: the old number of each new one, and for
    each place of ``values`` its new one.

    The second is None when every value appears once.
    """
    places = np.arange(len(values))
    first = np.full(int(values.max(initial=-1)) + 1, -1, np.int64)
    first[values[::-1]] = places[::-1]
    is_first = first[values] == places
    if is_first.all():
        return values, None
    new = np.cumsum(is_first) - 1
    return values[is_first], new[first[values]]


def _groups(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first place of each distinct key, and for each place, which distinct key is there.

    ``np.unique`` would do, but needs a stable sort, which is several times slower.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    first = np.minimum.reduceat(order, np.flatnonzero(is_new))
    place = np.empty(len(keys), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return first, place
