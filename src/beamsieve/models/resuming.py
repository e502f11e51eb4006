"""The state of a training between two epochs, on disk."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

from beamsieve.errors import CheckpointError
from beamsieve.models.checkpoint import (
    UNFIT,
    check_version,
    first_line,
    read_tensors,
    write_tensors,
)
from beamsieve.models.sequences import Sequences

FORMAT = "beamsieve-training-state"
VERSION = 3

_log = logging.getLogger("beamsieve")


@dataclass(frozen=True)
class Progress:
    """How far a training is: epochs and steps done, wall time spent, and what is kept.

    ``best_epoch`` is the one whose weights are kept, ``best_loss`` its validation loss: the least
    so far, or the last one's where the learning rate falls.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_loss: float = math.inf

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Progress:
        """From the plain values of a state.

        Raises:
            TypeError, ValueError: these are not values that a training has reached.
        """
        found = cls(**saved)
        counts = (found.epoch, found.step, found.best_epoch)
        if set(saved) != set(asdict(found)) or not all(type(count) is int for count in counts):
            raise ValueError("what is done is not counted in epochs and steps")
        if not all(type(one) in (int, float) for one in (found.seconds, found.best_loss)):
            raise ValueError("its time or its loss is no number")
        if not (found.epoch >= 1 and found.step >= 0 and 0 <= found.best_epoch <= found.epoch):
            raise ValueError("its epochs and steps do not fit each other")
        if not 0 <= found.seconds < math.inf:
            raise ValueError(f"its time is {found.seconds} seconds")
        return found

    def after(self, step: int, seconds: float, loss: float, *, keep_last: bool) -> Progress:
        """The same one epoch later. Without a validation loss (NaN), every epoch is the best."""
        epoch = self.epoch + 1
        better = keep_last or not loss >= self.best_loss
        return Progress(
            epoch,
            step,
            self.seconds + seconds,
            epoch if better else self.best_epoch,
            loss if better else self.best_loss,
        )


class TrainingState:
    """Everything a training needs to go on: weights, their average, and the optimizer's moments.

    Args:
        path: the file.
        model, average, optimizer: saved from, and loaded into.
        identity: what must be the same for a training to be the same: data, catalog, settings.
    """

    def __init__(
        self,
        path: Path,
        model: nn.Module,
        average: nn.Module,
        optimizer: torch.optim.Optimizer,
        identity: Mapping[str, Any],
    ) -> None:
        self.path = path
        self.model = model
        self.average = average
        self.optimizer = optimizer
        self.identity = identity

    def save(self, done: Progress) -> None:
        """Write the state aside, then under its name.

        Raises:
            CheckpointError: the file cannot be written.
        """
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        for place, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{name}": value for name, value in moments.items()}
        cpu = {name: value.detach().cpu() for name, value in tensors.items()}
        metadata = {"format": FORMAT, "version": VERSION, "identity": self.identity}
        write_tensors(self.path, cpu, {**metadata, "done": asdict(done)})

    def load(self) -> Progress | None:
        """Put the saved state back; None when there is no file.

        Raises:
            CheckpointError: the file is damaged, or of a training on other data or settings.
        """
        if not self.path.exists():
            _log.warning("%s does not exist; training starts anew.", self.path)
            return None
        tensors, metadata = read_tensors(self.path, FORMAT, VERSION)
        try:
            check_version(self.path, metadata["version"], metadata["identity"]["model"])
            difference = _first_difference(metadata["identity"], self.identity)
            if difference:
                raise CheckpointError(
                    f"{self.path} is the state of another training: {difference}. Resume with what "
                    "it began with, or train anew without resuming."
                )
            done = Progress.restored(metadata["done"])
            self.model.load_state_dict(_under("model.", tensors))
            self.average.load_state_dict(_under("average.", tensors))
            moments = self._moments(_under("optimizer.", tensors))
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        except CheckpointError:
            raise
        except UNFIT as error:
            raise CheckpointError(
                f"{self.path} is no state that a training can go on from: {first_line(error)}. "
                "Train anew without resuming."
            ) from error
        return done

    def _moments(self, tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """The optimizer's moments, by the place of their parameter.

        Raises:
            ValueError: they are not the moments of these parameters.
        """
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        found: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            place, _, moment = name.partition(".")
            found.setdefault(int(place), {})[moment] = value
        for number, own in found.items():
            size = parameters[number].shape if 0 <= number < len(parameters) else None
            if {name: value.shape for name, value in own.items()} != {
                "step": torch.Size(),
                "exp_avg": size,
                "exp_avg_sq": size,
            }:
                raise ValueError(f"the optimizer's moments of parameter {number} do not fit it")
        return found


def state_path(checkpoint: Path) -> Path:
    """Where the state of a training to this checkpoint is kept."""
    return checkpoint.with_name(f"{checkpoint.name}.state")


def data_fingerprint(sequences: Sequences) -> str:
    """32 hexadecimal digits of the data that a training reads."""
    digest = xxhash.xxh3_128()
    digest.update(sequences.items.tobytes())
    digest.update(sequences.starts.tobytes())
    return digest.hexdigest()


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _first_difference(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    for name, value in wanted.items():
        before = saved.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = _first_difference(before, value)
            if inner:
                return inner
        elif before != value:
            return f"{name} was {before}, now it is {value}"
    return ""
