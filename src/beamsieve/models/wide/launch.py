"""How the kernels are started: on the GPU, or one by one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import threading
from typing import Any

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Read when Triton is imported, as Triton itself does."""

_ALONE = threading.Lock()
"""The interpreter changes the language itself while it runs, so only one kernel may."""


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()


def cdiv(n: int, by: int) -> int:
    """``n / by``, rounded up."""
    return -(-n // by)


def why_not(device: torch.device) -> str:
    """Why the kernels cannot run on ``device``; "" where they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install 'beamsieve[triton]')"
    if INTERPRETED:
        return "" if device.type == "cpu" else "TRITON_INTERPRET=1 runs kernels on the CPU alone"
    if device.type != "cuda":
        return f"Triton's kernels run on cuda, not on {device.type}"
    if torch.version.hip is not None:
        return "the kernels are measured on NVIDIA GPUs only"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU's compute capability is below 8.0"
    return ""


def launch(
    kernel: Any,
    programs: int | tuple[int, ...],
    *arguments: Any,
    warps: int = 4,
    stages: int = 3,
    **constants: Any,
) -> None:
    """Start ``programs`` programs of ``kernel`` on the current stream of the first argument's
    device."""
    grid = programs if isinstance(programs, tuple) else (programs,)
    if INTERPRETED:
        with _ALONE:
            kernel[grid](*arguments, **constants)
        return
    with torch.cuda.device_of(arguments[0]):  # type: ignore[no-untyped-call]
        kernel[grid](*arguments, num_warps=warps, num_stages=stages, **constants)
