"""A whole step in one launch: when it can serve, and how it is launched.

A cluster of thread blocks works on each request, on neighbouring multiprocessors that read each
other's shared memory, so that nothing waits for a second launch. That pays where steps are small.
"""

from __future__ import annotations

from typing import Any

from beamsieve.interface import Normalize, StepInputs
from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.selection import WARPS, WORDS_BYTES, padded
from beamsieve_backends.cupy_raw.tables import DeviceTable

MOST_BLOCKS = 16
"""Blocks of a cluster, as in ``kernels/cluster.cuh``: what Hopper holds in one of its parts."""
FEWEST_BLOCKS = 8
WARP_ROOM = 256
"""Candidates that a warp holds at once, as in ``kernels/fused_rows.cu``."""
MOST_STAGED = 8192
"""Candidates of several beams that one block holds."""
MOST_WIDTH = 2048
MOST_SHARED = 227 << 10
"""Bytes of shared memory that a block can have where there are clusters of 16."""


def blocks_for(batch: int) -> int:
    """Blocks to a request: 16 for one or two, else 8, of which more clusters run at once.

    A candidate's numbers do not depend on it.
    """
    return MOST_BLOCKS if batch <= 2 else FEWEST_BLOCKS


def region_for(width: int) -> int:
    """Candidates of one block that are ranked at once."""
    return 256 if width <= 256 else 512


def staged_for(table: DeviceTable, beams: int, blocks: int) -> int:
    """Candidates that a block of several beams must be able to hold."""
    held = -(-beams // blocks)
    bound = held * max(1, table.widest)  # a finished beam is a candidate too
    if bound > MOST_STAGED:
        bound = int(table.most[min(held, len(table.most) - 1)])
    return max(32, bound)


def _fits(table: DeviceTable, beams: int, width: int) -> bool:
    """Whether a block can hold its share of a request."""
    if not 2 <= beams <= FEWEST_BLOCKS * WARPS * 32 or width > MOST_WIDTH:
        return False
    if staged_for(table, beams, FEWEST_BLOCKS) > MOST_STAGED:
        return False
    return all(
        shared_bytes(table, beams, width, blocks) <= MOST_SHARED
        for blocks in (FEWEST_BLOCKS, MOST_BLOCKS)
    )


def shared_bytes(table: DeviceTable, beams: int, width: int, blocks: int) -> int:
    """Shared memory of a block: ``Pool``, then what it knows of its beams and candidates."""
    region, staged, held = region_for(width), staged_for(table, beams, blocks), -(-beams // blocks)
    shared = padded(8 * max(blocks * (region + 1), MOST_BLOCKS * 256))
    shared += padded(8 * max(staged, region)) + padded(4 * max(region, 2 * width))
    shared += 32 + 8 * MOST_BLOCKS + 4 * 256 + WORDS_BYTES
    shared += padded(8 * held) + 16 * held + padded(4 * held) + padded(4 * staged)
    return shared + 4 * max(WARPS * WARP_ROOM, staged, 6 * width) + 4 * WARPS * WARP_ROOM + 16


def takes(table: DeviceTable, beams: int, inputs: StepInputs, normalize: Normalize) -> bool:
    """Whether fused_rows can take this step of so many beams, whatever the batch."""
    possible = inputs.hidden is not None and inputs.bonus is None and inputs.nudge is None
    return possible and normalize != "all" and _fits(table, beams, inputs.width)


def launch(device: Any, table: DeviceTable, fields: dict[str, Any], batch: int, dtype: str) -> None:
    """fused_rows: ``fields`` say all of ``Step`` but the workspace."""
    beams, width = fields["beams"], fields["width"]
    blocks = blocks_for(batch)
    told = {"staged": staged_for(table, beams, blocks), "list_capacity": region_for(width)}
    device.launch(
        "fused_rows",
        (blocks, batch),
        shared_bytes(table, beams, width, blocks),
        arguments.structure(arguments.STEP, **{**fields, **told}),
        arguments.CUDA_TYPES[dtype],
        cluster=blocks,
    )
