"""The items of an index after an update, and which leaf stands for which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.items import ItemIds
from beamsieve.index.added import Added, joined_items, joined_rules, joined_titles
from beamsieve.index.merge import Found, Merge, Steps
from beamsieve.index.pairs import pairs_of_leaves
from beamsieve.index.sets import Places, among, ascending
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.row_table import numbered_by_appearance

if TYPE_CHECKING:
    from beamsieve.index.index import Index


def new_pairs(index: Index, removed: Places, known: Places, leaves: Places) -> Places:
    """Which added pairs the index does not hold already.

    ``known`` are their items and ``leaves`` their leaves, -1 for new ones.
    """
    asked = np.flatnonzero((leaves >= 0) & (known >= 0))
    counts, held = index.items_of_leaves(leaves[asked])
    owner = np.repeat(asked, counts)
    pair = pairs_of_leaves(index.parts.leaf_starts, leaves[asked])[1]
    there = (held == known[owner]) & ~among(pair, removed)
    return np.flatnonzero(~among(np.arange(len(leaves)), owner[there]))


class ItemsAfter:
    """The items afterwards.

    Args:
        index: before.
        added: what is added.
        merge: of the pairs.
        pairs: which of the added pairs are new.

    Attributes:
        items, titles: by their new numbers, once :meth:`steps` has ended.
        leaf_numbers: the item of each pair; None where each has its own.
        rules: their rules, or None.
    """

    items: ItemIds
    leaf_numbers: NDArray[np.integer] | None = None
    titles: pa.Array | None = None
    rules: ItemRules | None = None

    def __init__(self, index: Index, added: Added, merge: Merge, pairs: Places) -> None:
        self._index, self._added, self._merge, self._pairs = index, added, merge, pairs

    def steps(self) -> Iterator[list[parallel.Job]]:
        """What is to be done, for :func:`beamsieve.parallel.side_by_side`."""
        index, added, merge, pairs = self._index, self._added, self._merge, self._pairs
        old_numbers, old_count = index.parts.leaf_numbers, len(index.items)
        known = added.known
        if old_numbers is None:
            stays = ~among(known, merge.deleted)
        else:
            left = np.bincount(old_numbers, minlength=old_count)
            left -= np.bincount(old_numbers[merge.deleted], minlength=old_count)
            stays = left[known] > 0
        stays &= known >= 0
        rules = joined_rules(index, added, stays)
        numbers = np.where(stays, known, np.arange(len(known)) + old_count)
        numbers = numbers[added.numbers[pairs]]
        titles = joined_titles(index, added)
        one_pair_each = old_numbers is None and len(ascending(numbers)) == len(numbers)
        one_pair_each &= bool((numbers >= old_count).all())
        found = np.empty(merge.size, np.int64)
        plain = titles is None and rules is None and not index.items.are_strings
        if one_pair_each and plain:
            new = added.items.numpy()[added.numbers[pairs]]
            yield merge.jobs(index.items.numpy(), new, found)
            self.items = ItemIds.numbered(found)
            return
        held = np.arange(old_count)
        if old_numbers is not None:
            held = old_numbers.astype(np.int64, copy=False)
        yield merge.jobs(held, numbers, found)
        items = found
        if not one_pair_each:
            items, self.leaf_numbers = numbered_by_appearance(items)
        take = pa.array(items)
        self.items = ItemIds(joined_items(index, added).take(take))
        self.titles = None if titles is None else titles.take(take)
        self.rules = None if rules is None else rules.take(items)


def new_leaf_starts(
    starts: NDArray[np.integer] | None,
    removed: Places,
    merge: Merge,
    found: Found,
    counts: Places,
    threads: int | None,
) -> NDArray[np.int64]:
    """int64 [leaves + 1]; where each leaf's pairs begin.

    Args:
        starts: before; None where each leaf had one pair.
        removed: the leaf of each removed pair.
        merge: of the leaves.
        found: where the semantic IDs stand that pairs are added to.
        counts: how many pairs are added to each.
        threads: how many to use.
    """
    earlier = merge.moved(removed) + ~among(removed, merge.deleted)
    later = np.concatenate([merge.moved(found.place[found.here]), merge.inserted]) + 1
    shifts = Steps.of(
        np.concatenate([earlier, later]),
        np.concatenate([np.full(len(removed), -1), counts[found.here], counts[~found.here]]),
    )
    made = np.empty(merge.size + 1, np.int64)

    def fill(part: tuple[int, int]) -> None:
        for first, last in parallel.blocks(*part):
            sources = merge.sources(first, last)
            made[first:last] = sources if starts is None else starts[sources]
            made[first:last] += shifts.over(first, last)

    parallel.run(fill, parallel.pieces(len(made), 1 << 19), threads)
    return made
