"""The kernels on a CPU: the device of the CuPy backend, on NumPy and a C++ compiler.

A kernel's own source is compiled with ``cuda_on_host.h`` in front of it, which runs a block's
threads as fibers. So the whole backend, its launches and workspaces included, is tested where
there is no GPU.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from beamsieve.errors import BackendError, InputError
from beamsieve.interface import Backend
from beamsieve_backends.cupy_raw import sources
from beamsieve_backends.cupy_raw.backend import CupyBackend
from beamsieve_backends.cupy_raw.warp_groups import INSTANCES

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")
FLAGS = (
    *("-std=c++20", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas"),
    *("-ffp-contract=off", "-fno-strict-aliasing"),
)
ARGUMENTS = {
    "list_candidates": "Listing",
    "tile_slots": "Slots",
    "select_slots": "Slots",
    "multiply_tiles": "Product",
    "key_tiles": "Sixteens",
    "reopen_tiles": "Sixteens",
    "split_halves": "Halves",
    "add_nudge": "Nudge",
    "filter_rows": "Filter",
    "rule_out": "Signatures",
}
"""What each kernel calls its structure, where it is not Step."""

DYNAMIC = "extern __shared__ __align__(16) u8 shared_bytes[];"
"""Here each block of a cluster has its own, and ``shared_bytes`` is where the current one's is."""

_cache = Path(os.environ.get("BEAMSIEVE_HOST_KERNELS", tempfile.gettempdir())) / "beamsieve-kernels"
_seeds = itertools.count(1)


class HostDevice:
    """A device of two multiprocessors, on the CPU."""

    name = "cpu"
    hardware = "host emulation"
    multiprocessors = 2
    shared_bytes = 227 << 10
    clusters = True
    early = False
    warp_groups = True
    tile_products = "planned"

    def __init__(self) -> None:
        self._kernels: dict[str, Any] = {}

    @contextmanager
    def active(self):
        yield

    def stream(self) -> int:
        return 0

    def capturing(self) -> bool:
        return False

    def empty(self, shape, dtype):
        array = np.empty(tuple(shape), dtype)
        array.view(np.uint8)[...] = 0xA5 if array.dtype != np.bool_ else 1  # never zeros by luck
        return array

    def view(self, memory, offset, shape, dtype):
        count = math.prod(shape) * np.dtype(dtype).itemsize
        return memory[offset : offset + count].view(dtype).reshape(shape)

    def full(self, shape, value, dtype):
        return np.full(tuple(shape), value, dtype)

    def take_zeros(self, count):
        return np.zeros(count, np.uint32)

    def give_zeros(self, words, stream) -> None:
        assert not words.any(), "a kernel left its meeting words other than zero"

    def upload(self, array):
        return np.ascontiguousarray(array).copy()

    def to_host(self, array):
        return array.copy()

    def contiguous(self, array):
        return np.ascontiguousarray(array)

    def address(self, array) -> int:
        return 0 if array is None else int(array.ctypes.data)

    def accept(self, value, what):
        if type(value).__module__.partition(".")[0] == "torch":
            import torch

            if value.dtype == torch.bfloat16:
                import ml_dtypes

                return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
            return value.numpy()
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            try:
                return np.from_dlpack(value)
            except BufferError as error:
                raise InputError(f"{what} is elsewhere: {error}") from error
        raise InputError(f"{what} is no array.")

    def launch(self, name, grid, shared, arguments, *parameters, cluster=0) -> None:
        kernel = self._kernel(name, sources.expression(name, *parameters))
        x, y, z = (*grid, 1, 1)[:3]
        kernel(ctypes.c_void_p(arguments.ctypes.data), x, y, z, shared, cluster, next(_seeds))

    def multiply_tiles(self, values, factors, form, grid, shared, *parameters) -> None:
        assert parameters in INSTANCES
        self.launch("multiply_tiles", grid, 0, values, *parameters)

    def _kernel(self, name: str, instance: str) -> Any:
        if instance not in self._kernels:
            entry = (
                f'extern "C" void entry(const void* arguments, unsigned x, unsigned y, unsigned z,'
                f" unsigned shared, unsigned cluster, unsigned seed) {{\n"
                f"    run_grid(x, y, z, THREADS, shared, cluster, seed, [](const void* values) {{\n"
                f"        {instance}(*static_cast<const {ARGUMENTS.get(name, 'Step')}*>(values));\n"
                f"    }}, arguments);\n"
                f"}}\n"
            )
            source = sources.source_of(name).replace(DYNAMIC, "")
            text = f'#include "{HERE / "cuda_on_host.h"}"\n{source}\n{entry}'
            stamp = sha256((text + (HERE / "cuda_on_host.h").read_text()).encode()).hexdigest()[:20]
            library = _cache / f"{name}-{stamp}.so"
            if not library.exists():
                _cache.mkdir(parents=True, exist_ok=True)
                part = library.with_suffix(f".{os.getpid()}.cpp")
                part.write_text(text)
                assert COMPILER is not None
                subprocess.run(
                    [COMPILER, *FLAGS, "-o", f"{part}.so", str(part)],
                    check=True,
                )
                os.replace(f"{part}.so", library)
            # One kernel at a time, as on one stream: PyDLL keeps the interpreter lock.
            self._kernels[instance] = ctypes.PyDLL(str(library)).entry
        return self._kernels[instance]

    def multiply(self, left, right, out, shape, dtype, workspace) -> None:
        rows, columns, depth = shape
        if dtype == "float16":
            left, right = left.view(np.float16), right.view(np.float16)
        a = np.asarray(left).reshape(rows, depth).astype(np.float64)
        b = np.asarray(right).reshape(columns, depth).astype(np.float64)
        with np.errstate(all="ignore"):
            out.reshape(rows, columns)[...] = a @ b.T

    def product_workspace(self):
        return None

    def free_bytes(self):
        return None  # as any host

    def synchronize(self) -> None:
        pass


class HostCupyBackend(CupyBackend):
    """The CuPy backend on the host device."""

    seconds = Backend.seconds

    def _open(self, device):
        if device not in (None, "cpu"):
            raise BackendError(f"The emulation runs on the CPU, not on {device}.")
        return HostDevice()

    @property
    def capabilities(self):
        known = super().capabilities
        names = [n for n in known.dtypes if n != "bfloat16" or find_spec("ml_dtypes")]
        return replace(known, devices=("cpu",), dtypes=tuple(names), graph=False)
