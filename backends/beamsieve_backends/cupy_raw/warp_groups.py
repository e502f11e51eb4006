"""Kernels that need Hopper's own instructions: compiled for sm_90a, and given tensor maps.

CuPy compiles for the plain architecture, on which these instructions do not exist. So NVRTC is
asked directly, and the machine code is kept beside what CuPy keeps.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError
from beamsieve_backends.cupy_raw.launches import launch
from beamsieve_backends.cupy_raw.sources import expression, source_of

THREADS = 384
"""Two warp groups that multiply, and one whose first thread fetches."""
OPTIONS = ("--std=c++17", "--gpu-architecture=sm_90a")
BOX_ROWS, BOX_DEPTH = 128, 64
INSTANCES = (
    *(
        (dtype, same, "false")
        for dtype in ("float", "bfloat16", "float16")
        for same in ("true", "false")
    ),
    *(("float", same, "true") for same in ("true", "false")),
)
"""Of the kernel's template: T, Same, Splits."""

_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_KINDS = {"float16": 6, "bfloat16": 9}  # CUtensorMapDataType
_SWIZZLE_128B, _PROMOTE_256B = 3, 3


def text_of(dtype: str, same: str, splits: str) -> str:
    """What NVRTC compiles: one instance, under a name of its own."""
    block = expression("multiply_block", dtype, same, splits)
    return (
        f"{source_of('multiply_tiles')}\n"
        f'extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS, 1)\n'
        f"entry(const __grid_constant__ Product in) {{ {block}(in); }}\n"
    )


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _checked(status: int, call: str) -> None:
    if status != 0:
        raise BackendError(f"{call} failed with CUDA error {status}.")


class WarpGroupKernels:
    """The instances of multiply_tiles on one device.

    Args:
        shared_bytes: the most shared memory that a block can have.
    """

    def __init__(self, shared_bytes: int) -> None:
        self._shared_bytes = shared_bytes
        self._functions: dict[tuple[str, str, str], ctypes.c_void_p] = {}
        self._lock = threading.Lock()

    def function(self, instance: tuple[str, str, str]) -> ctypes.c_void_p:
        """One of INSTANCES, loaded into the current context."""
        with self._lock:
            found = self._functions.get(instance)
            if found is None:
                found = self._functions[instance] = self._loaded(machine_code(*instance))
            return found

    def _loaded(self, code: bytes) -> ctypes.c_void_p:
        driver, module, function = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
        _checked(driver.cuModuleLoadData(ctypes.byref(module), code), "cuModuleLoadData")
        _checked(
            driver.cuModuleGetFunction(ctypes.byref(function), module, b"entry"),
            "cuModuleGetFunction",
        )
        _checked(
            driver.cuFuncSetAttribute(function, _SHARED_BYTES, self._shared_bytes),
            "cuFuncSetAttribute",
        )
        return function

    def launch(
        self,
        instance: tuple[str, str, str],
        values: NDArray[Any],
        factors: tuple[tuple[int, int], tuple[int, int]],
        form: tuple[str, int, int],
        grid: tuple[int, int],
        shared: int,
        stream: int,
        early: bool,
    ) -> None:
        """Start multiply_tiles.

        Args:
            instance: its template's parameters.
            values: ``Product``, all but the tensor maps.
            factors: address and rows of the states, and of the head.
            form: dtype of both, parts of a row, numbers of a part.
            grid: splits of the codebook, blocks of beams.
            shared: bytes of shared memory.
            stream: where to run.
            early: as ``launches.launch`` says.
        """
        for name, (address, rows) in zip(("left", "right"), factors, strict=True):
            values[name] = np.frombuffer(tensor_map(address, rows, *form), np.uint64)
        bytes_ = values.tobytes()
        memory = ctypes.create_string_buffer(bytes_, len(bytes_))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        function = self.function(instance).value
        launch(
            function or 0,
            (*grid, 1),
            THREADS,
            shared,
            stream,
            ctypes.addressof(pointers),
            cluster=0,
            early=early,
        )


@lru_cache(maxsize=256)
def tensor_map(address: int, rows: int, dtype: str, parts: int, size: int) -> bytes:
    """The driver's description of [rows, parts, size] 16-bit numbers, fetched in swizzled boxes.

    What a box reaches beyond the matrix arrives as zeros.
    """
    raw = ctypes.create_string_buffer(128 + 64)
    at = -(-ctypes.addressof(raw) // 64) * 64
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(at),
        ctypes.c_int(_KINDS[dtype]),
        ctypes.c_uint32(3),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 3)(size, parts, rows),
        (ctypes.c_uint64 * 2)(2 * size, 2 * size * parts),
        (ctypes.c_uint32 * 3)(BOX_DEPTH, 1, BOX_ROWS),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        ctypes.c_int(0),
        ctypes.c_int(_SWIZZLE_128B),
        ctypes.c_int(_PROMOTE_256B),
        ctypes.c_int(0),
    )
    _checked(status, "cuTensorMapEncodeTiled")
    return ctypes.string_at(at, 128)


def machine_code(dtype: str, same: str, splits: str) -> bytes:
    """The instance for sm_90a, from the cache on disk or compiled and put there."""
    from cupy.cuda import nvrtc

    text = text_of(dtype, same, splits)
    stamp = sha256(repr((text, OPTIONS, nvrtc.getVersion())).encode()).hexdigest()[:32]
    folder = os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache"  # where CuPy keeps its own
    kept = Path(folder).expanduser() / f"beamsieve-{stamp}.cubin"
    try:
        return kept.read_bytes()
    except FileNotFoundError:
        pass
    program = nvrtc.createProgram(text, "multiply_tiles.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, OPTIONS)
        except nvrtc.NVRTCError as error:
            raise BackendError(
                f"multiply_tiles does not compile for sm_90a ({error}): "
                f"{nvrtc.getProgramLog(program)[:400]}"
            ) from error
        code = bytes(nvrtc.getCUBIN(program))
    finally:
        nvrtc.destroyProgram(program)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as part:
        part.write(code)
    os.replace(part.name, kept)
    return code
