"""The second pass over tiles by clusters of blocks: when it can serve, and how it is launched.

The blocks of a request exchange their candidates through each other's shared memory, where those
of ``open_tiles`` meet in the device's. That pays where all requests' clusters run at once. Where
blocks have few logits to read, they score them too: then the first pass is no launch of its own.
"""

from __future__ import annotations

from typing import Any

from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.fused import MOST_BLOCKS
from beamsieve_backends.cupy_raw.selection import (
    BOUND_BYTES,
    THREADS,
    WARPS,
    groups_of_part,
    padded,
    power_of_two,
)

PLACES = 4096
"""Candidates of all blocks of a request that are ranked at once."""
MOST_WIDTH, MOST_BEAMS = 1024, 1024
"""Of a request. Twice the width, 12 bytes each, must fit where opened tiles were."""
AT_ONCE = 2048
"""Tiles that a block looks at in one turn, KEYS_AT_ONCE in ``kernels/opened.cuh``."""
SEEN_BYTES, OPENED_BYTES = 32, 48
"""What is known of a beam and of an opened tile, of which up to THREADS are looked into at once."""
MOST_SCORED, MOST_HELD = 1 << 15, 2 * WARPS
"""Logits of a block's beams, and so many beams, up to which it scores them itself."""
FEW_BEAMS = 256
"""Of a request. For more, or in clusters of four, a block takes a quarter as many tiles."""


def blocks_for(batch: int) -> int:
    """Blocks to a request; 0 where more requests come than clusters run at once.

    Up to 15 requests, each block has a multiprocessor to itself. A candidate's numbers do not
    depend on it.
    """
    if batch <= 7:
        return MOST_BLOCKS
    if batch <= 15:
        return MOST_BLOCKS // 2
    return MOST_BLOCKS // 4 if batch <= 60 else 0


def takes(device: Any, fields: dict[str, Any], batch: int) -> bool:
    """Whether clusters can take a step of which ``fields`` say all."""
    guided = fields["bias"] or fields["bonus"] or fields["nudge"]
    beams, blocks = fields["beams"], blocks_for(batch)
    fits = fields["width"] <= MOST_WIDTH and beams <= MOST_BEAMS
    many = beams > FEW_BEAMS or batch > 15
    few = beams * fields["tiles"] <= blocks * (AT_ONCE // 4 if many else AT_ONCE)
    return bool(device.clusters and fits and few and not guided)


def scores_too(fields: dict[str, Any], batch: int) -> bool:
    """Whether the blocks of a step that ``takes`` approves of also do what score_tiles does."""
    held = -(-fields["beams"] // blocks_for(batch))
    few = held <= MOST_HELD and held * fields["tiles"] * fields["tile"] <= MOST_SCORED
    return few and batch <= 15


def _pool_bytes(width: int, capacity: int, blocks: int) -> int:
    """Shared memory of ``Pool``, of opened tiles, and of a histogram and words."""
    region = PLACES // blocks
    shared = 32 + 8 * MOST_BLOCKS + 4 * 256 + padded(4 * max(region, 2 * width)) + BOUND_BYTES
    shared += padded(8 * max(blocks * (region + 1), MOST_BLOCKS * 256)) + 8 * capacity
    return shared + 4 * AT_ONCE + OPENED_BYTES * THREADS


def launch(device: Any, fields: dict[str, Any], batch: int, kind: str) -> None:
    """rank_tiles, or pool_tiles after score_tiles; ``kind`` is the logits' C++ type."""
    blocks = blocks_for(batch)
    told = {**fields, "list_capacity": PLACES // blocks}
    shared = _pool_bytes(fields["width"], fields["capacity"], blocks)
    if scores_too(fields, batch):
        held = -(-fields["beams"] // blocks)
        told["warps_per_beam"] = fields["parts"] if held < WARPS else 1
        of_part = groups_of_part(fields["tile"], fields["slots"], fields["group"])
        shared += (
            padded(SEEN_BYTES * held)
            + padded(8 * held)
            + padded(4 * held * power_of_two(fields["tiles"]))
        )
        shared += padded(4 * blocks * (held * fields["parts"] * of_part + 1))
        name = "rank_tiles"
    else:
        shared += SEEN_BYTES * fields["beams"]
        name = "pool_tiles"
    values = arguments.structure(arguments.STEP, **told)
    device.launch(name, (blocks, batch), shared, values, kind, cluster=blocks)
