"""Models that read one token per item, and FusedGR, whose backbone also spells.

The code embeddings of an item's semantic ID are fused into one token by a small net, so a history
of T items is T tokens, not T · L. FusedGR then spells with its backbone: every beam's codes are
tokens that attend to the whole history, which is what Deco avoids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.models.generator import Context, Generator, Reading
from beamsieve.models.layers import Block, Layers, at_places, blocks, draw_weights, read_levels

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.config import ModelConfig


class FusedHistories(Generator):
    """A fuser and a causal backbone over its tokens."""

    def __init__(self, config: ModelConfig, codebooks: Sequence[int], spelling: int) -> None:
        super().__init__(config, codebooks, spelling)
        d = config.width
        # One row more than the codebook: the level that a shorter semantic ID does not have.
        self.item_codes = Layers[nn.Embedding](nn.Embedding(size + 1, d) for size in self.codebooks)
        self.fuse_in = nn.Linear(d * len(self.codebooks), 2 * d)
        self.fuse_out = nn.Linear(2 * d, d)
        self.start = nn.Parameter(torch.empty(d))
        self.positions = nn.Embedding(config.longest + 1, d)
        self.backbone = blocks(config.layers, d, config.heads, config.dropout)
        self.backbone_norm = nn.LayerNorm(d)

    def reset(self) -> None:
        """Draw the weights."""
        draw_weights(self)
        nn.init.normal_(self.start, std=self.config.width**-0.5)

    def fuse(self, sids: Tensor) -> Tensor:
        """One token [..., d] per semantic ID of int64 [..., L]; -1 where a level is absent."""
        joined = read_levels(self.item_codes, sids).flatten(-2) * self.config.width**0.5
        fused: Tensor = self.fuse_out(F.gelu(self.fuse_in(joined)))
        return fused

    def tokens(self, histories: Tensor) -> Tensor:
        """What the backbone reads [B, T + 1, d]: a start, and a token per item."""
        items = self.fuse(histories)
        scale = self.config.width**0.5
        x = torch.cat([self.start.expand(len(items), 1, -1) * scale, items], 1)
        placed: Tensor = self.dropout(x + self.positions.weight[: x.shape[1]] * scale)
        return placed

    def states(self, histories: Tensor) -> Tensor:
        """The backbone's states [B, T + 1, d] of histories int64 [B, T, L], padded at the end.

        Entry t stands behind the first t items. Attention is causal, so what stands behind an
        item, padding included, cannot change it.
        """
        x = self.tokens(histories)
        for block in self.backbone:
            x = block(x)
        normed: Tensor = self.backbone_norm(x)
        return normed


class FusedGR(FusedHistories):
    """The backbone reads fused items and spells codes.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them.
    """

    def __init__(self, config: ModelConfig, codebooks: Sequence[int]) -> None:
        super().__init__(config, codebooks, config.width)
        d = config.width
        self.prefix_codes = Layers[nn.Embedding](
            nn.Embedding(size, d) for size in self.codebooks[:-1]
        )
        self.spelling_positions = nn.Embedding(max(1, self.levels - 1), d)
        self.reset()

    @property
    def spelling(self) -> Layers[Block]:
        """The backbone."""
        return self.backbone

    @property
    def spelling_norm(self) -> nn.LayerNorm:
        """The backbone's."""
        return self.backbone_norm

    def dense(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See :meth:`Generator.dense`.

        Behind the tokens of a history stand, for each of its places, the codes of the target
        there: a block that sees the history up to its place and its own codes (block-causal).
        """
        x = self.tokens(batch.histories)
        length, more = x.shape[1], self.levels - 1
        codes = batch.targets.new_zeros((len(x), length, more))
        codes[batch.rows, batch.places] = batch.targets[:, :more].clamp(min=0)
        if more:
            place = self.positions.weight[:length, None]
            read = self._codes(codes) + place * self.config.width**0.5
            x = torch.cat([x, self.dropout(read).flatten(1, 2)], 1)
        seen = block_causal(length, more, x.device)
        for block in self.backbone:
            x = block(x, seen)
        x = self.backbone_norm(x)
        states = x[:, :length]
        spelt = x[:, length:].reshape(len(x), length, more, -1)
        hidden = torch.cat([states[:, :, None], spelt], 2)
        return at_places(hidden, batch.rows, batch.places), states

    def _codes(self, codes: Tensor) -> Tensor:
        """Embeddings [..., n, d] of the first n codes [..., n] of semantic IDs."""
        read = read_levels(self.prefix_codes, codes)
        placed: Tensor = read + self.spelling_positions.weight[: codes.shape[-1]]
        scaled: Tensor = placed * self.config.width**0.5
        return scaled

    def read(self, histories: Tensor, lengths: Tensor) -> Reading:
        """See :meth:`Generator.read`."""
        x, keys, values = self.tokens(histories), [], []
        for block in self.backbone:
            x, key, value = block.attend(x)
            keys.append(key)
            values.append(value)
        states = self.backbone_norm(x)
        rows = torch.arange(len(lengths), device=lengths.device)
        seen = torch.arange(x.shape[1], device=lengths.device) <= lengths[:, None]
        copying = None
        if self.pointer is not None:
            copying = self.pointer(states, histories, rows, lengths)
        return Reading(
            first=states[rows, lengths],
            place=self.positions(lengths) * self.config.width**0.5,
            keys=tuple(keys),
            values=tuple(values),
            seen=seen,
            copying=copying,
        )

    def open(self, reading: Reading) -> Context:
        """See :meth:`Generator.open`."""
        assert reading.first is not None
        return Context(reading.keys, reading.values, reading.seen, reading.first, reading.place)

    def token(self, prefixes: Tensor, context: Context) -> Tensor:
        """See :meth:`Generator.token`."""
        assert context.place is not None
        level = prefixes.shape[-1] - 1
        codes = self.prefix_codes[level](prefixes[..., level])
        read = codes + self.spelling_positions.weight[level]
        placed: Tensor = read * self.config.width**0.5 + context.place[:, None]
        return placed


def block_causal(length: int, more: int, device: torch.device) -> Tensor:
    """bool [S, S], S = length · (1 + more): who sees whom.

    First stand ``length`` tokens of a history, each seeing itself and those before it; then, for
    each of them in turn, ``more`` codes, which see the history up to it and their own block up to
    themselves.
    """
    place = torch.arange(length, device=device)
    history = torch.cat([place, place.repeat_interleave(more)])
    order = torch.arange(more, device=device)
    code = torch.cat([place.new_full((length,), -1), order.repeat(length)])
    to_history = (code[None] < 0) & (history[None] <= history[:, None])
    own = (code[None] >= 0) & (history[None] == history[:, None]) & (code[None] <= code[:, None])
    return to_history | own
