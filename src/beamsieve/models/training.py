"""Training: histories and an index in, a checkpoint out.

After every epoch two files are written: the checkpoint, when the validation loss is the best so
far, and beside it ``<checkpoint>.state``, from which an interrupted training goes on. Everything
random in an epoch is drawn from the seed and the epoch's number, so a resumed training does what
the uninterrupted one would have done: on a CPU, with the same number of threads, bit for bit.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from beamsieve.errors import InputError, TrainingError
from beamsieve.models.batches import Batch, hold_out, training_batches, validation_batches
from beamsieve.models.checkpoint import Checkpoint, save_checkpoint
from beamsieve.models.data import Histories, read_histories
from beamsieve.models.deco import Deco, DecoConfig
from beamsieve.models.progress import Bar, progress_bar
from beamsieve.models.resuming import Progress, TrainingState, data_fingerprint, state_path
from beamsieve.models.sequences import ItemSids, Sequences, Unknown, join_rows, number
from beamsieve.models.settings import Stopped, TrainingReport, TrainingSettings

if TYPE_CHECKING:
    from beamsieve.index import Index

__all__ = ["TrainingReport", "TrainingSettings", "train"]

_log = logging.getLogger("beamsieve")

_POPULAR = 100


def train(
    histories: Histories | str | Path,
    index: Index | str | Path,
    checkpoint: str | Path,
    *,
    config: DecoConfig | None = None,
    settings: TrainingSettings | None = None,
    unknown: Unknown = "skip",
    resume: bool = False,
    progress: bool | None = None,
) -> TrainingReport:
    """Train a Deco on histories of an index's items.

    Args:
        histories: histories, or a file of them (see :mod:`beamsieve.models.data`).
        index: an index, or its file.
        checkpoint: safetensors file to write; ``<checkpoint>.state`` beside it holds what
            ``resume`` needs.
        config: the model's sizes.
        settings: how to train.
        unknown: what to do with an item that the index does not have.
        resume: go on where a training of the same data and settings was interrupted or ended;
            epochs, minutes, patience and threads may differ. Starts anew where there is no state.
        progress: whether to draw a bar on stderr; None draws one where stderr is a terminal.

    Raises:
        InputError: the histories cannot be used, or a setting is out of range.
        CheckpointError: a file cannot be written, or the state to resume is another training's.
        TrainingError: the loss is no number any more. The best checkpoint so far, if there is
                one, stays.
    """
    config = config or DecoConfig()
    settings = settings or TrainingSettings()
    path = Path(checkpoint)
    index = _opened(index)
    if not isinstance(histories, Histories):
        histories = read_histories(histories)
    numbered = number(histories, index, unknown)
    sequences = join_rows(numbered, histories.users)
    if not len(sequences):
        raise InputError(f"{histories.source}: every history is empty; there is nothing to learn.")
    with _torch_as(settings):
        torch.manual_seed(settings.seed)
        run = _Run(Deco(config, index.codebooks), settings, ItemSids(index), sequences)
        state = TrainingState(
            state_path(path),
            run.model,
            run.average,
            run.optimizer,
            {
                "fingerprint": index.fingerprint,
                "data": data_fingerprint(sequences),
                "model": run.model.describe(),
                "settings": {
                    name: value
                    for name, value in asdict(settings).items()
                    if name not in ("epochs", "minutes", "patience", "threads", "device")
                },
            },
        )
        done = state.load() if resume else None
        popular = np.bincount(sequences.items, minlength=len(index.items))
        most = np.argsort(-popular, kind="stable")[:_POPULAR]
        saved = Checkpoint(
            run.average,
            index.fingerprint,
            tuple(index.items.list(most[popular[most] > 0])),
        )
        with progress_bar(progress) as bar:
            done, stopped = run.go(
                done or Progress(), bar, lambda now: _save(now, saved, path, state, settings)
            )
    return TrainingReport(
        checkpoint=path,
        epochs=done.epoch,
        steps=done.step,
        seconds=done.seconds,
        validation_loss=done.best_loss,
        best_epoch=done.best_epoch,
        stopped=stopped,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        sequences=len(sequences),
        transitions=len(run.training.items),
        unknown_items=numbered.unknown,
        split=int((np.diff(sequences.starts) > config.longest).sum()),
    )


def _save(
    done: Progress,
    checkpoint: Checkpoint,
    path: Path,
    state: TrainingState,
    settings: TrainingSettings,
) -> None:
    """Write what the epoch just done leaves behind."""
    if done.best_epoch == done.epoch:
        training = {"settings": asdict(settings), **asdict(done)}
        save_checkpoint(
            Checkpoint(checkpoint.model, checkpoint.fingerprint, checkpoint.popular, training), path
        )
    state.save(done)


class _Run:
    """One training: the model, its data, and the loop over epochs."""

    def __init__(
        self, model: Deco, settings: TrainingSettings, sids: ItemSids, sequences: Sequences
    ) -> None:
        self.settings = settings
        self.sids = sids
        self.model = model.to(settings.device)
        self.average = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = _optimizer(self.model, settings)
        self.longest = model.config.longest
        self.training, held = hold_out(
            sequences, settings.validation_share, settings.seed, self.longest
        )
        self.validation = list(validation_batches(held, sids, size=256, longest=self.longest))

    def go(
        self, done: Progress, bar: Bar, save: Callable[[Progress], None]
    ) -> tuple[Progress, Stopped]:
        """Epochs until a limit is reached."""
        settings = self.settings
        longest_epoch = 0.0
        while done.epoch < settings.epochs:
            if done.epoch - done.best_epoch >= settings.patience:
                return done, "patience"
            limit = math.inf if settings.minutes is None else 60 * settings.minutes
            if done.epoch and done.seconds + longest_epoch > limit:
                return done, "minutes"
            began = time.monotonic()
            step = self._epoch(done, bar)
            loss = self._validate()
            if self.validation and not math.isfinite(loss):
                raise self._lost(
                    f"The validation loss is {loss} behind epoch {done.epoch + 1}", done
                )
            seconds = time.monotonic() - began
            longest_epoch = max(longest_epoch, seconds)
            done = done.after(step, seconds, loss)
            save(done)
            _log.info(
                "epoch %d: validation loss %.4f, best %.4f in epoch %d",
                *(done.epoch, loss, done.best_loss, done.best_epoch),
            )
            bar.note(f"validation {loss:.3f}, best {done.best_loss:.3f} in {done.best_epoch}")
        return done, "epochs"

    def _epoch(self, done: Progress, bar: Bar) -> int:
        """One pass over the training data; the number of steps made so far."""
        settings = self.settings
        epoch, step = done.epoch + 1, done.step
        torch.manual_seed((settings.seed << 24) + epoch)
        batches = training_batches(
            self.training,
            self.sids,
            size=settings.batch,
            drop=settings.drop_history,
            random=np.random.default_rng([settings.seed, epoch]),
        )
        self.model.train()
        bar.begin(f"epoch {epoch}/{settings.epochs}", -(-len(self.training) // settings.batch))
        for batch in batches:
            step += 1
            for group in self.optimizer.param_groups:
                group["lr"] = settings.learning_rate * min(1.0, step / settings.warm_up_steps)
            loss = self._loss(self.model, batch, settings.label_smoothing)
            value = loss.item()
            if not math.isfinite(value):
                raise self._lost(f"The loss is {value} in step {step} (epoch {epoch})", done)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self._average(step)
            bar.advance(f"loss {value:.3f}")
        return step

    @staticmethod
    def _lost(what: str, done: Progress) -> TrainingError:
        """The error of a training that cannot go on; what was good before it is kept."""
        left = (
            f"the checkpoint of epoch {done.best_epoch} stays"
            if done.best_epoch
            else "no checkpoint was written"
        )
        return TrainingError(f"{what}; {left}. Try a lower learning rate or a longer warm-up.")

    @torch.no_grad()
    def _average(self, step: int) -> None:
        """Move the average towards the weights; faster in the first steps, to forget the start."""
        decay = min(self.settings.average, step / (step + 10))
        for average, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.lerp_(weight, 1 - decay)

    @torch.no_grad()
    def _validate(self) -> float:
        """Loss of the averaged weights on the held-out items; NaN without any."""
        if not self.validation:
            return math.nan
        losses = [
            self._loss(self.average, batch).item() * len(batch.targets) for batch in self.validation
        ]
        return sum(losses) / sum(len(batch.targets) for batch in self.validation)

    def _loss(self, model: Deco, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        batch = batch.to(self.settings.device)
        concepts = model.think(batch.histories)[batch.rows, batch.places]
        return model.loss(concepts, batch.targets, label_smoothing)


def _optimizer(model: Deco, settings: TrainingSettings) -> torch.optim.AdamW:
    parameters = list(model.parameters())
    return torch.optim.AdamW(
        [
            {
                "params": [p for p in parameters if p.ndim > 1],
                "weight_decay": settings.weight_decay,
            },
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(0.9, 0.98),
    )


@contextmanager
def _torch_as(settings: TrainingSettings) -> Iterator[None]:
    """torch with the settings' threads; its own threads and random state come back afterwards."""
    device = torch.device(settings.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda, but torch finds no GPU here; use device='cpu'.")
    threads = torch.get_num_threads()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        torch.set_num_threads(threads)


def _opened(index: Index | str | Path) -> Index:
    from beamsieve.index import Index

    return index if isinstance(index, Index) else Index.load(index)
