"""A step of many candidates per beam as launches: tiles are scored, then the best are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from beamsieve_backends.cupy_raw import arguments, pooled
from beamsieve_backends.cupy_raw.selection import (
    GROUPS_OF_BEAMS,
    LIST_TILE,
    OPENED_BYTES,
    WARPS,
    WORD_TILE,
    WORDS_BYTES,
    chooser_bytes,
    entries_of_group,
    group_of,
    groups_of_part,
    list_fields,
    power_of_two,
)
from beamsieve_backends.cupy_raw.tables import DeviceTable

if TYPE_CHECKING:
    from beamsieve_backends.cupy_raw.steps import StepCall

BUSY_WARPS = 4
"""Warps that a block keeps busy where there are blocks enough: one to a scheduler."""
BLOCKS_AT_ONCE = 2
"""Blocks of score_rows or open_tiles that a multiprocessor holds: more would come after these."""
TILES_TO_OPEN = 128
"""Tiles to a block that looks which to open: a small share, for those few cost the most."""
VECTORS_BYTES = WARPS * 2 * 4 * 32 * 4
"""Shared memory of ``Arriving`` in score_tiles.cu, per byte of a logit."""


def tile_of(table: DeviceTable) -> int:
    """Positions of a tile: a word of the bitmap, or an entry to a lane."""
    return LIST_TILE if table.listed else WORD_TILE


def tiles_of(table: DeviceTable) -> int:
    """Tiles of a beam."""
    return -(-table.positions // tile_of(table))


def launch(call: StepCall, dtype: str) -> None:
    """score_tiles: one pass over the step's logits, of ``dtype``; then open_tiles."""
    tile, tiles = tile_of(call.table), tiles_of(call.table)
    B, M = call.shape.B, call.shape.M
    together = 1 if call.table.listed else 2
    chunks = -(-tiles // together)
    # About eight pieces to a part. The batch has no say here, as it must not change how a
    # request's numbers are rounded; a beam's parts may all have one warp, the sum is the same.
    parts = min(WARPS, power_of_two(-(-chunks // 8)))
    at_once = call.device.multiprocessors * WARPS * BLOCKS_AT_ONCE
    rows = B * M
    share = 1 if 2 * rows >= at_once else parts
    slots = together * -(-chunks // parts)
    if call.table.listed:
        group = entries_of_group(M * parts, call.shape.W)
    else:
        group = group_of(M * tiles, call.shape.W, 16, GROUPS_OF_BEAMS)
        slots = -(-slots // group) * group
    of_part = groups_of_part(tile, slots, group)
    size = 4 if dtype == "float32" else 2
    vectors = (
        not call.table.listed
        and call.normalize != "all"
        and call.inputs.bias is None
        and call.table.vocabulary % 4 == 0
        and call.fields["logits"] % (4 * size) == 0
    )
    # No more blocks than run at once; they go from beam to beam.
    most = call.device.multiprocessors * BLOCKS_AT_ONCE // B
    openers = max(1, min(most, -(-M * tiles // TILES_TO_OPEN)))
    take, address = call.work.take, call.device.address
    call.fields.update(
        scratch=address(take("scratch", B * M * tiles, np.float32)),
        scratch_stride=M * tiles,
        **list_fields(call.device, call.work, B, openers, call.fields["capacity"]),
        seen=address(take("seen", 8 * B * M, np.float32)),
        groups=address(take("groups", B * M * parts * of_part, np.float32)),
        vectors=int(vectors),
        tile=tile,
        tiles=tiles,
        parts=parts,
        slots=slots,
        group=group,
        warps_per_beam=share,
    )
    values = arguments.structure(arguments.STEP, **call.fields)
    blocks = max(1, min(-(-M * share // max(share, BUSY_WARPS)), most))
    kind = arguments.CUDA_TYPES[dtype]
    shared = WORDS_BYTES + (VECTORS_BYTES * size if vectors else 0)
    pools = pooled.takes(call.device, call.fields, B)
    if not (pools and pooled.scores_too(call.fields, B)):
        call.device.launch("score_tiles", (blocks, B), shared, values, kind)
    # The candidates of the tiles that reach the bound.
    if pools:
        pooled.launch(call.device, call.fields, B, kind)
        return
    shared = chooser_bytes(call.fields["capacity"]) + OPENED_BYTES
    call.device.launch("open_tiles", (openers, B), shared, values, kind)
