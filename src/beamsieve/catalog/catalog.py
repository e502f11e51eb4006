"""A catalog: validated (item, semantic ID) rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from beamsieve import parallel
from beamsieve.catalog.batch import Batch, Columns
from beamsieve.catalog.given import ids_of_rows
from beamsieve.catalog.items import ItemIds, as_titles, distinct
from beamsieve.catalog.matrix import read_rows
from beamsieve.catalog.of_items import (
    each_pair_once,
    row_numbers,
    sets_of_items,
    warn_of_unreachable,
)
from beamsieve.catalog.readers import Format, open_source
from beamsieve.catalog.report import CatalogReport, report_on
from beamsieve.catalog.rows import Rows
from beamsieve.catalog.sorting import sort_sids
from beamsieve.catalog.validate import OnError, Progress, Rejects
from beamsieve.errors import CatalogError
from beamsieve.targeting.attributes import Attribute, lay_out
from beamsieve.targeting.rules import CatalogRules, RuleReader


class Catalog:
    """(item, semantic ID) pairs, every one usable. Make one with ``read`` or ``from_arrays``.

    Attributes:
        sids: int32 [rows, L]; tokens as the user gave them, -1 behind the end of a shorter one.
        row_items: int64 [rows], each row's place in ``items``; None where that is the row number.
        item_ids: the distinct items, in order of first appearance; None where they are the row
            numbers.
        codebooks: V_1 … V_L, without end tokens.
        end_token: whether the index appends an end token to every semantic ID.
        titles: Arrow large_string [items] with a title (or null) per item, or None.
        source: the file, or what else the rows came from.
        rejected: how many rows were left out, by reason.
        order: the rows in lexicographic order (end tokens included), each pair once.
        duplicates: how many rows repeated an (item, semantic ID) pair.
        rules: the items' targeting rules, or None where no attributes are declared.
    """

    def __init__(
        self,
        columns: Columns,
        items: ItemIds | None,
        row_items: NDArray[np.int64] | None,
        end_token: bool,
        titles: pa.Array | None,
        rules: CatalogRules | None,
        rejects: Rejects,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.sids = columns.sids
        self.item_ids = items
        self.row_items = row_items
        self.codebooks = columns.codebooks
        self.end_token = end_token
        self.titles = titles
        self.rules = rules
        self.source = rejects.source
        report = progress or (lambda what, done, total: None)
        order = sort_sids(
            self._with_end_tokens(),
            None if end_token else columns.ranges,
            threads,
            lambda done, total: report("sorting", done, total),
        )
        self.order, self.duplicates = each_pair_once(order, row_items)
        self.rejected = dict(rejects.reasons)

    @classmethod
    def from_arrays(
        cls,
        sids: ArrayLike,
        items: Any = None,
        codebooks: int | Iterable[int] | None = None,
        *,
        end_token: bool = False,
        on_error: OnError = "raise",
        rejects: str | Path | None = None,
        titles: Any = None,
        attributes: Sequence[Attribute] = (),
        rules: Sequence[Any] | None = None,
        source: str = "sids",
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Catalog:
        """A catalog from arrays.

        Args:
            sids: integers [N, L], one row per (item, semantic ID) pair; -1 pads the end of a
                shorter one. A list of lists of unequal lengths will do. An int32 array is kept, not
                copied: leave it as it is while the catalog is in use.
            items: N integers or strings; the row numbers when None. An item may have several rows.
            codebooks: the size of each level's codebook, or one size for all; when None, one more
                than the largest token of the level.
            end_token: append an end token to every semantic ID, so that one may be a proper prefix
                of another.
            on_error: "raise" at the first bad row, or "skip" and count them.
            rejects: where to write skipped rows, as JSON lines.
            titles: N strings (or None) to show for the items.
            attributes: what rules and requests may name.
            rules: N dicts (or None), see :mod:`beamsieve.targeting.rules`; all rows of one item
                must have the same.
            source: what errors call these rows.
            threads: how many threads check and sort; as many as there are processors when None.
            progress: as in :meth:`read`.

        Raises:
            CatalogError: naming the row and the value; or there is no usable row at all.
        """
        read = read_rows(sids, source)
        matrix = read.tokens
        ids, unreadable = (None, {}) if items is None else ids_of_rows(items)
        batch = Batch(
            source,
            matrix,
            ids,
            None if titles is None else as_titles(titles, f"{source}: titles"),
            rules,
            unreadable={**unreadable, **read.unreadable},
            values=read.values,
        )
        if rules is not None and (
            isinstance(rules, (str, Mapping)) or not hasattr(rules, "__len__")
        ):
            raise CatalogError(f"{source}: rules is {rules!r}; give a list with a dict per row.")
        for name, column in (("items", ids), ("titles", batch.titles), ("rules", rules)):
            if column is not None and len(column) != len(matrix):
                raise CatalogError(
                    f"{source}: {len(column)} {name} for {len(matrix)} semantic IDs; "
                    "give one per row."
                )
        with Rejects(source, on_error, rejects) as log, parallel.team(threads):
            reader = RuleReader(lay_out(attributes))
            rows = Rows(log, codebooks, end_token, reader, threads)
            rows.add(batch)
            return cls._of(rows.finish(), end_token, log, reader, threads, progress)

    @classmethod
    def read(
        cls,
        source: Any,
        format: Format | None = None,
        codebooks: int | Iterable[int] | None = None,
        *,
        end_token: bool = False,
        on_error: OnError = "raise",
        rejects: str | Path | None = None,
        columns: Mapping[str, str | Sequence[str] | None] | None = None,
        attributes: Sequence[Attribute] = (),
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Catalog:
        """Read a catalog from a file, or from an Arrow or pandas table.

        Args:
            source: a path, a ``pyarrow.Table`` (or anything with ``__arrow_c_stream__``), or a
                pandas DataFrame. See :mod:`beamsieve.catalog.readers` for the columns.
            format: "parquet", "csv", "jsonl", "npy", "npz", "index.json" or "info"; told from the
                file's name when None.
            codebooks: as in :meth:`from_arrays`.
            end_token: as in :meth:`from_arrays`.
            on_error: as in :meth:`from_arrays`; rows that cannot be read count as bad rows too.
            rejects: as in :meth:`from_arrays`.
            columns: other names for the columns: ``{"item": "asin", "sid": "code"}``; "sid" may
                name a list of columns, one per level; None leaves "title" or "rules" unread.
            attributes: what the rules in column "rules", and requests, may name.
            progress: called with what is being done, the rows read, and how many there are (0 while
                that is unknown).

        Raises:
            CatalogError: naming the file, the row and the value.
        """
        name, batches = open_source(source, format, columns)
        with Rejects(name, on_error, rejects) as log, parallel.team(threads):
            reader = RuleReader(lay_out(attributes))
            rows = Rows(log, codebooks, end_token, reader, threads)
            for batch, total in batches(rows.most):
                rows.add(batch, total)
                if progress is not None:
                    progress("reading", rows.seen, total)
            return cls._of(rows.finish(), end_token, log, reader, threads, progress)

    @classmethod
    def _of(
        cls,
        columns: Columns,
        end_token: bool,
        rejects: Rejects,
        reader: RuleReader,
        threads: int | None,
        progress: Progress | None,
    ) -> Catalog:
        """Number the items of checked rows."""
        items, row_items = None, None
        if columns.ids is not None:
            values, row_items = distinct(columns.ids)
            items = ItemIds(values)
        titles = columns.titles
        if titles is not None and row_items is not None:
            titles = titles.take(pa.array(np.unique(row_items, return_index=True)[1]))
        rules = None
        if reader.layout.attributes:
            items = items or row_numbers(len(columns.sids))
            sets = sets_of_items(columns.rule_sets, row_items, items.values, rejects.source)
            rules = CatalogRules(reader.layout, sets, tuple(one.sets for one in reader.sets))
            warn_of_unreachable(rules, items.values, rejects.source)
        return cls(columns, items, row_items, end_token, titles, rules, rejects, threads, progress)

    def __len__(self) -> int:
        return len(self.sids)

    def __repr__(self) -> str:
        return (
            f"Catalog({self.source}: {len(self)} rows, {self.item_count} items, "
            f"codebooks {'×'.join(map(str, self.codebooks))})"
        )

    @cached_property
    def items(self) -> ItemIds:
        """The distinct items, in order of first appearance."""
        return row_numbers(len(self)) if self.item_ids is None else self.item_ids

    @property
    def item_count(self) -> int:
        """The number of distinct items."""
        return len(self) if self.item_ids is None else len(self.item_ids)

    @property
    def length(self) -> int:
        """L, the number of levels, without the end token's."""
        return len(self.codebooks)

    @property
    def coded_codebooks(self) -> tuple[int, ...]:
        """The codebook sizes that tables and heads use: end tokens included."""
        if not self.end_token:
            return self.codebooks
        return (*(size + 1 for size in self.codebooks), 1)

    @cached_property
    def sid_count(self) -> int:
        """The number of distinct semantic IDs."""
        return int(np.count_nonzero(self.order.difference < self.order.length))

    @cached_property
    def report(self) -> CatalogReport:
        """Counts, collisions, depths, branching, and the index's size in each layout."""
        return report_on(self)

    def _with_end_tokens(self) -> NDArray[np.int32]:
        if not self.end_token:
            return self.sids
        coded = np.full((len(self), self.length + 1), -1, np.int32)
        coded[:, :-1] = self.sids
        ends = np.asarray([*self.codebooks, 0], np.int32)
        lengths = (self.sids >= 0).sum(axis=1)
        coded[np.arange(len(self)), lengths] = ends[lengths]
        return coded
