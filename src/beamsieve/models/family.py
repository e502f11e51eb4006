"""The models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from beamsieve.models.config import Architecture, ModelConfig
from beamsieve.models.deco import Deco
from beamsieve.models.flat import FlatGR
from beamsieve.models.fused import FusedGR
from beamsieve.models.generator import Generator
from beamsieve.models.model import Model
from beamsieve.models.wide.config import WideConfig
from beamsieve.models.wide.model import Wide

_FAMILY: dict[Architecture, Callable[[ModelConfig, Sequence[int]], Generator]] = {
    "deco": Deco,
    "fused-gr": FusedGR,
    "flat-gr": FlatGR,
}


@overload
def make_model(config: ModelConfig, codebooks: Sequence[int]) -> Generator: ...
@overload
def make_model(config: WideConfig, codebooks: Sequence[int]) -> Wide: ...
@overload
def make_model(config: ModelConfig | WideConfig, codebooks: Sequence[int]) -> Model: ...
def make_model(config: ModelConfig | WideConfig, codebooks: Sequence[int]) -> Model:
    """A new model with random weights.

    Args:
        config: its architecture and sizes.
        codebooks: V_l per level, as the index's tables use them.
    """
    if isinstance(config, WideConfig):
        return Wide(config, codebooks)
    return _FAMILY[config.architecture](config, codebooks)


def config_of(described: Mapping[str, Any]) -> ModelConfig | WideConfig:
    """A config from the plain values of ``Model.describe``."""
    if described.get("architecture") == "wide":
        return WideConfig(**described)
    return ModelConfig(**described)


def take_over(model: Model, teacher: Model) -> None:
    """Give a model its teacher's weights where both have a part of that name and shape.

    A Deco that takes over a whole FusedGR begins as it spells (``Deco.begin_with``).
    """
    own, other = model.state_dict(), teacher.state_dict()
    same = {n: w for n, w in other.items() if n in own and own[n].shape == w.shape}
    model.load_state_dict(same, strict=False)
    backbone = {name for name in own if name.startswith("backbone")}
    if isinstance(model, Deco) and isinstance(teacher, FusedGR) and backbone <= same.keys():
        model.begin_with(teacher)
