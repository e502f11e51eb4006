"""A whole search as one CUDA graph: the buffers that it reads, the capture, and replays.

Where torch runs on CUDA in this process the capture is torch's, so that what a scorer written in
torch allocates belongs to the graph; else it is CuPy's. Either way CuPy's own allocations come from
a pool that only this graph uses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

import cupy
import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError, BeamsieveError
from beamsieve.interface import Beams, Captured, Search
from beamsieve_backends.cupy_raw.beams import ARRAYS

Result = TypeVar("Result")

_ALIGNED = 256
_ADVICE = "make it wait for nothing and read nothing on the host, or leave out graph=True."

Fill = Callable[[Search, NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]], None]


class StaticArrays:
    """Arrays of fixed shapes side by side in one device buffer, filled by one copy.

    Args:
        device: the backend's device, active.
        arrays: host arrays of the right shapes and dtypes.

    Attributes:
        views: the arrays on the device.
    """

    def __init__(self, device: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._size = 0
        for name, array in arrays.items():
            self._places[name] = (self._size, array.nbytes)
            self._size += -(-max(1, array.nbytes) // _ALIGNED) * _ALIGNED
        self._buffer = device.empty((max(1, self._size),), np.uint8)
        self.views = {
            name: device.view(self._buffer, self._places[name][0], array.shape, array.dtype)
            for name, array in arrays.items()
        }
        self._staging: list[tuple[Any, NDArray[np.uint8]]] = []
        self.fill(arrays)

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy new values in, on the current stream and without a wait."""
        event, host = self._pinned()
        for name, (begin, count) in self._places.items():
            array = np.ascontiguousarray(arrays[name])
            host[begin : begin + count] = array.reshape(-1).view(np.uint8)
        stream = cupy.cuda.get_current_stream()
        self._buffer.data.copy_from_host_async(host.ctypes.data, self._size, stream)
        event.record(stream)

    def _pinned(self) -> tuple[Any, NDArray[np.uint8]]:
        """Pinned memory that no copy reads any more."""
        for event, host in self._staging:
            if event.done:
                return event, host
        memory = cupy.cuda.alloc_pinned_memory(max(1, self._size))
        host = np.frombuffer(memory, np.uint8, max(1, self._size))
        made = (cupy.cuda.Event(disable_timing=True), host)
        self._staging.append(made)
        return made


class GraphOfSearch(Captured):
    """One captured search.

    Args:
        device: the backend's.
        fill: copies what ``replay`` is given into the buffers that the loop reads.
        loop: the whole search, from these buffers to the last beams.

    Raises:
        BackendError: it cannot be captured.
    """

    def __init__(self, device: Any, fill: Fill, loop: Callable[[], Beams]) -> None:
        refuse_in_capture(device)
        self._device, self._fill = device, fill
        self._pool = cupy.cuda.MemoryPool()
        self._copied = cupy.cuda.Event(disable_timing=True)
        caller = cupy.cuda.get_current_stream()
        before = cupy.cuda.Event(disable_timing=True)
        before.record(caller)
        torch: Any = sys.modules.get("torch")
        if torch is not None and not torch.cuda.is_initialized():
            torch = None
        with ExitStack() as stack:
            if torch is None:
                stream = stack.enter_context(cupy.cuda.Stream(non_blocking=True))
            else:
                own = torch.cuda.Stream(device.number)
                stack.enter_context(torch.cuda.device(device.number))
                stack.enter_context(torch.cuda.stream(own))
                stream = stack.enter_context(device.external(int(own.cuda_stream)))
            stack.enter_context(cupy.cuda.using_allocator(self._pool.malloc))
            stream.wait_event(before)
            for _ in range(2):  # kernels are compiled, and both libraries take their memory
                loop()
            _trial(stream, loop)
            self._graph, self._beams = _captured(stream, loop, torch)
            after = cupy.cuda.Event(disable_timing=True)
            after.record(stream)
        self._torch: Any = torch
        caller.wait_event(after)
        self._copied.record(caller)

    def replay(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """As ``Captured.replay`` says."""
        with self._device.active():
            refuse_in_capture(self._device)
            stream = cupy.cuda.get_current_stream()
            stream.wait_event(self._copied)  # the replay before, perhaps on another stream
            self._fill(search, tokens, rows, finished)
            if self._torch is None:
                self._graph.launch(stream)
            else:
                with self._torch.cuda.stream(self._same_stream(int(stream.ptr))):
                    self._graph.replay()
            beams = self._with_own_arrays(search)
            self._copied.record(stream)
        return beams

    def _same_stream(self, address: int) -> Any:
        """A stream of CuPy's as torch's. By the address 0 torch would make a new stream."""
        cuda, number = self._torch.cuda, self._device.number
        return cuda.ExternalStream(address, number) if address else cuda.default_stream(number)

    def _with_own_arrays(self, search: Search) -> Beams:
        """The last beams in memory of their own, by one copy: they lie side by side."""
        arrays = {name: getattr(self._beams, name) for name in ARRAYS}
        first = min(arrays.values(), key=lambda array: int(array.data.ptr))
        begin = int(first.data.ptr)
        size = max(int(array.data.ptr) + array.nbytes for array in arrays.values()) - begin
        copy = self._device.empty((size,), np.uint8)
        copy.data.copy_from_device_async(first.data, size, cupy.cuda.get_current_stream())
        copies = {
            name: self._device.view(copy, int(array.data.ptr) - begin, array.shape, array.dtype)
            for name, array in arrays.items()
        }
        return replace(self._beams, search=search, **copies)


def refuse_in_capture(device: Any) -> None:
    """A graph cannot be captured or replayed while another is captured on the same stream."""
    if device.capturing():
        raise BackendError(
            "A search with graph=True cannot be part of another capture; leave out graph=True, and "
            "its steps are captured with the rest."
        )


def _trial(stream: Any, loop: Callable[[], Beams]) -> None:
    """Capture once and forget it: a failure here leaves nothing behind in torch's allocator."""
    try:
        _taken(stream, loop)
    except BeamsieveError:
        raise
    except RuntimeError as error:
        raise _refusal(error) from error


def _captured(stream: Any, loop: Callable[[], Beams], torch: Any) -> tuple[Any, Beams]:
    """The graph, and the beams that it writes."""
    try:
        if torch is None:
            return _taken(stream, loop)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="relaxed")
        try:
            beams = loop()
        finally:
            graph.capture_end()
        return graph, beams
    except BeamsieveError:
        raise
    except RuntimeError as error:
        raise _refusal(error) from error


def _taken(stream: Any, work: Callable[[], Result]) -> tuple[Any, Result]:
    """CuPy's own capture: the graph, and what ``work`` returned."""
    stream.begin_capture()
    try:
        result = work()
    finally:
        graph = stream.end_capture()
    return graph, result


def _refusal(error: RuntimeError) -> BackendError:
    why = " ".join(str(error).split("\n")[0].split()).rstrip(".")
    return BackendError(
        f"The search cannot be captured in a CUDA graph, most likely because of score ({why}): "
        f"{_ADVICE}"
    )


CALLS = 4
"""Calls in a graph that is timed: one alone may take less than the host to start its graph."""


def replayed_seconds(device: Any, work: Callable[[], object], replays: int) -> float:
    """The device's time of one call of ``work``, which waits for nothing: the mean of replays.

    They follow one another, as steps do in a search; the least of them would favour whatever was
    lucky once. CALLS of ``work`` are captured on a stream of its own, after all that the device was
    asked for before.
    """
    cupy.cuda.Device(device.number).synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    with stream:
        work()  # memory is taken, and kernels are compiled
        stream.synchronize()
        graph, kept = _taken(stream, lambda: [work() for _ in range(CALLS)])
        # While these run, the host gets ahead: it may be held up for a while and not be measured.
        for _ in range(max(1, replays // 2)):
            graph.launch(stream)
        begin.record(stream)
        for _ in range(replays):
            graph.launch(stream)
        end.record(stream)
        end.synchronize()
    del kept
    return float(cupy.cuda.get_elapsed_time(begin, end)) / (replays * CALLS) / 1e3
