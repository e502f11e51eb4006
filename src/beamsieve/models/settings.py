"""How to train, and what training did."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from beamsieve.errors import InputError

Precision = Literal["float32", "bfloat16"]
Stopped = Literal["epochs", "minutes", "patience"]


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Attributes:
        epochs: passes over the histories at most, those before a resumption included.
        minutes: of wall time; no epoch is begun that would end later. The first always runs.
            None for no limit.
        batch: histories per step.
        learning_rate: AdamW's, after the warm-up.
        warm_up_steps: the learning rate rises linearly over these steps.
        weight_decay: AdamW's, on matrices and embeddings, not on biases and norms.
        label_smoothing: share of every target spread over its whole codebook.
        teacher_share: α, the share of every target that a teacher's distribution makes up, where
            there is a teacher.
        from_teacher: whether a model begins with its teacher's weights where it has the same parts
            (a Deco of a FusedGR: codes, fuser, backbone and, of equal width, heads and the decoder,
            see ``Deco.begin_with``).
        decay: share of the training at whose end the learning rate falls linearly to 0; of
            ``epochs``, which then has to be how long the training shall be. 0 for no fall. Where
            it falls the last weights are the ones saved: the validation loss is least long before
            the ranking is best. Patience does not count then.
        validity: weight of what probability costs that no item can have, under the prefixes that
            came and others drawn from the whole catalog (:mod:`beamsieve.models.validity`); 0 for
            none. A teacher then speaks under the drawn ones as well.
        validity_floor: odds of such probability at which that cost fades out; 1 makes it -log of
            what the valid tokens have.
        drop_history: chance that an item of a history is left out of one epoch.
        average: decay per step of the moving average of the weights, which is what is validated
            and saved.
        patience: epochs without a better validation loss before training stops.
        validation_share: share of the histories whose last item is held out, up to 1; 0 for none,
            and then the last epoch's weights are the ones saved.
        seed: of everything random; from 0 to 2**32 - 1.
        threads: of torch; None leaves torch's own choice.
        device: "cpu", "cuda" or "cuda:0".
        precision: "float32", or "bfloat16" for the matrix products alone (autocast). On a GPU
            float32 products run on its matrix units (TF32).

    Raises:
        InputError: a value is out of its range.
    """

    epochs: int = 200
    minutes: float | None = None
    batch: int = 64
    learning_rate: float = 2e-3
    warm_up_steps: int = 100
    decay: float = 0.0
    weight_decay: float = 0.01
    label_smoothing: float = 0.0
    teacher_share: float = 0.5
    from_teacher: bool = False
    validity: float = 0.0
    validity_floor: float = 0.01
    drop_history: float = 0.5
    average: float = 0.99
    patience: int = 15
    validation_share: float = 0.1
    seed: int = 0
    threads: int | None = None
    device: str = "cpu"
    precision: Precision = "float32"

    def rate(self, step: int, passed: float) -> float:
        """The learning rate of a step, from 1, when a share of the training has passed."""
        left = min(1.0, (1 - passed) / self.decay) if self.decay else 1.0
        return self.learning_rate * min(1.0, step / self.warm_up_steps) * max(0.0, left)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "patience", "warm_up_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give at least 1.")
        for name in ("decay", "teacher_share", "validation_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a share from 0 to 1.")
        for name in ("label_smoothing", "drop_history", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a share from 0 up to 1.")
        if not (0 < self.learning_rate < math.inf and 0 <= self.weight_decay < math.inf):
            raise InputError(
                f"learning_rate is {self.learning_rate} and weight_decay {self.weight_decay}; "
                "the first must be above 0, the second not below, and both finite."
            )
        if not 0 <= self.validity < math.inf:
            raise InputError(f"validity is {self.validity}; give a weight from 0 on.")
        if not 0 < self.validity_floor < math.inf:
            raise InputError(f"validity_floor is {self.validity_floor}; give odds above 0.")
        if self.minutes is not None and not self.minutes > 0:
            raise InputError(f"minutes is {self.minutes}; give more than 0, or None for no limit.")
        if not 0 <= self.seed < 1 << 32:
            raise InputError(f"seed is {self.seed}; give one from 0 to 2**32 - 1.")
        if self.precision not in get_args(Precision):
            raise InputError(f"precision is {self.precision!r}; give float32 or bfloat16.")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads is {self.threads}; give at least 1.")


@dataclass(frozen=True)
class TrainingReport:
    """What training did.

    Attributes:
        checkpoint: the file written.
        epochs: passes made, those before a resumption included.
        steps: of the optimizer.
        seconds: wall time, that before a resumption included.
        validation_loss: of the weights that the checkpoint holds; nats per item, all levels of its
            semantic ID together. NaN when nothing was held out.
        best_epoch: whose weights the checkpoint holds: the one of the least validation loss, or the
            last where the learning rate falls (``decay``).
        stopped: which of the settings' limits ended it.
        parameters: of the model.
        sequences: made of the histories' rows.
        transitions: items that one epoch predicts.
        unknown_items: items of histories, and targets, that the index does not have.
        split: how many sequences were longer than one training window (``longest`` items and the
            one after them), and trained in pieces.
        repeats: items that are the one before once more; they stay, as people do come back.
    """

    checkpoint: Path
    epochs: int
    steps: int
    seconds: float
    validation_loss: float
    best_epoch: int
    stopped: Stopped
    parameters: int
    sequences: int
    transitions: int
    unknown_items: int
    split: int
    repeats: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "checkpoint": str(self.checkpoint)}
