"""What an update adds: whether it fits the index, and its items behind those that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import ItemIds
from beamsieve.errors import CatalogError, InputError
from beamsieve.index.removals import Change, is_catalog, user_codebooks
from beamsieve.index.sets import Places
from beamsieve.targeting.attributes import Attribute
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.joined import JoinedRules

if TYPE_CHECKING:
    from beamsieve.catalog import Catalog
    from beamsieve.index.index import Index


@dataclass(frozen=True)
class Added:
    """Pairs to add, in lexicographic order of their semantic IDs.

    Attributes:
        sids: int32 [n, L], as users spell them.
        numbers: int64 [n]; each pair's place in ``items``.
        items: their ids.
        titles: the items' titles, or None.
        rules: the items' rules, or None.
        source: what errors call them.
        known: int64 [items]; which item of the index each is, -1 for new ones.
    """

    sids: NDArray[np.int32]
    numbers: Places
    items: ItemIds
    titles: pa.Array | None
    rules: ItemRules | None
    source: str
    known: Places


def check(index: Index, change: Change) -> None:
    """Refuse what cannot be done.

    Raises:
        CatalogError: what is to be added does not fit the index.
        InputError: an argument cannot be read.
    """
    if change.on_missing not in ("raise", "skip"):
        raise InputError(f'on_missing is {change.on_missing!r}; it must be "raise" or "skip".')
    add = change.add
    if add is None:
        return
    if not is_catalog(add):
        raise InputError(f"add is a {type(add).__name__}; give a Catalog.")
    declared = () if add.rules is None else add.rules.layout.attributes
    if declared != index.row_layout.attributes:
        raise CatalogError(
            f"{add.source}: its items' rules are on {_named(declared)}, but those of the index on "
            f"{_named(index.row_layout.attributes)}; declare the very attributes of the index."
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


def _named(attributes: Sequence[Attribute]) -> str:
    listed = ", ".join(str(one.as_dict()) for one in attributes)
    return f"the attributes {listed}" if listed else "no attributes"


def added_pairs(index: Index, add: Catalog | None, known: Places) -> Added:
    """What a catalog adds; ``known`` are its items in the index."""
    if add is None:
        none = np.zeros((0, len(user_codebooks(index))), np.int32)
        items = ItemIds(index.items.values[:0])
        return Added(none, np.zeros(0, np.int64), items, None, None, "nothing", known)
    rows = add.order.rows
    numbers = rows if add.row_items is None else add.row_items[rows]
    rules = None if add.rules is None else ItemRules.build(add.rules, np.arange(len(add.items)))
    return Added(add.sids[rows], numbers, add.items, add.titles, rules, add.source, known)


def nothing_left() -> CatalogError:
    """The error for it."""
    return CatalogError("Nothing would be left of the index; a catalog needs at least one item.")


def joined_items(index: Index, added: Added) -> pa.Array:
    """The ids of the index's items, then of the added ones: their numbers are *joined* numbers."""
    return pa.concat_arrays([index.items.values, added.items.values])


def joined_titles(index: Index, added: Added) -> pa.Array | None:
    """Their titles, if there are any."""
    if index.titles is None and added.titles is None:
        return None
    columns = [
        pa.nulls(len(items), pa.large_string()) if titles is None else titles
        for titles, items in ((index.titles, index.items), (added.titles, added.items))
    ]
    return pa.concat_arrays(columns)


def joined_rules(index: Index, added: Added, stays: NDArray[np.bool_]) -> JoinedRules | None:
    """Their rules, if the index has attributes.

    Args:
        index: before.
        added: what is added.
        stays: bool [added items]; whether each is an item of the index that stays.

    Raises:
        CatalogError: an added row gives an item that stays other rules.
    """
    if index.item_rules is None:
        return None
    rules = JoinedRules(index.item_rules, added.rules)
    own = np.flatnonzero(stays)
    other = own[rules.differ(added.known[own], own + len(index.items))]
    if len(other):
        raise CatalogError(
            f"{added.source}: item {added.items[int(other[0])]!r} has other rules in the index; "
            "give the same, or remove the item in the same update."
        )
    return rules
