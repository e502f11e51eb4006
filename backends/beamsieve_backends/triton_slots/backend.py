"""The backend: beams in, one chain of kernels, beams out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.errors import BackendError
from beamsieve.index import Index
from beamsieve.interface import (
    Array,
    Backend,
    Beams,
    Candidates,
    Capabilities,
    Captured,
    Normalize,
    Search,
    StepInputs,
)
from beamsieve_backends.first_beams import first_arrays
from beamsieve_backends.torch_dense import TorchBackend
from beamsieve_backends.triton_slots.graph import (
    GraphOfSearch,
    StaticArrays,
    replayed_seconds,
)
from beamsieve_backends.triton_slots.halves import head_parts
from beamsieve_backends.triton_slots.launch import INTERPRETED
from beamsieve_backends.triton_slots.loaded import TritonTables
from beamsieve_backends.triton_slots.matchers import DeviceRequests, DeviceTargeting
from beamsieve_backends.triton_slots.step import StepArrays, run_step
from beamsieve_backends.triton_slots.tables import LARGEST_WIDTH, load_tables


@dataclass(frozen=True)
class SlotBeams(Beams):
    """Beams that this backend made itself, so that no two of a request share a row."""

    own_rows: Array = field(default=None, repr=False)
    """``rows`` as they were made; another array there means that somebody changed the beams."""


class TritonBackend(Backend):
    """``backend="triton"``: fused Triton kernels on an NVIDIA GPU.

    A step is one chain of kernels without a wait for the device, targeting included, so whole
    searches can be captured in a CUDA graph. The step in its two halves, ``candidates`` and
    ``select``, is the torch backend's, which waits for the device and keeps tables of its own once
    they are used.

    With TRITON_INTERPRET=1 in the environment the kernels run on the CPU, one program after the
    other: for tests on small shapes.
    """

    name: ClassVar[str] = "triton"
    kernel_sources: ClassVar[tuple[str, ...]] = (
        "triton_slots/ordering.py",
        "triton_slots/lookup.py",
        "triton_slots/operands.py",
        "triton_slots/project.py",
        "triton_slots/choose.py",
        "triton_slots/revisit.py",
        "triton_slots/finish.py",
        "triton_slots/units.py",
        "triton_slots/by_units.py",
        "triton_slots/scored.py",
        "triton_slots/slot_keys.py",
        "triton_slots/products.py",
        "triton_slots/slots.py",
        "triton_slots/rows.py",
        "triton_slots/shares.py",
        "triton_slots/survivors.py",
        "triton_slots/intervals.py",
        "triton_slots/rank.py",
        "triton_slots/row_logits.py",
        "triton_slots/row_choice.py",
        "triton_slots/targeting.py",
        "triton_slots/permitted.py",
    )

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        if options:
            raise BackendError(
                f"The backend 'triton' has no options, so not {next(iter(options))!r} either."
            )
        if INTERPRETED:
            if device is not None and device != "cpu":
                raise BackendError(
                    f"TRITON_INTERPRET=1 runs Triton's kernels on the CPU, not on {device!r}; "
                    f"unset it to use the GPU."
                )
            device = "cpu"
        else:
            if device is None:
                device = "cuda"
            if device.partition(":")[0] != "cuda":
                raise BackendError(
                    f"The backend 'triton' runs on cuda, not on {device!r}; use torch:cpu there "
                    f"(or TRITON_INTERPRET=1, to test the kernels)."
                )
        self._halves = TorchBackend(device)
        self.device = self._halves.device
        self.device_name = self._halves.device_name
        self._device = torch.device(self.device)
        if self._device.type == "cuda" and torch.cuda.get_device_capability(self._device) < (8, 0):
            raise BackendError(
                f"The backend 'triton' needs a GPU of compute capability 8.0 or later, and "
                f"{self.device_name} is older; use torch:{self.device}."
            )

    @property
    def capabilities(self) -> Capabilities:
        """The interpreter is the only way to the CPU. A beam and a token share 31 bits."""
        return Capabilities(
            devices=("cpu",) if INTERPRETED else ("cuda",),
            dtypes=("float32", "bfloat16", "float16"),
            projections=("full", "selective"),
            targeting=self._halves.capabilities.targeting,
            largest_width=LARGEST_WIDTH,
            largest_codebook=1 << 18,
            tolerance={"float32": 1e-5, "bfloat16": 1e-5, "float16": 1e-5},
            graph=not INTERPRETED,
        )

    def load(self, index: Index) -> TritonTables:
        """The step tables on the device; a table near the break-even of its layouts is dense."""
        tables = load_tables(index, self._device)
        return TritonTables(index, tables, DeviceTargeting(index, self._device), self._halves)

    def free_bytes(self) -> int | None:
        """As the torch backend counts them, whose allocator this one shares."""
        return self._halves.free_bytes()

    def device_bytes(self, tables: TritonTables) -> int:
        """Bytes of all tables on the device."""
        return tables.nbytes

    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """One beam per request whose prefix is known; nothing here waits for the device."""
        if search.requests is not None:
            asked = self._requests(search)
            with self._current():
                asked.prepare()
            search = replace(search, device_requests=asked)
        if tokens.shape[1] == 0:
            return self._at_the_root(search)
        given = StaticArrays(first_arrays(tokens, rows, finished), self._device)
        return _from_arrays(given.views, search)

    def _requests(self, search: Search) -> DeviceRequests:
        assert search.requests is not None
        return DeviceRequests(search.requests, search.tables.targeting, self._device)

    def _at_the_root(self, search: Search) -> Beams:
        """Made on the device, so that a capture may hold it."""
        with self._current():
            scores = torch.zeros(search.batch, 1, dtype=torch.float32, device=self._device)
            rows = torch.zeros(search.batch, 1, dtype=torch.int64, device=self._device)
            views = {
                "tokens": torch.empty(search.batch, 1, 0, dtype=torch.int32, device=self._device),
                "scores": scores,
                "keys": scores.clone(),
                "rows": rows,
                "parents": rows - 1,
                "finished": torch.zeros_like(rows, dtype=torch.bool),
                "count": rows[:, 0] + 1,
            }
        return _from_arrays(views, search)

    @torch.no_grad()
    def capture(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
        loop: Callable[[Beams], Beams],
    ) -> Captured:
        """One CUDA graph of all kernels, the scorer's and the backend's."""
        first = StaticArrays(first_arrays(tokens, rows, finished), self._device)
        asked = None if search.requests is None else self._requests(search)
        own = replace(search, device_requests=asked)

        def fill(
            search: Search,
            tokens: NDArray[np.int32],
            rows: NDArray[np.int64],
            finished: NDArray[np.bool_],
        ) -> None:
            if tokens.shape[1]:  # without a prefix all searches begin alike
                first.fill(first_arrays(tokens, rows, finished))
            if asked is not None:
                assert search.requests is not None
                asked.fill(search.requests)

        def whole() -> Beams:
            if asked is not None:
                asked.prepare()
            return loop(_from_arrays(first.views, own))

        return GraphOfSearch(self._device, fill, whole)

    @torch.no_grad()
    def step(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Beams:
        """A chain of kernels on the current stream."""
        asked: DeviceRequests | None = beams.search.device_requests
        arrays = StepArrays(
            beams.scores.contiguous(),
            beams.rows.contiguous(),
            beams.finished.contiguous(),
            beams.tokens.contiguous(),
            isinstance(beams, SlotBeams) and beams.own_rows is beams.rows,
        )
        with self._current():
            new = run_step(
                beams.search.tables.step,
                arrays,
                beams.step + 1,
                inputs,
                normalize,
                None if asked is None else asked.of_step(beams.step + 1),
            )
        return SlotBeams(
            step=beams.step + 1,
            tokens=new.tokens,
            scores=new.scores,
            keys=new.keys,
            rows=new.rows,
            parents=new.parents,
            finished=new.finished,
            count=new.count,
            search=beams.search,
            own_rows=new.rows,
        )

    def _current(self) -> contextlib.AbstractContextManager[object]:
        """Kernels start on the current device."""
        if self._device.type != "cuda":
            return contextlib.nullcontext()
        return torch.cuda.device(self._device)

    def candidates(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Candidates:
        """As the torch backend finds them."""
        return self._halves.candidates(_for_halves(beams), inputs, normalize)

    def select(self, beams: Beams, candidates: Candidates, width: int, keys: Array | None) -> Beams:
        """As the torch backend chooses."""
        chosen = self._halves.select(_for_halves(beams), candidates, width, keys)
        return replace(chosen, search=beams.search)

    def add_nudge(self, candidates: Candidates, nudge: Array) -> Array:
        """As the torch backend adds it."""
        return self._halves.add_nudge(candidates, nudge)

    def asarray(self, value: Any, *, what: str) -> torch.Tensor:
        """Tensors as they are; DLPack and NumPy arrays without a copy where they allow it."""
        return self._halves.asarray(value, what=what)

    @torch.no_grad()
    def prepare_head(self, head: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
        """A float32 head's float16 parts, and what undoes their scales.

        Raises:
            BackendError: the stream is being captured: steps outside of the graph would read what
                was never computed.
        """
        with self._current():
            if self._device.type != "cuda":
                return head_parts(head)
            if torch.cuda.is_current_stream_capturing():
                raise BackendError("Prepare heads before the capture begins.")
            parts = head_parts(head)
            torch.cuda.current_stream().synchronize()  # then it may serve other streams
        return parts

    def to_host(self, array: torch.Tensor) -> NDArray[Any]:
        """The tensor as NumPy."""
        return self._halves.to_host(array)

    def synchronize(self) -> None:
        """Wait for the device."""
        self._halves.synchronize()

    @torch.no_grad()
    def seconds(self, work: Callable[[], object]) -> float:
        """The device's time of one call, from replays of a graph: the host takes longer to start a
        step's kernels than most of them run, whichever projection they belong to."""
        if self._device.type != "cuda":
            return super().seconds(work)
        return replayed_seconds(self._device, work)


def _from_arrays(views: Mapping[str, torch.Tensor], search: Search) -> Beams:
    step = int(views["tokens"].shape[2])
    return SlotBeams(step=step, search=search, own_rows=views["rows"], **views)


def _for_halves(beams: Beams) -> Beams:
    """The same beams as the torch backend takes them."""
    search = beams.search
    tables = search.tables.for_halves()
    asked = None if search.requests is None else tables.targeting.encode(search.requests)
    return replace(beams, search=replace(search, tables=tables, device_requests=asked))
