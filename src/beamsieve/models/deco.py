"""Deco, a generator that reads once and spells lightly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecoConfig:
    """Sizes of a Deco.

    Attributes:
        width: of the backbone.
        layers: of the backbone.
        heads: of every attention.
        decoder_width: of the light decoder and of each concept vector.
        decoder_layers: of the light decoder.
        concepts: M, how many concept vectors the backbone emits.
        longest: items of a history that the backbone reads; the most recent ones.
        dropout: everywhere.
    """

    width: int = 128
    layers: int = 2
    heads: int = 4
    decoder_width: int = 128
    decoder_layers: int = 1
    concepts: int = 2
    longest: int = 50
    dropout: float = 0.2
