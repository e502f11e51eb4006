"""How kernels are started: on the GPU, or one program after the other in Triton's interpreter."""

from __future__ import annotations

import os
from typing import Any

import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Read when Triton is imported, as Triton itself does."""


EARLY = True


def _mend_interpreter() -> None:
    """Let the interpreter take loop bounds from the device's data under NumPy 2.4 and later.

    Triton 3.6 converts its one-element arrays with ``int()``, which NumPy no longer allows.
    """
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor


if INTERPRETED:
    _mend_interpreter()


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()


def cdiv(n: int, by: int) -> int:
    """``n / by``, rounded up."""
    return -(-n // by)


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *arguments: Any,
    warps: int = 4,
    stages: int = 3,
    registers: int | None = None,
    early: bool = True,
    **constants: Any,
) -> None:
    """Start ``kernel`` on the current stream.

    With ``early``, it may be scheduled while the kernel before it still runs; every kernel here
    waits for that one before it reads anything (Hopper's programmatic dependent launch).
    """
    if INTERPRETED:
        kernel[grid](*arguments, PDL=False, **constants)
        return
    early = early and EARLY and _has_dependent_launch()
    limit = {} if registers is None else {"maxnreg": registers}
    kernel[grid](
        *arguments, PDL=early, num_warps=warps, num_stages=stages, launch_pdl=early, **limit,
        **constants,
    )  # fmt: skip


def _has_dependent_launch() -> bool:
    return bool(triton.runtime.driver.active.get_current_target().arch >= 90)
