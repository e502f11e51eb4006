"""The full projection: logits of all tokens by one matrix product, and what float32 takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.selection import WARPS
from beamsieve_backends.cupy_raw.session import Workspace

ROWS_AT_ONCE = 128


@dataclass(frozen=True)
class HeadHalves:
    """A float32 head in float16 parts, as split_halves leaves it.

    Attributes:
        parts: uint16 [V, 3, d], the bits of float16 numbers.
        units: float32 [V], and more behind them up to whole pairs of tiles, which multiply_tiles
            reads, to no effect.
    """

    parts: Any
    units: Any


def head_halves(device: Any, head: Any) -> HeadHalves | None:
    """What steps with this head [V, d] share, on the current stream; None if it is not float32."""
    if head.dtype != np.float32:
        return None
    vocabulary, size = (int(n) for n in head.shape)
    parts = device.empty((vocabulary * 3 * size,), np.uint16)
    units = device.full((_whole_pairs(vocabulary),), 0, np.float32)
    head = device.contiguous(head)
    _split(device, (None, head), (None, parts), (None, units), (0, vocabulary), size)
    device.synchronize()  # then it may serve other streams, and a copy of the head may go
    return HeadHalves(parts, units)


def _whole_pairs(rows: int) -> int:
    """Rows, filled up to whole pairs of tiles."""
    return -(-rows // 128) * 128


def _split(device: Any, given: Any, out: Any, units: Any, rows: tuple[int, int], size: int) -> None:
    """split_halves: of left and right factor, or of one of them, ``rows`` of ``size`` numbers."""
    blocks = max(1, min(-(-sum(rows) // WARPS), device.multiprocessors * 4))
    values = arguments.structure(
        arguments.HALVES,
        **{"in": [device.address(each) for each in given]},
        out=[device.address(each) for each in out],
        units=[device.address(each) for each in units],
        rows=rows,
        size=size,
    )
    device.launch("split_halves", (blocks,), 0, values)


@dataclass(frozen=True)
class FullProjection:
    """hidden [rows, d] times head [vocabulary, d], contiguous and of one dtype; ``prepared`` as
    ``head_halves`` made it, or None."""

    device: Any
    work: Workspace
    hidden: Any
    head: Any
    rows: int
    vocabulary: int
    prepared: HeadHalves | None

    def launch(self) -> dict[str, int]:
        """Multiply; what ``Step`` says of the float32 logits: where they are, and their units."""
        device, work, rows, vocabulary = self.device, self.work, self.rows, self.vocabulary
        hidden, head = self.hidden, self.head
        size, dtype = int(hidden.shape[-1]), str(hidden.dtype.name)
        # Whole blocks of rows: small products of other shapes would be rounded in another order.
        padded_rows = -(-rows // ROWS_AT_ONCE) * ROWS_AT_ONCE
        logits = work.take("logits", padded_rows * vocabulary, np.float32)
        fields = {"logits": int(device.address(logits))}
        if dtype == "float32":
            hidden, head, units = self.halves(padded_rows, size)
            fields.update(units)
            dtype, size = "float16", size * 3
        elif padded_rows > rows:
            whole = work.filled("hidden", padded_rows * size, hidden.dtype)
            whole[: rows * size] = hidden.reshape(-1)
            hidden = whole
        shape = (padded_rows, vocabulary, size)
        device.multiply(hidden, head, logits, shape, dtype, work.product())
        return fields

    def halves(self, padded_rows: int, size: int) -> tuple[Any, Any, dict[str, int]]:
        """float32 factors as float16 parts side by side, and where their units are."""
        device, rows = self.device, self.rows
        left = self.work.filled("left halves", 3 * padded_rows * size, np.uint16)
        left_units = self.work.take("left units", _whole_pairs(rows), np.float32)
        right, split = self._head_parts(size)
        units = (left_units, right.units)
        of_head = self.vocabulary if split else 0
        given = (self.hidden, self.head)
        _split(device, given, (left, right.parts), units, (rows, of_head), size)
        told = {"left_units": device.address(left_units)}
        return left, right.parts, told | {"right_units": device.address(right.units)}

    def head_halves(self, size: int) -> HeadHalves:
        """The float32 head alone as float16 parts."""
        right, split = self._head_parts(size)
        if split:
            rows = (0, self.vocabulary)
            _split(
                self.device, (None, self.head), (None, right.parts), (None, right.units), rows, size
            )
        return right

    def _head_parts(self, size: int) -> tuple[HeadHalves, bool]:
        """Where the head's parts are or go, and whether they are still to be made."""
        if self.prepared is not None:
            return self.prepared, False
        parts = self.work.take("right halves", 3 * self.vocabulary * size, np.uint16)
        units = self.work.filled("right units", _whole_pairs(self.vocabulary), np.float32)
        return HeadHalves(parts, units), True
