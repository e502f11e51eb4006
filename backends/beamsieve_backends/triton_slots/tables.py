"""An index's step tables on the device, and what the host must know of them to plan a launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.index.build import make_table
from beamsieve.index.leaves import has_no_empty_row
from beamsieve.index.tables import StepTable, layout_bytes

if TYPE_CHECKING:
    from beamsieve.index import Index

LARGEST_WIDTH = 4096
DENSE_UP_TO = 1.5
"""A sparse table goes to the device as a dense one if that takes at most so many times its bytes: a
full projection then finds its valid tokens without a search."""


@dataclass(frozen=True)
class DeviceTable:
    """One step's table. Unsigned arrays are stored as signed ones of the same width and masked.

    Attributes:
        tokens: [entries] of 1, 2 or 4 bytes; sparse tables only.
        bitmap: int64 [rows, words]; dense tables only.
        ranks: int16 or int32 [rows, words]; dense tables only.
        leaf_first: int64 [entries], the first leaf behind each entry; only where semantic IDs are
            of several lengths.
        degree_sums: int64 [n + 1] on the host: the most candidates that n beams on distinct rows
            can have.
        typical_degree: what a row has on average when rows are met as often as they have entries.
    """

    step: int
    vocabulary: int
    rows: int
    entries: int
    widest: int
    row_starts: torch.Tensor
    tokens: torch.Tensor | None
    bitmap: torch.Tensor | None
    ranks: torch.Tensor | None
    leaf_first: torch.Tensor | None
    degree_sums: NDArray[np.int64]
    typical_degree: float

    @property
    def dense(self) -> bool:
        """Whether the valid tokens are a bitmap."""
        return self.bitmap is not None

    @property
    def token_mask(self) -> int:
        """What undoes the sign of a stored token."""
        return -1 if self.tokens is None else _mask(self.tokens)

    @property
    def rank_mask(self) -> int:
        """What undoes the sign of a stored rank."""
        return -1 if self.ranks is None else _mask(self.ranks)

    def most_candidates(self, beams: int, distinct: bool) -> int:
        """The most candidates that so many beams can have; fewer when their rows differ."""
        anyhow = beams * max(1, self.widest)
        if not distinct:
            return anyhow
        known = len(self.degree_sums) - 1
        # A finished beam is one candidate, as is a row of one entry.
        bound = int(self.degree_sums[min(beams, known)]) + max(0, beams - known)
        return min(anyhow, max(bound, beams))


@dataclass(frozen=True)
class DeviceTables:
    """All tables of an index on one device."""

    tables: tuple[DeviceTable, ...]
    ragged: bool

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(
            array.numel() * array.element_size()
            for table in self.tables
            for array in (
                table.row_starts,
                table.tokens,
                table.bitmap,
                table.ranks,
                table.leaf_first,
            )
            if array is not None
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
    if table.bitmap is None:
        size = layout_bytes(table.rows, table.entries, table.vocabulary)
        if size["dense"] <= DENSE_UP_TO * size["sparse"]:
            table = make_table(
                table.step, table.vocabulary, row_starts, table.plain_tokens(), "dense"
            )
    degrees = np.diff(row_starts).astype(np.int64)
    return DeviceTable(
        step=table.step,
        vocabulary=table.vocabulary,
        rows=table.rows,
        entries=table.entries,
        widest=int(degrees.max(initial=0)),
        row_starts=_to_device(row_starts, device),
        tokens=None if table.layout == "dense" else _to_device(table.plain_tokens(), device),
        bitmap=None if table.bitmap is None else _to_device(table.bitmap, device),
        ranks=None if table.layout == "sparse" else _to_device(table.word_ranks(), device),
        leaf_first=None if leaves is None else _to_device(leaves, device),
        degree_sums=_largest_sums(degrees),
        typical_degree=float((degrees**2).sum() / max(1, degrees.sum())),
    )


def _largest_sums(degrees: NDArray[np.int64]) -> NDArray[np.int64]:
    # A row without entries is met as a finished beam, which is one candidate.
    degrees = np.maximum(degrees, 1)
    kept = min(len(degrees), LARGEST_WIDTH)
    largest = np.partition(degrees, len(degrees) - kept)[len(degrees) - kept :]
    return np.concatenate([[0], np.cumsum(np.sort(largest)[::-1])])


def _to_device(array: NDArray[np.generic], device: torch.device) -> torch.Tensor:
    signed = array
    if array.dtype.kind == "u":
        signed = array.view(np.dtype(f"i{array.dtype.itemsize}"))
    # A copy: the host array may be a read-only memory map.
    return torch.from_numpy(np.array(signed, order="C")).to(device)


def _mask(stored: torch.Tensor) -> int:
    return {1: 0xFF, 2: 0xFFFF, 4: -1}[stored.element_size()]
