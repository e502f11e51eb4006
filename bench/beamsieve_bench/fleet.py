"""Many small trainings side by side on one GPU, each step of each in a CUDA graph.

A small model keeps a large GPU busy for microseconds a kernel, and most of a step is then the wait
for the next one to be started. Here every training has its data on the device and its steps in
graphs, one per length of history, and all of them take turns on streams of their own: one process,
so their kernels run beside each other. What is trained is what :func:`beamsieve.models.train`
trains: the same models, losses, optimizer, average of weights and held-out items. It differs in the
order of the batches, in that one training's random numbers are not repeatable, and in that no state
is written. On a CPU the same steps run without graphs.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.models.batches import Batch, hold_out
from beamsieve.models.family import take_over
from beamsieve.models.losses import spelling_loss, training_loss
from beamsieve.models.model import Model
from beamsieve.models.sequences import ItemSids, Sequences
from beamsieve.models.settings import TrainingSettings
from beamsieve.models.validity import charged_by
from beamsieve_bench.fleet_data import Bucket, buckets, compacted, held_batches, thinned


class Trainee:
    """One training.

    Args:
        name: what to call it.
        model: to be trained, on the device.
        sids: of the index's items.
        sequences: what is learnt from.
        settings: as for ``train``; epochs are an upper limit, patience and minutes do not count.
        teacher: on the device, or None.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        sids: ItemSids,
        sequences: Sequences,
        settings: TrainingSettings,
        teacher: Model | None = None,
    ) -> None:
        self.name, self.settings, self.teacher = name, settings, teacher
        self.device = torch.device(settings.device)
        if settings.from_teacher and teacher is not None:
            take_over(model, teacher)
        self.model = model.train()
        # What steps are computed in, weights and all between them; the optimizer's stay float32.
        self.narrow = settings.precision == "bfloat16"
        self.working = copy.deepcopy(self.model).bfloat16() if self.narrow else self.model
        if self.narrow and teacher is not None:
            self.teacher = copy.deepcopy(teacher).bfloat16()
        self.average = copy.deepcopy(model).eval().requires_grad_(False)
        self.best = copy.deepcopy(self.average)
        self.best_loss = torch.full((), torch.inf, device=self.device)
        self.best_epoch = torch.zeros((), device=self.device)
        self.step_number = torch.zeros((), device=self.device)
        self.rate = torch.zeros((), device=self.device)
        self.passed = torch.zeros((), device=self.device)
        self.losses: list[Tensor] = []
        self.epoch = 0
        self.stream: Any = None
        if self.device.type == "cuda":
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.random = np.random.default_rng(settings.seed)
        learnt, held = hold_out(
            sequences, settings.validation_share, settings.seed, model.config.longest
        )
        everything = sids.first(np.arange(len(sids.path_starts) - 1))
        empty = np.full((1, everything.shape[1]), -1)
        self.sids = torch.from_numpy(np.concatenate([everything, empty])).to(self.device)
        self.buckets = buckets(learnt, settings.batch, self.device, settings.drop_history)
        self.valid = charged_by(model, sids, settings)
        self.held = held_batches(held, self.sids, model.config.longest)
        parameters = list(model.parameters())
        capturable = {"fused": True, "capturable": True} if self.stream else {}
        self.optimizer = torch.optim.AdamW(
            [
                {
                    "params": [p for p in parameters if p.ndim > 1],
                    "weight_decay": settings.weight_decay,
                },
                {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
            ],
            lr=self.rate if self.stream else settings.learning_rate,
            betas=(0.9, 0.98),
            **capturable,
        )
        self.todo: list[tuple[int, Tensor]] = []

    def prepare(self) -> str:
        """Capture every bucket's step, and undo what its rehearsals did.

        Returns:
            why they could not be captured, and are started kernel by kernel; "" if they were.
        """
        if self.stream is None:
            return ""
        before = [p.detach().clone() for p in self.model.parameters()]
        why = ""
        try:
            pool = torch.cuda.graph_pool_handle()
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                for bucket in self.buckets:
                    self._capture(bucket, pool)
        except RuntimeError as error:
            why = str(error).partition("\n")[0]
            for bucket in self.buckets:
                bucket.graph = None
        torch.cuda.synchronize()
        with torch.no_grad():
            for own, old, average in zip(
                self.model.parameters(), before, self.average.parameters(), strict=True
            ):
                own.copy_(old)
                average.copy_(old)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
            self.step_number.zero_()
        torch.cuda.synchronize()  # all of this must stand before another stream reads it
        return why

    def _capture(self, bucket: Bucket, pool: Any) -> None:
        self._train(bucket)
        self.optimizer.zero_grad(set_to_none=True)
        self.stream.synchronize()
        bucket.graph = torch.cuda.CUDAGraph()
        # Not the context manager: it empties torch's cache, which costs more than a capture.
        bucket.graph.capture_begin(pool=pool)
        try:
            self._train(bucket)
        except RuntimeError as error:
            with suppress(RuntimeError):  # what ended the capture says more than that it ended
                bucket.graph.capture_end()
            raise error
        bucket.graph.capture_end()

    def advance(self, steps: int, passed: float = 0.0) -> None:
        """Some steps; at the end of an epoch, a look at the held-out items.

        ``passed``: which share of the time for training has; the learning rate falls by it or by
        the epochs, whichever are further.
        """
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self.passed.fill_(max(passed, self._share_of_epochs()))
            for _ in range(steps):
                if not self.todo:
                    if self.epoch >= self.settings.epochs:
                        return
                    self._shuffle()
                place, chosen = self.todo.pop()
                bucket = self.buckets[place]
                bucket.chosen.copy_(chosen)
                if bucket.graph is None:
                    self._train(bucket)
                else:
                    bucket.graph.replay()
                if not self.todo:
                    self.epoch += 1
                    self._validate()

    def _share_of_epochs(self) -> float:
        steps = sum(bucket.steps for bucket in self.buckets)
        begun = 1 - len(self.todo) / steps if self.todo else 0.0
        return min(1.0, (self.epoch + begun) / self.settings.epochs)

    def finish(self) -> None:
        """A last look at the held-out items, where an epoch was cut short."""
        if self.todo:
            with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
                self._validate()

    @property
    def result(self) -> Model:
        """What training made: the last weights where the rate fell to its end, else the best.

        The held-out loss is lowest long before the ranking is best: deep levels go on being learnt
        while the first ones grow too sure.
        """
        return self.average if self.settings.decay else self.best

    @property
    def done(self) -> bool:
        """Whether all epochs are over."""
        return not self.todo and self.epoch >= self.settings.epochs

    def _shuffle(self) -> None:
        todo = []
        for place, bucket in enumerate(self.buckets):
            count, size = len(bucket.numbers) - 1, len(bucket.chosen)
            order = np.full(bucket.steps * size, count)  # the empty row fills up the last batch
            order[:count] = self.random.permutation(count)
            rows = torch.from_numpy(order.reshape(-1, size))
            rows = rows.pin_memory() if self.stream else rows
            todo += [(place, piece) for piece in rows.to(self.device, non_blocking=True)]
        self.todo = [todo[n] for n in self.random.permutation(len(todo))]

    def _batch(self, bucket: Bucket) -> Batch:
        """What the next step of a bucket trains on: real places alone, in fixed shapes."""
        numbers = thinned(bucket.numbers[bucket.chosen], self.settings.drop_history)
        count, length = numbers.shape
        every = 1 if self.valid is None else self.valid.every
        # Behind the histories an empty one, whose first place stands for those that are none.
        empty = -(-count // every) * every
        numbers = F.pad(numbers, (0, 0, 0, empty + 1 - count), value=-1)
        places = compacted((numbers >= 0).flatten(), bucket.places, empty * length)
        places = F.pad(places, (0, 1), value=empty * length)
        sids = self.sids[numbers]
        rows = places // length
        batch = Batch(sids[:, :-1], sids.flatten(0, 1)[places], rows, places % length)
        if self.valid is None:
            return batch
        again = (rows % every == 0) & (batch.targets[:, 0] >= 0)
        size = min(bucket.places, int(bucket.places / every + 4 * bucket.places**0.5))
        return self.valid.with_drawn(batch, compacted(again, size, bucket.places))

    def _train(self, bucket: Bucket) -> None:
        """One step of the optimizer, without a wait for the device."""
        settings = self.settings
        batch = self._batch(bucket)
        weights: list[Tensor] = [*self.model.parameters()]
        working: list[Tensor] = [*self.working.parameters()]
        if self.narrow:
            with torch.no_grad():
                torch._foreach_copy_(working, weights)
        taught = None
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher.logits(batch)
        said = self.working.logits(batch)
        loss = training_loss(said, batch, settings, teacher=taught, valid=self.valid)
        for weight in working:
            weight.grad = None
        torch.autograd.backward(loss)
        if self.narrow:
            pairs = [(w, n.grad) for w, n in zip(weights, working, strict=True)]
            for weight, gradient in pairs:
                weight.grad = None if gradient is None else torch.empty_like(weight)
            torch._foreach_copy_(
                [weight.grad for weight in weights if weight.grad is not None],
                [gradient for _, gradient in pairs if gradient is not None],
            )
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        with torch.no_grad():
            self.step_number += 1
            rate = (self.step_number / settings.warm_up_steps).clamp(max=1.0)
            if settings.decay:
                rate = rate * ((1 - self.passed) / settings.decay).clamp(max=1.0)
            self.rate.copy_(rate * settings.learning_rate)
            if self.stream is None:
                for group in self.optimizer.param_groups:
                    group["lr"] = float(self.rate)
            self.optimizer.step()
            decay = (self.step_number / (self.step_number + 10)).clamp(max=settings.average)
            averages: list[Tensor] = [*self.average.parameters()]
            towards = [*torch._foreach_sub(weights, averages)]
            torch._foreach_mul_(towards, 1 - decay)
            torch._foreach_add_(averages, towards)

    @torch.no_grad()
    def _validate(self) -> None:
        """Keep the averaged weights where they are the best so far; decided on the device."""
        losses = [
            spelling_loss(self.average.logits(batch), batch.targets) * len(batch.targets)
            for batch in self.held
        ]
        loss = torch.stack(losses).sum() / sum(len(batch.targets) for batch in self.held)
        self.losses.append(loss)
        better = loss < self.best_loss
        self.best_loss.copy_(torch.where(better, loss, self.best_loss))
        epoch = torch.full_like(self.best_epoch, self.epoch)
        self.best_epoch.copy_(torch.where(better, epoch, self.best_epoch))
        for best, now in zip(self.best.parameters(), self.average.parameters(), strict=True):
            best.copy_(torch.where(better, now, best))

    def report(self) -> dict[str, Any]:
        """Plain values of what was done."""
        return {
            "epochs": self.epoch,
            "steps": int(self.step_number),
            "validation_loss": float(self.best_loss),
            "best_epoch": int(self.best_epoch),
            "kept": "last" if self.settings.decay else "best",
            "validation_losses": [round(float(loss), 4) for loss in self.losses],
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }
