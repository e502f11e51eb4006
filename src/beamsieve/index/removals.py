"""What an update asks for, and which pairs of the index it removes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve.catalog.matrix import read_rows
from beamsieve.errors import CatalogError, InputError
from beamsieve.index.pairs import pairs_of_leaves
from beamsieve.index.reader import TableReader
from beamsieve.index.sets import Places, ascending

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from beamsieve.catalog import Catalog
    from beamsieve.index.index import Index

OnMissing = Literal["raise", "skip"]


@dataclass(frozen=True)
class Change:
    """What is to change, as the caller gives it; see ``Index.update``."""

    add: Catalog | None
    remove: Iterable[Any] | Catalog | None
    remove_sids: ArrayLike | None
    on_missing: OnMissing


def is_catalog(given: Any) -> TypeIs[Catalog]:
    """Whether this is a catalog."""
    from beamsieve.catalog import Catalog  # whose report imports this package

    return isinstance(given, Catalog)


def user_codebooks(index: Index) -> tuple[int, ...]:
    """The codebook sizes without end tokens."""
    if not index.end_token:
        return index.codebooks
    return tuple(size - 1 for size in index.codebooks[:-1])


def removed_pairs(
    index: Index, change: Change, threads: int | None, compiled: bool = False
) -> tuple[Places, Places]:
    """int64, ascending: the pairs to remove; and int64: which item of the index each item to add
    is, -1 for new ones. (One look at the index's items finds both.)
    """
    remove, found = change.remove, [np.zeros(0, np.int64)]
    ids: Any = ()
    if is_catalog(remove):
        ids = remove.items.values
    elif remove is not None:
        ids = _listed_ids(remove)
    added: Any = () if change.add is None else change.add.items.values
    numbers, known = index.items.find([ids, added], threads, compiled)
    if is_catalog(remove):
        found.append(_listed_pairs(index, remove, numbers, change.on_missing))
    elif remove is not None:
        found.append(_pairs_of_items(index, ids, numbers, change.on_missing))
    if change.remove_sids is not None:
        found.append(_pairs_of_sids(index, change.remove_sids, change.on_missing))
    return ascending(np.concatenate(found)), known


def _listed_ids(remove: Any) -> Any:
    if isinstance(remove, (str, bytes)) or not isinstance(remove, Iterable):
        raise InputError(f"remove is {remove!r}; give a list of item ids, or a Catalog of pairs.")
    return remove if isinstance(remove, np.ndarray) else list(remove)


def _pairs_of_items(index: Index, ids: Any, numbers: Places, on_missing: OnMissing) -> Places:
    """All pairs of these items."""
    missing = np.flatnonzero(numbers < 0)
    if len(missing) and on_missing == "raise":
        raise CatalogError(
            f"Item {ids[int(missing[0])]!r} is not in the index, so it cannot be removed; leave it "
            'out, or pass on_missing="skip".'
        )
    numbers = numbers[numbers >= 0]
    if index.parts.leaf_numbers is None:
        return numbers
    chosen = np.zeros(len(index.items), np.bool_)
    chosen[numbers] = True
    return np.flatnonzero(chosen[index.parts.leaf_numbers])


def _leaves_of(index: Index, sids: NDArray[np.integer], what: str, on_missing: OnMissing) -> Places:
    """The leaf of each semantic ID, as users spell them; -1 for one that is not there."""
    width = len(user_codebooks(index))
    if sids.shape[1] != width:
        raise InputError(f"{what} has {sids.shape[1]} levels, but the index has {width}.")
    if index.leaf_count == index.tables[-1].entries:
        row = np.zeros(len(sids), np.int64)
        known = np.ones(len(sids), np.bool_)
        for level, table in enumerate(index.tables):
            reader = TableReader(table)
            end = np.zeros(len(sids), np.int64)
            tokens = sids[:, level].astype(np.int64) if level < width else end
            known &= (tokens >= 0) & (tokens < table.vocabulary)
            row[known], here, _ = reader.find(row[known], tokens[known])
            known[known] = here
        leaves = np.where(known, row, -1)
    else:
        found = (index.leaf_of(sid) for sid in sids.tolist())
        leaves = np.array([-1 if leaf is None else leaf for leaf in found], np.int64)
    missing = np.flatnonzero(leaves < 0)
    if len(missing) and on_missing == "raise":
        sid = [token for token in sids[int(missing[0])].tolist() if token != -1]
        raise CatalogError(
            f"Semantic ID {sid} (row {int(missing[0])} of {what}) is not in the index, so it "
            'cannot be removed; leave it out, or pass on_missing="skip".'
        )
    return leaves


def _pairs_of_sids(index: Index, sids: ArrayLike, on_missing: OnMissing) -> Places:
    """All pairs of these semantic IDs."""
    read = read_rows(sids, "remove_sids")
    if read.unreadable:
        row = min(read.unreadable)
        raise InputError(f"remove_sids, row {row}: {read.unreadable[row][1]}.")
    leaves = _leaves_of(index, read.tokens, "remove_sids", on_missing)
    leaves = ascending(leaves[leaves >= 0])
    return pairs_of_leaves(index.parts.leaf_starts, leaves)[1]


def _listed_pairs(index: Index, pairs: Catalog, numbers: Places, on_missing: OnMissing) -> Places:
    """These very pairs."""
    leaves = _leaves_of(index, pairs.sids, pairs.source, on_missing)
    if pairs.row_items is not None:
        numbers = numbers[pairs.row_items]
    asked = np.maximum(leaves, 0)
    counts, held = index.items_of_leaves(asked)
    owner = np.repeat(np.arange(len(leaves)), counts)
    place = pairs_of_leaves(index.parts.leaf_starts, asked)[1]
    match = (held == numbers[owner]) & (leaves[owner] >= 0)
    if on_missing == "raise":
        there = np.zeros(len(leaves), np.bool_)
        there[owner[match]] = True
        if not there.all():
            row = int(np.flatnonzero(~there)[0])
            item = pairs.items[row if pairs.row_items is None else int(pairs.row_items[row])]
            raise CatalogError(
                f"{pairs.source}, row {row}: the index does not hold item {item!r} under semantic "
                f"ID {[t for t in pairs.sids[row].tolist() if t != -1]}, so this pair cannot be "
                'removed; leave it out, or pass on_missing="skip".'
            )
    return ascending(place[match])
