"""Whether an index holds exactly a catalog: every semantic ID, its items, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog import Catalog
from beamsieve.index import Index, StepTable
from beamsieve.index.tables import GROUP
from beamsieve.targeting.item_rules import BloomRules, ItemRules

Progress = Callable[[int, int], None]


def first_difference(
    index: Index, catalog: Catalog, progress: Progress | None = None
) -> str | None:
    """The first thing in which they differ, as a sentence; None where they agree.

    Semantic IDs are looked up as a decode does it, through bitmaps and ranks or the sorted tokens
    of a row, not by comparing tables with newly built ones.

    Args:
        index: what was built.
        catalog: the rows that it should hold, read with the index's codebooks and end token.
        progress: called with the levels looked up and their number.
    """
    leaves = _leaves(index, _spelled(index, catalog), progress)
    missing = np.flatnonzero(leaves < 0)
    if len(missing):
        row = int(missing[0])
        return (
            f"semantic ID {_sid(catalog.sids[row])} of item {_item(catalog, row)!r} "
            f"is not in the index ({len(missing)} such rows)."
        )
    held = np.bincount(leaves, minlength=index.leaf_count)
    extra = np.flatnonzero(held == 0)
    if len(extra):
        leaf = int(extra[0])
        return (
            f"the index holds semantic ID {_sid(index.sid_of_leaf(leaf))} of items "
            f"{_items(index, leaf)}, which the catalog does not have ({len(extra)} such)."
        )
    return (
        _first_item_difference(index, catalog, leaves)
        or _first_rule_difference(index, catalog)
        or _first_title_difference(index, catalog)
    )


def _first_title_difference(index: Index, catalog: Catalog) -> str | None:
    """Compare the items' titles where both have some; both hold the same items."""
    if index.titles is None or catalog.titles is None:
        return None
    built = index.titles.take(pa.array(index.items.numbers(catalog.items)))
    if built.equals(catalog.titles):
        return None
    pairs = enumerate(zip(built, catalog.titles, strict=True))
    item, one, other = next(
        (item, one.as_py(), other.as_py()) for item, (one, other) in pairs if not one.equals(other)
    )
    return (
        f"item {catalog.items[item]!r} is called {one!r} in the index and {other!r} in the catalog."
    )


def _first_rule_difference(index: Index, catalog: Catalog) -> str | None:
    """Compare the items' targeting rules, attribute by attribute; both hold the same items."""
    built = index.item_rules
    if built is None or catalog.rules is None:
        if built is None and catalog.rules is None:
            return None
        holder, other = ("index", "catalog") if built is not None else ("catalog", "index")
        return f"the {holder} has targeting rules and the {other} has none."
    in_order = np.argsort(index.items.numbers(catalog.items))
    wanted = ItemRules.build(catalog.rules, in_order)
    differs = (built.bits.rows[built.bits.index] != wanted.bits.rows[wanted.bits.index]).any(axis=1)
    for mine, theirs in zip(built.blooms, wanted.blooms, strict=True):
        sets = len(theirs.kinds)
        pair = mine.set_of_item.astype(np.int64) * sets + theirs.set_of_item
        pairs, place = np.unique(pair, return_inverse=True)
        unequal = [
            _value_set(mine, key // sets) != _value_set(theirs, key % sets)
            for key in pairs.tolist()
        ]
        differs |= np.asarray(unequal)[place]
    items = np.flatnonzero(differs)
    if not len(items):
        return None
    return (
        f"item {index.items[int(items[0])]!r} has another targeting rule in the index than in the "
        f"catalog ({len(items)} such items)."
    )


def _value_set(rules: BloomRules, number: int) -> tuple[int, frozenset[str]]:
    codes = rules.codes[rules.starts[number] : rules.starts[number + 1]]
    return int(rules.kinds[number]), frozenset(rules.forms.take(pa.array(codes)).to_pylist())


def _first_item_difference(index: Index, catalog: Catalog, leaves: NDArray[np.int64]) -> str | None:
    """Compare the items under each leaf, in input order, each pair once."""
    numbers = index.items.numbers(catalog.items)
    row_items = np.arange(len(catalog)) if catalog.row_items is None else catalog.row_items
    order = np.argsort(leaves, kind="stable")
    pairs = leaves[order] * len(catalog.items) + row_items[order]
    order = order[np.sort(np.unique(pairs, return_index=True)[1])]
    wanted_counts = np.bincount(leaves[order], minlength=index.leaf_count)
    counts, found = index.items_of_leaves(np.arange(index.leaf_count))
    wanted = numbers[row_items[order]]
    unequal = np.flatnonzero(counts != wanted_counts)
    leaf = int(unequal[0]) if len(unequal) else index.leaf_count
    # Up to the first leaf with another number of items, both lists run side by side.
    together = int(counts[:leaf].sum())
    other = np.flatnonzero(found[:together] != wanted[:together])
    if len(other):
        leaf = int(np.searchsorted(np.cumsum(counts), other[0], side="right"))
    if leaf == index.leaf_count:
        return None
    rows = order[leaves[order] == leaf]
    return (
        f"semantic ID {_sid(index.sid_of_leaf(leaf))} stands for items {_items(index, leaf)} in "
        f"the index and for {[_item(catalog, int(row)) for row in rows]} in the catalog."
    )


def _spelled(index: Index, catalog: Catalog) -> NDArray[np.int32]:
    """int32 [rows, steps]: the catalog's semantic IDs as the tables spell them."""
    coded = np.full((len(catalog), index.length), -1, np.int32)
    coded[:, : catalog.length] = catalog.sids
    if index.end_token:
        lengths = (catalog.sids >= 0).sum(axis=1)
        coded[np.arange(len(catalog)), lengths] = np.asarray(index.codebooks)[lengths] - 1
    return coded


def _leaves(index: Index, coded: NDArray[np.int32], progress: Progress | None) -> NDArray[np.int64]:
    """int64 [rows]: the leaf that each semantic ID leads to, -1 where it leads nowhere."""
    rows = np.zeros(len(coded), np.int64)
    leaves = np.full(len(coded), -1, np.int64)
    alive = np.arange(len(coded))
    for table in index.tables:
        ends = coded[alive, table.step - 1] < 0
        _finish(index, table.step - 1, rows, leaves, alive[ends])
        alive = alive[~ends]
        rows[alive] = _children(table, rows[alive], coded[alive, table.step - 1])
        # A damaged table may lead behind the end of the next one.
        alive = alive[(rows[alive] >= 0) & (rows[alive] < table.entries)]
        if progress is not None:
            progress(table.step, index.length)
    _finish(index, index.length, rows, leaves, alive)
    wrong = (index.sid_of_leaf(np.maximum(leaves, 0)) != _unpadded(index, coded)).any(axis=1)
    leaves[wrong] = -1
    return leaves


def _unpadded(index: Index, coded: NDArray[np.int32]) -> NDArray[np.int32]:
    """The semantic IDs without their end tokens, as users spell them."""
    if not index.end_token:
        return coded
    is_end = coded == np.asarray(index.codebooks) - 1
    return np.where(is_end, -1, coded)[:, :-1]


def _finish(
    index: Index,
    depth: int,
    rows: NDArray[np.int64],
    leaves: NDArray[np.int64],
    which: NDArray[np.int64],
) -> None:
    """Write down the leaves of those that end here, unless longer semantic IDs go on from there."""
    if depth < index.length:
        starts = index.tables[depth].plain_starts()
        which = which[starts[rows[which]] == starts[rows[which] + 1]]
    leaves[which] = index.leaf_starts(depth)[rows[which]]


def _children(
    table: StepTable, rows: NDArray[np.int64], tokens: NDArray[np.int32]
) -> NDArray[np.int64]:
    """int64: the entry that each token leads to from its row; -1 where there is none."""
    if table.bitmap is not None and table.ranks is not None:
        word, bit = tokens // 64, (tokens % 64).astype(np.uint64)
        bits = table.bitmap[rows, word]
        before = np.bitwise_count(bits & ((np.uint64(1) << bit) - np.uint64(1))).astype(np.int64)
        for back in range(1, GROUP):
            counts = np.bitwise_count(table.bitmap[rows, np.maximum(word - back, 0)])
            before += np.where(word % GROUP >= back, counts, 0)
        child = table.starts.start(rows) + table.ranks[rows, word // GROUP] + before
        return np.where((bits >> bit) & np.uint64(1), child, -1)
    owners = np.repeat(np.arange(table.rows), np.diff(table.plain_starts()))
    keys = owners * table.vocabulary + table.plain_tokens()
    wanted = rows * table.vocabulary + tokens
    if not len(keys):
        return np.full(len(rows), -1, np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def _sid(tokens: NDArray[np.int32]) -> tuple[int, ...]:
    return tuple(int(token) for token in tokens.ravel() if token >= 0)


def _item(catalog: Catalog, row: int) -> int | str:
    return catalog.items[row if catalog.row_items is None else int(catalog.row_items[row])]


def _items(index: Index, leaf: int) -> list[int | str]:
    return index.items.list(index.items_of_leaves([leaf])[1])
