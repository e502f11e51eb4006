"""FlatGR: a history is the codes of its items, one token each, and the backbone spells the next.

The plainest of the family: a causal language model over semantic IDs. It reads T · L tokens, and
every beam's codes attend to all of them.

Each code is read as the sum of the embeddings of its item's codes so far. Which codes may follow
depends on that whole prefix, and to find its first codes among those of all other items is what
attention learns last and least: under prefixes that training met a few times it mixes them with
other items', and the model then spells the children of another item's prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from beamsieve.models.generator import Context, Generator, Reading
from beamsieve.models.layers import Block, Layers, at_places, blocks, draw_weights, read_levels

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.config import ModelConfig


class FlatGR(Generator):
    """A causal backbone over codes.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them.
    """

    reads_targets = True

    def __init__(self, config: ModelConfig, codebooks: Sequence[int]) -> None:
        super().__init__(config, codebooks, config.width)
        d = config.width
        # One row more than the codebook: the level that a shorter semantic ID does not have.
        self.item_codes = Layers[nn.Embedding](nn.Embedding(size + 1, d) for size in self.codebooks)
        self.start = nn.Parameter(torch.empty(d))
        self.positions = nn.Embedding(config.longest + 1, d)
        self.backbone = blocks(config.layers, d, config.heads, config.dropout)
        self.backbone_norm = nn.LayerNorm(d)
        self.reset()

    def reset(self) -> None:
        """Draw the weights."""
        draw_weights(self)
        nn.init.normal_(self.start, std=self.config.width**-0.5)

    @property
    def spelling(self) -> Layers[Block]:
        """The backbone."""
        return self.backbone

    @property
    def spelling_norm(self) -> nn.LayerNorm:
        """The backbone's."""
        return self.backbone_norm

    def tokens(self, sids: Tensor) -> Tensor:
        """What the backbone reads of semantic IDs int64 [B, T, L]: [B, 1 + T · L, d].

        A start, and every code with those before it in its item, and its item's place.
        """
        read = read_levels(self.item_codes, sids).cumsum(-2)
        items = read + self.positions.weight[: sids.shape[1], None]
        start = self.start.expand(len(sids), 1, -1)
        x = torch.cat([start, items.flatten(1, 2)], 1) * self.config.width**0.5
        placed: Tensor = self.dropout(x)
        return placed

    def dense(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See :meth:`Generator.dense`; a target stands in the history's place behind it."""
        last = batch.histories.new_full((len(batch.histories), 1, self.levels), -1)
        sids = torch.cat([batch.histories, last], 1)
        sids[batch.rows, batch.places] = batch.targets
        x = self.tokens(sids)[:, :-1]
        for block in self.backbone:
            x = block(x)
        x = self.backbone_norm(x).unflatten(1, (-1, self.levels))
        return at_places(x, batch.rows, batch.places), x[:, :, 0]

    def read(self, histories: Tensor, lengths: Tensor) -> Reading:
        """See :meth:`Generator.read`."""
        x, keys, values = self.tokens(histories), [], []
        for block in self.backbone:
            x, key, value = block.attend(x)
            keys.append(key)
            values.append(value)
        states = self.backbone_norm(x)[:, :: self.levels]
        rows = torch.arange(len(lengths), device=lengths.device)
        ends = lengths[:, None] * self.levels
        copying = None
        if self.pointer is not None:
            copying = self.pointer(states, histories, rows, lengths)
        return Reading(
            first=states[rows, lengths],
            place=self.positions(lengths),
            keys=tuple(keys),
            values=tuple(values),
            seen=torch.arange(x.shape[1], device=lengths.device) <= ends,
            copying=copying,
        )

    def open(self, reading: Reading) -> Context:
        """See :meth:`Generator.open`."""
        assert reading.first is not None
        return Context(reading.keys, reading.values, reading.seen, reading.first, reading.place)

    def token(self, prefixes: Tensor, context: Context) -> Tensor:
        """See :meth:`Generator.token`."""
        assert context.place is not None
        read = read_levels(self.item_codes, prefixes).sum(-2) + context.place[:, None]
        scaled: Tensor = read * self.config.width**0.5
        return scaled
