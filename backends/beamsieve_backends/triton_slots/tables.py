"""An index's step tables on the device, and what the host must know of them to plan a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.index.leaves import has_no_empty_row
from beamsieve.index.starts import RowStarts
from beamsieve.index.tables import StepTable
from beamsieve_backends.bitmaps import with_bitmaps
from beamsieve_backends.largest import sums_of_largest
from beamsieve_backends.triton_slots.tuning import FURTHER, PLAIN_ROWS, WIDE_ROW
from beamsieve_backends.upload import to_device

if TYPE_CHECKING:
    from beamsieve.index import Index

LARGEST_WIDTH = 4096
_KINDS = {"plain": 0, "identity": 1, "sampled": 2}


@dataclass(frozen=True)
class DeviceTable:
    """One step's table, in the index's own forms (``beamsieve.index.starts``, ``tokens``,
    ``tables``). Unsigned arrays are stored as signed ones of the same width; an array that the
    table does not have is one element.

    Attributes:
        start_array: int32 or int64; all row starts, or the samples; start_bits, start_exceptions
            as the index has them; start_kind, start_shift, start_gap: see ``lookup.row_start``.
        tokens: int32 words of ``token_bits`` bits per entry; sparse tables only.
        bitmap: int64 [rows, words], ranks: int16 or int32 [rows, rank_words]; dense tables only.
        leaf_first: int64 [entries], the first leaf behind each entry; only where semantic IDs are
            of several lengths.
        slots: the slots of each beam's own unit; what its row has beyond them has further units.
        unit_sums: int64 [n + 1] on the host: the most further units that n beams on distinct rows
            can have.
        typical_degree: what a row has on average when rows are met as often as they have entries.
        typical_units: the mean of all rows' further units.
    """

    step: int
    vocabulary: int
    rows: int
    entries: int
    widest: int
    start_array: torch.Tensor
    start_bits: torch.Tensor
    start_exceptions: torch.Tensor
    start_kind: int
    start_shift: int
    start_gap: int
    tokens: torch.Tensor
    token_bits: int
    bitmap: torch.Tensor
    ranks: torch.Tensor
    rank_mask: int
    words: int
    rank_words: int
    dense: bool
    leaf_first: torch.Tensor | None
    slots: int
    unit_sums: NDArray[np.int64]
    typical_degree: float
    typical_units: float

    @property
    def starts(self) -> tuple[Any, ...]:
        """The arguments of ``lookup.row_start``."""
        return (
            self.start_array,
            self.start_bits,
            self.start_exceptions,
            self.start_kind,
            self.start_shift,
            self.start_gap,
        )

    @property
    def arrays(self) -> tuple[torch.Tensor, ...]:
        """All that is on the device."""
        held = (
            self.start_array,
            self.start_bits,
            self.start_exceptions,
            self.tokens,
            self.bitmap,
            self.ranks,
        )
        return held if self.leaf_first is None else (*held, self.leaf_first)

    def degree_of(self, beams: int, distinct: bool) -> float:
        """About how many tokens each of so many beams has, on average. Beams on distinct rows meet
        a hub row once, however often a random walk would."""
        most = self.slots + self.most_units(beams, distinct) * FURTHER / max(1, beams)
        return min(self.typical_degree, most)

    def most_units(self, beams: int, distinct: bool) -> int:
        """The most further units that so many beams can have; fewer when their rows differ."""
        known = len(self.unit_sums) - 1
        if not distinct:
            return beams * int(self.unit_sums[min(1, known)])
        return int(self.unit_sums[min(beams, known)])


@dataclass(frozen=True)
class DeviceTables:
    """All tables of an index on one device."""

    tables: tuple[DeviceTable, ...]
    ragged: bool

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(
            array.numel() * array.element_size() for table in self.tables for array in table.arrays
        )


def load_tables(index: Index, device: torch.device) -> DeviceTables:
    """Copy an index's tables to ``device``."""
    ragged = not all(has_no_empty_row(table) for table in index.tables)
    loaded = []
    for table in index.tables:
        leaves = None
        if ragged:
            leaves = index.leaf_starts(table.step)[: table.entries]
        loaded.append(load_table(table, leaves, device))
    return DeviceTables(tuple(loaded), ragged)


def load_table(
    table: StepTable, leaves: NDArray[np.int64] | None, device: torch.device
) -> DeviceTable:
    """Copy one table to ``device``; ``leaves`` as :class:`DeviceTable` has them."""
    row_starts = table.plain_starts()
    table = with_bitmaps(table)
    degrees = np.diff(row_starts).astype(np.int64)
    slots = _slots(degrees)
    units = -(-np.maximum(degrees - slots, 0) // FURTHER)
    widest = int(degrees.max(initial=0))
    starts = table.starts
    if starts.kind == "sampled" and widest >= WIDE_ROW and table.rows <= PLAIN_ROWS:
        starts = RowStarts(rows=table.rows, entries=table.entries, plain=row_starts)
    dense = table.bitmap is not None
    first = starts.plain if starts.plain is not None else starts.samples
    nothing = np.zeros(1, np.int64)
    kind = np.zeros(1, np.int32) if first is None else first
    ranks = np.zeros(1, np.uint16) if table.ranks is None else table.ranks
    held = table.tokens if table.packed is None else table.packed
    return DeviceTable(
        step=table.step,
        vocabulary=table.vocabulary,
        rows=table.rows,
        entries=table.entries,
        widest=widest,
        start_array=_to_device(kind, device),
        start_bits=_to_device(nothing if starts.bits is None else starts.bits, device),
        start_exceptions=_to_device(
            kind[:1] if starts.exceptions is None else starts.exceptions, device
        ),
        start_kind=_KINDS[starts.kind],
        start_shift=max(0, starts.block.bit_length() - 1),
        start_gap=starts.gap,
        tokens=_to_device(np.zeros(1, np.int32) if held is None else _as_words(held), device),
        token_bits=8 if held is None else _bits_of(table),
        bitmap=_to_device(nothing if table.bitmap is None else table.bitmap, device),
        ranks=_to_device(ranks, device),
        rank_mask=0xFFFF if ranks.dtype == np.uint16 else -1,
        words=0 if table.bitmap is None else table.bitmap.shape[1],
        rank_words=0 if table.ranks is None else table.ranks.shape[1],
        dense=dense,
        leaf_first=None if leaves is None else _to_device(leaves, device),
        slots=slots,
        unit_sums=sums_of_largest(units, LARGEST_WIDTH),
        typical_degree=float((degrees**2).sum() / max(1, degrees.sum())),
        typical_units=float(units.mean()) if len(units) else 0.0,
    )


def _slots(degrees: NDArray[np.int64]) -> int:
    """Slots of a beam's own unit: few, but enough for most rows."""
    mean = degrees.mean() if len(degrees) else 0.0
    if len(degrees) >= 1 << 14 and mean <= 1.3:
        return 2
    return 4 if mean <= 8 else 16


def _bits_of(table: StepTable) -> int:
    if table.packed is not None:
        return table.token_bits
    assert table.tokens is not None
    return 8 * table.tokens.dtype.itemsize


def _as_words(tokens: NDArray[np.generic]) -> NDArray[np.int32]:
    """The same bytes as whole words, of which there is at least one."""
    size = tokens.nbytes
    words = np.zeros(max(1, -(-size // 4)), np.int32)
    words.view(np.uint8)[:size] = np.ascontiguousarray(tokens).view(np.uint8)
    return words


def _to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    signed = array if array.size else np.zeros(1, array.dtype)
    if array.dtype.kind == "u":
        signed = signed.view(np.dtype(f"i{array.dtype.itemsize}"))
    return to_device(signed, device)
