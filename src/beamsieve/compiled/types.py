"""The types of compiled loops' arguments, and what makes such a loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import types

from beamsieve import toolchain

int64, uint64 = types.int64, types.uint64
boolean, void = types.boolean, types.void

_OPTIONS: dict[str, Any] = {"_nrt": False}
"""Nothing is allocated in a loop, so that no array's users need be counted: where loops branch,
Numba counts them in every turn, atomically, which would be most of the work."""


def given(kind: Any) -> Any:
    """A contiguous array [n] that is only read."""
    return types.Array(kind, 1, "C", readonly=True, aligned=False)


def written(kind: Any) -> Any:
    """A contiguous array [n] that is written, or read and written."""
    return types.Array(kind, 1, "C")


def loop(result: Any, *arguments: Any) -> Callable[[Any], Any]:
    """A compiled loop with these types."""
    return toolchain.compiled(Path(__file__).parent, [result(*arguments)], **_OPTIONS)


def part(function: Any) -> Any:
    """A piece of loops, compiled into each of them."""
    return toolchain.compiled(Path(__file__).parent, **_OPTIONS)(function)
