"""Training: histories and an index in, a checkpoint out.

After every epoch two files are written: the checkpoint, when the validation loss is the best so
far or the learning rate is one that falls, and beside it ``<checkpoint>.state``, from which an
interrupted training goes on. Everything random in an epoch is drawn from the seed and the epoch's
number, so a resumed training does what the uninterrupted one would have done: on a CPU, with the
same number of threads, bit for bit.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from beamsieve.errors import CheckpointError, InputError
from beamsieve.models.checkpoint import (
    Checkpoint,
    check_fit,
    load_checkpoint,
    save_checkpoint,
    weights_fingerprint,
)
from beamsieve.models.config import ModelConfig
from beamsieve.models.data import Histories, read_histories
from beamsieve.models.family import make_model, take_over
from beamsieve.models.loop import Run, torch_as
from beamsieve.models.model import Model
from beamsieve.models.progress import progress_bar
from beamsieve.models.resuming import Progress, TrainingState, data_fingerprint, state_path
from beamsieve.models.sequences import ItemSids, Unknown, join_rows, number
from beamsieve.models.settings import TrainingReport, TrainingSettings
from beamsieve.models.wide.config import WideConfig

if TYPE_CHECKING:
    from beamsieve.index import Index

__all__ = ["TrainingReport", "TrainingSettings", "train"]

_POPULAR = 100


def train(
    histories: Histories | str | Path,
    index: Index | str | Path,
    checkpoint: str | Path,
    *,
    config: ModelConfig | WideConfig | None = None,
    settings: TrainingSettings | None = None,
    teacher: Checkpoint | str | Path | None = None,
    unknown: Unknown = "skip",
    resume: bool = False,
    progress: bool | None = None,
) -> TrainingReport:
    """Train a model on histories of an index's items.

    Args:
        histories: histories, or a file of them (see :mod:`beamsieve.models.data`).
        index: an index, or its file.
        checkpoint: safetensors file to write; ``<checkpoint>.state`` beside it holds what
            ``resume`` needs.
        config: the model's architecture and sizes.
        settings: how to train.
        teacher: a checkpoint of the same index, or its file: ``settings.teacher_share`` of every
            target is then what it says under the gold prefix. It reads as far back as it was
            trained to, which must not be less than ``config.longest``.
        unknown: what to do with an item that the index does not have.
        resume: go on where a training of the same data and settings was interrupted or ended;
            epochs (unless the learning rate falls towards their end), minutes, patience and threads
            may differ. Starts anew where there is no state.
        progress: whether to draw a bar on stderr; None draws one where stderr is a terminal.

    Raises:
        InputError: the histories cannot be used, a setting is out of range, or it begins with a
            teacher's weights and there is no teacher.
        CheckpointError: a file cannot be written, the state to resume is another training's or its
            checkpoint is gone, or the teacher does not fit the index.
        TrainingError: the loss is no number any more. The best checkpoint so far, if there is
                one, stays.
    """
    config = config or ModelConfig()
    settings = settings or TrainingSettings()
    if settings.from_teacher and teacher is None:
        raise InputError("from_teacher begins with a teacher's weights: give teacher.")
    path = Path(checkpoint)
    index = _opened(index)
    if not isinstance(histories, Histories):
        histories = read_histories(histories)
    numbered = number(histories, index, unknown)
    sequences = join_rows(numbered, histories.users)
    if not len(sequences):
        raise InputError(f"{histories.source}: every history is empty; there is nothing to learn.")
    taught = None if teacher is None else _teacher(teacher, index, config)
    with torch_as(settings):
        torch.manual_seed(settings.seed)
        model = make_model(config, index.codebooks)
        if settings.from_teacher and taught is not None:
            take_over(model, taught)
        run = Run(model, settings, ItemSids(index), sequences, taught)
        state = TrainingState(
            state_path(path),
            run.model,
            run.average,
            run.optimizer,
            {
                "fingerprint": index.fingerprint,
                "data": data_fingerprint(sequences),
                "model": run.model.describe(),
                "teacher": None if taught is None else weights_fingerprint(taught),
                "settings": {
                    name: value
                    for name, value in asdict(settings).items()
                    if name not in ("minutes", "patience", "threads", "device")
                    and (name != "epochs" or settings.decay)
                },
            },
        )
        done = state.load() if resume else None
        if done is not None and done.best_epoch and not path.is_file():
            raise CheckpointError(
                f"{path} is gone, and {state.path} goes on from it: the epoch kept so far is "
                f"{done.best_epoch}. Put it back, or train anew without resuming."
            )
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
        split=int((np.diff(sequences.starts) > config.longest + 1).sum()),
        repeats=sequences.repeats(),
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


def _opened(index: Index | str | Path) -> Index:
    from beamsieve.index import Index

    return index if isinstance(index, Index) else Index.load(index)


def _teacher(
    teacher: Checkpoint | str | Path, index: Index, config: ModelConfig | WideConfig
) -> Model:
    if isinstance(teacher, Checkpoint):
        check_fit(teacher, index, name="The teacher")
    else:
        teacher = load_checkpoint(teacher, index)
    if teacher.model.config.longest < config.longest:
        raise InputError(
            f"The teacher reads {teacher.model.config.longest} items and the model "
            f"{config.longest}; let the model read as many at most (longest)."
        )
    return teacher.model
