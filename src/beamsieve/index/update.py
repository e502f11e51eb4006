"""An index of a changed catalog, by merging what changes into what there is.

The changed catalog is: the (item, semantic ID) pairs of the index that are not removed, in the
index's order, then the pairs that are added, in theirs. What is made here is, byte for byte, what a
full build of that catalog with the index's codebooks gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from beamsieve import parallel
from beamsieve.catalog.validate import Progress
from beamsieve.compiled.choice import compiles
from beamsieve.index.added import (
    Added,
    added_pairs,
    check,
    joined_items,
    joined_rules,
    joined_titles,
    nothing_left,
)
from beamsieve.index.build import LayoutChoice, build_parts, forced_layouts, matchers_of
from beamsieve.index.change import changed_tables
from beamsieve.index.items_after import ItemsAfter, new_leaf_starts, new_pairs
from beamsieve.index.merge import Merge, changes_of, locate
from beamsieve.index.parts import IndexParts, fingerprints
from beamsieve.index.reader import TableReader
from beamsieve.index.removals import Change, removed_pairs, user_codebooks
from beamsieve.index.sets import Places, among, counted
from beamsieve.targeting.partitions import Partitions

if TYPE_CHECKING:
    from beamsieve.index.index import Index


def updated_parts(
    index: Index,
    change: Change,
    layout: LayoutChoice,
    threads: int | None,
    progress: Progress | None,
    compiled: bool | None = None,
) -> tuple[IndexParts, tuple[str, str], int]:
    """The changed index: its parts, its fingerprints, and how many leaves it has.

    Raises:
        CatalogError: what is to be added does not fit the index, what is to be removed is not
            there, or nothing is left.
        InputError: an argument cannot be read; or compiled loops are asked for, but Numba is not
            installed.
        BackendError: compiled loops are asked for, but Numba cannot be imported.
    """
    check(index, change)
    loops = compiles(compiled, index.pair_count)
    report = progress or (lambda what, done, total: None)
    report("finding what changes", 0, 1)
    removed, known = removed_pairs(index, change, threads, loops)
    report("finding what changes", 1, 1)
    added = added_pairs(index, change.add, known)
    varied = index.leaf_count != index.tables[-1].entries
    if varied or (added.sids < 0).any():
        return _built_anew(index, removed, added, layout, threads, progress)
    return _merged(index, removed, added, layout, threads, report, loops)


def _partitions_of(index: Index) -> Partitions:
    """Into how many parts the index's matchers are dealt."""
    return Partitions() if index.matchers is None else index.matchers.partitions


def _built_anew(
    index: Index,
    removed: Places,
    added: Added,
    layout: LayoutChoice,
    threads: int | None,
    progress: Progress | None,
) -> tuple[IndexParts, tuple[str, str], int]:
    """The changed index, where semantic IDs are of several lengths: by a full build."""
    from beamsieve.catalog import Catalog

    counts, numbers = index.items_of_leaves(np.arange(index.leaf_count))
    sids = np.repeat(index.sid_of_leaf(np.arange(index.leaf_count)), counts, axis=0)
    sids, numbers = np.delete(sids, removed, axis=0), np.delete(numbers, removed)
    if not len(sids) + len(added.sids):
        raise nothing_left()
    left = np.bincount(numbers, minlength=len(index.items))
    stays = (added.known >= 0) & (left[added.known] > 0)
    rules = joined_rules(index, added, stays)
    numbers = np.concatenate([numbers, added.numbers + len(index.items)])
    take = pa.array(numbers)
    titles = joined_titles(index, added)
    catalog = Catalog.from_arrays(
        np.concatenate([sids, added.sids]),
        items=joined_items(index, added).take(take),
        codebooks=user_codebooks(index),
        end_token=index.end_token,
        titles=None if titles is None else titles.take(take),
        source="the updated catalog",
        threads=threads,
        progress=progress,
    )
    first = np.arange(len(catalog))  # the first row of each item
    if catalog.row_items is not None:
        first = np.unique(catalog.row_items, return_index=True)[1]
    rules_of = None if rules is None else lambda items: rules.take(numbers[first[items]])
    return build_parts(catalog, layout, _partitions_of(index), progress, threads, rules_of)


def _merged(
    index: Index,
    removed: Places,
    added: Added,
    layout: LayoutChoice,
    threads: int | None,
    report: Progress,
    loops: bool,
) -> tuple[IndexParts, tuple[str, str], int]:
    """The changed index, where every semantic ID has all levels: by merging."""
    forced = forced_layouts(layout, index.length)
    parts = index.parts
    sids = added.sids
    if index.end_token:
        sids = np.concatenate([sids, np.zeros((len(sids), 1), np.int32)], axis=1)
    is_new = np.ones(len(sids), np.bool_)
    is_new[1:] = (sids[1:] != sids[:-1]).any(axis=1)
    distinct = sids[is_new]
    which = np.cumsum(is_new) - 1  # of the distinct ones, for each added pair

    readers = [TableReader(table, loops) for table in index.tables]
    starts = parts.leaf_starts
    leaf = removed if starts is None else np.searchsorted(starts, removed, side="right") - 1
    found = locate(readers, distinct, threads)
    place, here = found[-1].place, found[-1].here
    emptied, lost = counted(leaf)
    held = np.ones(len(emptied), np.int64)
    if starts is not None:
        held = starts[emptied + 1] - starts[emptied]
    emptied = emptied[lost == held]
    gone = emptied[~among(emptied, place[here], loops)]
    if len(gone) == index.leaf_count and here.all():
        raise nothing_left()
    changes = changes_of(readers, distinct, found, gone)

    leaves = np.where(here, place, -1)[which]
    pairs = new_pairs(index, removed, added.known[added.numbers], leaves)
    behind = place + here
    first = behind if starts is None else starts[behind].astype(np.int64)
    merge = Merge(index.pair_count, removed, first[which[pairs]], loops)
    items = ItemsAfter(index, added, merge, pairs)
    tables = changed_tables(readers, changes, forced)
    report("merging", 0, 2)
    parallel.side_by_side([items.steps(), *(table.steps() for table in tables)], threads)
    counts = np.bincount(which[pairs], minlength=len(distinct))
    leaf_starts = None
    if merge.size > changes[-1].merge.size:
        leaf_starts = new_leaf_starts(starts, leaf, changes[-1].merge, found[-1], counts, threads)
    report("merging", 1, 2)
    finished = tuple(table.table for table in tables)
    leaf_items = (leaf_starts, items.leaf_numbers)
    made = IndexParts(
        tables=finished,
        codebooks=parts.codebooks,
        end_token=parts.end_token,
        items=items.items,
        leaf_starts=leaf_starts,
        leaf_numbers=items.leaf_numbers,
        titles=items.titles,
        item_rules=items.rules,
        matchers=matchers_of(items.rules, leaf_items, finished, _partitions_of(index)),
    )
    prints = fingerprints(made, threads)
    report("merging", 2, 2)
    return made, prints, changes[-1].merge.size
