"""An index of a changed catalog, by merging what changes into what there is.

The changed catalog is: the (item, semantic ID) pairs of the index that are not removed, in the
index's order, then the pairs that are added, in theirs. What is made here is, byte for byte, what a
full build of that catalog with the index's codebooks gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.items import ItemIds
from beamsieve.catalog.validate import Progress
from beamsieve.errors import CatalogError, InputError
from beamsieve.index.build import LayoutChoice, forced_layouts, numbered_by_appearance
from beamsieve.index.change import changed_tables
from beamsieve.index.merge import Found, Merge, Steps, changes_of, locate
from beamsieve.index.parts import IndexParts, fingerprints
from beamsieve.index.reader import TableReader
from beamsieve.index.removals import Change, is_catalog, removed_pairs, user_codebooks
from beamsieve.index.sets import Places, among, ascending, counted

if TYPE_CHECKING:
    from beamsieve.catalog import Catalog
    from beamsieve.index.index import Index


@dataclass(frozen=True)
class _Added:
    """Pairs to add, in lexicographic order of their semantic IDs.

    Attributes:
        sids: int32 [n, L], as users spell them.
        numbers: int64 [n]; each pair's place in ``items``.
        items: their ids.
        titles: the items' titles, or None.
        known: int64 [items]; which item of the index each is, -1 for new ones.
    """

    sids: NDArray[np.int32]
    numbers: Places
    items: ItemIds
    titles: pa.Array | None
    known: Places


def updated_parts(
    index: Index,
    change: Change,
    layout: LayoutChoice,
    threads: int | None,
    progress: Progress | None,
) -> tuple[IndexParts, tuple[str, str], int] | Catalog:
    """The changed index: its parts, its fingerprints, and how many leaves it has.

    Where semantic IDs are of several lengths, the changed catalog, for a full build.

    Raises:
        CatalogError: what is to be added does not fit the index, what is to be removed is not
            there, or nothing is left.
        InputError: an argument cannot be read.
    """
    _check(index, change)
    report = progress or (lambda what, done, total: None)
    report("finding what changes", 0, 1)
    removed, known = removed_pairs(index, change, threads)
    report("finding what changes", 1, 1)
    added = _added_pairs(index, change.add, known)
    varied = index.leaf_count != index.tables[-1].entries
    if varied or (added.sids < 0).any():
        return _changed_catalog(index, removed, added, threads, progress)
    return _merged(index, removed, added, layout, threads, report)


def _check(index: Index, change: Change) -> None:
    if change.on_missing not in ("raise", "skip"):
        raise InputError(f'on_missing is {change.on_missing!r}; it must be "raise" or "skip".')
    if index.item_rules is not None:
        raise InputError(
            "An index with targeting rules cannot be updated, as its matchers unite the rules of "
            "many items; build it anew from the changed catalog."
        )
    add = change.add
    if add is None:
        return
    if not is_catalog(add):
        raise InputError(f"add is a {type(add).__name__}; give a Catalog.")
    if add.rules is not None:
        raise CatalogError(
            f"{add.source}: these items have targeting rules, but the index has no attributes; "
            "build it anew from the changed catalog."
        )
    sizes = user_codebooks(index)
    if add.length != len(sizes):
        raise CatalogError(
            f"{add.source}: its semantic IDs have {add.length} levels, but those of the index have "
            f"{len(sizes)}."
        )
    if add.end_token and not index.end_token:
        raise CatalogError(f"{add.source}: it has end tokens, but the index has none.")
    for level, size in enumerate(sizes):
        if add.codebooks[level] > size and (top := int(add.sids[:, level].max())) >= size:
            row = int(add.sids[:, level].argmax())
            raise CatalogError(
                f"{add.source}, row {row}: token {top} at level {level + 1} is not below the "
                f"index's codebook size, {size}."
            )
    if add.items.are_strings != index.items.are_strings:
        kinds = ("strings", "integers") if index.items.are_strings else ("integers", "strings")
        raise CatalogError(
            f"{add.source}: the item ids of the index are {kinds[0]}, but these are {kinds[1]}."
        )


def _added_pairs(index: Index, add: Catalog | None, known: Places) -> _Added:
    if add is None:
        none = np.zeros((0, len(user_codebooks(index))), np.int32)
        return _Added(none, np.zeros(0, np.int64), ItemIds(index.items.values[:0]), None, known)
    rows = add.order.rows
    numbers = rows if add.row_items is None else add.row_items[rows]
    return _Added(add.sids[rows], numbers, add.items, add.titles, known)


def _nothing_left() -> CatalogError:
    return CatalogError("Nothing would be left of the index; a catalog needs at least one item.")


def _changed_catalog(
    index: Index,
    removed: Places,
    added: _Added,
    threads: int | None,
    progress: Progress | None,
) -> Catalog:
    """The changed catalog itself."""
    from beamsieve.catalog import Catalog

    counts, numbers = index.items_of_leaves(np.arange(index.leaf_count))
    sids = np.repeat(index.sid_of_leaf(np.arange(index.leaf_count)), counts, axis=0)
    sids, numbers = np.delete(sids, removed, axis=0), np.delete(numbers, removed)
    if not len(sids) + len(added.sids):
        raise _nothing_left()
    numbers = np.concatenate([numbers, added.numbers + len(index.items)])
    take = pa.array(numbers)
    titles = _joined_titles(index, added)
    return Catalog.from_arrays(
        np.concatenate([sids, added.sids]),
        items=_joined_items(index, added).take(take),
        codebooks=user_codebooks(index),
        end_token=index.end_token,
        titles=None if titles is None else titles.take(take),
        source="the updated catalog",
        threads=threads,
        progress=progress,
    )


def _joined_items(index: Index, added: _Added) -> pa.Array:
    return pa.concat_arrays([index.items.values, added.items.values])


def _joined_titles(index: Index, added: _Added) -> pa.Array | None:
    if index.titles is None and added.titles is None:
        return None
    columns = [
        pa.nulls(len(items), pa.large_string()) if titles is None else titles
        for titles, items in ((index.titles, index.items), (added.titles, added.items))
    ]
    return pa.concat_arrays(columns)


def _merged(
    index: Index,
    removed: Places,
    added: _Added,
    layout: LayoutChoice,
    threads: int | None,
    report: Progress,
) -> tuple[IndexParts, tuple[str, str], int]:
    """The changed index, where every semantic ID has all levels."""
    forced = forced_layouts(layout, index.length)
    parts = index.parts
    sids = added.sids
    if index.end_token:
        sids = np.concatenate([sids, np.zeros((len(sids), 1), np.int32)], axis=1)
    is_new = np.ones(len(sids), np.bool_)
    is_new[1:] = (sids[1:] != sids[:-1]).any(axis=1)
    distinct = sids[is_new]
    which = np.cumsum(is_new) - 1  # of the distinct ones, for each added pair

    readers = [TableReader(table) for table in index.tables]
    starts = parts.leaf_starts
    leaf = removed if starts is None else np.searchsorted(starts, removed, side="right") - 1
    found = locate(readers, distinct, threads)
    place, here = found[-1].place, found[-1].here
    emptied, lost = counted(leaf)
    held = np.ones(len(emptied), np.int64)
    if starts is not None:
        held = starts[emptied + 1] - starts[emptied]
    emptied = emptied[lost == held]
    gone = emptied[~among(emptied, place[here])]
    if len(gone) == index.leaf_count and here.all():
        raise _nothing_left()
    changes = changes_of(readers, distinct, found, gone)

    leaves = np.where(here, place, -1)[which]
    pairs = _new_pairs(index, removed, added.known[added.numbers], leaves)
    merge = Merge(index.pair_count, removed, _in_front_of(starts, place + here)[which[pairs]])
    items = _ItemsAfter(index, added, merge, pairs)
    tables = changed_tables(readers, changes, forced)
    report("merging", 0, 2)
    parallel.side_by_side([items.steps(), *(table.steps() for table in tables)], threads)
    counts = np.bincount(which[pairs], minlength=len(distinct))
    leaf_starts = None
    if merge.size > changes[-1].merge.size:
        leaf_starts = _new_leaf_starts(starts, leaf, changes[-1].merge, found[-1], counts, threads)
    report("merging", 1, 2)
    made = IndexParts(
        tables=tuple(table.table for table in tables),
        codebooks=parts.codebooks,
        end_token=parts.end_token,
        items=items.items,
        leaf_starts=leaf_starts,
        leaf_numbers=items.leaf_numbers,
        titles=items.titles,
        item_rules=None,
        matchers=None,
    )
    prints = fingerprints(made, threads)
    report("merging", 2, 2)
    return made, prints, changes[-1].merge.size


def _in_front_of(starts: NDArray[np.integer] | None, leaves: Places) -> Places:
    """The first pair of each leaf."""
    return leaves if starts is None else starts[leaves].astype(np.int64)


def _new_pairs(index: Index, removed: Places, known: Places, leaves: Places) -> Places:
    """Which added pairs the index does not hold already.

    ``known`` are their items and ``leaves`` their leaves, -1 for new ones.
    """
    asked = np.flatnonzero((leaves >= 0) & (known >= 0))
    counts, held = index.items_of_leaves(leaves[asked])
    owner = np.repeat(asked, counts)
    first = _in_front_of(index.parts.leaf_starts, leaves[asked])
    pair = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    there = (held == known[owner]) & ~among(pair, removed)
    return np.flatnonzero(~among(np.arange(len(leaves)), owner[there]))


class _ItemsAfter:
    """The items afterwards.

    Args:
        index: before.
        added: what is added.
        merge: of the pairs.
        pairs: which of the added pairs are new.

    Attributes:
        items, titles: by their new numbers, once :meth:`steps` has ended.
        leaf_numbers: the item of each pair; None where each has its own.
    """

    items: ItemIds
    leaf_numbers: NDArray[np.integer] | None = None
    titles: pa.Array | None = None

    def __init__(self, index: Index, added: _Added, merge: Merge, pairs: Places) -> None:
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
        numbers = np.where((known >= 0) & stays, known, np.arange(len(known)) + old_count)
        numbers = numbers[added.numbers[pairs]]
        titles = _joined_titles(index, added)
        one_pair_each = old_numbers is None and len(ascending(numbers)) == len(numbers)
        one_pair_each &= bool((numbers >= old_count).all())
        found = np.empty(merge.size, np.int64)
        if one_pair_each and titles is None and not index.items.are_strings:
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
        self.items = ItemIds(_joined_items(index, added).take(take))
        self.titles = None if titles is None else titles.take(take)


def _new_leaf_starts(
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
