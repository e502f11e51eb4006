"""Self-attention over the few tokens of each beam, and where their keys and values are kept.

The ways differ in what a reordering of beams moves, and in what a step reads and writes:

- ``generic``: a dense cache, copied in the beams' new order; PyTorch's own attention.
- ``coalesced``: the same cache; the kernel takes many rows a tile (GRACE, section 4.2).
- ``fused``: the same cache; one kernel reads the product, writes keys and values, attends.
- ``paged``: keys and values in blocks that stay where they are; only ids are copied (section 4.3).
- ``in_place``: the products of all steps are the blocks, so nothing is written at all; and the
  first layer, whose input is the last token's embedding alone, is looked up by token: its product,
  and up to the first token, or the second, everything before the cross-attention (``opened``).
  Where the first step keeps all tokens there are, the rows behind them are computed beside the
  start's, in one pass for both.
- ``plain``: as ``in_place``, in PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from beamsieve.models.wide import laws
from beamsieve.models.wide.weights import WideWeights

OwnKind = Literal["generic", "coalesced", "fused", "paged", "in_place", "plain"]
OWN_KINDS: tuple[OwnKind, ...] = get_args(OwnKind)
LOOKING_UP: tuple[OwnKind, ...] = ("in_place", "plain")
"""Those that look up what the first layer says (``opened``)."""


class OwnAttention(ABC):
    """The own tokens of all beams of one search after the other.

    Args:
        weights: of the model.
        capacity: rows of all steps of a search together.
    """

    all_first = False
    """Whether ``begin`` is for the start and all first tokens at once (``laws.all_first``)."""
    first_layer = 0
    """The first layer whose product must be made; the ones before are looked up."""

    def __init__(self, weights: WideWeights, capacity: int) -> None:
        self.weights = weights
        self.capacity = capacity
        self.heads, self.width = weights.config.heads, weights.config.head_width
        self.length = len(weights.codebooks)
        self.t = 0
        self.rows = 0

    def begin(self, batch: int) -> Tensor:
        """Forget the search before; the first inputs [B, d], one row per request."""
        self.t, self.rows = 1, batch
        self._opened()
        return self.weights.start.repeat(batch, 1)  # a copy: it becomes the residual stream

    def advance(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Put the rows into the beams' new order, and read one more token per beam.

        Args:
            tokens: [B, M, t], the last of which is new.
            parents: [B, M].

        Returns:
            the new tokens' embeddings [B * M, d].
        """
        before, self.t, self.rows = self.rows, self.t + 1, parents.numel()
        return self._reordered(tokens, parents, before)

    def second(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Hidden states [B * M, d] behind tokens [B, M, 1], out of those of all first tokens."""
        raise NotImplementedError

    @abstractmethod
    def _opened(self) -> None:
        """Before the first token."""

    @abstractmethod
    def _reordered(self, tokens: Tensor, parents: Tensor, before: int) -> Tensor:
        """After ``rows`` and ``t`` are the new ones."""

    def opened(self) -> tuple[Tensor, Tensor] | None:
        """The rows' residual stream and queries behind the first layer's self-attention, where
        these can be looked up."""
        return None

    @abstractmethod
    def product(self, layer: int) -> Tensor:
        """Where the product for queries, keys and values goes: [R, 3 * H * D], contiguous."""

    @abstractmethod
    def attend(self, layer: int, product: Tensor | None) -> Tensor:
        """The answers [R, H * D]; ``product`` is None in layers before ``first_layer``."""

    def new(self, *shape: int) -> Tensor:
        """A tensor of the weights' dtype, with whatever the memory held."""
        return torch.empty(shape, dtype=self.weights.dtype, device=self.weights.device)


class DenseOwn(OwnAttention):
    """A dense cache per layer: keys and values [2, L, R, H, D], copied at every reordering."""

    def __init__(self, weights: WideWeights, capacity: int, kind: OwnKind) -> None:
        super().__init__(weights, capacity)
        self.kind = kind

    def _opened(self) -> None:
        self._caches = [self._empty() for _ in self.weights.layers]

    def _empty(self) -> Tensor:
        return self.new(2, self.length, self.rows, self.heads, self.width)

    def _reordered(self, tokens: Tensor, parents: Tensor, before: int) -> Tensor:
        batch, beams = parents.shape
        request = torch.arange(batch, device=parents.device)[:, None]
        flat = (parents.long().clamp(min=0) + request * (before // batch)).reshape(-1)
        for layer, cache in enumerate(self._caches):
            moved = self._empty()
            for part in range(2):
                torch.index_select(
                    cache[part, : self.t - 1], 1, flat, out=moved[part, : self.t - 1]
                )
            self._caches[layer] = moved
        codes = self.weights.codes[self.t - 2]
        return codes[tokens[:, :, -1].long().clamp(min=0)].view(batch * beams, -1)

    def product(self, layer: int) -> Tensor:
        """New each time."""
        return self.new(self.rows, 3 * self.heads * self.width)

    def attend(self, layer: int, product: Tensor | None) -> Tensor:
        """As the kind says."""
        assert product is not None
        parts = product.view(self.rows, 3, self.heads, self.width)
        keys, values = self._caches[layer]
        if self.kind == "fused":
            from beamsieve.models.wide import calls

            return calls.fused(parts, keys, values, self.t).view(self.rows, -1)
        keys[self.t - 1], values[self.t - 1] = parts[:, 1], parts[:, 2]
        if self.kind == "coalesced":
            from beamsieve.models.wide import calls

            queries = parts[:, 0].contiguous()
            return calls.coalesced(queries, keys, values, self.t).view(self.rows, -1)
        mixed = torch.nn.functional.scaled_dot_product_attention(
            parts[:, 0, :, None],
            keys[: self.t].permute(1, 2, 0, 3),
            values[: self.t].permute(1, 2, 0, 3),
        )
        return mixed.reshape(self.rows, -1)


class PagedOwn(OwnAttention):
    """Blocks that stay where they are, and a table of their ids; keys and values are written."""

    kind: OwnKind = "paged"
    parts = 2
    """Of a block: keys and values."""

    def __init__(self, weights: WideWeights, capacity: int) -> None:
        super().__init__(weights, capacity)
        shape = (capacity, self.parts, self.heads, self.width)
        self._blocks = [self.new(*shape) for _ in weights.layers[self.first_layer :]]

    def _opened(self) -> None:
        self._first = 0
        self._ids = torch.arange(self.rows, dtype=torch.int32, device=self.weights.device)
        self._ids = self._ids[:, None].repeat(1, self.length)
        self._first_ids = torch.zeros_like(self._ids)

    def _reordered(self, tokens: Tensor, parents: Tensor, before: int) -> Tensor:
        self._first += before
        from beamsieve.models.wide import calls

        self._ids, self._first_ids, x = calls.advance(
            tokens, parents, self._ids, self.weights.bases, self._first,
            self.weights.codes[self.t - 2],
        )  # fmt: skip
        return x

    def product(self, layer: int) -> Tensor:
        """New each time."""
        return self.new(self.rows, 3 * self.heads * self.width)

    def attend(self, layer: int, product: Tensor | None) -> Tensor:
        """Write the new blocks and attend."""
        from beamsieve.models.wide import calls

        assert product is not None
        blocks = self._blocks[layer]
        parts = product.view(self.rows, 3, self.heads, self.width)
        mixed = calls.paged(parts, blocks[:, 0], blocks[:, 1], self._ids, self.t)
        return mixed.view(self.rows, -1)


class InPlaceOwn(PagedOwn):
    """The products themselves are the blocks; the first layer's is a table over tokens."""

    kind: OwnKind = "in_place"
    parts = 3
    first_layer = 1

    def __init__(
        self, weights: WideWeights, capacity: int, kind: OwnKind = "in_place", all_first: int = 0
    ) -> None:
        self.kind = kind
        super().__init__(weights, capacity)
        self._paired: tuple[Tensor, Tensor] | None = None
        self.all_first = bool(all_first)
        if all_first:
            self._all_ids = laws.all_first(
                all_first, weights.codebooks[0], self.length, weights.device
            )

    def begin(self, batch: int) -> Tensor:
        """As ever; or the start and all first tokens, whose inputs are looked up."""
        if not self.all_first:
            return super().begin(batch)
        self.t, self.rows, self._first, self._ids = 2, len(self._all_ids), 0, self._all_ids
        return self.weights.start

    def _reordered(self, tokens: Tensor, parents: Tensor, before: int) -> Tensor:
        pairs = self.weights.pairs if self.t == 3 else None
        self._paired = None
        if self.kind != "plain" and pairs is None:
            return super()._reordered(tokens, parents, before)
        self._first += before
        order = tokens, parents, self._ids, self.weights.bases, self._first
        if self.kind == "plain":
            self._ids, self._first_ids = laws.advance(*order)
            if pairs is None:
                codes = self.weights.codes[self.t - 2]
                return codes[tokens[:, :, -1].long().clamp(min=0)].view(self.rows, -1)
            self._paired = laws.paired(tokens, pairs.x, pairs.asked, self.weights.codebooks[1])
        else:
            assert pairs is not None
            from beamsieve.models.wide import calls

            self._ids, self._first_ids, *found = calls.advance_paired(
                *order, pairs.x, pairs.asked, self.weights.codebooks[1]
            )
            self._paired = found[0], found[1]
        return self._paired[0]

    def _law_or_call(self) -> Any:
        if self.kind == "plain":
            return laws
        from beamsieve.models.wide import calls

        return calls

    def second(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Their rows."""
        rows: Tensor
        self._ids, rows = self._law_or_call().second(tokens, hidden, self.length)
        # The blocks of all first tokens stay, whichever are alive; the next rows' follow them.
        self.rows, self._first = len(rows), len(hidden) - len(rows)
        return rows

    def opened(self) -> tuple[Tensor, Tensor] | None:
        """Up to the first token, or the second, they depend on them alone."""
        if self.t > 2:
            return self._paired
        x, asked = self.weights.opened.x, self.weights.opened.asked
        if self.all_first:
            both: tuple[Tensor, Tensor] = self._law_or_call().repeated(
                x, asked, self.rows // len(x)
            )
            return both
        ids = self._first_ids[:, self.t - 1].contiguous()
        return x.index_select(0, ids), asked.index_select(0, ids)

    def product(self, layer: int) -> Tensor:
        """This step's part of the blocks."""
        blocks = self._blocks[layer - self.first_layer]
        return blocks[self._first : self._first + self.rows].view(self.rows, -1)

    def attend(self, layer: int, product: Tensor | None) -> Tensor:
        """Attend in the blocks."""
        if layer < self.first_layer:
            blocks = self.weights.first_table.view(-1, 3, self.heads, self.width)
            ids = self._first_ids
        else:
            blocks, ids = self._blocks[layer - self.first_layer], self._ids
        mixed: Tensor = self._law_or_call().in_place(blocks, ids, self.t)
        return mixed.reshape(self.rows, -1)


def own_attention(
    weights: WideWeights, capacity: int, kind: OwnKind, all_first: int = 0
) -> OwnAttention:
    """The way of that name; ``all_first`` requests begin with all first tokens where it can."""
    if kind == "paged":
        return PagedOwn(weights, capacity)
    if kind in LOOKING_UP:
        return InPlaceOwn(weights, capacity, kind, all_first)
    return DenseOwn(weights, capacity, kind)
