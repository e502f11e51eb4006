"""The encoder that comes with the model: a small causal Transformer over a history's items.

Any other can take its place (GRACE, section 2.3): the decoder asks only for context tokens, one row
of them per request, in the model's width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.errors import InputError
from beamsieve.models.layers import Block, Layers, read_levels
from beamsieve.models.wide.config import WideConfig


class Encoder(nn.Module, ABC):
    """Histories in, context tokens out; ``register_encoder`` gives a subclass a name.

    ``states`` is what training needs: it makes the context of every place of a history at once. An
    encoder that serves only, over whatever features, may feed ``WideScorer.load`` directly.
    """

    @abstractmethod
    def states(self, histories: Tensor) -> Tensor:
        """States [B, T + 1, d] of histories int64 [B, T, L], items padded at the end with -1.

        The context behind a history's first t items is states 0 … t, so state t must not depend on
        anything behind item t.
        """


class HistoryEncoder(Encoder):
    """One token per item, causal attention, one state before the first item.

    Args:
        config: the sizes.
        codebooks: V_l per level.
    """

    def __init__(self, config: WideConfig, codebooks: Sequence[int]) -> None:
        super().__init__()
        d = config.width
        self.width = d
        # One row more than the codebook: the level that a shorter semantic ID does not have.
        self.item_codes = Layers[nn.Embedding](nn.Embedding(size + 1, d) for size in codebooks)
        self.fuse_in = nn.Linear(d * len(codebooks), 2 * d)
        self.fuse_out = nn.Linear(2 * d, d)
        self.start = nn.Parameter(torch.randn(d) * d**-0.5)
        self.positions = nn.Embedding(config.longest + 1, d)
        self.layers = Layers[Block](
            Block(d, config.encoder_heads, config.dropout, nn.RMSNorm)
            for _ in range(config.encoder_layers)
        )
        self.norm = nn.RMSNorm(d)
        self.dropout = nn.Dropout(config.dropout)

    def states(self, histories: Tensor) -> Tensor:
        """As the law says; attention is causal."""
        scale = self.width**0.5
        joined = read_levels(self.item_codes, histories).flatten(-2) * scale
        items = self.fuse_out(F.gelu(self.fuse_in(joined)))
        x = torch.cat([self.start.expand(len(items), 1, -1) * scale, items], 1)
        x = self.dropout(x + self.positions.weight[: x.shape[1]] * scale)
        for layer in self.layers:
            x = layer(x)
        states: Tensor = self.norm(x)
        return states


MakeEncoder = Callable[[WideConfig, Sequence[int]], Encoder]
_ENCODERS: dict[str, MakeEncoder] = {"history": HistoryEncoder}


def register_encoder(name: str, make: MakeEncoder) -> None:
    """Name an encoder, so that ``WideConfig(encoder=name)`` trains, saves, loads and serves it.

    Args:
        name: written into checkpoints; to load one, its encoder must be registered before.
        make: from the config and V_l per level; the weights that it draws are the first.

    Raises:
        InputError: the name is taken by another.
    """
    if _ENCODERS.setdefault(name, make) is not make:
        raise InputError(f"There is an encoder {name!r} already; take another name.")


def make_encoder(config: WideConfig, codebooks: Sequence[int]) -> Encoder:
    """The encoder that the config names.

    Raises:
        InputError: no encoder of that name is registered.
    """
    if config.encoder not in _ENCODERS:
        raise InputError(
            f"encoder is {config.encoder!r}, and registered are {', '.join(_ENCODERS)}; call "
            "register_encoder first."
        )
    return _ENCODERS[config.encoder](config, codebooks)
