"""The index on the device, and what the host must know of it to plan a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve_backends.bitmaps import with_bitmaps
from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.targeting import (
    DeviceMatchers,
    load_leaves,
    load_matchers,
    whole_words,
)
from beamsieve_backends.largest import sums_of_largest

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.index.starts import RowStarts
    from beamsieve.index.tables import StepTable

MOST_BEAMS = 4096


@dataclass(frozen=True)
class DeviceTable:
    """One step's table on the device, as ``index.tables.StepTable`` stores it; the root as a list,
    others as bitmaps where ``bitmaps.with_bitmaps`` says so.

    Attributes:
        arrays: what is on the device, by name.
        starts: ``Starts`` of ``kernels/table.cuh``, for the table before this one, too.
        listed: whether the valid tokens are a list rather than a bitmap.
        row_can_end: whether some row has no entry, so that a semantic ID ends above this table.
        mean: entries per row.
        widest: the most entries of any row.
        most: most[m], the sum of the m largest rows (at least 1 each): no m different beams have
            more candidates.
        fields: what ``Step`` says of the table, ready to be copied.
    """

    arrays: dict[str, Any]
    starts: Any
    vocabulary: int
    listed: bool
    row_can_end: bool
    mean: float
    widest: int
    most: NDArray[np.int64]
    nbytes: int
    fields: dict[str, Any]

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
            loaded.fields.update(next=following.starts, next_ends=1)
    found = getattr(index, "matchers", None)
    matchers, rows = None, None
    if found is not None:
        matchers, rows = load_matchers(device, found.steps)
    return DeviceTables(device, index, tuple(tables), matchers, rows)


def _load(
    device: Any, table: StepTable, leaves: NDArray[Any] | None, row_can_end: bool
) -> DeviceTable:
    if table.rows == 1:  # the root is always read as a list: it is small, and every request's
        host = {**table.starts.arrays, "tokens": table.plain_tokens()}
    else:
        table = with_bitmaps(table)
        host = dict(table.arrays)
    if leaves is not None:
        host["child_leaf"] = leaves
    arrays = {name: device.upload(whole_words(array)) for name, array in host.items()}

    def address(name: str) -> int:
        return int(device.address(arrays.get(name)))

    def item_bytes(name: str) -> int:
        return int(host[name].dtype.itemsize) if name in host else 0

    starts = _starts(table.starts, address, item_bytes)
    words, groups = (host[name].shape[1] if name in host else 0 for name in ("bitmap", "ranks"))
    fields = {
        "table": arguments.structure(
            arguments.TABLE,
            starts=starts,
            tokens=address("tokens") or address("packed"),
            bitmap=address("bitmap"),
            ranks=address("ranks"),
            token_bits=8 * item_bytes("tokens") or table.token_bits,
            rank_bytes=item_bytes("ranks"),
            words=words,
            groups=groups,
        ),
        "child_leaf": address("child_leaf"),
        "leaf_bytes": item_bytes("child_leaf"),
        "vocabulary": table.vocabulary,
        "single": table.entries if table.rows == 1 else 0,
    }
    degrees = np.diff(table.plain_starts())
    return DeviceTable(
        arrays,
        starts,
        table.vocabulary,
        "bitmap" not in host,
        row_can_end,
        table.entries / max(1, table.rows),
        int(degrees.max(initial=0)),
        _largest_sums(degrees),
        sum(array.nbytes for array in arrays.values()),
        fields,
    )


def _starts(
    starts: RowStarts, address: Callable[[str], int], item_bytes: Callable[[str], int]
) -> Any:
    """``Starts`` of ``kernels/table.cuh``."""
    return arguments.structure(
        arguments.STARTS,
        plain=address("starts"),
        bits=address("start_bits"),
        samples=address("start_samples"),
        exceptions=address("start_exceptions"),
        bytes=item_bytes("starts") or item_bytes("start_samples"),
        block_bits=max(0, starts.block.bit_length() - 1),
        gap=starts.gap,
    )


def _largest_sums(degrees: NDArray[np.integer]) -> NDArray[np.int64]:
    """int64 [MOST_BEAMS + 1]: place m holds the sum of the m largest degrees, at least 1 each."""
    held = sums_of_largest(degrees, MOST_BEAMS, least=1)
    further = held[-1] + np.arange(1, MOST_BEAMS + 2 - len(held))
    return np.concatenate([held, further])


def _row_can_end(table: StepTable) -> bool:
    return table.starts.has_empty_row


def _smallest(starts: NDArray[np.int64]) -> NDArray[Any]:
    return starts.astype(np.uint32) if starts[-1] < 1 << 32 else starts
