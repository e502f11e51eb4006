"""Rows on their way into a catalog: batches come in, bad rows are left out, columns come out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import read_ids
from beamsieve.catalog.order import sort_sids
from beamsieve.catalog.validate import Rejects, bad_rows, check_codebooks, why_bad
from beamsieve.errors import CatalogError
from beamsieve.targeting.rules import RuleReader


@dataclass
class Batch:
    """Some rows, as a reader found them.

    Attributes:
        source: the file, or what else they came from.
        sids: integers [n, w], -1 behind the end.
        ids: n item ids, or None where the row numbers are meant.
        titles: n strings or nulls, or None.
        rules: n dicts (or None), or JSON strings; or None.
        unreadable: rows that hold no semantic ID: a short name for the reason, and the clause.
        labels: each row's number or name, or the first row's number.
        unit: what a label counts: "row", "line", "item".
        values: what an unreadable row held, for errors; the tokens when None.
    """

    source: str
    sids: NDArray[np.integer]
    ids: pa.Array | None = None
    titles: pa.Array | None = None
    rules: Sequence[Any] | pa.Array | None = None
    unreadable: dict[int, tuple[str, str]] = field(default_factory=dict)
    labels: int | Sequence[Any] | NDArray[np.int64] = 0
    unit: str = "row"
    values: Sequence[Any] | pa.Array | None = None

    def label(self, row: int) -> Any:
        """The name of a row."""
        return _label(self.labels, row)

    def value(self, row: int) -> Any:
        """What the row held."""
        return _plain((self.sids if self.values is None else self.values)[row])

    def rule(self, row: int) -> Any:
        """The row's rules as they were given."""
        return None if self.rules is None else _plain(self.rules[row])


@dataclass(frozen=True)
class _Kept:
    """What can be used of a batch."""

    origin: Batch
    sids: NDArray[np.integer]
    ids: pa.Array | None
    titles: pa.Array | None
    rule_sets: NDArray[np.int32]
    labels: int | Sequence[Any] | NDArray[np.int64]

    def label(self, row: int) -> Any:
        """The name of a row."""
        return _label(self.labels, row)

    def numbers(self) -> Sequence[Any] | NDArray[np.int64]:
        """The row numbers."""
        if isinstance(self.labels, int):
            return range(self.labels, self.labels + len(self.sids))
        return self.labels

    def take(self, rows: NDArray[np.int64]) -> _Kept:
        """These rows alone."""
        where = pa.array(rows)
        labels: Any = self.labels
        if isinstance(labels, int):
            labels = labels + rows
        elif isinstance(labels, np.ndarray):
            labels = labels[rows]
        else:
            labels = [labels[row] for row in rows.tolist()]
        return _Kept(
            self.origin,
            self.sids[rows],
            None if self.ids is None else self.ids.take(where),
            None if self.titles is None else self.titles.take(where),
            self.rule_sets[rows],
            labels,
        )


@dataclass(frozen=True)
class Columns:
    """All usable rows: ``sids`` int32 [n, L], ``ids`` and ``titles`` Arrow arrays of n, and
    ``rule_sets`` int32 [n, attributes].
    """

    sids: NDArray[np.int32]
    ids: pa.Array
    titles: pa.Array | None
    rule_sets: NDArray[np.int32]
    codebooks: tuple[int, ...]


class Rows:
    """Takes batches, then gives all rows that can be used.

    Args:
        rejects: takes the others.
        codebooks: the size per level, one size for every level, or None.
        end_token: whether a semantic ID may be a proper prefix of another.
        rules: reads the rows' rules.
    """

    def __init__(
        self,
        rejects: Rejects,
        codebooks: int | Iterable[int] | None,
        end_token: bool,
        rules: RuleReader,
    ) -> None:
        self.rejects = rejects
        self.end_token = end_token
        self._one_size = isinstance(codebooks, (int, np.integer))
        self._sizes = check_codebooks(codebooks)
        self.most = None if self._one_size or self._sizes is None else len(self._sizes)
        """L where the codebooks tell it."""
        self.seen = 0
        self.rules = rules
        self._kept: list[_Kept] = []

    def add(self, batch: Batch) -> None:
        """Check a batch and keep what can be used of it."""
        count, width = batch.sids.shape
        self.seen += count
        if self.most is not None and width > self.most:
            raise CatalogError(
                f"{batch.source}: its semantic IDs have {width} levels, but there are "
                f"{self.most} codebook sizes; give one size per level."
            )
        sizes = self._sizes_of(width)
        ids, bad_ids = _read_ids(batch)
        bad = np.zeros(count, np.bool_)
        bad[list(batch.unreadable)] = True
        bad[bad_rows(batch.sids, sizes)] = True
        no_id = np.zeros(count, np.bool_)
        if ids is not None and ids.null_count:
            no_id = np.asarray(ids.is_null())
            bad |= no_id
        rule_sets, bad_rules = self._read_rules(batch)
        bad[list(bad_rules)] = True
        for row in np.flatnonzero(bad).tolist():
            if row in batch.unreadable:
                why = batch.unreadable[row]
            elif row in bad_ids:
                why = bad_ids[row]
            elif no_id[row]:
                why = ("missing item id", "the item id is missing")
            elif row in bad_rules:
                why = bad_rules[row]
            else:
                why = why_bad(batch.sids[row].tolist(), sizes)
            value = batch.rule(row) if why is bad_rules.get(row) else batch.value(row)
            self.rejects.add(batch.source, batch.unit, batch.label(row), why, value)
        kept = _Kept(batch, batch.sids, ids, batch.titles, rule_sets, batch.labels)
        self._kept.append(kept.take(np.flatnonzero(~bad)) if bad.any() else kept)

    def _read_rules(self, batch: Batch) -> tuple[NDArray[np.int32], dict[int, tuple[str, str]]]:
        if batch.rules is not None:
            return self.rules.read(batch.rules)
        return np.zeros((len(batch.sids), len(self.rules.sets)), np.int32), {}

    def _sizes_of(self, width: int) -> tuple[int, ...] | None:
        if self._sizes is None:
            return None
        return self._sizes * width if self._one_size else self._sizes[:width]

    def finish(self) -> Columns:
        """All rows that can be used.

        Raises:
            CatalogError: there are none, or the batches' items differ in kind.
        """
        source = self.rejects.source
        self._refuse_prefixes()
        batches = [batch for batch in self._kept if len(batch.sids)]
        if not batches:
            raise CatalogError(
                f"{source}: {'every row was rejected' if self.seen else 'there are no rows'}; "
                "a catalog needs at least one item."
            )
        widest = max(batch.sids.shape[1] for batch in batches)
        length = widest if self.most is None else self.most
        sids = np.full((sum(len(batch.sids) for batch in batches), length), -1, np.int32)
        start = 0
        for batch in batches:
            sids[start : start + len(batch.sids), : batch.sids.shape[1]] = batch.sids
            start += len(batch.sids)
        sizes = self._sizes_of(length)
        if sizes is None or self._one_size:
            if sids[:, -1].max() < 0:
                raise CatalogError(
                    f"{source}: no semantic ID reaches level {length}; leave the empty levels out, "
                    "or name the size of each level's codebook with codebooks=."
                )
            sizes = sizes or tuple(int(top) + 1 for top in sids.max(axis=0))
        if any(batch.ids is None for batch in batches):
            ids = pa.array(np.concatenate([np.asarray(batch.numbers()) for batch in batches]))
        else:
            ids = _joined([batch.ids for batch in batches], source)
        titles = None
        if any(batch.titles is not None for batch in batches):
            none = pa.nulls
            titles = pa.concat_arrays(
                [
                    none(len(b.sids), pa.large_string()) if b.titles is None else b.titles
                    for b in batches
                ]
            )
        rule_sets = np.concatenate([batch.rule_sets for batch in batches])
        return Columns(sids, ids, titles, rule_sets, sizes)

    def _refuse_prefixes(self) -> None:
        """Refuse each semantic ID that is a proper prefix of another: no step could end on it."""
        if self.end_token or not self._kept:
            return
        widths = {batch.sids.shape[1] for batch in self._kept if len(batch.sids)}
        if len(widths) <= 1 and all(
            batch.sids[:, -1].min(initial=0) >= 0 for batch in self._kept if len(batch.sids)
        ):
            return
        firsts = np.cumsum([0] + [len(batch.sids) for batch in self._kept]).tolist()
        sids = np.full((firsts[-1], max(widths)), -1, np.int32)
        for batch, first in zip(self._kept, firsts, strict=False):
            sids[first : first + len(batch.sids), : batch.sids.shape[1]] = batch.sids
        drop: dict[int, list[int]] = {}
        for place in _proper_prefixes(sids).tolist():
            number = bisect_right(firsts, place) - 1
            batch, row = self._kept[number], place - firsts[number]
            why = (
                "proper prefix of another",
                "the semantic ID is a proper prefix of another one; with end_token=True both "
                "could be found",
            )
            sid = sids[place][sids[place] >= 0]
            self.rejects.add(batch.origin.source, batch.origin.unit, batch.label(row), why, sid)
            drop.setdefault(number, []).append(row)
        for number, gone in drop.items():
            batch = self._kept[number]
            self._kept[number] = batch.take(np.delete(np.arange(len(batch.sids)), gone))


def _proper_prefixes(sids: NDArray[np.int32]) -> NDArray[np.int64]:
    """The rows whose semantic ID is a proper prefix of another row's."""
    order = sort_sids(sids)
    first = np.flatnonzero(order.difference < order.length)
    sizes = (order.sids[first] >= 0).sum(axis=1)
    is_prefix = np.zeros(len(first), np.bool_)
    is_prefix[:-1] = order.difference[first[1:]] == sizes[:-1]
    return np.sort(order.rows[is_prefix[order.leaf_of_row()]])


def _read_ids(batch: Batch) -> tuple[pa.Array | None, dict[int, tuple[str, str]]]:
    if batch.ids is None:
        return None, {}
    try:
        return read_ids(batch.ids)
    except CatalogError as error:
        raise CatalogError(f"{batch.source}: {error}") from error


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _label(labels: Any, row: int) -> Any:
    if isinstance(labels, int):
        return labels + row
    label = labels[row]
    return label.item() if isinstance(label, np.generic) else label


def _joined(columns: list[pa.Array], source: str) -> pa.Array:
    kinds = {str(column.type) for column in columns}
    if len(kinds) > 1:
        raise CatalogError(
            f"{source}: some item ids are integers and some are strings; make them all of one kind."
        )
    return pa.concat_arrays(columns)
