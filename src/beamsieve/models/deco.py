"""Deco: read the history once, then spell the next item lightly.

A recommender that writes semantic IDs with its large model pays for the large model at every
token of every beam. Deco ("Separating Thinking from Spelling for Efficient Generative
Recommendation") parts the two:

1. **Fuse.** The code embeddings of an item's semantic ID become one token, so a history of T
   items is T tokens, not T x L.
2. **Think.** A causal transformer, the backbone, reads the history once. Its state at each
   position is cut into M concept vectors: all that is ever said about the next item.
3. **Spell.** A light causal decoder sees the concepts and the tokens spelt so far, never the
   history, and predicts the next token. Beam search runs on it alone, and no key or value of the
   backbone is needed again.

Training is dense: every position of a history predicts the semantic ID of the item after it, all
levels at once under the gold prefix, in one forward pass.

Notation: B histories of T items, L levels, V_l codebook sizes, d the backbone's width, e the
decoder's width, M concepts, N positions to be spelt.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from beamsieve.models.fused import FusedHistories
from beamsieve.models.generator import Context, Reading
from beamsieve.models.layers import Block, Layers, at_places, blocks, read_levels

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.config import ModelConfig


_LIGHT = {"prefix_codes", "spelling_positions", "decoder", "decoder_norm", "heads", "dropout"}


class Deco(FusedHistories):
    """Fuser, backbone, concepts, decoder and one output head per level.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them.
    """

    def __init__(self, config: ModelConfig, codebooks: Sequence[int]) -> None:
        e = config.decoder_width
        super().__init__(config, codebooks, e)
        self.to_concepts = nn.Linear(config.width, config.concepts * e)
        self.prefix_codes = Layers[nn.Embedding](
            nn.Embedding(size, e) for size in self.codebooks[:-1]
        )
        self.spelling_positions = nn.Embedding(config.concepts + len(self.codebooks) - 1, e)
        self.decoder = blocks(config.decoder_layers, e, config.heads, config.dropout)
        self.decoder_norm = nn.LayerNorm(e)
        self.reset()

    @property
    def spelling(self) -> Layers[Block]:
        """The light decoder."""
        return self.decoder

    @property
    def spelling_norm(self) -> nn.LayerNorm:
        """The light decoder's."""
        return self.decoder_norm

    def think(self, histories: Tensor) -> Tensor:
        """Concepts [B, T + 1, M, e] of histories int64 [B, T, L], items padded at the end.

        Entry t belongs to the history's first t items and is about the item after them: entry 0
        stands before the first.
        """
        return self._cut(self.states(histories))

    def _cut(self, states: Tensor) -> Tensor:
        """Concepts [..., M, e] of states [..., d]."""
        concepts: Tensor = self.to_concepts(states)
        return concepts.reshape(*concepts.shape[:-1], self.config.concepts, -1)

    def dense(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See :meth:`Generator.dense`."""
        states = self.states(batch.histories)
        concepts = self._cut(at_places(states, batch.rows, batch.places))
        return self.spell(concepts, batch.targets[:, :-1].clamp(min=0)), states

    def read(self, histories: Tensor, lengths: Tensor) -> Reading:
        """See :meth:`Generator.read`: the concepts of the item after each history."""
        states = self.states(histories)
        rows = torch.arange(len(lengths), device=lengths.device)
        copying = None
        if self.pointer is not None:
            copying = self.pointer(states, histories, rows, lengths)
        return Reading(concepts=self._cut(states[rows, lengths]), copying=copying)

    @torch.no_grad()
    def begin_with_states(self) -> None:
        """Set out from what the backbone knows: the last concept is its state, as it is.

        The decoder's layers add nothing at first, and its norm undoes itself on a state that the
        backbone's norm made, so heads that read such states say of the first level what they did.
        Only where the decoder is as wide as the backbone; else nothing changes.
        """
        d, e = self.config.width, self.config.decoder_width
        if d != e:
            return
        last = self.config.concepts - 1
        nn.init.eye_(self.to_concepts.weight[last * e :])
        self.to_concepts.bias[last * e :].zero_()
        self.spelling_positions.weight[last].zero_()
        for block in self.decoder:
            for part in (block.attention_out, block.feed_out):
                part.weight.zero_()
                part.bias.zero_()
        # A state is gain * z + bias with z of mean 0 and variance 1.
        gain, bias = self.backbone_norm.weight, self.backbone_norm.bias
        spread = gain.square().mean() + bias.var(correction=0)
        self.decoder_norm.weight.fill_(float(spread.sqrt()))
        self.decoder_norm.bias.fill_(float(bias.mean()))

    def place(self, x: Tensor, first: int) -> Tensor:
        """Decoder inputs x [..., n, e] with the embeddings of positions ``first`` … added."""
        positions = self.spelling_positions.weight[first : first + x.shape[-2]]
        placed: Tensor = self.dropout(x + positions * self.config.decoder_width**0.5)
        return placed

    def spell(self, concepts: Tensor, prefixes: Tensor) -> Tensor:
        """Hidden states [N, p + 1, e] before each next token of prefixes int64 [N, p].

        Args:
            concepts: [N, M, e].
            prefixes: the first p < L tokens; state l is the one that level l + 1's head reads,
                and depends on the first l tokens alone.
        """
        x = concepts
        if prefixes.shape[1]:
            codes = read_levels(self.prefix_codes, prefixes) * self.config.decoder_width**0.5
            x = torch.cat([concepts, codes], 1)
        x = self.place(x, 0)
        wanted = x.shape[1] - self.config.concepts + 1
        for n, block in enumerate(self.decoder, 1):
            x = block(x, last=wanted if n == len(self.decoder) else None)
        hidden: Tensor = self.decoder_norm(x)
        return hidden

    def light(self) -> Deco:
        """The light decoder alone, of the same weights: it spells concepts, and reads nothing."""
        kept = copy.copy(self)
        kept._modules = {name: part for name, part in self._modules.items() if name in _LIGHT}
        kept._parameters = {}
        return kept

    def open(self, reading: Reading) -> Context:
        """See :meth:`Generator.open`: the decoder reads the concepts."""
        assert reading.concepts is not None
        x, keys, values = self.place(reading.concepts, 0), [], []
        for block in self.decoder:
            x, key, value = block.attend(x)
            keys.append(key)
            values.append(value)
        first = self.decoder_norm(x[:, -1])
        return Context(tuple(keys), tuple(values), None, first, None)

    def token(self, level: int, codes: Tensor, context: Context) -> Tensor:
        """See :meth:`Generator.token`."""
        place = self.spelling_positions.weight[self.config.concepts + level]
        read: Tensor = (self.prefix_codes[level](codes) + place) * self.config.decoder_width**0.5
        return read
