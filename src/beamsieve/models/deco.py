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

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.errors import InputError


@dataclass(frozen=True)
class DecoConfig:
    """Sizes of a Deco.

    Attributes:
        width: d, of the backbone.
        layers: of the backbone.
        heads: of every attention.
        decoder_width: e, of the light decoder and of each concept.
        decoder_layers: of the light decoder.
        concepts: M, how many concept vectors the backbone emits.
        longest: items of a history that the backbone reads; the most recent ones.
        dropout: chance that a hidden value is left out in training.

    Raises:
        InputError: a size is below 1, a width does not divide by the heads, or dropout is not in
            [0, 1).
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    decoder_width: int = 64
    decoder_layers: int = 1
    concepts: int = 2
    longest: int = 50
    dropout: float = 0.2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "dropout" and value < 1:
                raise InputError(f"{name} is {value}; a Deco needs at least 1.")
        if self.width % self.heads or self.decoder_width % self.heads:
            raise InputError(
                f"width {self.width} and decoder_width {self.decoder_width} must divide by "
                f"heads, {self.heads}."
            )
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; give a share from 0 up to 1.")


class Block(nn.Module):
    """One layer: causal attention and a feed-forward net, each behind its own norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, 4 * width)
        self.feed_out = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x [..., n, width], each [..., heads, n, width / heads]."""
        parts = self.queries_keys_values(self.attention_norm(x))
        parts = parts.unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return parts[0], parts[1], parts[2]

    def add(self, x: Tensor, mixed: Tensor) -> Tensor:
        """x after the attention's answer [..., heads, n, width / heads] and the feed-forward."""
        x = x + self.dropout(self.attention_out(mixed.transpose(-2, -3).flatten(-2)))
        fed = self.feed_out(F.gelu(self.feed_in(self.feed_norm(x))))
        added: Tensor = x + self.dropout(fed)
        return added

    def forward(self, x: Tensor) -> Tensor:
        """x [..., n, width]; position i attends to positions 0 … i."""
        queries, keys, values = self.project(x)
        return self.add(x, F.scaled_dot_product_attention(queries, keys, values, is_causal=True))


_Layer = TypeVar("_Layer", bound=nn.Module)


class Layers(nn.ModuleList, Generic[_Layer]):
    """A list of modules that says which kind they are."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[_Layer]: ...
        def __getitem__(self, place: int) -> _Layer: ...  # type: ignore[override]


class Deco(nn.Module):
    """Fuser, backbone, concepts, decoder and one output head per level.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them.
    """

    def __init__(self, config: DecoConfig, codebooks: Sequence[int]) -> None:
        super().__init__()
        self.config = config
        self.codebooks = tuple(int(size) for size in codebooks)
        d, e = config.width, config.decoder_width
        # One row more than the codebook: the level that a shorter semantic ID does not have.
        self.item_codes = Layers[nn.Embedding](nn.Embedding(size + 1, d) for size in self.codebooks)
        self.fuse_in = nn.Linear(d * len(self.codebooks), 2 * d)
        self.fuse_out = nn.Linear(2 * d, d)
        self.start = nn.Parameter(torch.empty(d))
        self.positions = nn.Embedding(config.longest + 1, d)
        self.backbone = Layers[Block](
            Block(d, config.heads, config.dropout) for _ in range(config.layers)
        )
        self.backbone_norm = nn.LayerNorm(d)
        self.to_concepts = nn.Linear(d, config.concepts * e)
        self.prefix_codes = Layers[nn.Embedding](
            nn.Embedding(size, e) for size in self.codebooks[:-1]
        )
        self.spelling_positions = nn.Embedding(config.concepts + len(self.codebooks) - 1, e)
        self.decoder = Layers[Block](
            Block(e, config.heads, config.dropout) for _ in range(config.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(e)
        self.heads = Layers[nn.Linear](nn.Linear(e, size) for size in self.codebooks)
        self.dropout = nn.Dropout(config.dropout)
        self.reset()

    def reset(self) -> None:
        """Draw the weights: N(0, 0.02), and N(0, 1/width) for embeddings.

        Embeddings are multiplied by the square root of their width where they are read, so their
        values enter the network with variance 1.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        nn.init.normal_(self.start, std=self.config.width**-0.5)

    @property
    def levels(self) -> int:
        """L."""
        return len(self.codebooks)

    def fuse(self, sids: Tensor) -> Tensor:
        """One token [..., d] per semantic ID of int64 [..., L]; -1 where a level is absent."""
        codes = [
            embed(torch.where(sids[..., level] < 0, embed.num_embeddings - 1, sids[..., level]))
            for level, embed in enumerate(self.item_codes)
        ]
        joined = torch.cat(codes, -1) * self.config.width**0.5
        fused: Tensor = self.fuse_out(F.gelu(self.fuse_in(joined)))
        return fused

    def think(self, histories: Tensor) -> Tensor:
        """Concepts [B, T + 1, M, e] of histories int64 [B, T, L], items padded at the end.

        Entry t belongs to the history's first t items and is about the item after them: entry 0
        stands before the first. Attention is causal, so what stands behind an item, padding
        included, cannot change its concepts.
        """
        items = self.fuse(histories)
        scale = self.config.width**0.5
        start = self.start.expand(len(items), 1, -1) * scale
        x = torch.cat([start, items], 1)
        x = self.dropout(x + self.positions.weight[: x.shape[1]] * scale)
        for block in self.backbone:
            x = block(x)
        concepts: Tensor = self.to_concepts(self.backbone_norm(x))
        return concepts.reshape(*concepts.shape[:2], self.config.concepts, -1)

    def concepts(self, histories: Tensor, lengths: Tensor) -> Tensor:
        """Concepts [B, M, e] of the item after each history.

        Args:
            histories: int64 [B, T, L], T at most ``config.longest``, items padded at the end.
            lengths: int64 [B], how many items of each are real.
        """
        return self.think(histories)[torch.arange(len(lengths), device=lengths.device), lengths]

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
        scale = self.config.decoder_width**0.5
        codes = [
            self.prefix_codes[level](prefixes[:, level : level + 1])
            for level in range(prefixes.shape[1])
        ]
        x = self.place(torch.cat([concepts, *(code * scale for code in codes)], 1), 0)
        for block in self.decoder:
            x = block(x)
        hidden: Tensor = self.decoder_norm(x[:, self.config.concepts - 1 :])
        return hidden

    def loss(self, concepts: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Mean over N of the negative log-likelihood of targets int64 [N, L], in nats.

        A level that a shorter semantic ID does not have (-1) costs nothing.
        """
        hidden = self.spell(concepts, targets[:, :-1].clamp(min=0))
        total = hidden.new_zeros(())
        for level, head in enumerate(self.heads):
            total = total + F.cross_entropy(
                head(hidden[:, level]),
                targets[:, level],
                ignore_index=-1,
                reduction="sum",
                label_smoothing=label_smoothing,
            )
        return total / len(targets)

    def describe(self) -> dict[str, Any]:
        """Config and codebooks as plain values, from which the same model can be made."""
        return {"config": asdict(self.config), "codebooks": list(self.codebooks)}
