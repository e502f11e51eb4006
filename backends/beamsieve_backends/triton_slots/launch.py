"""How kernels are started: on the GPU, or one program after the other in Triton's interpreter."""

from __future__ import annotations

import os
import threading
from typing import Any

import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Read when Triton is imported, as Triton itself does."""


EARLY = True
"""Whether ``early`` is heeded; a profile of single kernels is clearer without."""
_ALONE = threading.Lock()
"""The interpreter changes the language itself while it runs, so only one kernel may."""


def _mend_interpreter() -> None:
    """Two corrections to Triton 3.6's interpreter.

    It converts loop bounds that the device computed with ``int()``, which NumPy 2.4 and later no
    longer allows for its one-element arrays. And it remaps the whole language at every call of a
    device function, though the kernel's start has done so: most of its time, for nothing.
    """
    from triton import language
    from triton.runtime import interpreter

    patch_tensor, patch_language = interpreter._patch_lang_tensor, interpreter._patch_lang

    def patch_tensor_too(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def patch_language_once(function: Any) -> Any:
        seen = function.__globals__.values()
        parts = [part for part in (language, language.core) if any(part is it for it in seen)]
        if any(language.core.is_builtin(part.load) for part in parts):
            return patch_language(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang_tensor = patch_tensor_too
    interpreter._patch_lang = patch_language_once


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
        with _ALONE:
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
