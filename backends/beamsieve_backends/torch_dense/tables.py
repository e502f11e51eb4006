"""The index on the device.

Both layouts of a step table become one list of tokens: row r owns those from ``start(r)`` up to
``start(r + 1)``, and the position of an entry is its child's row. A dense table is unpacked once,
here; in exchange no step has to, and every operation works on tokens that lie side by side. Row
starts, and the tokens of tables with short rows, stay as the index holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from beamsieve.index import Index
from beamsieve_backends.torch_dense.entry_tokens import DeviceTokens, load_tokens
from beamsieve_backends.torch_dense.matchers import DeviceTargeting
from beamsieve_backends.torch_dense.row_starts import DeviceStarts, load_starts
from beamsieve_backends.upload import to_device

LARGEST_TILE = 64
SHORT_ROW = 4


@dataclass(frozen=True)
class DeviceTable:
    """One step's table.

    Attributes:
        vocabulary: V, the level's codebook.
        widest: the most entries of any row.
        starts: where each row's entries begin.
        tokens: of the entries, in windows of ``tile``.
        tile: how many slots a tile has, a power of two that suits this table's rows.
        mask: float32 [tile + 1, tile]; ``mask[n]`` is 0 in the first n slots and -inf behind.
        share: the share of the codebook that may follow an average entry's row.
        may_have_finished: whether a semantic ID can end above this table.
        ended_leaf: int64 [entries + 1]; the leaf of each entry that completes a semantic ID. None
            where no entry does, or where every entry does and its leaf is its own position.
        all_end: whether every entry completes a semantic ID (the last table).
        child_starts: the next table's ``starts``; None in the last table.
    """

    vocabulary: int
    widest: int
    starts: DeviceStarts
    tokens: DeviceTokens
    tile: int
    mask: Tensor
    share: float
    may_have_finished: bool
    ended_leaf: Tensor | None
    all_end: bool
    child_starts: DeviceStarts | None

    @property
    def tile_bits(self) -> int:
        """The binary logarithm of ``tile``."""
        return self.tile.bit_length() - 1

    @property
    def nbytes(self) -> int:
        """Bytes on the device, the next table's share not counted twice."""
        ended = 0 if self.ended_leaf is None else self.ended_leaf.untyped_storage().nbytes()
        return self.starts.nbytes + self.tokens.nbytes + ended


@dataclass(frozen=True)
class DeviceIndex:
    """An index on the device.

    Attributes:
        tables: the step tables.
        targeting: what the tests of targeting need.
    """

    tables: tuple[DeviceTable, ...]
    targeting: DeviceTargeting

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(table.nbytes for table in self.tables) + self.targeting.nbytes


def load_index(
    index: Index, device: torch.device, tile: int | None = None, plain: bool = False
) -> DeviceIndex:
    """Copy an index to the device.

    Args:
        index: what to copy.
        device: where to.
        tile: overrides the choice that each table makes.
        plain: whether row starts and tokens are unpacked here, so that no step has to.
    """
    return DeviceIndex(_load_tables(index, device, tile, plain), DeviceTargeting(index, device))


def _load_tables(
    index: Index, device: torch.device, tile: int | None, plain: bool
) -> tuple[DeviceTable, ...]:
    starts = [load_starts(table.starts, device, plain=plain) for table in index.tables]
    ended_above = False
    tables = []
    for step, table in enumerate(index.tables, 1):
        last = step == index.length
        counts = np.diff(table.plain_starts()).astype(np.float64)
        # Beams gather in wide rows, so rows count by how many entries they have.
        followed = float((counts**2).sum() / max(1.0, counts.sum()))
        slots = tile or _tile_for(followed)
        tables.append(
            DeviceTable(
                vocabulary=table.vocabulary,
                widest=table.widest,
                starts=starts[step - 1],
                tokens=load_tokens(table, slots, device, plain=plain),
                tile=slots,
                mask=_mask(slots, device),
                share=followed / table.vocabulary,
                may_have_finished=ended_above,
                ended_leaf=_ended_leaves(index, step, device),
                all_end=last,
                child_starts=None if last else starts[step],
            )
        )
        if not last:
            ended_above = ended_above or index.tables[step].starts.has_empty_row
    return tuple(tables)


def _tile_for(followed: float) -> int:
    """A power of two near the mean row; short rows are quicker one by one than padded."""
    return 1 if followed < SHORT_ROW else min(LARGEST_TILE, 1 << round(np.log2(followed)))


def _mask(tile: int, device: torch.device) -> Tensor:
    slots = torch.arange(tile)
    mask = torch.zeros(tile + 1, tile, dtype=torch.float32)
    mask[slots >= torch.arange(tile + 1)[:, None]] = -torch.inf
    return mask.to(device)


def _ended_leaves(index: Index, step: int, device: torch.device) -> Tensor | None:
    if step == index.length:
        if index.leaf_count == index.tables[-1].entries:
            return None
    elif not index.tables[step].starts.has_empty_row:
        return None
    return to_device(index.leaf_starts(step), device)
