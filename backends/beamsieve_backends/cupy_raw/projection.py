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
class FullProjection:
    """hidden [rows, d] times head [vocabulary, d], contiguous and of one dtype."""

    device: Any
    work: Workspace
    hidden: Any
    head: Any
    rows: int
    vocabulary: int

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
        """split_halves: float32 factors as float16 parts side by side, and their units."""
        address, take = self.device.address, self.work.take
        rows = (self.rows, self.vocabulary)
        left = self.work.filled("left halves", 3 * padded_rows * size, np.uint16)
        right = take("right halves", 3 * self.vocabulary * size, np.uint16)
        units = [
            int(address(take(name, -(-count // 128) * 128, np.float32)))  # whole pairs of tiles
            for name, count in zip(("left units", "right units"), rows, strict=True)
        ]
        blocks = max(1, min(-(-sum(rows) // WARPS), self.device.multiprocessors * 4))
        values = arguments.structure(
            arguments.HALVES,
            **{"in": [address(self.hidden), address(self.head)]},
            out=[address(left), address(right)],
            units=units,
            rows=rows,
            size=size,
        )
        self.device.launch("split_halves", (blocks,), 0, values)
        return left, right, {"left_units": units[0], "right_units": units[1]}
