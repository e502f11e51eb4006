"""A Wide model on an engine: any number of requests, decoded through a few captured sizes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from beamsieve.checks import whole_number
from beamsieve.errors import InputError
from beamsieve.models.wide.launch import why_not
from beamsieve.models.wide.model import Wide
from beamsieve.models.wide.opened import PAIR_BYTES, pair_bytes
from beamsieve.models.wide.own import LOOKING_UP, OwnKind
from beamsieve.models.wide.products import ProductKind
from beamsieve.models.wide.scorer import ContextChoice, OwnChoice, WideScorer
from beamsieve.models.wide.weights import WideWeights, weights_of

if TYPE_CHECKING:
    from beamsieve.engine import Engine
    from beamsieve.interface import Beams
    from beamsieve.results import RequestHits

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Requests of the searches that are captured; a batch between two sizes is filled up."""


@dataclass(frozen=True)
class Taken:
    """What a decoder does where it was left the choice.

    Attributes:
        attention: "triton" or "plain", and why.
        graph: whether searches are CUDA graphs, and why not.
        own: the way of self-attention, and why.
        context: the way of cross-attention, and the milliseconds of each that was measured.
        opened: behind how many tokens the first layer up to its cross-attention is looked up, and
            why no more.
    """

    attention: str
    graph: str
    own: str
    context: str
    opened: str


class WideDecoder:
    """Decodes contexts with a Wide model's weights. Safe to use from several threads.

    A batch is filled up to the next of ``sizes`` with dead requests: contexts of one token of
    zeros, which nobody is shown and which change nothing for the others. A batch larger than the
    largest size is decoded in pieces.

    Args:
        model: moved to the engine's device, into evaluation mode; its weights are copied.
        engine: of an index with the model's codebooks.
        widths: beams kept per level; with widths of their own, rows computed are rows alive.
        columns: context tokens that there is room for.
        dtype: bfloat16 or float16; float32 for plain attention alone. None takes bfloat16 for
            kernels and on a GPU, float32 on a CPU.
        attention: "triton" for the kernels (refused where they cannot run), "plain" for PyTorch, or
            "auto", which takes the kernels where they can run. ``taken`` says what it took and why.
        graph: True for searches in one CUDA graph (refused where the backend has none), False
            without, or "auto".
        products: "own" or "float8" (``products``).
        own: as in ``WideScorer``.
        context: as in ``WideScorer``.
        table_bytes: what the table of all pairs of first tokens may take of the device's memory
            (``opened``): 0 for none; None for 2 GiB with kernels on a GPU and none elsewhere, where
            it takes longer to make than it saves soon. A table that would take more is left out, as
            is one that the way of self-attention would not read.
        sizes: numbers of requests, ascending.

    Raises:
        InputError: codebooks or sizes that do not fit, or something that cannot run here.
    """

    def __init__(
        self,
        model: Wide,
        engine: Engine,
        widths: Sequence[int],
        columns: int,
        *,
        dtype: torch.dtype | None = None,
        attention: str = "auto",
        graph: bool | str = "auto",
        products: ProductKind = "own",
        own: OwnChoice = "auto",
        context: ContextChoice = "auto",
        table_bytes: int | None = None,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        if tuple(engine.index.codebooks) != model.codebooks:
            raise InputError(
                f"The model spells codebooks of {model.codebooks} tokens, the index has "
                f"{tuple(engine.index.codebooks)}; use the index that the model was trained on."
            )
        self.sizes = tuple(whole_number(size, "a size") for size in sizes)
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)):
            raise InputError(f"sizes are {self.sizes}; give ascending whole numbers from 1.")
        device = torch.device(engine.device)
        kernels, why = _kernels(attention, device, dtype)
        if dtype is None and products == "float8":
            dtype = torch.bfloat16
        if dtype is None:
            dtype = torch.bfloat16 if kernels or device.type == "cuda" else torch.float32
        self._graph, graphs = _graphs(graph, engine)
        self.engine = engine
        self.widths = tuple(widths)
        self.columns = columns
        if table_bytes is None:
            table_bytes = PAIR_BYTES if kernels and device.type == "cuda" else 0
        elif table_bytes != 0:
            table_bytes = whole_number(table_bytes, "table_bytes")
        if own not in ("auto", *LOOKING_UP):
            table_bytes = 0
        self.weights = weights_of(
            model.to(device).eval(), dtype, products=products, kernels=kernels,
            table_bytes=table_bytes,
        )  # fmt: skip
        self._ways: tuple[OwnChoice, ContextChoice] = (own, context)
        self._scorers: dict[int, tuple[WideScorer, _OneSearch]] = {}
        self._lock = threading.Lock()
        first = self._scorer(self.sizes[0])[0]
        self.taken = Taken(
            why,
            graphs,
            first.taken.get("own", own),
            first.taken.get("context", context),
            _opened(self.weights, table_bytes, first.own),
        )

    def search(
        self, context: Any, lengths: Any = None, requests: Sequence[Any] | None = None
    ) -> Beams:
        """The beams of one batch, filled up to the next size: the first B requests are the batch's.

        Args:
            context: [B, c, d] with c at most ``columns``, B at most the largest size; a tensor, or
                anything that ``torch.as_tensor`` takes.
            lengths: int [B]; how many context tokens of each are real, from 1 to c; all when None.
                On a GPU, where reading them would have to wait for it, what lies outside counts as
                the nearest number inside.
            requests: the targeting of each, as in :meth:`beamsieve.Engine.begin`.

        Raises:
            InputError: more requests than the largest size, or what does not fit them.
        """
        context, lengths = _tensors(context, lengths)
        batch, given = len(context), context.shape[1]
        size = next((size for size in self.sizes if size >= batch), None)
        if size is None or not batch:
            raise InputError(
                f"The batch has {batch} requests; one search takes from 1 to {self.sizes[-1]}."
            )
        real = torch.full((batch,), given, device=context.device) if lengths is None else lengths
        if len(real) != batch or (requests is not None and len(requests) != batch):
            raise InputError(f"{batch} contexts need as many lengths and requests.")
        dead = size - batch
        context = torch.cat([context, context.new_zeros(dead, *context.shape[1:])])
        real = torch.cat([real, real.new_ones(dead)])
        asked = None if requests is None else [*requests, *[None] * dead]
        scorer, alone = self._scorer(size)
        device = self.weights.device
        with alone:
            scorer.load(context.to(device), real.to(device))
            return self.engine.search(
                scorer, self.widths, batch=size, requests=asked, graph=self._graph
            )

    def decode(
        self,
        context: Any,
        lengths: Any = None,
        k: int = 10,
        requests: Sequence[Any] | None = None,
    ) -> list[RequestHits]:
        """The ``k`` best items of each request; arguments as in ``search``, for any batch."""
        context, lengths = _tensors(context, lengths)
        found: list[RequestHits] = []
        for start in range(0, len(context), self.sizes[-1]):
            part = slice(start, min(start + self.sizes[-1], len(context)))
            beams = self.search(
                context[part],
                None if lengths is None else lengths[part],
                None if requests is None else requests[part],
            )
            found += self.engine.results(beams, k)[: part.stop - part.start]
        return found

    def _scorer(self, size: int) -> tuple[WideScorer, _OneSearch]:
        with self._lock:
            if size not in self._scorers:
                own, context = self._ways
                made = WideScorer(
                    self.weights, size, self.widths, self.columns, own=own, context=context,
                )  # fmt: skip
                self._scorers[size] = (made, _OneSearch(self.weights.device))
            return self._scorers[size]


class _OneSearch:
    """One search at a time in a scorer's buffers: of the host's threads, and of a GPU's streams."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._done: torch.cuda.Event | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._done is not None:  # the caller's stream goes on behind the search before
            torch.cuda.current_stream(self._device).wait_event(self._done)

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cuda":
            self._done = torch.cuda.current_stream(self._device).record_event(self._done)  # pyright: ignore[reportAttributeAccessIssue]
        self._lock.release()


def _opened(weights: WideWeights, allowed: int, own: OwnKind) -> str:
    """What is looked up of the first layer, and why no more."""
    if own not in LOOKING_UP:
        return f"nothing: own is {own!r}, which makes every product"
    config, books = weights.config, weights.codebooks
    needed = pair_bytes(books, config.width, config.inner, weights.dtype) / 2**30
    if weights.pairs is not None:
        return f"two tokens: {len(weights.pairs.x)} pairs, {needed:.3f} GiB"
    if not needed:
        return "one token: no third step would read pairs"
    return f"one token: pairs would take {needed:.3f} GiB, {allowed / 2**30:.3f} are allowed"


def _tensors(context: Any, lengths: Any) -> tuple[Tensor, Tensor | None]:
    """Both as tensors, whose shapes and values on the host fit each other."""
    try:
        context = torch.as_tensor(context)
        lengths = None if lengths is None else torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"The context or its lengths are no array: {error}") from error
    if context.ndim != 3 or not context.is_floating_point():
        raise InputError(
            f"The context is {tuple(context.shape)} of {context.dtype}; give floating-point numbers"
            f" [requests, context tokens, width]."
        )
    if lengths is None:
        return context, None
    if lengths.ndim != 1 or lengths.is_floating_point():
        raise InputError(
            f"lengths are {tuple(lengths.shape)} of {lengths.dtype}; give one whole number per "
            f"request."
        )
    if lengths.device.type == "cpu" and len(lengths):
        least, most = int(lengths.min()), int(lengths.max())
        if least < 1 or most > context.shape[1]:
            raise InputError(
                f"lengths go from {least} to {most}; of {context.shape[1]} context tokens, from 1 "
                f"to all can be real."
            )
    return context, lengths.clamp(1, context.shape[1])


def _kernels(attention: str, device: torch.device, dtype: torch.dtype | None) -> tuple[bool, str]:
    """Whether to use the kernels, and why."""
    if attention not in ("auto", "triton", "plain"):
        raise InputError(f"attention is {attention!r}; it must be 'auto', 'triton' or 'plain'.")
    if attention == "plain":
        return False, "plain: as asked"
    reason = why_not(device)
    if not reason and dtype == torch.float32:
        reason = "the kernels serve bfloat16 and float16, not float32"
    if attention == "auto":
        return not reason, f"plain: {reason}" if reason else "triton: it can run here"
    if reason:
        raise InputError(f"attention is 'triton', but {reason}; use 'plain' or 'auto'.")
    return True, "triton: as asked"


def _graphs(graph: bool | str, engine: Engine) -> tuple[bool, str]:
    """Whether to capture searches, and why."""
    if graph not in (True, False, "auto"):
        raise InputError(f"graph is {graph!r}; it must be True, False or 'auto'.")
    if graph != "auto":
        return bool(graph), f"{'one graph' if graph else 'step by step'}: as asked"
    able = engine.capabilities.graph
    return able, "one graph" if able else f"step by step: {engine.backend} captures nothing"
