"""The second pass over tiles by clusters of blocks: when it can serve, and how it is launched.

The blocks of a request exchange their candidates through each other's shared memory, where those
of ``open_tiles`` meet in the device's. That pays where all requests' clusters run at once.
"""

from __future__ import annotations

from typing import Any

from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.fused import MOST_BLOCKS
from beamsieve_backends.cupy_raw.selection import BOUND_BYTES, WARPS, padded

PLACES = 4096
"""Candidates of all blocks of a request that are ranked at once."""
MOST_WIDTH, MOST_BEAMS = 1024, 1024
"""Of a request. Twice the width, 12 bytes each, must fit where opened tiles were."""
AT_ONCE = 2048
"""Tiles that a block looks at in one turn, as in ``kernels/pool_tiles.cu``."""
SEEN_BYTES, OPENED_BYTES = 32, 48
"""What is known of a beam and of an opened tile, of which up to THREADS are looked into at once."""
THREADS = 32 * WARPS


def blocks_for(batch: int) -> int:
    """Blocks to a request; 0 where more requests come than clusters run at once.

    A candidate's numbers do not depend on it.
    """
    if batch <= 7:
        return MOST_BLOCKS
    return MOST_BLOCKS // 2 if batch <= 30 else 0


def takes(device: Any, fields: dict[str, Any], batch: int) -> bool:
    """Whether pool_tiles can take a step of which ``fields`` say all."""
    guided = fields["bias"] or fields["bonus"] or fields["nudge"]
    fits = fields["width"] <= MOST_WIDTH and fields["beams"] <= MOST_BEAMS
    return bool(device.clusters and fits and not guided and blocks_for(batch))


def shared_bytes(beams: int, width: int, capacity: int, blocks: int) -> int:
    """Shared memory of a block: ``Pool``, then what it knows of beams and opened tiles."""
    region = PLACES // blocks
    shared = padded(8 * max(blocks * (region + 1), MOST_BLOCKS * 256)) + 8 * capacity
    shared += 16 + 4 * MOST_BLOCKS + 4 * 256 + padded(4 * max(region, 2 * width)) + BOUND_BYTES
    return shared + SEEN_BYTES * beams + 4 * AT_ONCE + OPENED_BYTES * THREADS


def launch(device: Any, fields: dict[str, Any], batch: int, kind: str) -> None:
    """pool_tiles after score_tiles, of the same ``fields``; ``kind`` is the logits' C++ type."""
    blocks = blocks_for(batch)
    device.launch(
        "pool_tiles",
        (blocks, batch),
        shared_bytes(fields["beams"], fields["width"], fields["capacity"], blocks),
        arguments.structure(arguments.STEP, **{**fields, "list_capacity": PLACES // blocks}),
        kind,
        cluster=blocks,
    )
