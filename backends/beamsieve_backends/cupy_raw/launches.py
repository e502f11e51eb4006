"""Launches that CuPy has no call for, by the driver's own.

Of clusters of blocks, and of kernels that begin while the one ahead of them still runs.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from beamsieve.errors import BackendError

CLUSTERED = ("fused_rows", "pool_tiles", "rank_tiles")
"""Kernels whose blocks form clusters."""

_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_BEGIN_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_NON_PORTABLE_SIZE = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes, of which a cluster takes three words."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("value", ctypes.c_uint * 16),
    )


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


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def allow_any_size(function: int) -> None:
    """Let a kernel have clusters of 16, more than every device with clusters has."""
    _checked(
        _driver().cuFuncSetAttribute(ctypes.c_void_p(function), _NON_PORTABLE_SIZE, 1),
        "cuFuncSetAttribute",
    )


def launch(
    function: int,
    grid: tuple[int, int, int],
    threads: int,
    shared: int,
    stream: int,
    parameters: int,
    *,
    cluster: int,
    early: bool,
) -> None:
    """Start ``function``.

    Args:
        function: its handle; and the addresses of a list of its arguments in ``parameters``.
        grid: blocks.
        threads: of a block, in one dimension.
        shared: bytes of dynamic shared memory.
        stream: where to run.
        parameters: as the driver's ``kernelParams``.
        cluster: so many neighbouring blocks of the first dimension together; 0 for no clusters.
        early: it waits by itself for the kernel ahead of it on the stream, and may begin before
            that one has ended (programmatic dependent launch).

    Raises:
        BackendError: the driver refuses.
    """
    attributes = (_Attribute * 2)()
    count = 0
    if cluster:
        attributes[count] = _Attribute(_CLUSTER_DIMENSION, 0, (cluster, 1, 1))
        count += 1
    if early:
        attributes[count] = _Attribute(_BEGIN_EARLY, 0, (1,))
        count += 1
    config = _Config(grid, (threads, 1, 1), shared, stream, attributes, count)
    _checked(
        _driver().cuLaunchKernelEx(
            ctypes.byref(config), ctypes.c_void_p(function), ctypes.c_void_p(parameters), None
        ),
        "cuLaunchKernelEx",
    )


def _checked(status: int, call: str) -> None:
    if status != 0:
        raise BackendError(f"{call} failed with CUDA error {status}.")
