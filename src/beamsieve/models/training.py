"""Training: histories and an index in, a checkpoint out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from beamsieve.models.data import Histories
from beamsieve.models.deco import DecoConfig

if TYPE_CHECKING:
    from beamsieve.index import Index


@dataclass(frozen=True)
class TrainingSettings:
    """How to train. Seconds and minutes are wall time.

    Attributes:
        epochs: passes over the histories at most.
        minutes: stop at the first epoch's end after this long; None for no limit.
        batch: histories per step.
        learning_rate: after the warm-up.
        warm_up_steps: the learning rate rises linearly over these steps.
        weight_decay: AdamW's, on matrices (embeddings too), not on biases and norms.
        label_smoothing: share of the target spread over the whole codebook.
        drop_history: chance that an item of a history is left out of one pass.
        average: decay per step of the weights' moving average, which is what is validated and
            saved.
        patience: epochs without a better validation loss before training stops.
        validation_share: share of the histories whose last target is held out.
        seed: of everything random.
        threads: for torch; None leaves torch's own choice.
        device: "cpu", "cuda" or "cuda:0".
    """

    epochs: int = 200
    minutes: float | None = None
    batch: int = 128
    learning_rate: float = 1e-3
    warm_up_steps: int = 100
    weight_decay: float = 0.01
    label_smoothing: float = 0.0
    drop_history: float = 0.0
    average: float = 0.99
    patience: int = 10
    validation_share: float = 0.1
    seed: int = 0
    threads: int | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class TrainingReport:
    """What training did. ``stopped`` is "epochs", "minutes" or "patience"."""

    checkpoint: Path
    epochs: int
    steps: int
    seconds: float
    validation_loss: float
    best_epoch: int
    stopped: Literal["epochs", "minutes", "patience"]
    parameters: int
    histories: int
    unknown_items: int
    shortened: int

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        raise NotImplementedError


def train(
    histories: Histories | str | Path,
    index: Index | str | Path,
    checkpoint: str | Path,
    *,
    config: DecoConfig | None = None,
    settings: TrainingSettings | None = None,
    unknown: Literal["skip", "refuse"] = "skip",
    resume: bool = False,
    progress: bool | None = None,
) -> TrainingReport:
    """Train a Deco on histories over an index's catalog and save the best as ``checkpoint``.

    Args:
        histories: histories, or a file of them.
        index: an index, or its file.
        checkpoint: safetensors file to write; ``<checkpoint>.state`` beside it holds what
            ``resume`` needs.
        unknown: what to do with an item that the index does not have.
        resume: go on where an interrupted (or finished) training stopped.
        progress: a progress bar on stderr; None shows one where stderr is a terminal.
    """
    raise NotImplementedError
