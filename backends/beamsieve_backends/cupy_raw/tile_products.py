"""A step over the whole codebook without logits in memory: when it can serve, and its launches.

On a Hopper GPU the products are made by warp groups (``kernels/multiply_tiles.cu``) whose results
never leave the multiprocessor: the best of every eight tokens is kept, and what the denominators
need. Then the few logits that can be chosen are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beamsieve.interface import Normalize, StepInputs
from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.projection import FullProjection
from beamsieve_backends.cupy_raw.selection import (
    GROUPS_OF_BEAMS,
    OPENED_BYTES,
    WARPS,
    chooser_bytes,
    group_of,
    list_fields,
)
from beamsieve_backends.cupy_raw.session import Workspace
from beamsieve_backends.cupy_raw.tables import DeviceTable

PAIR, SEGMENT_PAIRS = 128, 2
"""Tokens of a pair of tiles, and pairs of a segment, as in ``kernels/sixteens.cuh``."""
BLOCK_ROWS = 128
"""Beams of a block of multiply_tiles."""
BOXES, BOX_BYTES = 4, 128 * 64 * 2
"""Boxes that a row is fetched in, whatever its length, and the bytes of a box."""
MOST_PAIRS = 32
"""Up to so many, float32 states are split where they are multiplied."""
MOST_DEPTH = 64 * BOXES
"""Hidden size up to which the states of a block's beams stay in shared memory beside the ring."""


@dataclass(frozen=True)
class _Work:
    """The shapes of one step: B requests of M beams, ``pairs`` pairs of tiles, W places."""

    B: int
    M: int
    pairs: int
    width: int

    @property
    def rows(self) -> int:
        return self.B * self.M

    @property
    def segments(self) -> int:
        return -(-self.pairs // SEGMENT_PAIRS)


def takes(device: Any, table: DeviceTable, beams: int, inputs: StepInputs) -> bool:
    """Whether these launches can take a step of so many beams per request, whatever the batch."""
    if not device.warp_groups or inputs.hidden is None or table.listed or beams == 1:
        return False
    if any(each is not None for each in (inputs.bias, inputs.bonus, inputs.nudge)):
        return False
    size = int(inputs.hidden.shape[-1])
    tiles = 2 * -(-table.vocabulary // PAIR)
    if any(device.address(each) % 16 for each in (inputs.hidden, inputs.head)):
        return False
    return size % 8 == 0 and size <= MOST_DEPTH and beams * tiles >= inputs.width


def launch(
    device: Any,
    work: Workspace,
    table: DeviceTable,
    fields: dict[str, Any],
    inputs: StepInputs,
    batch: int,
    normalize: Normalize,
    full: FullProjection,
) -> None:
    """multiply_tiles, key_tiles, reopen_tiles; ``fields`` say all of ``Step`` but the workspace.

    Args:
        device: the backend's, active.
        work: the stream's workspace.
        table: the step's, a bitmap.
        fields: hidden, head and all else that ``Step`` says, their addresses aligned to 16 bytes.
        inputs: the step's.
        batch: requests.
        normalize: the engine's.
        full: how float32 factors become halves.
    """
    assert inputs.hidden is not None
    dtype, size = str(inputs.hidden.dtype.name), int(inputs.hidden.shape[-1])
    shape = _Work(batch, fields["beams"], -(-table.vocabulary // PAIR), fields["width"])
    tiles = 2 * shape.pairs
    group = group_of(shape.M * tiles, shape.width, 16, GROUPS_OF_BEAMS)
    slots = -(-tiles // group) * group
    openers = max(1, min(device.multiprocessors // batch, -(-shape.M * tiles // 512)))
    take, address = work.take, device.address
    left, right, parts = fields["hidden"], fields["head"], 1
    units: dict[str, int] = {}
    rows, splits_states = shape.rows, dtype == "float32" and shape.pairs <= MOST_PAIRS
    if splits_states:
        head = full.head_halves(size)
        left = right = head.parts  # of states the kernel makes parts itself
        rows, parts = table.vocabulary, 3
        units = {"right_units": address(head.units)}
    elif dtype == "float32":
        left, right, units = full.halves(rows, size)
        parts = 3
    step = arguments.structure(
        arguments.STEP,
        **{
            **fields,
            **units,
            **list_fields(device, work, batch, openers, fields["capacity"]),
            "scratch": address(take("scratch", shape.rows * tiles, np.float32)),
            "scratch_stride": shape.M * tiles,
            "masses": address(take("masses", 2 * shape.rows, np.float32)),
            "groups": address(take("groups", shape.rows * slots // group, np.float32)),
            "tile": 64,
            "tiles": tiles,
            "parts": 1,
            "slots": slots,
            "group": group,
        },
    )
    sixteens = arguments.structure(
        arguments.SIXTEENS,
        step=step,
        bests=address(take("bests", shape.rows * shape.pairs * 16, np.float32)),
        sums=address(take("sums", shape.rows * shape.segments * 2, np.float32)),
        pairs=shape.pairs,
        segments=shape.segments,
    )
    same = normalize != "all" and not fields.get("eligible")
    resident = 2 if parts == 3 else 1
    stages = min(12, (device.shared_bytes - 2048) // BOX_BYTES - resident * BOXES)
    blocks = -(-shape.rows // BLOCK_ROWS)
    splits = max(1, min(shape.segments, device.multiprocessors // blocks))
    product = arguments.structure(
        arguments.PRODUCT,
        sixteens=sixteens,
        rows=shape.rows,
        stages=stages,
    )
    kind = "bfloat16" if dtype == "bfloat16" else "float16"
    device.multiply_tiles(
        product,
        ((left, rows), (right, table.vocabulary)),
        (kind, parts, size),
        (splits, blocks),
        1024 + (resident * BOXES + stages) * BOX_BYTES + 16 * stages + 8,
        arguments.CUDA_TYPES[dtype],
        "true" if same else "false",
        "true" if splits_states else "false",
    )
    # Two blocks of key_tiles to a multiprocessor, a warp to a beam.
    key_blocks = max(1, min(-(-shape.M // WARPS), 2 * device.multiprocessors // batch))
    device.launch("key_tiles", (key_blocks, batch), 0, sixteens)
    shared = chooser_bytes(fields["capacity"]) + OPENED_BYTES
    device.launch("reopen_tiles", (openers, batch), shared, sixteens, arguments.CUDA_TYPES[dtype])
