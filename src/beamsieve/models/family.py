"""The models by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beamsieve.models.config import Architecture, ModelConfig
from beamsieve.models.deco import Deco
from beamsieve.models.flat import FlatGR
from beamsieve.models.fused import FusedGR
from beamsieve.models.generator import Generator

_FAMILY: dict[Architecture, Callable[[ModelConfig, Sequence[int]], Generator]] = {
    "deco": Deco,
    "fused-gr": FusedGR,
    "flat-gr": FlatGR,
}


def make_model(config: ModelConfig, codebooks: Sequence[int]) -> Generator:
    """A new model with random weights.

    Args:
        config: its architecture and sizes.
        codebooks: V_l per level, as the index's tables use them.
    """
    return _FAMILY[config.architecture](config, codebooks)
