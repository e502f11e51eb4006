"""What the rows of a catalog say together of its items: several rows may be of one item."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import ItemIds
from beamsieve.catalog.order import SidOrder
from beamsieve.errors import CatalogError
from beamsieve.targeting.rules import CatalogRules, UnreachableItemWarning


def row_numbers(count: int) -> ItemIds:
    """The items that are the rows themselves."""
    return ItemIds.numbered(np.arange(count))


def sets_of_items(
    row_sets: NDArray[np.int32], row_items: NDArray[np.int64] | None, ids: pa.Array, source: str
) -> NDArray[np.int32]:
    """The rules of every item, on which all its rows must agree."""
    if row_items is None:
        return row_sets
    sets = row_sets[np.unique(row_items, return_index=True)[1]]
    differs = np.flatnonzero((sets[row_items] != row_sets).any(axis=1))
    if len(differs):
        raise CatalogError(
            f"{source}: the rows of item {ids[int(row_items[differs[0]])].as_py()!r} give it "
            "different rules; give every row of an item the same."
        )
    return sets


def warn_of_unreachable(rules: CatalogRules, ids: pa.Array, source: str) -> None:
    """Say of which items no targeted request will ever hear."""
    found = rules.unreachable()
    if len(found):
        warnings.warn(
            f"{source}: {len(found)} items have a rule that accepts nothing, so no targeted "
            f"request can find them; the first is {ids[int(found[0])].as_py()!r}.",
            UnreachableItemWarning,
            stacklevel=4,
        )


def each_pair_once(order: SidOrder, row_items: NDArray[np.int64] | None) -> tuple[SidOrder, int]:
    """Keep the first of equal (item, semantic ID) rows; also, how many were dropped."""
    if row_items is None:
        return order, 0
    shared = order.difference >= order.length
    if not shared.any():
        return order, 0
    shared[:-1] |= shared[1:]
    places = np.flatnonzero(shared)
    leaf = order.leaf_of_row()[places]
    item = row_items[order.rows[places]]
    by_pair = np.lexsort((item, leaf))
    again = (leaf[by_pair][1:] == leaf[by_pair][:-1]) & (item[by_pair][1:] == item[by_pair][:-1])
    dropped = places[by_pair[1:][again]]
    return (order.without(dropped), len(dropped)) if len(dropped) else (order, 0)
