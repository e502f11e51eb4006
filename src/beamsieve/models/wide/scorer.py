"""What the engine asks a Wide decoder during a search: one more token per beam and step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.utils.dlpack
from torch import Tensor

from beamsieve.checks import whole_number
from beamsieve.errors import InputError
from beamsieve.models.scorer import SpeltBeams
from beamsieve.models.wide.context import (
    CONTEXT_KINDS,
    Attend,
    ContextKind,
    context_attention,
    fastest,
)
from beamsieve.models.wide.own import OWN_KINDS, OwnKind, own_attention
from beamsieve.models.wide.weights import WideWeights

OwnChoice = Literal["auto"] | OwnKind
ContextChoice = Literal["auto"] | ContextKind


class WideScorer:
    """``score`` for searches of one shape, one after the other.

    Everything that a search reads has a fixed place in device memory, so the same scorer serves a
    captured search: ``load`` each search's contexts, then search.

    Args:
        weights: from ``weights_of``.
        batch: B, requests of a search.
        widths: the search's; the rows computed are those of the widths, no more.
        columns: C, context tokens that there is room for.
        lengths: whether requests may have fewer context tokens than C; if not, no kernel needs to
            mask.
        prefix: tokens of the prefixes that searches begin with.
        own: how a beam attends to its own tokens (``own.OWN_KINDS``); "auto" takes "in_place" where
            the weights were made for Triton's kernels, else "plain".
        context: how beams attend to the context (``context.CONTEXT_KINDS``); "auto" measures which
            is the fastest on this GPU for the search's widest step, and takes "plain" on a CPU. Or
            a function of one's own, as :func:`context.context_attention` returns it.

    Attributes:
        own: the way of self-attention.
        taken: what "auto" took, and why.

    Raises:
        InputError: widths or a batch that no search has, or a way of attention that does not exist
            or needs Triton's kernels where the weights do not.
    """

    def __init__(
        self,
        weights: WideWeights,
        batch: int,
        widths: Sequence[int],
        columns: int,
        *,
        lengths: bool = True,
        prefix: int = 0,
        own: OwnChoice = "auto",
        context: ContextChoice | Attend = "auto",
    ) -> None:
        if batch < 1 or columns < 1 or len(widths) + prefix != len(weights.codebooks):
            raise InputError(
                f"batch {batch}, {columns} context tokens, {len(widths)} widths and a prefix of "
                f"{prefix} do not make a search of {len(weights.codebooks)} levels."
            )
        self.weights = weights
        self.batch = batch
        self.widths = tuple(whole_number(width, "width") for width in widths)
        self.columns = columns
        config, kernels = weights.config, weights.products.kernels
        self._shape = (config.heads, config.head_width)
        self._kept = [
            torch.zeros(
                (batch, columns, 2, *self._shape), dtype=weights.dtype, device=weights.device
            )
            for _ in weights.layers
        ]
        self._lengths = (
            torch.ones(batch, dtype=torch.int32, device=weights.device) if lengths else None
        )
        capacity = batch * (1 + prefix + sum(self.widths[:-1]))
        self.taken: dict[str, str] = {}
        # A first step that keeps all tokens there are decides nothing: the rows behind them are
        # computed beside the start's.
        all_first = prefix == 0 and self.widths[0] >= weights.codebooks[0]
        self.own: OwnKind = self._choose_own(own, kernels)
        self._own = own_attention(weights, capacity, self.own, batch if all_first else 0)
        self._context = (
            context
            if callable(context)
            else context_attention(self._choose_context(context, kernels))
        )
        self._next = self._read = 0
        self._search: object = None
        self._hidden = self._all = weights.start

    def _choose_own(self, own: OwnChoice, kernels: bool) -> OwnKind:
        _known("own", own, OWN_KINDS)
        if own == "auto":
            kind: OwnKind = "in_place" if kernels else "plain"
            self.taken["own"] = f"{kind}: the weights are {'' if kernels else 'not '}for kernels"
            return kind
        if own not in ("plain", "generic") and not kernels:
            raise InputError(
                f"own is {own!r}, which is a Triton kernel, but the weights were made without "
                "kernels; use own='plain', or weights_of(…, kernels=True)."
            )
        return own

    def _choose_context(self, context: ContextChoice, kernels: bool) -> ContextKind:
        _known("context", context, CONTEXT_KINDS)
        if context == "triton" and not kernels:
            raise InputError(
                "context is 'triton', but the weights were made without kernels; use 'plain'."
            )
        if context != "auto":
            return context
        if self.weights.device.type != "cuda":
            kind: ContextKind = "triton" if kernels else "plain"
            self.taken["context"] = f"{kind}: no GPU to measure on"
            return kind
        beams = max((1, *self.widths[:-1]))
        queries = torch.randn(
            (self.batch, beams, *self._shape), dtype=self.weights.dtype, device=self.weights.device
        )
        kept = torch.randn_like(self._kept[0])
        full = None if self._lengths is None else torch.full_like(self._lengths, self.columns)
        kind, timed = fastest(queries, kept[:, :, 0], kept[:, :, 1], full, kernels=kernels)
        said = ", ".join(
            f"{name} {timed[name]:.3f}" for name in sorted(timed, key=timed.__getitem__)
        )
        self.taken["context"] = f"{kind}: milliseconds per layer: {said}"
        return kind

    @torch.no_grad()
    def load(self, context: Tensor, lengths: Tensor | None = None) -> None:
        """The context tokens of the next search's requests.

        Keys and values are made from them here, once per search.

        Args:
            context: [B, c, d], c at most the scorer's ``columns``.
            lengths: int [B], how many of each are real; all of them when None. The others may hold
                anything.

        Raises:
            InputError: another batch or width, more tokens than there is room for, or fewer where
                the scorer was made without lengths.
        """
        size = self.weights.config.width
        batch, columns = context.shape[:2]
        if context.ndim != 3 or batch != self.batch or context.shape[2] != size:
            raise InputError(
                f"The context is {tuple(context.shape)}; the scorer reads [{self.batch}, up to "
                f"{self.columns}, {size}]."
            )
        short = columns < self.columns or lengths is not None
        if columns > self.columns or (short and self._lengths is None):
            raise InputError(
                f"The context has {columns} tokens{' and lengths' if lengths is not None else ''}; "
                f"the scorer was made for {'up to' if self._lengths is not None else 'exactly'} "
                f"{self.columns}."
            )
        if self._lengths is not None:
            if lengths is None:
                self._lengths.fill_(columns)
            else:
                self._lengths.copy_(lengths.clamp(0, columns))  # no kernel reads behind the end
                # What fills a context up may be anything, and NaN gets through a mask.
                places = torch.arange(columns, device=self.weights.device)
                context = context.masked_fill((places >= self._lengths[:, None])[..., None], 0.0)
        flat = context.to(self.weights.dtype).reshape(batch * columns, -1)
        for kept, layer in zip(self._kept, self.weights.layers, strict=True):
            made = torch.mm(flat, layer.context.t())
            kept[:, :columns].copy_(made.view(batch, columns, 2, *self._shape))
            kept[:, columns:].zero_()  # so may what an earlier search left there

    @torch.no_grad()
    def __call__(self, step: int, beams: SpeltBeams) -> tuple[Tensor, Tensor]:
        """Hidden states [B, M, d] and head [V, d] for step ``step``, from 1."""
        parents = as_tensor(beams.parents, self.weights.device)
        batch, places = parents.shape
        done = len(self.weights.codebooks) - len(self.widths)
        planned = 1 if step - 1 <= done else self.widths[step - 2 - done]
        if batch != self.batch or places != planned:
            raise InputError(
                f"Step {step} has {batch} requests of {places} beams; the scorer was made for "
                f"{self.batch} of {planned}."
            )
        search = getattr(beams, "search", None)
        if step != self._next or search is not self._search:
            # A search begins, at the root or behind a prefix.
            self._all = self._hidden = self._forward(self._own.begin(batch))
            if self._own.all_first:
                self._hidden = self._all.view(batch, -1, self._all.shape[1])[:, 0].contiguous()
            self._read = 1
        while self._read < step:
            # One token per step; more only where the search began with a prefix.
            spelt = as_tensor(beams.tokens, self.weights.device)[:, :, : self._read].contiguous()
            if self._read == 1 and self._own.all_first:
                self._hidden = self._own.second(spelt, self._all)
            else:
                self._hidden = self._forward(self._own.advance(spelt, parents))
            self._read += 1
        self._next, self._search = step + 1, search
        return self._hidden.view(batch, places, -1), self.weights.heads[step - 1]

    def _forward(self, x: Tensor) -> Tensor:
        """One token more per row: x [R, d] through all layers."""
        own, how = self._own, self.weights.products
        pending = None
        for number, layer in enumerate(self.weights.layers):
            found = own.opened() if number == 0 else None
            if found is not None:
                x, asked = found
            else:
                product = None
                if number >= own.first_layer:
                    product = own.product(number)
                    how.product(how.normed(x, pending), layer.own_in, out=product)
                mixed = own.attend(number, product)
                pending = how.add(x, how.activation(mixed), layer.own_out)
                asked = how.product(how.normed(x, pending), layer.query)
            pending = how.add(x, how.activation(self._ask(number, asked)), layer.context_out)
            pending = how.feed(
                x, how.normed(x, pending), layer.feed_in, layer.feed_bias, layer.feed_out
            )
        return how.last_norm(x, pending)

    def _ask(self, layer: int, asked: Tensor) -> Tensor:
        queries = asked.view(self.batch, -1, *self._shape)
        kept = self._kept[layer]
        mixed = self._context(queries, kept[:, :, 0], kept[:, :, 1], self._lengths)
        return mixed.reshape(asked.shape)


def as_tensor(array: Any, device: torch.device) -> Tensor:
    """Beams of any backend as tensors on the decoder's device, without a copy where possible."""
    if isinstance(array, Tensor):
        return array.to(device)
    if hasattr(array, "__cuda_array_interface__"):
        # Not through DLPack: its exchange of events between streams cannot be captured. A backend
        # works on the caller's stream, so there is nothing to wait for.
        return torch.as_tensor(array, device=device)
    return torch.utils.dlpack.from_dlpack(array).to(device)


def _known(what: str, value: str, kinds: Sequence[str]) -> None:
    if value not in ("auto", *kinds):
        raise InputError(f"{what} is {value!r}; it must be 'auto' or one of {', '.join(kinds)}.")
