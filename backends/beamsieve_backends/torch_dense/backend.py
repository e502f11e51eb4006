"""The backend: a step from begin to end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve import toolchain
from beamsieve.catalog import Catalog
from beamsieve.errors import BackendError, InputError
from beamsieve.index import Index
from beamsieve.interface import (
    Array,
    Backend,
    Beams,
    Candidates,
    Capabilities,
    Normalize,
    Projection,
    Search,
    StepInputs,
)
from beamsieve.toolchain import INSTALL, has_numba, what_is_missing
from beamsieve_backends.processor import processor_name
from beamsieve_backends.torch_dense.outside import imported, opened_device, tile_slots
from beamsieve_backends.torch_dense.products import block_rows, full_logits, selective_logits
from beamsieve_backends.torch_dense.scores import Scored, scored, with_guidance
from beamsieve_backends.torch_dense.selection import (
    Best,
    best_of_rows,
    best_of_tiles,
    next_beams,
)
from beamsieve_backends.torch_dense.statistics import Statistics
from beamsieve_backends.torch_dense.tables import (
    DeviceIndex,
    DeviceTable,
    load_index,
)
from beamsieve_backends.torch_dense.targeting import kept_slots
from beamsieve_backends.torch_dense.tiles import expand

_OPTIONS = ("tile", "gemm", "tables", "projection")
# Above this share of the codebook, one large product beats many small ones. Measured on two cores
# and on an H200; ``warm_up`` measures it anew for a plan.
_FULL_ABOVE = {"cpu": 1 / 8, "cuda": 1 / 64}


class TorchBackend(Backend):
    """``backend="torch"``: PyTorch on the CPU or a CUDA device.

    Options, which override what is chosen otherwise: ``tile`` (slots per tile, a power of two up to
    64), ``gemm`` ("onednn" or "blas", on the CPU) and ``tables`` ("index": the bytes that the index
    stores; "plain": unpacked as it is loaded, which is quicker and takes more memory). Tables are
    plain on the CPU, and the index's own on CUDA. ``projection`` ("full", "selective", "compiled")
    is what steps do where no plan says it; the share of the codebook decides otherwise.

    "compiled" is the selective projection with all that follows it, in loops that Numba compiles
    (``beamsieve_backends.torch_dense.compiled``): on the CPU, with plain tables, where Numba is
    installed. Without a plan or an option that says so, no step takes it.

    On CUDA a step waits for the device two to four times, to learn how many tiles, how many tiles
    with survivors and how many survivors there are; targeting waits up to four times more.
    """

    name: ClassVar[str] = "torch"

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._device = opened_device(device)
        self.device = str(self._device)
        self.device_name = (
            torch.cuda.get_device_name(self._device)
            if self._device.type == "cuda"
            else f"{processor_name()}, {torch.get_num_threads()} threads"
        )
        options = dict(options or {})
        self._tile = tile_slots(options.pop("tile", None))
        self._gemm = options.pop("gemm", None)
        if self._gemm not in (None, "onednn", "blas"):
            raise BackendError(f'The option gemm is {self._gemm!r}; it must be "onednn" or "blas".')
        tables = options.pop("tables", "plain" if self._device.type == "cpu" else "index")
        if tables not in ("plain", "index"):
            raise BackendError(f'The option tables is {tables!r}; it must be "plain" or "index".')
        self._plain = tables == "plain"
        self._default: Any = options.pop("projection", None)
        self._refuse_projection()
        self._capabilities = Capabilities(  # asked for several times in every step
            devices=("cpu", "cuda") if torch.cuda.is_available() else ("cpu",),
            dtypes=("float32", "bfloat16", "float16"),
            projections=self._projections(),
            targeting=("bits", "bloom", "allow", "exclude"),
            tolerance={"float32": 1e-5, "bfloat16": 1e-5, "float16": 1e-5},
        )
        if options:
            raise BackendError(
                f"The backend 'torch' has no option {next(iter(options))!r}; it has "
                f"{', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]}."
            )

    @property
    def capabilities(self) -> Capabilities:
        """What it can do. Half precision inputs are multiplied exactly and summed in float32.

        The tolerances hold for logits up to about 20, of either sign, and hidden sizes up to 4096;
        float32 keeps 7 digits, so the error of larger logits grows with them.
        """
        return self._capabilities

    def missing_projections(self) -> Mapping[Projection, str]:
        """The compiled one where Numba is all that it lacks."""
        possible = self._device.type == "cpu" and self._plain
        return {"compiled": INSTALL} if possible and not has_numba() else {}

    def first_use(self) -> float | None:
        """Compile the loops of the compiled projection, where it can be had."""
        if "compiled" not in self._projections():
            return None
        began = time.perf_counter()
        index = Index.build(Catalog.from_arrays([[0, 0], [1, 0]], codebooks=[2, 2]))
        search = Search(index, self.load(index), 1, None)
        none, root = np.empty((1, 0), np.int32), np.zeros(1, np.int64)
        hidden, head = (torch.zeros(shape, dtype=torch.float32) for shape in ((1, 1, 1), (2, 1)))
        inputs = StepInputs(1, hidden, head, projection="compiled")
        self.step(self.begin(search, none, root, root > 0), inputs, "catalog")
        return time.perf_counter() - began

    def _projections(self) -> tuple[Projection, ...]:
        compiled = self._device.type == "cpu" and self._plain and has_numba()
        return ("full", "selective", "compiled") if compiled else ("full", "selective")

    def _refuse_projection(self) -> None:
        if self._default == "compiled" and "compiled" not in self._projections():
            why = (
                "it runs on the CPU alone"
                if self._device.type != "cpu"
                else "it needs tables=plain"
                if not self._plain
                else f"it needs Numba; {what_is_missing()}"
            )
            raise BackendError(f"The option projection is 'compiled', but {why}.")
        if self._default not in (None, *self._projections()):
            raise BackendError(
                f"The option projection is {self._default!r}; it must be one of "
                f"{', '.join(self._projections())}."
            )

    def load(self, index: Index) -> DeviceIndex:
        """The tables as token lists on the device, and the matchers."""
        return load_index(index, self._device, self._tile, self._plain)

    def free_bytes(self) -> int | None:
        """On CUDA: what the driver has left, and what PyTorch holds in reserve."""
        if self._device.type != "cuda":
            return None
        free, _ = torch.cuda.mem_get_info(self._device)
        held = torch.cuda.memory_reserved(self._device)
        return int(free) + held - torch.cuda.memory_allocated(self._device)

    def device_bytes(self, tables: DeviceIndex) -> int:
        """Bytes of tables and matchers on the device."""
        return tables.nbytes

    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """One beam per request whose prefix is known."""
        if search.requests is not None:
            loaded: DeviceIndex = search.tables
            search = replace(search, device_requests=loaded.targeting.encode(search.requests))
        given = torch.from_numpy(rows).to(self._device)[:, None]
        known = given >= 0
        scores = torch.where(known, 0.0, -torch.inf).to(torch.float32)
        return Beams(
            step=tokens.shape[1],
            tokens=torch.from_numpy(tokens).to(self._device)[:, None, :],
            scores=scores,
            keys=scores.clone(),
            rows=given,
            parents=torch.full_like(given, -1),
            finished=torch.from_numpy(finished).to(self._device)[:, None],
            count=known.sum(1),
            search=search,
        )

    @torch.no_grad()
    def candidates(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Candidates:
        """Tiles laid out side by side, as many slots for each beam as the widest of them needs."""
        if self._projection(beams, inputs, normalize) == "compiled":
            toolchain.imported()  # a Numba that cannot be imported is said in a sentence
            from beamsieve_backends.torch_dense.compiled import step as compiled  # needs Numba

            return compiled.candidates(beams, inputs, normalize == "eligible")
        batch, places = beams.rows.shape
        found, kept = self._scored(beams, inputs, normalize)
        tiles = found.tiles
        scores = with_guidance(found.scores(), tiles, inputs.bonus)
        slot = torch.arange(tiles.size, device=self._device)
        filled = slot < tiles.length()[:, None]
        if kept is not None:
            filled &= kept
        tokens = tiles.tokens.to(torch.int32)
        if tiles.own is not None:
            tokens = torch.where(tiles.own[:, None], -1, tokens)
        most = max(1, tiles.most)
        slots = max(1, int(tiles.degree.max()))

        def laid_out(values: Tensor, empty: float) -> Tensor:
            padded = values.new_full((batch * places * most, tiles.size), empty)
            padded.index_copy_(
                0, tiles.beam * most + tiles.rank, torch.where(filled, values, empty)
            )
            return padded.view(batch, places, most * tiles.size)[:, :, :slots].contiguous()

        return Candidates(
            laid_out(tokens, -1),
            laid_out(scores, -torch.inf),
            laid_out(tiles.start[:, None] + slot, -1),
        )

    @torch.no_grad()
    def select(self, beams: Beams, candidates: Candidates, width: int, keys: Array | None) -> Beams:
        """The best of each request's slots, as they lie."""
        batch, places, slots = candidates.rows.shape
        scores: Tensor = candidates.scores
        ranked: Tensor = scores if keys is None else keys
        alive = (candidates.rows >= 0) & scores.isfinite() & ranked.isfinite()
        usable = torch.where(alive, ranked, -torch.inf).view(batch, places * slots)
        place, empty = best_of_rows(usable, width)
        first = torch.arange(0, usable.numel(), usable.shape[1], device=self._device)
        cell = place + first[:, None]
        flat = cell.view(-1)
        token, row, score, key = (
            values.reshape(-1).index_select(0, flat).view(cell.shape)
            for values in (candidates.tokens, candidates.rows, scores, ranked)
        )
        beam = cell.div(slots, rounding_mode="floor")
        best = Best(beam, token, row, score, key, empty)
        return next_beams(beams, beams.search.tables.tables[beams.step], best, width)

    def add_nudge(self, candidates: Candidates, nudge: Array) -> Array:
        """Gathered by token; a finished beam's slot has none."""
        tokens = candidates.tokens.to(torch.int64)
        nudges = nudge.gather(2, tokens.clamp(min=0))
        return torch.where(tokens >= 0, candidates.scores + nudges, candidates.scores)

    @torch.no_grad()
    def step(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Beams:
        """Score the tiles, find the threshold, look into the tiles that reach it."""
        if self._projection(beams, inputs, normalize) == "compiled":
            toolchain.imported()  # a Numba that cannot be imported is said in a sentence
            from beamsieve_backends.torch_dense.compiled import step as compiled  # needs Numba

            return compiled.step(beams, inputs, normalize == "eligible")
        batch, places = beams.rows.shape
        table: DeviceTable = beams.search.tables.tables[beams.step]
        found, _ = self._scored(beams, inputs, normalize)
        guided = None
        if inputs.bonus is not None or inputs.nudge is not None:
            scores = keys = with_guidance(found.scores(), found.tiles, inputs.bonus)
            if inputs.nudge is not None:
                keys = with_guidance(scores, found.tiles, inputs.nudge)
            guided = scores, keys
        best = best_of_tiles(found, guided, (batch, places), inputs.width)
        return next_beams(beams, table, best, inputs.width)

    def _scored(
        self, beams: Beams, inputs: StepInputs, normalize: Normalize
    ) -> tuple[Scored, Tensor | None]:
        """The step's candidates, and which of them targeting keeps (None for all)."""
        table: DeviceTable = beams.search.tables.tables[beams.step]
        tiles = expand(table, beams, block_rows(beams.width))
        mass, whole = None, normalize == "all"
        statistics = Statistics(tiles, table, summed=not whole)
        with _without_autocast(self._device.type):
            if self._projection(beams, inputs, normalize) == "selective":
                logits = selective_logits(inputs, tiles)
                statistics.add(logits, 0, slice(None))
            else:
                logits, mass = full_logits(
                    inputs, table, tiles, beams.width, self._gemm, whole, statistics
                )
        kept = None
        if beams.search.device_requests is not None:
            kept = kept_slots(beams, tiles)
        base = beams.scores.reshape(-1)
        over_kept = normalize == "eligible"
        return scored(logits, statistics, mass, base, table, tiles, kept, over_kept), kept

    def _projection(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Projection:
        wanted: Projection | None = inputs.projection or self._default
        if normalize == "all":
            return "full"
        if inputs.hidden is None:
            return "compiled" if wanted == "compiled" else "full"
        if wanted is not None:
            return wanted
        table: DeviceTable = beams.search.tables.tables[beams.step]
        return "full" if table.share > _FULL_ABOVE[self._device.type] else "selective"

    def asarray(self, value: Any, *, what: str) -> Tensor:
        """Tensors as they are; DLPack and NumPy arrays without a copy where they allow it."""
        tensor = value if isinstance(value, Tensor) else imported(value, what)
        if tensor.layout != torch.strided or tensor.is_nested:
            raise InputError(f"{what} is a sparse or nested tensor; give a dense one.")
        if tensor.device != self._device:
            raise InputError(
                f"{what} is on {tensor.device}, but this engine runs on {self.device}; move it "
                f"there."
            )
        return tensor.detach().resolve_neg()

    def to_host(self, array: Tensor) -> NDArray[Any]:
        """The tensor as NumPy."""
        host: NDArray[Any] = array.cpu().numpy()
        return host

    def synchronize(self) -> None:
        """Wait for the CUDA device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _without_autocast(kind: str) -> AbstractContextManager[Any]:
    """Where the caller's model runs under autocast, these products still do not."""
    if torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()
