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

from beamsieve.models.fused import FusedGR, FusedHistories
from beamsieve.models.generator import Context, Reading
from beamsieve.models.layers import Block, Layers, at_places, blocks, read_levels

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.config import ModelConfig


_LIGHT = {"prefix_codes", "spelling_positions", "decoder", "decoder_norm", "heads", "dropout"}


_LOUD = 8.0
"""How much larger than normed a state is as a concept that layers are not to change."""
_FEW = 10
"""Items of a common history."""


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
    def begin_with(self, teacher: FusedGR) -> None:
        """Set out from how a teacher spells, once its backbone, codes and heads are taken over.

        The decoder's layers are the teacher's last ones, which know how items are spelled. The last
        concept is the backbone's state, so large that those layers hardly change it, and heads say
        of the first level what they did. Only where the decoder is as wide as the backbone; else
        nothing changes.
        """
        d, e, concepts = self.config.width, self.config.decoder_width, self.config.concepts
        if d != e or d != teacher.config.width or self.config.heads != teacher.config.heads:
            return
        shared = min(len(self.decoder), len(teacher.backbone))
        for n, block in enumerate(self.decoder):
            place = n - len(self.decoder) + len(teacher.backbone)
            if n < len(self.decoder) - shared:  # more layers than the teacher has: they add nothing
                for part in (block.attention_out, block.feed_out):
                    part.weight.zero_()
                    part.bias.zero_()
            else:
                block.load_state_dict(teacher.backbone[place].state_dict())
        self.decoder_norm.load_state_dict(teacher.backbone_norm.state_dict())
        # A state is gain * z + bias, z being normed; the decoder's norm makes the same of z.
        gain, bias = teacher.backbone_norm.weight, teacher.backbone_norm.bias
        scale = _LOUD / torch.where(gain < 0, gain.clamp(max=-0.1), gain.clamp(min=0.1))
        first = (concepts - 1) * e
        self.to_concepts.weight[first:] = torch.diag(scale)
        self.to_concepts.bias[first:] = -bias * scale
        self.spelling_positions.weight[concepts - 1].zero_()
        # The teacher's tokens also say how many items came before: a few, as in most histories.
        before = teacher.positions.weight[1 : 1 + _FEW].mean(0)
        self.spelling_positions.weight[concepts:] = (
            teacher.spelling_positions.weight[: self.levels - 1] + before
        )

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

    def token(self, prefixes: Tensor, context: Context) -> Tensor:
        """See :meth:`Generator.token`."""
        level = prefixes.shape[-1] - 1
        place = self.spelling_positions.weight[self.config.concepts + level]
        codes = self.prefix_codes[level](prefixes[..., level])
        read: Tensor = (codes + place) * self.config.decoder_width**0.5
        return read
