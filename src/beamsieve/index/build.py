"""From a catalog to the parts of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.items import ItemIds
from beamsieve.catalog.validate import Progress
from beamsieve.errors import InputError
from beamsieve.index.fill import make_tables
from beamsieve.index.layouts import make_table as make_table
from beamsieve.index.leaves import leaf_bounds
from beamsieve.index.levels import make_levels
from beamsieve.index.parts import IndexParts, fingerprints
from beamsieve.index.tables import Layout, StepTable
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.matchers import Matchers, build_matchers
from beamsieve.targeting.partitions import Partitions
from beamsieve.targeting.row_table import numbered_by_appearance

if TYPE_CHECKING:
    from beamsieve.catalog.catalog import Catalog

LayoutChoice = Layout | Sequence[Layout | None] | None


def build_parts(
    catalog: Catalog,
    layout: LayoutChoice,
    partitions: Partitions,
    progress: Progress | None,
    threads: int | None = None,
    rules_of: Callable[[NDArray[np.int64]], ItemRules] | None = None,
) -> tuple[IndexParts, tuple[str, str], int]:
    """Everything that the index of a catalog holds, its fingerprints, and its number of leaves.

    ``rules_of`` gives the rules of the catalog's items of these numbers, in this order, where they
    are not the catalog's own.
    """
    report = progress or (lambda what, done, total: None)
    order = catalog.order
    forced = forced_layouts(layout, order.length)
    levels = make_levels(
        order,
        catalog.coded_codebooks,
        threads,
        lambda done, total: report("building tables", done, 2 * total),
    )
    tables = make_tables(
        levels.tables,
        forced,
        threads,
        lambda done, total: report("building tables", done + total, 2 * total),
    )
    leaf_starts = levels.leaf_starts
    del levels  # half the memory of the rows, which their numbers take next
    items, numbers = order.list_rows(threads), None
    if catalog.row_items is not None:
        items, numbers = numbered_by_appearance(catalog.row_items[items])
    titles = None if catalog.titles is None else catalog.titles.take(pa.array(items))
    item_rules, matchers = None, None
    if catalog.rules is not None or rules_of is not None:
        report("building matchers", 0, 2)
        if rules_of is not None:
            item_rules = rules_of(items)
        elif catalog.rules is not None:
            item_rules = ItemRules.build(catalog.rules, items)
        report("building matchers", 1, 2)
        matchers = matchers_of(item_rules, (leaf_starts, numbers), tables, partitions)
        report("building matchers", 2, 2)
    parts = IndexParts(
        tables=tables,
        codebooks=catalog.coded_codebooks,
        end_token=catalog.end_token,
        items=_taken(catalog.item_ids, items, threads),
        leaf_starts=leaf_starts,
        leaf_numbers=numbers,
        titles=titles,
        item_rules=item_rules,
        matchers=matchers,
    )
    leaves = len(order) if leaf_starts is None else len(leaf_starts) - 1
    return parts, fingerprints(parts, threads), leaves


def matchers_of(
    rules: ItemRules | None,
    leaf_items: tuple[NDArray[np.integer] | None, NDArray[np.integer] | None],
    tables: Sequence[StepTable],
    partitions: Partitions,
) -> Matchers | None:
    """The matchers that items' rules give; None where there are none."""
    if rules is None:
        return None
    bounds = leaf_bounds(tables)
    return build_matchers(rules.layout, rules.segments(), leaf_items, tables, bounds, partitions)


def _taken(ids: ItemIds | None, items: NDArray[np.int64], threads: int | None) -> ItemIds:
    """The ids of these items; the item numbers themselves if there are none."""
    if ids is None:
        return ItemIds.numbered(items)
    if ids.are_strings:
        return ItemIds(ids.values.take(pa.array(items)))
    values, found = ids.numpy(), np.empty(len(items), np.int64)

    def take(rows: tuple[int, int]) -> None:
        np.take(values, items[slice(*rows)], out=found[slice(*rows)], mode="clip")

    parallel.run(take, parallel.pieces(len(items), 1 << 18), threads)
    return ItemIds.numbered(found)


def forced_layouts(layout: LayoutChoice, length: int) -> list[Layout | None]:
    """Each table's layout as the caller wants it.

    Raises:
        InputError: no such layout, or not one per table.
    """
    choices: list[Layout | None]
    if layout is None or isinstance(layout, str):
        choices = [cast("Any", layout)] * length
    elif isinstance(layout, Iterable):
        choices = list(layout)
    else:
        raise InputError(f"layout is {layout!r}; give one for all tables, or a list of them.")
    if len(choices) != length:
        raise InputError(
            f"layout names {len(choices)} tables, but the index has {length}; give one per table."
        )
    for choice in choices:
        if choice not in (None, "dense", "sparse"):
            raise InputError(f'layout is {choice!r}; it must be "dense", "sparse" or None.')
    return choices
