"""What all models of the family share: how they are trained, read histories, and are asked.

A model reads histories of semantic IDs and spells the one that comes next, level by level. The
family of "Separating Thinking from Spelling for Efficient Generative Recommendation":

- ``flat-gr`` reads one token per code and spells with its backbone;
- ``fused-gr`` reads one token per item and spells with its backbone;
- ``deco`` reads one token per item, and a light decoder spells.

Notation: B histories of T items, L levels, V_l codebook sizes, d the backbone's width, e the
width that spells (d, or Deco's decoder's), N items to be spelt, W beams.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from beamsieve.models.layers import Block, Layers
from beamsieve.models.model import Model
from beamsieve.models.pointer import Copying, Pointer

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.config import ModelConfig


@dataclass(frozen=True)
class Reading:
    """What a model keeps of the histories that it has read: all that a search needs.

    Attributes:
        concepts: [B, M, e], Deco's; None for a model that spells with its backbone.
        first: [B, d]; the state that spells the first level. None for Deco.
        place: [B, d]; the embedding of the place that is spelt. None for Deco.
        keys: per layer of the backbone [B, heads, C, d / heads]; empty for Deco.
        values: likewise.
        seen: bool [B, C]; which of those the beams of a request attend to. None for Deco.
        copying: what the pointer says, where the model has one.
    """

    concepts: Tensor | None = None
    first: Tensor | None = None
    place: Tensor | None = None
    keys: tuple[Tensor, ...] = ()
    values: tuple[Tensor, ...] = ()
    seen: Tensor | None = None
    copying: Copying | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors in one fixed order."""
        single = [self.concepts, self.first, self.place, self.seen]
        copied = self.copying
        if copied is not None:
            single += [copied.gate, copied.weights, copied.sids]
        return [tensor for tensor in single if tensor is not None] + [*self.keys, *self.values]

    def __len__(self) -> int:
        return len(self.tensors()[0])

    def to(self, device: str | torch.device) -> Reading:
        """The same on another device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                moved[field.name] = tuple(part.to(device) for part in value)
            elif value is not None:
                moved[field.name] = value.to(device)
        return replace(self, **moved)

    def overwrite(self, other: Reading) -> None:
        """Put another reading of the same shapes into these tensors: a captured search reads them.

        Raises:
            ValueError: the shapes differ.
        """
        pairs = list(zip(self.tensors(), other.tensors(), strict=True))
        for own, new in pairs:
            if own.shape != new.shape:
                raise ValueError(
                    f"A reading of {tuple(new.shape)} does not fit one of {tuple(own.shape)}; "
                    "pad the histories to the same length and batch."
                )
        for own, new in pairs:
            own.copy_(new)


@dataclass(frozen=True)
class Context:
    """What every beam of a request attends to before its own tokens.

    Attributes:
        keys: per spelling layer [B, heads, C, e / heads].
        values: likewise.
        seen: bool [B, C], or None where all of it counts.
        first: [B, e]; the state that spells the first level.
        place: [B, e] or None; added to every token that is spelt.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    seen: Tensor | None
    first: Tensor
    place: Tensor | None


class Generator(Model):
    """A model of the family.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them.
        spelling: the width that the output heads read.
    """

    def __init__(self, config: ModelConfig, codebooks: Sequence[int], spelling: int) -> None:
        super().__init__(config, codebooks)
        self.config: ModelConfig = config
        self.heads = Layers[nn.Linear](nn.Linear(spelling, size) for size in self.codebooks)
        self.pointer = Pointer(config.width) if config.pointer else None
        self.dropout = nn.Dropout(config.dropout)

    @property
    @abstractmethod
    def spelling(self) -> Layers[Block]:
        """The layers that spell."""

    @property
    @abstractmethod
    def spelling_norm(self) -> nn.LayerNorm:
        """The norm behind them."""

    @abstractmethod
    def dense(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Training's one forward: every target under its gold prefix.

        Returns:
            the states [N, L, e] that the heads read, and the backbone's states [B, T + 1, d]:
            entry t stands behind the history's first t items.
        """

    @abstractmethod
    def read(self, histories: Tensor, lengths: Tensor) -> Reading:
        """Read histories once.

        Args:
            histories: int64 [B, T, L], T at most ``config.longest``, items padded at the end.
            lengths: int64 [B], how many items of each are real.
        """

    @abstractmethod
    def open(self, reading: Reading) -> Context:
        """What the beams of a search attend to."""

    @abstractmethod
    def token(self, prefixes: Tensor, context: Context) -> Tensor:
        """What the spelling layers read for the last codes of prefixes int64 [B, W, p]: [B, W, e].

        The p - 1 codes before them have been read already, one by one.
        """

    def logits(self, batch: Batch) -> list[Tensor]:
        """Per level, [N, V_l]: logits of each target's code, given the codes before it.

        With a pointer, they are the logarithms of the mixed probabilities.
        """
        hidden, states = self.dense(batch)
        said = [head(state) for head, state in zip(self.heads, hidden.unbind(1), strict=True)]
        if self.pointer is None:
            return said
        copying = self.pointer(states, batch.histories, batch.rows, batch.places)
        matches = copying.matches(batch.targets)
        return [copying.mix(logits, matches[level], level) for level, logits in enumerate(said)]

    def scorer(self, reading: Reading, widths: Sequence[int]) -> Callable[[int, Any], Any]:
        """One new token per beam and step, whatever the widths."""
        from beamsieve.models.scorer import BeamScorer

        return BeamScorer(self, reading)
