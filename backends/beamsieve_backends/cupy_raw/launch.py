"""One kernel launch, with what CuPy's own launch has no word for.

From Hopper on, a kernel may be sent to the multiprocessors while the one before it still runs; its
blocks wait there (``await_kernel_before`` in ``kernels/common.cuh``). That hides the launch, also
inside a CUDA graph (CUDA C++ Programming Guide, programmatic dependent launch).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from beamsieve.errors import BackendError

_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_OVERLAP = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (ctypes.c_int * 16)(1))


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def start(
    function: int,
    grid: tuple[int, ...],
    threads: int,
    shared: int,
    stream: int,
    argument: bytes,
    overlaps: bool,
) -> None:
    """Start a kernel that takes one structure by value.

    Args:
        function: its handle.
        grid: blocks, up to three dimensions.
        threads: of a block.
        shared: bytes of shared memory.
        stream: where to run.
        argument: the structure.
        overlaps: whether its blocks may be sent out while the kernel before still runs.

    Raises:
        BackendError: the driver refuses.
    """
    memory = ctypes.create_string_buffer(argument, len(argument))
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    config = _Config(
        (ctypes.c_uint * 3)(*(*grid, 1, 1)[:3]),
        (ctypes.c_uint * 3)(threads, 1, 1),
        shared,
        stream,
        ctypes.pointer(_OVERLAP),
        int(overlaps),
    )
    status = _driver().cuLaunchKernelEx(
        ctypes.byref(config), ctypes.c_void_p(function), pointers, None
    )
    if status != 0:
        raise BackendError(
            f"The driver refused a kernel of {grid} blocks with {shared} bytes of shared memory: "
            f"CUDA error {status}."
        )
