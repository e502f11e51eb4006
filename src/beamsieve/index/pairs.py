"""Which items the leaves of an index stand for, both ways."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve.targeting.item_rules import take_runs


class LeafItems(NamedTuple):
    """Which items each leaf stands for: ``numbers[starts[leaf] : starts[leaf + 1]]``."""

    starts: NDArray[np.integer]
    """int64 [leaves + 1]."""
    numbers: NDArray[np.integer]
    """Integers [pairs]: positions in ``index.items``; under one leaf, in input order."""


def pairs_of_leaves(
    starts: NDArray[np.integer] | None, leaves: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For many leaves: how many pairs each has, and the pairs in turn.

    Args:
        starts: where each leaf's pairs begin; None where each has one.
        leaves: int64 [n].
    """
    if starts is None:
        return np.ones(len(leaves), np.int64), leaves
    pairs, counts = take_runs(starts, leaves)
    return counts, pairs


class Pairs:
    """The (item, semantic ID) pairs, in the order of their leaves.

    Args:
        starts: integers [leaves + 1], where each leaf's pairs begin; None where each has one.
        numbers: integers [pairs], the item of each; None where that is the pair's place.
        leaves: how many there are.
        items: how many there are.
    """

    def __init__(
        self,
        starts: NDArray[np.integer] | None,
        numbers: NDArray[np.integer] | None,
        leaves: int,
        items: int,
    ) -> None:
        self._starts, self._numbers = starts, numbers
        self._leaves, self._items = leaves, items

    def __len__(self) -> int:
        return self._leaves if self._starts is None else int(self._starts[-1])

    @cached_property
    def leaf_items(self) -> LeafItems:
        """The item numbers of every leaf."""
        starts = self._starts
        if starts is None:
            starts = np.arange(self._leaves + 1)
        numbers = self._numbers
        if numbers is None:
            numbers = np.arange(int(starts[-1]))
        return LeafItems(starts, numbers)

    def items_of_leaves(self, leaves: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For many leaves: how many items each has (int64 [leaves]), and their numbers in turn."""
        counts, found = pairs_of_leaves(self._starts, np.asarray(leaves, np.int64).ravel())
        if self._numbers is not None:
            found = self._numbers[found].astype(np.int64)
        return counts, found

    @cached_property
    def _by_item(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Where each item's pairs begin, and the pairs by item; None if each has its own one."""
        if self._numbers is None:
            return None
        pairs = np.argsort(self._numbers, kind="stable")
        counts = np.bincount(self._numbers, minlength=self._items)
        return np.concatenate([[0], np.cumsum(counts)]), pairs

    def leaves_of_items(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For many items: how many leaves each has (int64 [items]), and the leaves in turn."""
        items = np.asarray(numbers, np.int64).ravel()
        counts, pairs = np.ones(len(items), np.int64), items
        if self._by_item is not None:
            starts, by_item = self._by_item
            members, counts = take_runs(starts, items)
            pairs = by_item[members]
        if self._starts is None:
            return counts, pairs
        return counts, np.searchsorted(self._starts, pairs, side="right") - 1
