"""The index on the device, and what the host must know of it to plan a step."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.index.leaves import tokens_of_entries
from beamsieve_backends.cupy_raw.targeting import DeviceMatchers, load_leaves, load_matchers

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.index.tables import StepTable

MOST_BEAMS = 4096


@dataclass(frozen=True)
class DeviceTable:
    """One step's table on the device; the arrays are those of ``index.tables.StepTable``.

    Attributes:
        child_leaf: [entries + 1], the first leaf below each entry; None where it is the entry.
        row_can_end: whether some row has no entry, so that a semantic ID ends above this table.
        mean: entries per row.
        widest: the most entries of any row.
        most: most[m], the sum of the m largest rows (at least 1 each): no m different beams have
            more candidates.
        fields: what ``Step`` says of the table, ready to be copied.
    """

    row_starts: Any
    tokens: Any
    bitmap: Any
    ranks: Any
    child_leaf: Any
    vocabulary: int
    row_can_end: bool
    mean: float
    widest: int
    most: NDArray[np.int64]
    nbytes: int
    fields: dict[str, int]

    @property
    def listed(self) -> bool:
        """Whether the valid tokens are a list rather than a bitmap."""
        return self.bitmap is None

    @property
    def positions(self) -> int:
        """The most positions that a beam can have in this table."""
        return self.widest if self.listed else self.vocabulary


class DeviceTables:
    """All tables of one index, and its matchers where it has attributes."""

    def __init__(
        self,
        device: Any,
        index: Index,
        tables: tuple[DeviceTable, ...],
        matchers: tuple[DeviceMatchers, ...] | None,
        matcher_rows: Any = None,
    ) -> None:
        self.tables = tables
        self.matchers = matchers
        self._matcher_rows = matcher_rows
        self._device = device
        self._index = index
        self._leaves: dict[int, tuple[Any, Any] | None] = {}
        self._lock = threading.Lock()

    def leaves(self, step: int) -> tuple[Any, Any] | None:
        """The leaf intervals of a table's entries, copied when a request first needs them."""
        with self._lock:
            if step not in self._leaves:
                self._leaves[step] = load_leaves(self._device, self._index, step)
            return self._leaves[step]

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        leaves = sum(array.nbytes for pair in self._leaves.values() for array in pair or ())
        total: int = sum(table.nbytes for table in self.tables) + self.matcher_bytes + leaves
        return total

    @property
    def matcher_bytes(self) -> int:
        """Bytes of the matchers on the device."""
        rows: int = 0 if self._matcher_rows is None else self._matcher_rows.nbytes
        return rows + sum(part.nbytes for part in self.matchers or ())


def load_tables(device: Any, index: Index) -> DeviceTables:
    """Copy an index to the device."""
    ends = [_row_can_end(table) for table in index.tables]
    several_lengths = any(ends)
    tables = []
    for number, table in enumerate(index.tables):
        last = number + 1 == len(index.tables)
        leaves = None
        if several_lengths and (last or any(ends[number + 1 :])):
            leaves = _smallest(index.leaf_starts(number + 1))
        tables.append(_load(device, table, leaves, ends[number]))
    tables[-1].fields["last_level"] = 1
    for loaded, following in pairwise(tables):
        if following.row_can_end:
            loaded.fields["next_starts"] = device.address(following.row_starts)
            loaded.fields["next_bytes"] = following.row_starts.dtype.itemsize
    found = getattr(index, "matchers", None)
    matchers, rows = None, None
    if found is not None:
        matchers, rows = load_matchers(device, found.steps)
    return DeviceTables(device, index, tuple(tables), matchers, rows)


def _load(
    device: Any, table: StepTable, leaves: NDArray[Any] | None, row_can_end: bool
) -> DeviceTable:
    def put(array: NDArray[Any] | None) -> Any:
        return None if array is None else device.upload(array)

    row_starts, child_leaf = put(table.plain_starts()), put(leaves)
    if table.rows == 1:  # the root is always read as a list: it is small, and every request's
        tokens, bitmap, ranks = put(tokens_of_entries(table)), None, None
    else:
        dense = table.layout == "dense"
        tokens = None if dense else put(table.plain_tokens())
        bitmap, ranks = put(table.bitmap), put(table.word_ranks()) if dense else None
    arrays = (row_starts, tokens, bitmap, ranks, child_leaf)
    degrees = np.diff(table.plain_starts())
    largest = degrees
    if len(degrees) > MOST_BEAMS:
        largest = np.partition(degrees, len(degrees) - MOST_BEAMS)[-MOST_BEAMS:]
    most = np.zeros(MOST_BEAMS + 1, np.int64)
    sizes = np.ones(MOST_BEAMS, np.int64)
    sizes[: len(largest)] = np.maximum(np.sort(largest)[::-1], 1)
    np.cumsum(sizes, out=most[1:])
    return DeviceTable(
        row_starts,
        tokens,
        bitmap,
        ranks,
        child_leaf,
        table.vocabulary,
        row_can_end,
        table.entries / max(1, table.rows),
        int(degrees.max(initial=0)),
        most,
        sum(array.nbytes for array in arrays if array is not None),
        {
            "row_starts": device.address(row_starts),
            "tokens": device.address(tokens),
            "bitmap": device.address(bitmap),
            "ranks": device.address(ranks),
            "child_leaf": device.address(child_leaf),
            "start_bytes": row_starts.dtype.itemsize,
            "token_bytes": 0 if tokens is None else tokens.dtype.itemsize,
            "rank_bytes": 0 if ranks is None else ranks.dtype.itemsize,
            "leaf_bytes": 0 if child_leaf is None else child_leaf.dtype.itemsize,
            "vocabulary": table.vocabulary,
            "words": 0 if bitmap is None else int(bitmap.shape[1]),
        },
    )


def _row_can_end(table: StepTable) -> bool:
    return table.starts.has_empty_row


def _smallest(starts: NDArray[np.int64]) -> NDArray[Any]:
    return starts.astype(np.uint32) if starts[-1] < 1 << 32 else starts
