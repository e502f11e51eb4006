"""The backend: a step from begin to end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.utils.dlpack
from numpy.typing import NDArray
from torch import Tensor

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
from beamsieve_backends.processor import processor_name
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
    LARGEST_TILE,
    DeviceIndex,
    DeviceTable,
    load_index,
)
from beamsieve_backends.torch_dense.targeting import kept_slots
from beamsieve_backends.torch_dense.tiles import expand

_OPTIONS = ("tile", "gemm", "tables")
# Above this share of the codebook, one large product beats many small ones. Measured on two cores
# and on an H200; ``warm_up`` measures it anew for a plan.
_FULL_ABOVE = {"cpu": 1 / 8, "cuda": 1 / 64}


class TorchBackend(Backend):
    """``backend="torch"``: PyTorch on the CPU or a CUDA device.

    Options, which override what is chosen otherwise: ``tile`` (slots per tile, a power of two up to
    64), ``gemm`` ("onednn" or "blas", on the CPU) and ``tables`` ("index": the bytes that the index
    stores; "plain": unpacked as it is loaded, which is quicker and takes more memory). Tables are
    plain on the CPU, and the index's own on CUDA.

    On CUDA a step waits for the device two to four times, to learn how many tiles, how many tiles
    with survivors and how many survivors there are; targeting waits up to four times more.
    """

    name: ClassVar[str] = "torch"

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._device = _device(device)
        self.device = str(self._device)
        self.device_name = (
            torch.cuda.get_device_name(self._device)
            if self._device.type == "cuda"
            else f"{processor_name()}, {torch.get_num_threads()} threads"
        )
        options = dict(options or {})
        self._tile = _tile(options.pop("tile", None))
        self._gemm = options.pop("gemm", None)
        if self._gemm not in (None, "onednn", "blas"):
            raise BackendError(f'The option gemm is {self._gemm!r}; it must be "onednn" or "blas".')
        tables = options.pop("tables", "plain" if self._device.type == "cpu" else "index")
        if tables not in ("plain", "index"):
            raise BackendError(f'The option tables is {tables!r}; it must be "plain" or "index".')
        self._plain = tables == "plain"
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
        return Capabilities(
            devices=("cpu", "cuda") if torch.cuda.is_available() else ("cpu",),
            dtypes=("float32", "bfloat16", "float16"),
            projections=("full", "selective"),
            targeting=("bits", "bloom", "allow", "exclude"),
            tolerance={"float32": 1e-5, "bfloat16": 1e-5, "float16": 1e-5},
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
        scores = torch.where(known, 0.0, -torch.inf)
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
            if self._projection(inputs, table, normalize) == "selective":
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

    def _projection(
        self, inputs: StepInputs, table: DeviceTable, normalize: Normalize
    ) -> Projection:
        if inputs.hidden is None or normalize == "all":
            return "full"
        if inputs.projection is not None:
            return inputs.projection
        return "full" if table.share > _FULL_ABOVE[self._device.type] else "selective"

    def asarray(self, value: Any, *, what: str) -> Tensor:
        """Tensors as they are; DLPack and NumPy arrays without a copy where they allow it."""
        tensor = value if isinstance(value, Tensor) else _imported(value, what)
        if tensor.layout != torch.strided or tensor.is_nested:
            raise InputError(f"{what} is a sparse or nested tensor; give a dense one.")
        if tensor.device != self._device:
            raise InputError(
                f"{what} is on {tensor.device}, but this engine runs on {self.device}; move it "
                f"there."
            )
        return tensor.detach()

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


def _imported(value: Any, what: str) -> Tensor:
    try:
        if hasattr(value, "__array_interface__"):
            value = np.asarray(value)
            if not value.flags.writeable or any(stride < 0 for stride in value.strides):
                value = value.copy()
            return torch.from_numpy(value)
        if hasattr(value, "__dlpack__"):
            return torch.utils.dlpack.from_dlpack(value)
        if hasattr(value, "__cuda_array_interface__"):
            return torch.as_tensor(value)
    except (AssertionError, BufferError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"{what} cannot be read as a tensor: {why}.") from error
    raise InputError(
        f"{what} is a {type(value).__name__}; give a tensor or array (anything with DLPack or the "
        f"array interface)."
    )


def _device(wanted: str | None) -> torch.device:
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise BackendError(
            f"{wanted!r} is no device that PyTorch knows; give cpu or cuda."
        ) from None
    if device.type == "cpu":
        if device.index:
            raise BackendError(f"There is no device {wanted!r}: PyTorch has one cpu; give cpu.")
        return torch.device("cpu")
    if device.type != "cuda":
        raise BackendError(f"The backend 'torch' runs on cpu and cuda, not on {wanted!r}.")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = torch.cuda.current_device() if found and device.index is None else device.index or 0
    if number >= found:
        raise BackendError(
            f"There is no device {wanted!r}: this PyTorch ({torch.__version__}) sees "
            f"{found} CUDA devices; install a CUDA build of torch, or use torch:cpu."
        )
    return torch.device("cuda", number)


def _tile(text: str | None) -> int | None:
    if text is None:
        return None
    sizes = [1 << power for power in range(LARGEST_TILE.bit_length())]
    if not text.isdigit() or int(text) not in sizes:
        raise BackendError(f"The option tile is {text!r}; it must be a power of two up to 64.")
    return int(text)
