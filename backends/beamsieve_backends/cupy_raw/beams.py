"""Beams as kernels see them: where each array begins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from beamsieve.interface import Beams

ARRAYS: dict[str, np.dtype[Any]] = {
    "rows": np.dtype(np.int64),
    "parents": np.dtype(np.int64),
    "count": np.dtype(np.int64),
    "tokens": np.dtype(np.int32),
    "scores": np.dtype(np.float32),
    "keys": np.dtype(np.float32),
    "finished": np.dtype(np.bool_),
}
"""The arrays of ``Beams`` in the order in which they lie in memory: the widest numbers first."""


def new_beams(device: Any, before: Beams, width: int) -> Beams:
    """Beams for a kernel to fill, side by side in one piece of memory."""
    B, step = before.search.batch, before.step + 1
    shapes: dict[str, tuple[int, ...]] = {"count": (B,), "tokens": (B, width, step)}
    cells = {name: math.prod(shapes.get(name, (B, width))) for name in ARRAYS}
    memory = device.empty((sum(cells[name] * ARRAYS[name].itemsize for name in ARRAYS),), np.uint8)
    arrays, begin = {}, 0
    for name, dtype in ARRAYS.items():
        arrays[name] = device.view(memory, begin, shapes.get(name, (B, width)), dtype)
        begin += cells[name] * dtype.itemsize
    return Beams(step=step, search=before.search, **arrays)


def beam_fields(device: Any, beams: Beams) -> dict[str, int]:
    """What ``Step`` says of the beams before the step."""
    names = ("tokens", "scores", "rows", "finished", "count")
    return {
        **{f"in_{name}": device.address(getattr(beams, name)) for name in names},
        "beams": beams.width,
        "decoded": beams.step,
    }


def out_fields(device: Any, beams: Beams) -> dict[str, int]:
    """Where ``Step`` writes the beams after the step."""
    names = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")
    return {f"out_{name}": device.address(getattr(beams, name)) for name in names}
