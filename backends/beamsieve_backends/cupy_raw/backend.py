"""The backend: ``beamsieve.interface.Backend`` on CUDA C++ kernels, without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError, InputError
from beamsieve.interface import (
    Array,
    Backend,
    Beams,
    Candidates,
    Capabilities,
    Captured,
    Normalize,
    Projection,
    Search,
    StepInputs,
)
from beamsieve_backends.cupy_raw import selection, steps
from beamsieve_backends.cupy_raw.instances import KERNELS_OF_A_SEARCH
from beamsieve_backends.cupy_raw.options import options_of
from beamsieve_backends.cupy_raw.projection import HeadHalves, head_halves
from beamsieve_backends.cupy_raw.session import Session, Workspace
from beamsieve_backends.cupy_raw.tables import MOST_BEAMS, DeviceTables, load_tables
from beamsieve_backends.cupy_raw.targeting import DeviceRequests, request_arrays
from beamsieve_backends.first_beams import first_arrays

if TYPE_CHECKING:
    from beamsieve.index import Index


class CupyBackend(Backend):
    """Filter, projection and ordered selection in CUDA kernels that CuPy compiles at first use.

    Arrays are ``cupy.ndarray``. Work goes to CuPy's current stream where the caller chose one, else
    to torch's current stream where torch is in use, else to the default stream.

    Args:
        device: "cuda", "cuda:N" or None for the first.
        options: "clear_products" is "on" or "off", the default. On, the memory of every matrix
            product is cleared first: cuBLAS writes its results by bulk copies, which
            compute-sanitizer's initcheck does not see, so that it would take every read of them
            for one of memory that nobody has written. "early" is "on", the default, or "off", and
            then no kernel is started before the one ahead of it has ended. "replays" is how often
            ``seconds`` replays what it times, "10" or, for tools under which a kernel takes
            seconds, "1". "tile_products" says
            which steps over the whole codebook keep their logits to themselves, on a Hopper GPU:
            "planned", the default, those that a plan calls "fused"; "always" every one that can;
            "never" none.

    Raises:
        BackendError: CuPy or the device is missing, or an option is unknown.
    """

    name: ClassVar[str] = "cupy"
    requires: ClassVar[str] = "pip install 'beamsieve[cupy]'"
    kernel_sources: ClassVar[tuple[str, ...]] = (
        "cupy_raw/kernels/common.cuh",
        "cupy_raw/kernels/select.cuh",
        "cupy_raw/kernels/narrow.cuh",
        "cupy_raw/kernels/bound.cuh",
        "cupy_raw/kernels/table.cuh",
        "cupy_raw/kernels/step.cuh",
        "cupy_raw/kernels/rows.cuh",
        "cupy_raw/kernels/eight.cuh",
        "cupy_raw/kernels/score_rows.cu",
        "cupy_raw/kernels/one_beam.cuh",
        "cupy_raw/kernels/row_products.cuh",
        "cupy_raw/kernels/row_choice.cuh",
        "cupy_raw/kernels/multiply_row.cu",
        "cupy_raw/kernels/choose_row.cu",
        "cupy_raw/kernels/whole_row.cu",
        "cupy_raw/kernels/slots.cuh",
        "cupy_raw/kernels/halves.cuh",
        "cupy_raw/kernels/split_halves.cu",
        "cupy_raw/kernels/words.cuh",
        "cupy_raw/kernels/scored.cuh",
        "cupy_raw/kernels/score_tiles.cu",
        "cupy_raw/kernels/opened.cuh",
        "cupy_raw/kernels/open_tiles.cu",
        "cupy_raw/kernels/row_mass.cu",
        "cupy_raw/kernels/list_candidates.cu",
        "cupy_raw/kernels/tile_slots.cu",
        "cupy_raw/kernels/select_slots.cu",
        "cupy_raw/kernels/add_nudge.cu",
        "cupy_raw/kernels/filter_rows.cu",
        "cupy_raw/kernels/rule_out.cu",
        "cupy_raw/kernels/cluster.cuh",
        "cupy_raw/kernels/pool.cuh",
        "cupy_raw/kernels/pieces.cuh",
        "cupy_raw/kernels/fused_rows.cu",
        "cupy_raw/kernels/pooled.cuh",
        "cupy_raw/kernels/pool_tiles.cu",
        "cupy_raw/kernels/rank_tiles.cu",
        "cupy_raw/kernels/sixteens.cuh",
        "cupy_raw/kernels/tile_sums.cuh",
        "cupy_raw/kernels/wgmma.cuh",
        "cupy_raw/kernels/multiply_tiles.cu",
        "cupy_raw/kernels/key_tiles.cu",
        "cupy_raw/kernels/reopen_tiles.cu",
    )

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        chosen = options_of(dict(options or {}))
        self._device = self._open(device)
        self._device.clear_products = chosen["clear_products"] == "on"
        self._device.early = self._device.early and chosen["early"] == "on"
        self._device.tile_products = chosen["tile_products"]
        self._replays = int(chosen["replays"])
        self.device = self._device.name
        self.device_name = self._device.hardware

    def _open(self, device: str | None) -> Any:
        try:
            from beamsieve_backends.cupy_raw.device import CudaDevice
        except ImportError as error:
            raise BackendError(
                f"The backend 'cupy' needs CuPy ({error}): {self.requires}."
            ) from error
        kind, _, number = (device or "cuda").partition(":")
        if kind != "cuda" or not (number or "0").isdecimal():
            raise BackendError(f"The backend 'cupy' runs on cuda or cuda:N, not on {device!r}.")
        return CudaDevice(int(number or 0))

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities(
            devices=("cuda",),
            dtypes=("float32", "bfloat16", "float16"),
            projections=("full", "selective", *(("fused",) if self._device.clusters else ())),
            targeting=("bits", "bloom", "allow", "exclude"),
            largest_width=MOST_BEAMS,
            largest_codebook=1 << 20,
            tolerance={"float32": 2e-5, "bfloat16": 2e-5, "float16": 2e-5},
            graph=True,
        )

    def load(self, index: Index) -> DeviceTables:
        """Copy the index's tables to the device, as they are."""
        with self._device.active():
            return load_tables(self._device, index)

    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """One beam per request; the search gets its workspace here."""
        device = self._device
        B = search.batch
        with device.active():
            requests = None
            if search.requests is not None:
                uploaded = {
                    name: device.upload(array)
                    for name, array in request_arrays(search.requests).items()
                }
                requests = DeviceRequests(device, search.requests, uploaded)
            search = replace(search, device_requests=Session(device, requests))
            if tokens.shape[1] == 0 and not rows.any() and not finished.any():
                return Beams(  # at the root: nothing to copy, so a graph can hold it
                    step=0,
                    tokens=device.empty((B, 1, 0), np.int32),
                    scores=device.full((B, 1), 0, np.float32),
                    keys=device.full((B, 1), 0, np.float32),
                    rows=device.full((B, 1), 0, np.int64),
                    parents=device.full((B, 1), -1, np.int64),
                    finished=device.full((B, 1), False, np.bool_),
                    count=device.full((B,), 1, np.int64),
                    search=search,
                )
            given = first_arrays(tokens, rows, finished)
            uploaded = {name: device.upload(array) for name, array in given.items()}
            return Beams(step=tokens.shape[1], search=search, **uploaded)

    def capture(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
        loop: Callable[[Beams], Beams],
    ) -> Captured:
        """One CUDA graph of all kernels, the scorer's and the backend's."""
        from beamsieve_backends.cupy_raw.graph import GraphOfSearch, StaticArrays

        device = self._device
        with device.active():
            first = StaticArrays(device, first_arrays(tokens, rows, finished))
            asked = requests = None
            if search.requests is not None:
                asked = StaticArrays(device, request_arrays(search.requests))
                requests = DeviceRequests(device, search.requests, asked.views)
            search = replace(search, device_requests=Session(device, requests))
            before = Beams(step=tokens.shape[1], search=search, **first.views)

            def fill(
                search: Search,
                tokens: NDArray[np.int32],
                rows: NDArray[np.int64],
                finished: NDArray[np.bool_],
            ) -> None:
                if tokens.shape[1]:  # without a prefix all searches begin alike
                    first.fill(first_arrays(tokens, rows, finished))
                if asked is not None and requests is not None and search.requests is not None:
                    asked.fill(request_arrays(search.requests))
                    requests.prepare(device)

            return GraphOfSearch(device, fill, lambda: loop(before))

    def candidates(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Candidates:
        """All candidates in padded slots, scored by the full projection."""
        with self._device.active():
            return self._call(beams, inputs, normalize).list_candidates()

    def select(self, beams: Beams, candidates: Candidates, width: int, keys: Array | None) -> Beams:
        """Keep the best by ``keys``."""
        table = self._table(beams)
        keys = candidates.scores if keys is None else keys
        with self._device.active():
            return selection.select_slots(self._device, table, beams, candidates, width, keys)

    def step(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Beams:
        """Both halves in one kernel, or two; the full projection puts a matrix product first."""
        with self._device.active():
            return self._call(beams, inputs, normalize).run()

    def before_timing(self) -> None:
        """Refuses while the caller's stream is captured: a plan is made of times."""
        with self._device.active():
            if self._device.capturing():
                raise BackendError(
                    "warm_up times steps, which cannot be done while a stream is captured: call it "
                    "before the capture begins."
                )

    def seconds(self, work: Callable[[], object]) -> float:
        """The device's time of one call, from replays of a graph: the host takes longer to start a
        step's kernels than they run, the longer the more of them there are."""
        from beamsieve_backends.cupy_raw.graph import replayed_seconds

        with self._device.active():
            return replayed_seconds(self._device, work, self._replays)

    def projections_for(
        self, beams: Beams, inputs: StepInputs, normalize: Normalize
    ) -> tuple[Projection, ...]:
        """The fused one only where one of its ways takes the step."""
        known = super().projections_for(beams, inputs, normalize)
        others: tuple[Projection, ...] = tuple(each for each in known if each != "fused")
        taken = steps.takes_fused(self._device, self._table(beams), beams.width, inputs, normalize)
        return (*others, "fused") if taken else others

    def add_nudge(self, candidates: Candidates, nudge: Array) -> Array:
        """Keys from scores and a nudge."""
        with self._device.active():
            return selection.add_nudge(self._device, candidates, nudge)

    def prepare_head(self, head: Array) -> HeadHalves | None:
        """A float32 head's float16 parts.

        Raises:
            BackendError: the stream is being captured: steps outside of the graph would read what
                was never computed.
        """
        with self._device.active():
            if self._device.capturing():
                raise BackendError("Prepare heads before the capture begins.")
            return head_halves(self._device, head)

    def top(self, values: Any, k: int, workspace: Workspace | None = None) -> tuple[Array, Array]:
        """The ``k`` largest of each row, in order; equal values by lower place.

        Args:
            values: float32 [rows, n], n < 2**32; NaN and infinite values are never taken.
            k: at most 4096.
            workspace: what to work in; new memory when None.

        Returns:
            values float32 [rows, k] and places int64 [rows, k]; -inf and -1 behind the end of a row
            with fewer.
        """
        if not 1 <= k <= MOST_BEAMS:
            raise InputError(f"k must be 1 to {MOST_BEAMS}, not {k}.")
        device = self._device
        with device.active():
            array = device.contiguous(device.accept(values, "values"))
            rows, n = array.shape
            best = device.empty((rows, k), np.float32)
            places = device.empty((rows, k), np.int64)
            work = workspace or Workspace(device)
            addresses = {
                "keys": device.address(array),
                "top_values": device.address(best),
                "top_places": device.address(places),
            }
            selection.launch_selection(device, work, {"width": k}, addresses, (rows, n), n)
            if device.capturing():
                work.keep(array, best, places)
            return best, places

    def first_use(self) -> float | None:
        """Compile every kernel for every dtype; CuPy keeps them on disk for later processes."""
        began = time.perf_counter()
        with self._device.active():
            self._device.compile(KERNELS_OF_A_SEARCH)
        return time.perf_counter() - began

    def workspace(self) -> Workspace:
        """Memory for repeated calls of ``top`` on one stream, inside a captured graph for one."""
        return Workspace(self._device)

    def asarray(self, value: Any, *, what: str) -> Array:
        """``value`` as a CuPy array, without a copy."""
        with self._device.active():
            return self._device.accept(value, what)

    def to_host(self, array: Array) -> NDArray[Any]:
        """The array as NumPy, complete."""
        with self._device.active():
            host: NDArray[Any] = self._device.to_host(array)
            return host

    def synchronize(self) -> None:
        """Wait for the caller's stream."""
        with self._device.active():
            self._device.synchronize()

    def free_bytes(self) -> int | None:
        """What the driver has left, and what CuPy holds in reserve."""
        with self._device.active():
            free: int | None = self._device.free_bytes()
            return free

    def device_bytes(self, tables: DeviceTables) -> int:
        """Bytes that ``load`` put on the device."""
        return tables.nbytes

    def _table(self, beams: Beams) -> Any:
        tables: DeviceTables = beams.search.tables
        return tables.tables[beams.step]

    def _call(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> steps.StepCall:
        return steps.StepCall(self._device, self._table(beams), beams, inputs, normalize)
