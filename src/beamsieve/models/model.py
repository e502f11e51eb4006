"""What every model can do: be trained, read histories, and score a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from beamsieve.models.batches import Batch
    from beamsieve.models.config import ModelConfig
    from beamsieve.models.wide.config import WideConfig


class Read(Protocol):
    """What a model keeps of the histories that it has read: all that a search needs."""

    def tensors(self) -> list[Tensor]:
        """All tensors in one fixed order."""
        ...

    def __len__(self) -> int: ...


class Model(nn.Module, ABC):
    """A model that spells semantic IDs.

    Args:
        config: the sizes.
        codebooks: V_l per level, as the index's tables use them.
    """

    reads_targets = False
    """Whether a target is read by the targets behind it, as in a plain language model."""

    def __init__(self, config: ModelConfig | WideConfig, codebooks: Sequence[int]) -> None:
        super().__init__()
        self.config = config
        self.codebooks = tuple(int(size) for size in codebooks)

    @property
    def levels(self) -> int:
        """L."""
        return len(self.codebooks)

    @abstractmethod
    def read(self, histories: Tensor, lengths: Tensor) -> Any:
        """Read histories once, for ``scorer``: a :class:`Read`.

        Args:
            histories: int64 [B, T, L], T at most ``config.longest``, items padded at the end.
            lengths: int64 [B], how many items of each are real.
        """

    @abstractmethod
    def logits(self, batch: Batch) -> list[Tensor]:
        """Per level, [N, V_l]: logits of each target's code, given the codes before it."""

    @abstractmethod
    def scorer(self, reading: Any, widths: Sequence[int]) -> Callable[[int, Any], Any]:
        """``score`` for searches of those widths, from what the model has read."""

    def describe(self) -> dict[str, Any]:
        """Config and codebooks as plain values, from which the same model can be made."""
        return {"config": asdict(self.config), "codebooks": list(self.codebooks)}
