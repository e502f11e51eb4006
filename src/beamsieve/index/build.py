"""From a catalog to the parts of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import ItemIds
from beamsieve.catalog.order import SidOrder
from beamsieve.catalog.validate import Progress
from beamsieve.errors import InputError
from beamsieve.index.layouts import make_table as make_table
from beamsieve.index.leaves import leaf_bounds
from beamsieve.index.parts import IndexParts
from beamsieve.index.starts import starts_dtype
from beamsieve.index.tables import Layout, StepTable
from beamsieve.index.tokens import token_dtype
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.matchers import Partitions, build_matchers

if TYPE_CHECKING:
    from beamsieve.catalog.catalog import Catalog

LayoutChoice = Layout | Sequence[Layout | None] | None


def build_tables(
    order: SidOrder,
    codebooks: Sequence[int],
    layout: LayoutChoice = None,
    progress: Progress | None = None,
) -> tuple[StepTable, ...]:
    """One table per level of ``order``, in the layout that takes fewer bytes or the one forced."""
    forced = _forced_layouts(layout, order.length)
    tables = []
    for step, (row_starts, places) in enumerate(order.levels(), 1):
        vocabulary = codebooks[step - 1]
        starts = row_starts.astype(starts_dtype(len(places)), copy=False)
        tokens = order.sids[places, step - 1].astype(token_dtype(vocabulary))
        tables.append(make_table(step, vocabulary, starts, tokens, forced[step - 1]))
        if progress is not None:
            progress("building tables", step, order.length)
    return tuple(tables)


def build_parts(
    catalog: Catalog, layout: LayoutChoice, partitions: Partitions, progress: Progress | None
) -> IndexParts:
    """Everything that the index of a catalog holds."""
    order = catalog.order
    tables = build_tables(order, catalog.coded_codebooks, layout, progress)
    first = order.difference < order.length
    leaf_starts = None
    if not first.all():
        leaf_starts = np.append(np.flatnonzero(first), len(first))
    numbers = None
    if catalog.row_items is None:
        items = order.rows
    else:
        items, numbers = _numbered_by_appearance(catalog.row_items[order.rows])
    take = pa.array(items)
    item_rules, matchers = None, None
    if catalog.rules is not None:
        report = progress or (lambda what, done, total: None)
        report("building matchers", 0, 2)
        item_rules = ItemRules.build(catalog.rules, items)
        report("building matchers", 1, 2)
        matchers = build_matchers(
            item_rules.layout,
            item_rules.segments(),
            (leaf_starts, numbers),
            tables,
            leaf_bounds(tables),
            partitions,
        )
        report("building matchers", 2, 2)
    return IndexParts(
        tables=tables,
        codebooks=catalog.coded_codebooks,
        end_token=catalog.end_token,
        items=ItemIds(catalog.items.values.take(take)),
        leaf_starts=leaf_starts,
        leaf_numbers=numbers,
        titles=None if catalog.titles is None else catalog.titles.take(take),
        item_rules=item_rules,
        matchers=matchers,
    )


def _numbered_by_appearance(
    items: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Renumber items by first appearance: old number of each new one, and each row's new number.

    The second is None when every item appears once.
    """
    old, first, place = np.unique(items, return_index=True, return_inverse=True)
    if len(old) == len(items):
        return items, None
    by_appearance = np.argsort(first, kind="stable")
    new = np.empty(len(old), np.int64)
    new[by_appearance] = np.arange(len(old))
    return old[by_appearance], new[place]


def _forced_layouts(layout: LayoutChoice, length: int) -> list[Layout | None]:
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
