"""Beams as kernels see them: where each array begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve.interface import Beams


def new_beams(device: Any, before: Beams, width: int) -> Beams:
    """Beams for a kernel to fill."""
    B = before.search.batch

    def empty(dtype: Any, *more: int) -> Any:
        return device.empty((B, width, *more), dtype)

    return Beams(
        step=before.step + 1,
        tokens=empty(np.int32, before.step + 1),
        scores=empty(np.float32),
        keys=empty(np.float32),
        rows=empty(np.int64),
        parents=empty(np.int64),
        finished=empty(np.bool_),
        count=device.empty((B,), np.int64),
        search=before.search,
    )


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
