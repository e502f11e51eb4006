"""The one function of cuBLAS that is needed, called directly.

CuPy refuses cuBLAS calls while a stream is captured into a graph. cuBLAS itself allows them, given
a workspace of the caller's own, so that nothing is allocated on the way.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from beamsieve.errors import BackendError

WORKSPACE_BYTES = 32 << 20
"""What NVIDIA advises for Hopper."""

_TRANSPOSED, _PLAIN = 1, 0
_FLOAT32 = 0
_TYPES = {"float32": _FLOAT32, "float16": 2, "bfloat16": 14}  # cudaDataType
_COMPUTE_32F = 68  # cublasComputeType_t
_ANY_ALGORITHM = -1


@cache
def library() -> Any:
    """cuBLAS, from CUDA's wheels or from where the system keeps it.

    Raises:
        BackendError: it is not installed.
    """
    tried = []
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        tried.append(str(error).splitlines()[0])
    for name in ("libcublas.so.13", "libcublas.so.12", "libcublas.so"):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(str(error))
    raise BackendError(
        f"The full projection needs cuBLAS, which was not found ({tried[0]}): "
        f"pip install nvidia-cublas."
    )


class Products:
    """Matrix products on one device, from one host thread at a time."""

    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        _checked(library().cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
        self._handle = handle
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def rows_by_rows(
        self,
        left: int,
        right: int,
        out: int,
        shape: tuple[int, int, int],
        dtype: str,
        *,
        stream: int,
        workspace: int,
    ) -> None:
        """out[i, j] = left[i] . right[j], accumulated in float32.

        Args:
            left: address of [rows, depth] in ``dtype``.
            right: address of [columns, depth] in ``dtype``.
            out: address of float32 [rows, columns].
            shape: rows, columns, depth.
            dtype: of left and right.
            stream: where to run.
            workspace: address of WORKSPACE_BYTES bytes that this stream alone uses.
        """
        blas, handle = library(), self._handle
        rows, columns, depth = shape
        kind = _TYPES[dtype]
        _checked(blas.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "cublasSetStream")
        _checked(
            blas.cublasSetWorkspace_v2(
                handle, ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES)
            ),
            "cublasSetWorkspace",
        )
        # cuBLAS counts by columns: what is out[rows, columns] here is its transpose there.
        _checked(
            blas.cublasGemmEx(
                handle,
                _TRANSPOSED,
                _PLAIN,
                columns,
                rows,
                depth,
                ctypes.byref(self._one),
                ctypes.c_void_p(right),
                kind,
                depth,
                ctypes.c_void_p(left),
                kind,
                depth,
                ctypes.byref(self._zero),
                ctypes.c_void_p(out),
                _FLOAT32,
                columns,
                _COMPUTE_32F,
                _ANY_ALGORITHM,
            ),
            "cublasGemmEx",
        )


class Handles:
    """Lends cuBLAS's handles: there are as many as there ever were products at one moment.

    A handle keeps memory of the device. One for each thread would keep it for every thread that
    ever searched, as nothing says when a thread has ended.
    """

    def __init__(self) -> None:
        self._free: list[Products] = []

    @contextmanager
    def lent(self) -> Iterator[Products]:
        """A handle that nobody else uses meanwhile."""
        try:
            products = self._free.pop()
        except IndexError:
            products = Products()
        try:
            yield products
        finally:
            self._free.append(products)


def _checked(status: int, call: str) -> None:
    if status != 0:
        raise BackendError(f"{call} failed with cuBLAS status {status}.")
