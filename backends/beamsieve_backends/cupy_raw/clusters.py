"""Launching a kernel whose blocks form clusters, which CuPy has no call for: the driver's own."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from beamsieve.errors import BackendError

CLUSTERED = ("fused_rows", "pool_tiles", "rank_tiles")
"""Kernels whose blocks form clusters."""

_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
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


def launch_clusters(
    function: int,
    grid: tuple[int, int, int],
    threads: int,
    cluster: int,
    shared: int,
    stream: int,
    parameters: int,
) -> None:
    """Start ``function``, each ``cluster`` neighbouring blocks of the first dimension together.

    Raises:
        BackendError: the driver refuses.
    """
    attribute = _Attribute(_CLUSTER_DIMENSION, 0, (cluster, 1, 1))
    config = _Config(grid, (threads, 1, 1), shared, stream, ctypes.pointer(attribute), 1)
    _checked(
        _driver().cuLaunchKernelEx(
            ctypes.byref(config), ctypes.c_void_p(function), ctypes.c_void_p(parameters), None
        ),
        "cuLaunchKernelEx",
    )


def _checked(status: int, call: str) -> None:
    if status != 0:
        raise BackendError(f"{call} failed with CUDA error {status}.")
