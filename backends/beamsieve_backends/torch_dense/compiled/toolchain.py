"""How the functions of this folder are compiled; see :mod:`beamsieve.toolchain`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from beamsieve import toolchain

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Numba's ``njit`` for functions that let go of the interpreter; ``options`` are its own."""
    return toolchain.compiled(Path(__file__).parent, **options)
