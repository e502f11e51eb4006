"""How many beams a step may keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from beamsieve.checks.values import whole_number
from beamsieve.errors import BackendError, InputError
from beamsieve.interface import Backend

LARGEST_STEP = 1 << 24
"""The most places, batch times width, of one step: about a gigabyte of beams."""


def width_for(backend: Backend, width: Any, batch: int) -> int:
    """A step's width, refused where the backend cannot keep so many."""
    wanted = whole_number(width, "width")
    largest = backend.capabilities.largest_width
    if largest is not None and wanted > largest:
        raise BackendError(
            f"The backend {backend.name!r} keeps {largest} beams at most, not {wanted}."
        )
    places_for(batch, wanted)
    return wanted


def places_for(batch: int, width: int) -> int:
    """``batch``, refused where so many requests with so many beams pass what a step may hold."""
    if batch * width > LARGEST_STEP:
        raise InputError(
            f"{batch} requests with {width} beams each are {batch * width} places, and a step "
            f"holds {LARGEST_STEP} at most: take a smaller width or batch."
        )
    return batch


def widths_for(backend: Backend, widths: Any, levels: int, batch: int) -> list[int]:
    """One width per level that is left."""
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Iterable):
        raise InputError(f"widths is {widths!r}; give a list of one width per level.")
    try:
        given = list(widths)
    except TypeError:  # an array without dimensions calls itself iterable
        raise InputError(f"widths is {widths!r}; give a list of one width per level.") from None
    if len(given) != levels:
        raise InputError(
            f"widths has {len(given)} entries, but {levels} levels are left to decode: give one "
            f"per level."
        )
    return [width_for(backend, width, batch) for width in given]
