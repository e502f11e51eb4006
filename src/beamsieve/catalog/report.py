"""What a catalog is like: counts, collisions, depths, branching, and the index's size to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from beamsieve.index.encode import start_candidates
from beamsieve.index.levels import make_levels
from beamsieve.index.tables import Layout, best_layout, layout_bytes

if TYPE_CHECKING:
    from beamsieve.catalog.catalog import Catalog


@dataclass(frozen=True)
class Collisions:
    """Semantic IDs that several items share."""

    groups: int
    """Semantic IDs with more than one item."""
    items: int
    """(item, semantic ID) pairs in these groups."""
    largest: int
    """The most items on one semantic ID; 1 where none collide."""


@dataclass(frozen=True)
class LevelReport:
    """One level of the trie, and the step table that it becomes.

    Attributes:
        level: from 1; an end token has a level's codebook grow by one, and adds one level.
        codebook: the codebook's size as the table uses it.
        tokens_used: how many tokens of the codebook occur.
        rows: prefixes above this level.
        entries: prefixes that end on it.
        mean_children, median_children, p99_children, max_children: over the prefixes above this
            level that go on.
        bytes: what the table takes in each layout.
        layout: the smaller one.
    """

    level: int
    codebook: int
    tokens_used: int
    rows: int
    entries: int
    mean_children: float
    median_children: float
    p99_children: float
    max_children: int
    bytes: Mapping[Layout, int]
    layout: Layout


@dataclass(frozen=True)
class CatalogReport:
    """A catalog in numbers.

    Attributes:
        source: where the rows came from.
        rows: usable rows, repeated pairs included.
        rejected: rows left out, by reason.
        items: distinct items.
        sids: distinct semantic IDs.
        duplicates: rows that repeat an (item, semantic ID) pair.
        collisions: semantic IDs shared by items.
        multi_path_items: items with several semantic IDs.
        unreachable_items: items with a targeting rule that accepts nothing.
        depths: how many distinct semantic IDs have each number of tokens, without end tokens.
        end_token: whether end tokens are appended.
        levels: per level; end tokens included.
        index_bytes: bytes of all tables, when dense, when sparse, and with each table's smaller
            layout ("best").
    """

    source: str
    rows: int
    rejected: Mapping[str, int]
    items: int
    sids: int
    duplicates: int
    collisions: Collisions
    multi_path_items: int
    unreachable_items: int
    depths: Mapping[int, int]
    end_token: bool
    levels: tuple[LevelReport, ...]
    index_bytes: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """The report as plain dicts, lists and numbers."""
        return asdict(self)


def report_on(catalog: Catalog) -> CatalogReport:
    """Count everything a report names."""
    order = catalog.order
    first = np.flatnonzero(order.difference < order.length)
    group_sizes = np.diff(np.append(first, len(order)))
    shared = group_sizes[group_sizes > 1]
    multi_path = 0
    if catalog.row_items is not None:
        paths = np.bincount(catalog.row_items[order.rows], minlength=catalog.item_count)
        multi_path = int(np.count_nonzero(paths > 1))
    depths = (order.sids[first] >= 0).sum(axis=1) - int(catalog.end_token)
    levels = _levels(catalog)
    return CatalogReport(
        source=catalog.source,
        rows=len(catalog),
        rejected=catalog.rejected,
        items=catalog.item_count,
        sids=len(first),
        duplicates=catalog.duplicates,
        collisions=Collisions(len(shared), int(shared.sum()), int(group_sizes.max())),
        multi_path_items=multi_path,
        unreachable_items=0 if catalog.rules is None else len(catalog.rules.unreachable()),
        depths={
            int(d): int(n) for d, n in zip(*np.unique(depths, return_counts=True), strict=True)
        },
        end_token=catalog.end_token,
        levels=levels,
        index_bytes={
            "dense": sum(level.bytes["dense"] for level in levels),
            "sparse": sum(level.bytes["sparse"] for level in levels),
            "best": sum(level.bytes[level.layout] for level in levels),
        },
    )


def _levels(catalog: Catalog) -> tuple[LevelReport, ...]:
    reports = []
    tables = make_levels(catalog.order, catalog.coded_codebooks).tables
    for level, table in enumerate(tables, 1):
        row_starts, codebook = table.row_starts, table.vocabulary
        children = np.diff(row_starts)
        children = children[children > 0]
        has_any = len(children) > 0
        median, p99 = np.percentile(children, [50, 99]) if has_any else (0.0, 0.0)
        rows, entries = len(row_starts) - 1, table.entries
        reports.append(
            LevelReport(
                level=level,
                codebook=codebook,
                tokens_used=len(np.unique(table.tokens)),
                rows=rows,
                entries=entries,
                mean_children=float(children.mean()) if has_any else 0.0,
                median_children=float(median),
                p99_children=float(p99),
                max_children=int(children.max(initial=0)),
                bytes=layout_bytes(
                    rows, entries, codebook, min(start_candidates(row_starts).values())
                ),
                layout=best_layout(rows, entries, codebook),
            )
        )
    return tuple(reports)
