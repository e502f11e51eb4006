"""The sizes of a model, whichever of the family it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from beamsieve.errors import InputError

Architecture = Literal["deco", "fused-gr", "flat-gr"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model.

    Attributes:
        width: d, of the backbone.
        layers: of the backbone.
        heads: of every attention.
        decoder_width: e, of Deco's light decoder and of each concept.
        decoder_layers: of Deco's light decoder.
        concepts: M, how many concept vectors Deco's backbone emits.
        longest: items of a history that the backbone reads; the most recent ones.
        dropout: chance that a hidden value is left out in training.
        architecture: "deco" (the backbone thinks, a light decoder spells), "fused-gr" (the
            backbone reads one token per item, and spells itself) or "flat-gr" (it reads one token
            per code, and spells itself). The decoder's sizes and ``concepts`` are Deco's alone.
        pointer: whether a share of every prediction, learnt from the history, is copied from it.

    Raises:
        InputError: a size is below 1, a width does not divide by the heads, dropout is not in
            [0, 1), or there is no such architecture.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    decoder_width: int = 64
    decoder_layers: int = 1
    concepts: int = 2
    longest: int = 50
    dropout: float = 0.2
    architecture: Architecture = "deco"
    pointer: bool = False

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise InputError(
                f"architecture is {self.architecture!r}; there are {', '.join(ARCHITECTURES)}."
            )
        for name, value in asdict(self).items():
            if name not in ("dropout", "architecture", "pointer") and value < 1:
                raise InputError(f"{name} is {value}; a model needs at least 1.")
        if self.width % self.heads or self.decoder_width % self.heads:
            raise InputError(
                f"width {self.width} and decoder_width {self.decoder_width} must divide by "
                f"heads, {self.heads}."
            )
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; give a share from 0 up to 1.")
