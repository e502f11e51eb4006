"""Ordered selection as launches: its buffers, the second half of a step, and plain top-k."""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve.interface import Beams, Candidates
from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.beams import beam_fields, new_beams, out_fields
from beamsieve_backends.cupy_raw.session import Session, Workspace
from beamsieve_backends.cupy_raw.tables import DeviceTable

WARPS = 16
"""Warps of every block, as in ``kernels/common.cuh``."""
THREADS = 32 * WARPS
WORD_TILE, LIST_TILE = 64, 32
"""Positions of a tile: a word of the bitmap, or an entry to a lane."""
GROUPS_PER_PLACE = 4
"""Groups of tiles per place to keep: so many make the bound nearly as sharp as single tiles do."""
GROUPS_OF_BEAMS = 8
"""The same where tiles belong to beams, of which the best have many of the best tiles."""
BESTS_BYTES = 4 * 8192
"""Shared memory of the best keys of tiles in select_slots.cu."""
OPENED_BYTES = 8192 * 4 + 512 * 48
"""Shared memory of the opened tiles in open_tiles.cu and reopen_tiles.cu."""
WORDS_BYTES = 4 * 64
"""Shared memory of a block's own words."""
BOUND_BYTES = 4 * 2048 + WORDS_BYTES
"""Shared memory of these and a histogram."""


def select_slots(
    device: Any, table: DeviceTable, beams: Beams, candidates: Candidates, width: int, keys: Any
) -> Beams:
    """The second half: the ``width`` best of each request's slots by ``keys`` [B, M, S]."""
    B, M, S = candidates.rows.shape
    session: Session = beams.search.device_requests
    work = session.workspace()
    after = new_beams(device, beams, width)
    arrays = [
        device.contiguous(array)
        for array in (candidates.tokens, candidates.scores, candidates.rows, keys)
    ]
    step = {
        **table.fields,
        **beam_fields(device, beams),
        **out_fields(device, after),
        "width": width,
    }
    names: dict[str, int] = {}
    for name, array in zip(("tokens", "scores", "rows", "keys"), arrays, strict=True):
        names[name] = device.address(array)
    launch_selection(device, work, step, names, (B, M * S), S)
    if device.capturing():
        work.keep(after, *arrays)
    return after


def launch_selection(
    device: Any,
    work: Workspace,
    step: dict[str, Any],
    addresses: dict[str, int],
    shape: tuple[int, int],
    slots: int,
) -> None:
    """select_slots over [B, N] keys, of which ``slots`` belong to a beam."""
    batch, total = shape
    tiles = -(-total // 64)
    capacity = capacity_for(step["width"])
    group = group_of(tiles, step["width"], 8)
    openers = max(1, min(-(-tiles // 512), device.multiprocessors * 2 // batch))
    fields = {
        **step,
        "capacity": capacity,
        "scratch": device.address(work.take("scratch", batch * tiles, np.float32)),
        "scratch_stride": tiles,
        "group": group,
        "groups": device.address(work.take("groups", batch * -(-tiles // group), np.float32)),
        **list_fields(device, work, batch, openers, capacity),
        "meetings": device.address(work.meetings(batch)),
    }
    values = arguments.structure(
        arguments.SLOTS_IN,
        step=arguments.structure(arguments.STEP, **fields),
        **addresses,
        slots=slots,
        total=total,
    )
    blocks = max(1, min(-(-tiles // (WARPS * 4)), device.multiprocessors * 4 // batch))
    device.launch("tile_slots", (blocks, batch), 0, values)
    device.launch("select_slots", (openers, batch), chooser_bytes(capacity) + BESTS_BYTES, values)


def add_nudge(device: Any, candidates: Candidates, nudge: Any) -> Any:
    """Keys [B, M, S]: scores, plus the nudge where there is a token."""
    tokens, scores = device.contiguous(candidates.tokens), device.contiguous(candidates.scores)
    nudge = device.contiguous(nudge)
    keys = device.empty(scores.shape, np.float32)
    device.launch(
        "add_nudge",
        (max(1, min(-(-scores.size // 512), device.multiprocessors * 8)),),
        0,
        arguments.structure(
            arguments.NUDGE,
            tokens=device.address(tokens),
            scores=device.address(scores),
            nudge=device.address(nudge),
            keys=device.address(keys),
            total=scores.size,
            slots=scores.shape[2],
            vocabulary=nudge.shape[2],
        ),
    )
    return keys


def group_of(tiles: int, width: int, most: int, per_place: int = GROUPS_PER_PLACE) -> int:
    """How many tiles make a group, at most ``most``, so that there are several groups per place."""
    group = 1
    while group < most and tiles >= 2 * group * per_place * width:
        group *= 2
    return group


def entries_of_group(parts: int, width: int) -> int:
    """How many of 32 entries make a group where each of ``parts`` has so many at a time."""
    return 32 // min(32, power_of_two(-(-GROUPS_OF_BEAMS * width // parts)))


def groups_of_part(tile: int, slots: int, group: int) -> int:
    """Groups of a part of a beam: of ``slots`` tiles, or in lists of one tile's entries."""
    return (tile if tile == LIST_TILE else slots) // group


def list_fields(
    device: Any, work: Workspace, batch: int, blocks: int, capacity: int
) -> dict[str, int]:
    """Where the blocks of a selection meet: room for all that they can bring."""
    room = blocks * capacity
    return {
        "lists": device.address(work.take("lists", room * batch, np.uint64)),
        "list_capacity": room,
    }


def capacity_for(width: int) -> int:
    """Survivors that a selection can sort: a power of two, well above the width."""
    return max(2048, power_of_two(2 * width))


def chooser_bytes(capacity: int) -> int:
    """Shared memory of ``Chooser``."""
    return 2 * padded(8 * capacity) + BOUND_BYTES


def padded(size: int) -> int:
    """Bytes as ``Carver`` hands them out."""
    return -(-size // 16) * 16


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()
