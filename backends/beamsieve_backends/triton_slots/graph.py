"""A whole search as one CUDA graph: buffers that it reads, the capture, and replays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from beamsieve.errors import BackendError, BeamsieveError
from beamsieve.interface import Beams, Captured, Search

Result = TypeVar("Result")

_ALIGNED = 256
_WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal"}
_ADVICE = "make it wait for nothing and read nothing on the host, or leave out graph=True."


class StaticArrays:
    """Arrays of fixed shapes side by side in one device buffer, filled by one copy.

    Args:
        arrays: host arrays of the right shapes and dtypes; uint64 is stored as int64.
        device: where the buffer is.

    Attributes:
        views: the arrays on the device.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], device: torch.device) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        size = 0
        for name, array in arrays.items():
            self._places[name] = (size, array.nbytes)
            size += -(-max(1, array.nbytes) // _ALIGNED) * _ALIGNED
        self._buffer = torch.empty(size, dtype=torch.uint8, device=device)
        self.views: dict[str, torch.Tensor] = {}
        for name, array in arrays.items():
            begin, count = self._places[name]
            whole = self._buffer[begin : begin + count]
            self.views[name] = whole.view(_dtype(array)).view(array.shape)
        self.fill(arrays)

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy new values in, on the current stream and without a wait."""
        # Pinned memory is used again only after the copies out of it, so no copy must be awaited.
        pinned = self._buffer.device.type == "cuda"
        staging = torch.empty(self._buffer.shape, dtype=torch.uint8, pin_memory=pinned)
        host = staging.numpy()
        for name, (begin, count) in self._places.items():
            array = np.ascontiguousarray(arrays[name])
            host[begin : begin + count] = array.reshape(-1).view(np.uint8)
        self._buffer.copy_(staging, non_blocking=True)


def _dtype(array: NDArray[Any]) -> torch.dtype:
    kind = "i8" if array.dtype == np.uint64 else array.dtype
    return torch.from_numpy(np.empty(0, kind)).dtype


class GraphOfSearch(Captured):
    """One captured search.

    Args:
        device: the CUDA device.
        fill: copies what ``replay`` is given into the buffers that the loop reads.
        loop: the whole search, from the buffers to the last beams.

    Raises:
        BackendError: it cannot be captured.
    """

    def __init__(
        self,
        device: torch.device,
        fill: Callable[[Search, NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]], None],
        loop: Callable[[], Beams],
    ) -> None:
        self._device = device
        self._fill = fill
        refuse_in_capture()
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.device(device), torch.cuda.stream(stream):
            with _NoWaits():  # type: ignore[no-untyped-call]
                loop()
            loop()  # once more without the watch, as the capture will run
            try:
                graph, beams = _captured(loop)
            except BeamsieveError:
                raise
            except RuntimeError as error:
                why = " ".join(str(error).split("\n")[0].split()).rstrip(".")
                raise BackendError(
                    f"The search cannot be captured in a CUDA graph, most likely because of "
                    f"score ({why}): {_ADVICE}"
                ) from error
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = graph
        self._beams = beams
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def replay(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """As ``Captured.replay`` says."""
        refuse_in_capture()
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._copied)  # the replay before, perhaps on another stream
            self._fill(search, tokens, rows, finished)
            self._graph.replay()
            beams = with_own_arrays(self._beams, search)
            self._copied.record(stream)
        return beams


def _captured(work: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """What ``work`` does on the current stream as a graph, and what it returned."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        result = work()
    finally:
        graph.capture_end()
    return graph, result


CALLS = 4
"""Calls in a graph that is timed: one alone may take less than the host to start its graph."""


def replayed_seconds(device: torch.device, work: Callable[[], object], replays: int = 10) -> float:
    """The mean time of a call of ``work``, from replays of one CUDA graph of CALLS of them."""
    refuse_in_capture()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    with torch.cuda.device(device), torch.cuda.stream(stream):
        work()  # compiles what it needs, which a capture could not
        graph, _ = _captured(lambda: [work() for _ in range(CALLS)])
        # While these run, the host gets ahead: it may be held up for a while and not be measured.
        for _ in range(replays // 2):
            graph.replay()
        begin.record(stream)
        for _ in range(replays):
            graph.replay()
        end.record(stream)
        end.synchronize()
    torch.cuda.current_stream(device).wait_stream(stream)
    return float(begin.elapsed_time(end)) / (replays * CALLS) / 1e3


def refuse_in_capture() -> None:
    """A graph cannot be captured or replayed while another is captured on the same stream."""
    if torch.cuda.is_current_stream_capturing():
        raise BackendError(
            "A search with graph=True cannot be part of another capture; leave out graph=True, and "
            "its steps are captured with the rest."
        )


def with_own_arrays(beams: Beams, search: Search) -> Beams:
    """The same beams in memory of their own, as a search's that has just ended."""
    names = [
        each.name for each in fields(beams) if isinstance(vars(beams)[each.name], torch.Tensor)
    ]
    copies: dict[str, Any]
    copies = dict(zip(names, copied([getattr(beams, name) for name in names]), strict=True))
    return replace(beams, search=search, **copies)


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies, and one copy only of memory that several of them lie in. Views stay views, and the
    same tensor given twice is the same tensor again."""
    storages: dict[int, Any] = {}
    made: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        if id(tensor) in made:
            continue
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in storages:
            everything = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            storages[address] = everything.clone().untyped_storage()
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        fresh.set_(storages[address], tensor.storage_offset(), tensor.shape, tensor.stride())
        made[id(tensor)] = fresh
    return [made[id(tensor)] for tensor in tensors]


class _NoWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations that wait for the device, before a capture could fail on them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        given = [value for value in args if isinstance(value, torch.Tensor)]
        waits = name in _WAITS
        if name in ("index", "index_put", "index_put_") and len(args) > 1:
            waits = any(
                isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8)
                for one in args[1]
            )
        if waits and any(value.is_cuda for value in given):
            self._refuse(name)
        result = func(*args, **kwargs)
        if name in ("_to_copy", "copy_"):
            source = given[-1] if name == "copy_" else given[0]
            target = given[0] if name == "copy_" else result
            blocks = not kwargs.get("non_blocking", len(args) > 2 and args[2])
            if source.device.type != target.device.type and blocks:
                self._refuse("a copy between the host and the device")
        return result

    def _refuse(self, what: str) -> None:
        raise BackendError(
            f"The search cannot be captured in a CUDA graph, as score calls {what}, which waits "
            f"for the device: {_ADVICE}"
        )
