"""A CUDA device as this backend uses it: arrays, streams, kernels and products, through CuPy."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError
from beamsieve_backends.cupy_raw.accepted import accepted
from beamsieve_backends.cupy_raw.blas import WORKSPACE_BYTES, Handles
from beamsieve_backends.cupy_raw.launches import CLUSTERED, allow_any_size, launch
from beamsieve_backends.cupy_raw.sources import expression, source_of
from beamsieve_backends.cupy_raw.upload import to_device
from beamsieve_backends.cupy_raw.warp_groups import INSTANCES, WarpGroupKernels, machine_code

THREADS = 512
"""Threads of every block, as in ``kernels/common.cuh``."""


@contextmanager
def _allocating_in_capture() -> Iterator[None]:
    """Let this thread allocate memory while a stream is captured; the graph has no part in it."""
    relaxed = ctypes.c_int(2)  # CU_STREAM_CAPTURE_MODE_RELAXED
    exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(relaxed))  # now holds the mode before
    try:
        yield
    finally:
        exchange(ctypes.byref(relaxed))


class CudaDevice:
    """One GPU. ``number`` counts as CUDA does.

    Attributes:
        clear_products: whether ``multiply`` clears first what it will write.
        early: whether a kernel may begin while the one ahead of it on the stream still runs. Every
            kernel waits for that one by itself.
        tile_products: whether steps over the whole codebook go by ``multiply_tiles``: "always",
            "never" or where a plan says "fused".
    """

    clear_products = False
    tile_products = "planned"

    def __init__(self, number: int) -> None:
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise BackendError(f"CuPy finds no CUDA device: {error}.") from error
        if not 0 <= number < count:
            raise BackendError(f"There is no device cuda:{number}; CUDA sees {count} of them.")
        self.number = number
        self.name = f"cuda:{number}"
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        self.hardware = str(properties["name"].decode())
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared_bytes = int(properties.get("sharedMemPerBlockOptin", 99 << 10))
        self.clusters = int(properties["major"]) in (9, 10)
        self.early = int(properties["major"]) >= 9
        self.warp_groups = (int(properties["major"]), int(properties["minor"])) == (9, 0)
        self._warp_group_kernels = WarpGroupKernels(self.shared_bytes)
        self._kernels: dict[str, Any] = {}
        self._lock = threading.RLock()  # a collected workspace may give back while it is held
        self._handles = Handles()
        self._zeros: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._slab: Any = None
        self._slab_used = 0
        self._slabs: list[Any] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Work on this device, on the caller's stream.

        That is CuPy's current stream where the caller chose one, else torch's current stream where
        torch runs on CUDA in this process, else the default stream.
        """
        with cupy.cuda.Device(self.number):
            stream = self._torch_stream()
            chosen = self.external(stream) if stream else nullcontext()
            with chosen, _allocating_in_capture() if self.capturing() else nullcontext():
                yield

    def _torch_stream(self) -> int:
        if cupy.cuda.get_current_stream().ptr != 0:
            return 0
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return int(torch.cuda.current_stream(self.number).cuda_stream)

    def stream(self) -> int:
        """The current stream's address; 0 for the default one."""
        return int(cupy.cuda.get_current_stream().ptr)

    def capturing(self) -> bool:
        """Whether the current stream is being captured into a graph."""
        return bool(cupy.cuda.runtime.streamIsCapturing(self.stream()))

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array of whatever the memory held."""
        return cupy.empty(tuple(shape), dtype)

    def view(self, memory: Any, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array in memory that is there already, ``offset`` bytes behind its begin."""
        return cupy.ndarray(shape, dtype, memory.data + offset)

    def external(self, stream: int) -> Any:
        """Someone else's stream, for CuPy."""
        return cupy.cuda.ExternalStream(stream, self.number)

    def full(self, shape: Sequence[int], value: Any, dtype: Any) -> Any:
        """An array of one value."""
        return cupy.full(tuple(shape), value, dtype)

    def take_zeros(self, count: int) -> Any:
        """uint32 words that are zero already, so that a graph under capture need not make them.

        Whoever takes them leaves them zero, and gives them back with ``give_zeros``.
        """
        with self._lock:
            kept = self._zeros[self.stream(), count]
            if kept:
                return kept.pop()
            if self._slab is None or self._slab_used + count > self._slab.size:
                self._slab, self._slab_used = self._new_slab(max(count, 1 << 18)), 0
            words = self._slab[self._slab_used : self._slab_used + count]
            self._slab_used += count
            return words

    def give_zeros(self, words: Any, stream: int) -> None:
        """Take back words for later work on the stream that used them."""
        with self._lock:
            self._zeros[stream, words.size].append(words)

    def _new_slab(self, count: int) -> Any:
        """New memory, never freed: nothing on any stream can still use it."""
        memory = cupy.cuda.Memory(4 * count)
        self._slabs.append(memory)
        slab = cupy.ndarray(count, np.uint32, cupy.cuda.MemoryPointer(memory, 0))
        side = cupy.cuda.Stream(non_blocking=True)
        slab.data.memset_async(0, slab.nbytes, side)
        side.synchronize()
        return slab

    def upload(self, array: NDArray[Any]) -> Any:
        """A copy of a host array."""
        return to_device(array)

    def to_host(self, array: Any) -> NDArray[Any]:
        """A copy on the host, complete."""
        host: NDArray[Any] = cupy.asnumpy(array)
        return host

    def contiguous(self, array: Any) -> Any:
        """The array itself if its rows follow each other in memory, else a copy."""
        return cupy.ascontiguousarray(array)

    def address(self, array: Any) -> int:
        """Where the array begins; 0 for None."""
        return 0 if array is None else int(array.data.ptr)

    def accept(self, value: Any, what: str) -> Any:
        """``value`` as a CuPy array on this device, without a copy.

        Raises:
            InputError: it is on another device, or no array.
        """
        return accepted(value, what, self.number)

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        shared: int,
        arguments: Any,
        *parameters: str,
        cluster: int = 0,
    ) -> None:
        """Start the kernel ``name``, an instance with the template ``parameters``.

        Args:
            name: of the kernel and of its file.
            grid: blocks, up to three dimensions.
            shared: bytes of shared memory.
            arguments: its structure (see ``arguments.py``).
            parameters: C++ types and constants.
            cluster: how many blocks, neighbours in the first dimension, form a cluster; 0 for none.
        """
        function = self._kernel(expression(name, *parameters))
        bytes_ = arguments.tobytes()
        memory = ctypes.create_string_buffer(bytes_, len(bytes_))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        x, y, z = (*grid, 1, 1)[:3]
        launch(
            function,
            (x, y, z),
            THREADS,
            shared,
            self.stream(),
            ctypes.addressof(pointers),
            cluster=cluster,
            early=self.early,
        )

    def multiply_tiles(
        self,
        values: Any,
        factors: tuple[tuple[Any, int], tuple[Any, int]],
        form: tuple[str, int, int],
        grid: tuple[int, int],
        shared: int,
        *parameters: str,
    ) -> None:
        """As ``WarpGroupKernels.launch``, the factors as arrays or addresses, on this stream."""
        (left, rows), (right, columns) = (
            (each if isinstance(each, int) else self.address(each), count)
            for each, count in factors
        )
        dtype, same, splits = parameters
        self._warp_group_kernels.launch(
            (dtype, same, splits),
            values,
            ((left, rows), (right, columns)),
            form,
            grid,
            shared,
            self.stream(),
            self.early,
        )

    def compile(self, kernels: Sequence[str]) -> None:
        """Compile all of these, as many at a time as there are processors."""
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
            made = [threads.submit(self._compiled, wanted) for wanted in kernels]
            if self.warp_groups:
                made += [threads.submit(machine_code, *instance) for instance in INSTANCES]
            for one in made:
                one.result()
        for wanted in kernels:
            self._kernel(wanted)

    def _compiled(self, wanted: str) -> Any:
        """The kernel's module, which CuPy finds in its cache on disk or puts there."""
        with cupy.cuda.Device(self.number):
            module = cupy.RawModule(
                code=source_of(wanted.partition("<")[0]),
                options=("--std=c++17",),
                name_expressions=(wanted,),
            )
            module.compile()
            return module

    def _kernel(self, wanted: str) -> int:
        found = self._kernels.get(wanted)
        if found is None:
            with self._lock:
                found = self._kernels.get(wanted)
                if found is None:
                    module = self._compiled(wanted)
                    kernel = module.get_function(wanted)
                    kernel.max_dynamic_shared_size_bytes = self.shared_bytes
                    if wanted.partition("<")[0] in CLUSTERED:
                        allow_any_size(int(kernel.kernel.ptr))
                    found = (module, kernel)
                    self._kernels[wanted] = found
        return int(found[1].kernel.ptr)

    def multiply(
        self,
        left: Any,
        right: Any,
        out: Any,
        shape: tuple[int, int, int],
        dtype: str,
        workspace: Any,
    ) -> None:
        """out[i, j] = left[i] . right[j]; ``shape`` is rows, columns, depth."""
        if self.clear_products:
            out.data.memset_async(0, 4 * shape[0] * shape[1], cupy.cuda.get_current_stream())
        with self._handles.lent() as products:
            products.rows_by_rows(
                self.address(left),
                self.address(right),
                self.address(out),
                shape,
                dtype,
                stream=self.stream(),
                workspace=self.address(workspace),
            )

    def product_workspace(self) -> Any:
        """Memory for ``multiply``; one stream at a time may use it."""
        return cupy.empty(WORKSPACE_BYTES, np.uint8)

    def free_bytes(self) -> int:
        """What the driver has left, and what CuPy holds in reserve."""
        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free) + int(cupy.get_default_memory_pool().free_bytes())

    def synchronize(self) -> None:
        """Wait for everything on the current stream."""
        cupy.cuda.get_current_stream().synchronize()
