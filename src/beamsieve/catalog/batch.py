"""Some rows of a catalog: as a reader found them, and what can be used of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.keys import TokenRanges


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
        unit: what a label counts: "row" (from 0), "data row", "line" (from 1), "item".
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
class Kept:
    """What can be used of a batch."""

    source: str
    unit: str
    sids: NDArray[np.integer]
    ranges: TokenRanges | None
    ids: pa.Array | None
    titles: pa.Array | None
    rule_sets: NDArray[np.int32]
    labels: int | Sequence[Any] | NDArray[np.int64]
    id_run: NDArray[np.int64] | None = None
    """The ids, where they lie in a room."""

    def label(self, row: int) -> Any:
        """The name of a row."""
        return _label(self.labels, row)

    def numbers(self) -> Sequence[Any] | NDArray[np.int64]:
        """The row numbers."""
        if isinstance(self.labels, int):
            return range(self.labels, self.labels + len(self.sids))
        return self.labels

    def take(self, rows: NDArray[np.int64]) -> Kept:
        """These rows alone."""
        where = pa.array(rows)
        labels: Any = self.labels
        if isinstance(labels, int):
            labels = labels + rows
        elif isinstance(labels, np.ndarray):
            labels = labels[rows]
        else:
            labels = [labels[row] for row in rows.tolist()]
        sids = self.sids[rows]
        return Kept(
            self.source,
            self.unit,
            sids,
            TokenRanges.of(sids, 1) if sids.size else None,
            None if self.ids is None else self.ids.take(where),
            None if self.titles is None else self.titles.take(where),
            self.rule_sets[rows],
            labels,
        )


@dataclass(frozen=True)
class Columns:
    """All usable rows: ``sids`` int32 [n, L] and their ``ranges``, ``ids`` and ``titles`` Arrow
    arrays of n (or None: ids 0 … n-1, no titles), and ``rule_sets`` int32 [n, attributes].
    """

    sids: NDArray[np.int32]
    ranges: TokenRanges
    ids: pa.Array | None
    titles: pa.Array | None
    rule_sets: NDArray[np.int32]
    codebooks: tuple[int, ...]


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _label(labels: Any, row: int) -> Any:
    if isinstance(labels, int):
        return labels + row
    label = labels[row]
    return label.item() if isinstance(label, np.generic) else label
