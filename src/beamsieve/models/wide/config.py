"""Sizes of a wide-beam decoder, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from beamsieve.checks import whole_number
from beamsieve.errors import InputError

HEAD_WIDTHS = (64, 128)
LEVELS = (2, 8)
LARGEST_CODEBOOK = 16_384


@dataclass(frozen=True)
class WideConfig:
    """Sizes of a Wide model. The defaults are small enough to train on one processor core.

    Attributes:
        width: d, of the residual stream of the decoder and of the context tokens.
        layers: of the decoder.
        heads: H, of each of the decoder's attentions.
        head_width: 64 or 128; heads * head_width need not be the width.
        feed: width of the feed-forward net between its two products.
        encoder_layers: of the encoder that comes with the model.
        encoder_heads: of the encoder's attention.
        longest: items of a history that the encoder reads; the most recent ones. It leaves one
            context token more than that.
        dropout: chance that a hidden value is left out in training.
        encoder: name of the encoder: "history", or one of your own (``register_encoder``).
        architecture: tells this config from the other models'.

    Raises:
        InputError: a size is no whole number from 1, the width does not divide by 16 or by
            encoder_heads, a head is not 64 or 128 wide, or dropout is no number in [0, 1).
    """

    width: int = 64
    layers: int = 2
    heads: int = 1
    head_width: int = 64
    feed: int = 256
    encoder_layers: int = 2
    encoder_heads: int = 4
    longest: int = 50
    dropout: float = 0.2
    encoder: str = "history"
    architecture: Literal["wide"] = "wide"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("dropout", "encoder", "architecture"):
                whole_number(value, f"{name} of a Wide model")
        if self.head_width not in HEAD_WIDTHS:
            raise InputError(
                f"head_width is {self.head_width}; the attention kernels serve heads of 64 and 128."
            )
        for name in ("width", "feed"):
            if getattr(self, name) % 16:
                raise InputError(f"{name} is {getattr(self, name)}; it must divide by 16.")
        if self.width % self.encoder_heads:
            raise InputError(
                f"width {self.width} must divide by encoder_heads, {self.encoder_heads}."
            )
        if not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout!r}; give a share from 0 up to 1.")

    @classmethod
    def of_width(cls, width: int, layers: int, dropout: float) -> WideConfig:
        """Usual proportions: heads that share the width, a feed-forward net of four widths."""
        return cls(
            width=width,
            layers=layers,
            heads=max(1, width // 64),
            feed=4 * width,
            encoder_layers=layers,
            dropout=dropout,
        )

    @property
    def inner(self) -> int:
        """H * head_width: what an attention's queries, keys and values are wide."""
        return self.heads * self.head_width


def check_codebooks(codebooks: Sequence[int]) -> tuple[int, ...]:
    """The codebooks, if the decoder serves them.

    Raises:
        InputError: fewer than 2 or more than 8 levels, or a codebook of more than 16 384 tokens.
    """
    sizes = tuple(int(size) for size in codebooks)
    if not LEVELS[0] <= len(sizes) <= LEVELS[1]:
        raise InputError(
            f"The index has {len(sizes)} levels; a Wide model spells from {LEVELS[0]} to "
            f"{LEVELS[1]}."
        )
    for level, size in enumerate(sizes, 1):
        if not 1 <= size <= LARGEST_CODEBOOK:
            raise InputError(
                f"Level {level} has a codebook of {size} tokens; a Wide model serves from 1 to "
                f"{LARGEST_CODEBOOK}."
            )
    return sizes
