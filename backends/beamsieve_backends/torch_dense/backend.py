"""The backend: a step from begin to end."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
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
from beamsieve_backends.torch_dense.products import (
    best_multiply,
    block_rows,
    full_logits,
    selective_logits,
    true_float32,
)
from beamsieve_backends.torch_dense.selection import Survivors, keep_best, tile_threshold
from beamsieve_backends.torch_dense.sums import Mass, shift_of, sum_per_beam, tree_sum
from beamsieve_backends.torch_dense.tables import LARGEST_TILE, DeviceTable, load_tables
from beamsieve_backends.torch_dense.tiles import Tiles, expand

_OPTIONS = ("tile", "gemm")
# Above this share of the codebook, one large product beats many small ones. Measured on two cores
# and on an H200; ``warm_up`` measures it anew for a plan.
_FULL_ABOVE = {"cpu": 0.25, "cuda": 1 / 64}


@dataclass(frozen=True)
class _Scored:
    """The candidates of a step with what their scores are made of."""

    tiles: Tiles
    logits: Tensor
    """float32 [n, T]; -inf where a slot is empty or its logit unusable."""
    largest: Tensor
    """float32 [n]; of each tile's beam, as in ``Mass``."""
    log_sum: Tensor
    """float32 [n]; of each tile's beam, 0 where all is dead."""
    base: Tensor
    """float32 [n]; the score of each tile's beam."""

    def scores(self, at: Tensor | None = None) -> Tensor:
        """float32 [n, T], or the rows ``at`` of it: cumulative scores without guidance."""
        parts = (self.logits, self.largest[:, None], self.log_sum[:, None], self.base[:, None])
        if at is not None:
            parts = tuple(part.index_select(0, at) for part in parts)  # type: ignore[assignment]
        return cumulative(*parts)

    def best(self) -> Tensor:
        """float32 [n]; the best score of each tile without guidance."""
        return cumulative(self.logits.amax(1), self.largest, self.log_sum, self.base)


class TorchBackend(Backend):
    """``backend="torch"``: PyTorch on the CPU or a CUDA device.

    Options: ``tile`` (slots per tile, a power of two up to 64) and ``gemm`` ("onednn" or "blas", on
    the CPU) override what is chosen otherwise.

    On CUDA a step waits for the device twice, to learn how many tiles and how many survivors there
    are (a table with rows of more than 64 tiles: three times).
    """

    name: ClassVar[str] = "torch"

    def __init__(self, device: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._device = _device(device)
        self.device = str(self._device)
        self.device_name = (
            torch.cuda.get_device_name(self._device)
            if self._device.type == "cuda"
            else f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
        )
        options = dict(options or {})
        self._tile = _tile(options.pop("tile", None))
        self._gemm = options.pop("gemm", None)
        if self._gemm not in (None, "onednn", "blas"):
            raise BackendError(f'The option gemm is {self._gemm!r}; it must be "onednn" or "blas".')
        if options:
            raise BackendError(
                f"The backend 'torch' has no option {next(iter(options))!r}; it has "
                f"{' and '.join(_OPTIONS)}."
            )

    @property
    def capabilities(self) -> Capabilities:
        """Scores are float32 throughout; the tolerances are those of float32 sums over d."""
        return Capabilities(
            devices=("cpu", "cuda"),
            dtypes=("float32", "bfloat16", "float16"),
            projections=("full", "selective"),
            tolerance={"float32": 1e-5, "bfloat16": 1e-5, "float16": 1e-5},
        )

    def load(self, index: Index) -> tuple[DeviceTable, ...]:
        """The tables as token lists on the device."""
        return load_tables(index, self._device, self._tile)

    def device_bytes(self, tables: tuple[DeviceTable, ...]) -> int:
        """Bytes of all tables on the device."""
        return sum(table.nbytes for table in tables)

    def begin(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
    ) -> Beams:
        """One beam per request whose prefix is known."""
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
        scored = self._scored(beams, inputs, normalize)
        tiles = scored.tiles
        scores = _with_guidance(scored.scores(), tiles, inputs.bonus)
        tile = tiles.tokens.shape[1]
        most = max(1, int(tiles.counts.max()))
        place = tiles.beam * most + tiles.rank
        slot = torch.arange(tile, device=self._device)
        filled = slot < tiles.length[:, None]
        tokens = tiles.tokens.to(torch.int32)
        if tiles.own is not None:
            tokens = torch.where(tiles.own[:, None], -1, tokens)

        def laid_out(values: Tensor, empty: float) -> Tensor:
            padded = values.new_full((batch * places * most, tile), empty)
            padded.index_copy_(0, place, torch.where(filled, values, empty))
            return padded.view(batch, places, most * tile)

        slots = max(1, int((tiles.rank * tile + tiles.length).max())) if len(tiles) else 1
        return Candidates(
            laid_out(tokens, -1)[:, :, :slots].contiguous(),
            laid_out(scores, -torch.inf)[:, :, :slots].contiguous(),
            laid_out(tiles.start[:, None] + slot, -1)[:, :, :slots].contiguous(),
        )

    @torch.no_grad()
    def select(self, beams: Beams, candidates: Candidates, width: int, keys: Array | None) -> Beams:
        """The threshold is the width-th largest key of each request."""
        batch, _, slots = candidates.rows.shape
        scores = candidates.scores
        keys = scores if keys is None else keys
        alive = (candidates.rows >= 0) & scores.isfinite() & keys.isfinite()
        usable = torch.where(alive, keys, -torch.inf).view(batch, -1)
        if usable.shape[1] > width:
            alive &= (usable >= usable.topk(width).values[:, -1:]).view_as(alive)
        at = alive.view(-1).nonzero().squeeze(1)
        found = Survivors(
            at.div(slots, rounding_mode="floor"),
            *(
                values.reshape(-1).index_select(0, at)
                for values in (candidates.tokens, candidates.rows, scores, keys)
            ),
        )
        return keep_best(beams, beams.search.tables[beams.step], found, width)

    def add_nudge(self, candidates: Candidates, nudge: Array) -> Array:
        """Gathered by token; a finished beam's slot has none."""
        tokens = candidates.tokens.to(torch.int64)
        nudges = nudge.gather(2, tokens.clamp(min=0))
        return torch.where(tokens >= 0, candidates.scores + nudges, candidates.scores)

    @torch.no_grad()
    def step(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> Beams:
        """Score the tiles, find the threshold, look into the tiles that reach it."""
        batch, places = beams.rows.shape
        table: DeviceTable = beams.search.tables[beams.step]
        scored = self._scored(beams, inputs, normalize)
        tiles = scored.tiles
        scores = keys = None
        if inputs.bonus is None and inputs.nudge is None:
            best = scored.best()
        else:
            scores = _with_guidance(scored.scores(), tiles, inputs.bonus)
            keys = _with_guidance(scores, tiles, inputs.nudge)
            best = keys.amax(1)

        request = tiles.beam.div(places, rounding_mode="floor")
        ends = tiles.ends.view(batch, places)
        opens = ends[:, 0] - tiles.counts.view(batch, places)[:, 0]
        place = torch.arange(len(tiles), device=self._device) - opens.index_select(0, request)
        threshold = tile_threshold(best, request, place, tiles.most, batch, inputs.width)
        reached = threshold.index_select(0, request)
        at = ((best >= reached) & (best > -torch.inf)).nonzero().squeeze(1)
        if scores is None or keys is None:
            scores = keys = scored.scores(at)
        else:
            scores, keys = scores.index_select(0, at), keys.index_select(0, at)
        alive = (keys >= reached.index_select(0, at)[:, None]) & (keys > -torch.inf)
        tile, slot = alive.nonzero(as_tuple=True)
        origin = at.index_select(0, tile)
        token = tiles.tokens[origin, slot].to(torch.int32)
        if tiles.own is not None:
            token = torch.where(tiles.own.index_select(0, origin), -1, token)
        found = Survivors(
            tiles.beam.index_select(0, origin),
            token,
            tiles.start.index_select(0, origin) + slot,
            scores[tile, slot],
            keys[tile, slot],
        )
        return keep_best(beams, table, found, inputs.width)

    def _scored(self, beams: Beams, inputs: StepInputs, normalize: Normalize) -> _Scored:
        table: DeviceTable = beams.search.tables[beams.step]
        beam_count = beams.rows.numel()
        tiles = expand(table, beams, block_rows(beams.width))
        mass = None
        if self._projection(inputs, table, normalize) == "selective":
            logits = selective_logits(inputs, table, tiles)
        else:
            given: Any = inputs.hidden if inputs.logits is None else inputs.logits
            multiply = best_multiply(self._device, given.dtype, self._gemm)
            with true_float32(self._device):
                logits, mass = full_logits(
                    inputs, table, tiles, beams.width, multiply, normalize == "all"
                )
        logits = _usable(logits, table, tiles)
        if mass is None:
            mass = _mass(logits, table, tiles, beam_count)
        largest = mass.largest.index_select(0, tiles.beam)
        log_sum = shift_of(mass.log_sum).index_select(0, tiles.beam)
        if tiles.own is not None:
            # A finished beam's candidate is the beam itself: log-probability 0 in slot 0.
            own = tiles.own[:, None]
            logits = torch.where(own, table.mask[min(1, table.tile)], logits)
            largest = torch.where(tiles.own, 0.0, largest)
            log_sum = torch.where(tiles.own, 0.0, log_sum)
        base = beams.scores.reshape(-1).index_select(0, tiles.beam)
        return _Scored(tiles, logits, largest, log_sum, base)

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


def _usable(logits: Tensor, table: DeviceTable, tiles: Tiles) -> Tensor:
    """-inf in empty slots, and for logits of NaN or +inf."""
    if table.tile > 1:
        logits = logits + table.mask.index_select(0, tiles.length)
    return torch.nan_to_num_(logits, nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)


def cumulative(logits: Tensor, largest: Tensor, log_sum: Tensor, base: Tensor) -> Tensor:
    """``base + log-probability``; each rounding on the way keeps the order of the logits."""
    return base + ((logits - largest) - log_sum)


def _mass(logits: Tensor, table: DeviceTable, tiles: Tiles, beams: int) -> Mass:
    """The mass of each beam's slots."""
    largest = logits.new_full((beams,), -torch.inf)
    largest.scatter_reduce_(0, tiles.beam, logits.amax(1), "amax")
    largest = shift_of(largest)
    shares = (logits - largest.index_select(0, tiles.beam)[:, None]).exp_()
    most = -(-table.widest // table.tile)
    sums = sum_per_beam(tree_sum(shares), tiles.beam, tiles.rank, beams, most)
    return Mass(largest, sums.log_())


def _with_guidance(scores: Tensor, tiles: Tiles, values: Tensor | None) -> Tensor:
    """Add ``values[b, m, token]``; a finished beam is past guidance. Dead where not finite."""
    if values is not None:
        size = values.shape[2]
        place = tiles.beam[:, None] * size + tiles.tokens
        added = values.reshape(-1).index_select(0, place.view(-1)).view_as(scores)
        if tiles.own is not None:
            added = torch.where(tiles.own[:, None], 0.0, added)
        scores = scores + added
    return torch.nan_to_num(scores, nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)


def _imported(value: Any, what: str) -> Tensor:
    try:
        if isinstance(value, np.ndarray):
            if not value.flags.writeable or any(stride < 0 for stride in value.strides):
                value = value.copy()
            return torch.from_numpy(value)
        if hasattr(value, "__dlpack__"):
            return torch.utils.dlpack.from_dlpack(value)
        if hasattr(value, "__array_interface__") or hasattr(value, "__cuda_array_interface__"):
            return torch.as_tensor(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be read as a tensor: {error}.") from error
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
