"""The loop over epochs and steps, without the files it leaves behind."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from beamsieve.errors import InputError, TrainingError
from beamsieve.models.batches import Batch, hold_out, training_batches, validation_batches
from beamsieve.models.losses import spelling_loss, training_loss
from beamsieve.models.model import Model
from beamsieve.models.progress import Bar
from beamsieve.models.resuming import Progress
from beamsieve.models.sequences import ItemSids, Sequences
from beamsieve.models.settings import Stopped, TrainingSettings
from beamsieve.models.validity import ValidTokens, charged_by

_log = logging.getLogger("beamsieve")

_UNREAD = 16
"""On a GPU, the losses of so many steps are read at once: to read one is to wait for it."""


class Run:
    """One training: the model, its data, and the loop over epochs."""

    def __init__(
        self,
        model: Model,
        settings: TrainingSettings,
        sids: ItemSids,
        sequences: Sequences,
        teacher: Model | None = None,
    ) -> None:
        self.settings = settings
        self.sids = sids
        self.model = model.to(settings.device)
        self.average = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = _optimizer(self.model, settings)
        self.longest = model.config.longest
        self.teacher = None if teacher is None else teacher.to(settings.device).eval()
        self.valid = charged_by(model, sids, settings)
        self.unread = 1 if torch.device(settings.device).type == "cpu" else _UNREAD
        self.training, held = hold_out(
            sequences, settings.validation_share, settings.seed, self.longest
        )
        self.validation = list(validation_batches(held, sids, size=256, longest=self.longest))
        if settings.validation_share and not self.validation:
            _log.warning(
                "No history has two items, so none is held out: there is no validation loss, and "
                "no epoch is chosen by one."
            )

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
            done = done.after(step, seconds, loss, keep_last=settings.decay > 0)
            save(done)
            _log.info(
                "epoch %d: validation loss %.4f, kept %.4f of epoch %d",
                *(done.epoch, loss, done.best_loss, done.best_epoch),
            )
            bar.note(f"validation {loss:.3f}, kept {done.best_loss:.3f} of {done.best_epoch}")
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
        steps = -(-len(self.training) // settings.batch)
        bar.begin(f"epoch {epoch}/{settings.epochs}", steps)
        losses: list[Tensor] = []
        for place, batch in enumerate(batches):
            step += 1
            passed = (done.epoch + place / steps) / settings.epochs
            losses.append(self._step(step, passed, batch))
            if len(losses) == self.unread:
                self._check(losses, step, done, bar)
        self._check(losses, step, done, bar)
        return step

    def _step(self, step: int, passed: float, batch: Batch) -> Tensor:
        """One step of the optimizer, when a share of the training has passed; its loss."""
        settings = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(step, passed)
        if self.valid is not None:
            batch = self.valid.with_drawn(batch, self.valid.repeated_places(batch.rows))
        loss = self._loss(self.model, batch, settings, self.teacher, self.valid)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self._average(step)
        return loss.detach()

    def _check(self, losses: list[Tensor], step: int, done: Progress, bar: Bar) -> None:
        """Read the losses up to ``step``; the first that is no number ends the training."""
        if not losses:
            return
        values = torch.stack(losses).tolist()
        for place, value in enumerate(values):
            if not math.isfinite(value):
                bad = step - len(values) + 1 + place
                raise self._lost(
                    f"The loss is {value} in step {bad} (epoch {done.epoch + 1})", done
                )
        bar.advance(f"loss {values[-1]:.3f}", len(values))
        losses.clear()

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
        move: Callable[..., None] = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        move([*self.average.parameters()], [*self.model.parameters()], step)

    @torch.no_grad()
    def _validate(self) -> float:
        """Loss of the averaged weights on the held-out items; NaN without any."""
        if not self.validation:
            return math.nan
        losses = [self._loss(self.average, batch) * len(batch.targets) for batch in self.validation]
        return float(sum(losses)) / sum(len(batch.targets) for batch in self.validation)

    def _loss(
        self,
        model: Model,
        batch: Batch,
        settings: TrainingSettings | None = None,
        teacher: Model | None = None,
        valid: ValidTokens | None = None,
    ) -> Tensor:
        """What training lowers with ``settings``; without, the cost of the codes alone."""
        device = torch.device(self.settings.device).type
        batch = batch.to(self.settings.device)
        with torch.autocast(device, torch.bfloat16, self.settings.precision == "bfloat16"):
            logits = model.logits(batch)
            taught = None
            if teacher is not None:
                with torch.no_grad():
                    taught = teacher.logits(batch)
        if settings is None:
            return spelling_loss(logits, batch.targets)
        return training_loss(logits, batch, settings, teacher=taught, valid=valid)


def _optimizer(model: Model, settings: TrainingSettings) -> torch.optim.AdamW:
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
        fused=torch.device(settings.device).type == "cuda",
    )


@contextmanager
def torch_as(settings: TrainingSettings) -> Iterator[None]:
    """torch with the settings' threads; its own threads and random state come back afterwards."""
    device = torch.device(settings.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda, but torch finds no GPU here; use device='cpu'.")
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
