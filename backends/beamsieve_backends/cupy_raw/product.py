"""The product that keeps what is known of its tiles: when it can be used, and its launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.session import Workspace
from beamsieve_backends.cupy_raw.tables import DeviceTable

TILE = 64
"""Tokens of a tile, as in ``kernels/product_tiles.cu``: one word of the bitmap."""
GROUPS_PER_PLACE = 16
"""Groups of tiles per place to keep: so many make the bound nearly as sharp as single tiles do."""

OPENED_AT_ONCE = 4096
"""So many tiles of a request, or fewer, are opened by the block that ends last: one kernel less."""


@dataclass(frozen=True)
class Tiling:
    """The shape of a block, as ``Tiling`` of ``kernels/product_tiles.cu``."""

    small: bool
    rows: int
    columns: int
    stages: int

    def shared_bytes(self, chunks: int) -> int:
        """Shared memory with beams that stay (``chunks`` pieces), or that come in the ring."""
        return 256 + 8 * self.rows + 128 * (self.stages * self.columns + chunks * self.rows)

    def blocks(self, shape: tuple[int, int], vocabulary: int) -> tuple[int, int]:
        """Pieces of the codebook, and of all requests' beams."""
        batch, beams = shape
        return -(-vocabulary // self.columns), batch * -(-beams // self.rows)


LARGE = Tiling(False, 128, 256, 3)
SMALL = Tiling(True, 64, 128, 4)


def fits(device: Any, table: DeviceTable, hidden: Any, head: Any, beams: int, width: int) -> bool:
    """Whether product_tiles can take this step.

    The batch has no say here, so that it changes no request's numbers.
    """
    vocabulary, size = table.vocabulary, int(hidden.shape[-1])
    whole = hidden.dtype.name == "float32" or not (
        device.address(hidden) % 16 or device.address(head) % 16
    )
    return (
        not table.listed
        and whole
        and size % 8 == 0
        and vocabulary % 2 == 0
        and beams * -(-vocabulary // TILE) >= width
        and LARGE.shared_bytes(LARGE.stages) <= device.shared_bytes
    )


def launch(
    device: Any,
    work: Workspace,
    table: DeviceTable,
    step: dict[str, Any],
    factors: tuple[Any, Any],
    shape: tuple[int, int],
    opening_bytes: int,
) -> dict[str, Any] | None:
    """Logits of candidates, keys of tiles, and each request's bound; where tiles are few, all.

    Args:
        device: where.
        work: memory to work in.
        table: the step's.
        step: the fields of ``Step`` so far, width, bounds and meetings among them.
        factors: hidden [B, M, d] and head [V, d], contiguous.
        shape: B and M.
        opening_bytes: shared memory that opening tiles takes.

    Returns:
        the fields of ``Step`` that open_tiles needs besides; None where its work is done.
    """
    batch, beams = shape
    vocabulary, address = table.vocabulary, device.address
    tiles = -(-vocabulary // TILE)
    hidden, head = factors
    dtype, size = str(hidden.dtype.name), int(hidden.shape[-1])
    parts = 2 if dtype == "float32" else 1
    chunks = -(-size * parts // 64)

    large_columns, large_rows = LARGE.blocks(shape, vocabulary)
    # Small blocks where large ones would leave multiprocessors idle: the sums are the same.
    tiling = LARGE if large_columns * large_rows * 4 >= device.multiprocessors * 3 else SMALL
    columns, all_rows = tiling.blocks(shape, vocabulary)
    rows = all_rows // batch
    each = -(-columns // max(1, min(columns, device.multiprocessors // all_rows)))
    resident = tiling.shared_bytes(chunks) <= device.shared_bytes

    of_lane = -(-tiles // 4)
    together = max(1, min(of_lane, beams * tiles // (GROUPS_PER_PLACE * step["width"])))
    groups = -(-of_lane // together)
    step = {
        **step,
        "hidden_size": size,
        "tile": TILE,
        "tiles": tiles,
        "scratch": address(work.take("scratch", batch * beams * tiles, np.float32)),
        "scratch_stride": beams * tiles,
        "masses": address(work.take("masses", 2 * batch * beams, np.float32)),
    }
    fields: dict[str, Any] = {
        "left": address(hidden),
        "right": address(head),
        "written": address(work.take("logits", batch * beams * vocabulary, np.float32)),
        "partial": address(work.take("partial", 2 * batch * beams * tiles, np.float32)),
        "groups": address(work.take("groups", batch * beams * 4 * groups, np.float32)),
        "row_meetings": address(work.zeros("row meetings", batch * -(-beams // SMALL.rows))),
        "chunks": chunks,
        "column_blocks": columns,
        "resident": int(resident),
        "groups_per_lane": groups,
        "tiles_per_group": together,
    }
    if parts == 2:
        fields.update(_split(device, work, factors, (batch * beams, vocabulary), size))
    found = {name: step[name] for name in ("tile", "tiles", "scratch", "scratch_stride", "masses")}
    found |= {"logits": fields["written"], "masked": 1, "bias": 0}
    opens = beams * tiles <= OPENED_AT_ONCE
    shared = tiling.shared_bytes(chunks if resident else tiling.stages)
    if opens:
        shared = max(shared, 256 + opening_bytes)
        fields["opening"] = arguments.structure(arguments.STEP, **{**step, **found})
    device.launch(
        "product_tiles",
        (-(-columns // each), rows, batch),
        shared,
        arguments.structure(
            arguments.PRODUCT,
            step=arguments.structure(arguments.STEP, **step),
            **fields,
            opens=int(opens),
        ),
        arguments.CUDA_TYPES[dtype],
        "true" if tiling.small else "false",
    )
    return None if opens else found


def _split(
    device: Any, work: Workspace, factors: tuple[Any, Any], rows: tuple[int, int], size: int
) -> dict[str, int]:
    """split_halves: float32 factors as two float16 parts each."""
    address = device.address
    names = ("left", "right")
    out = [
        address(work.take(f"{name} halves", 2 * count * size, np.uint16))
        for name, count in zip(names, rows, strict=True)
    ]
    units = [
        address(work.take(f"{name} units", 2 * count, np.float32))
        for name, count in zip(names, rows, strict=True)
    ]
    blocks = max(1, min(-(-sum(rows) // 16), device.multiprocessors * 4))
    values = arguments.structure(
        arguments.HALVES,
        **{"in": [address(factor) for factor in factors]},
        out=out,
        units=units,
        rows=rows,
        size=size,
    )
    device.launch("split_halves", (blocks,), 0, values)
    return {
        **dict(zip(names, out, strict=True)),
        **{f"{name}_units": unit for name, unit in zip(names, units, strict=True)},
    }
