"""States, checkpoints and concepts whose checksums fit, but which no library of ours wrote."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damage import DROPPED, changed, places
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve import Catalog, Index
from beamsieve.errors import CheckpointError
from beamsieve.models import (
    Checkpoint,
    Histories,
    ModelConfig,
    TrainingSettings,
    load_checkpoint,
    load_concepts,
    make_model,
    recommend,
    resuming,
    save_checkpoint,
    save_concepts,
    think_ahead,
    train,
)
from beamsieve.models import checkpoint as checkpoints
from beamsieve.models import concepts as kept
from beamsieve.models.checkpoint import read_tensors, write_tensors
from beamsieve.models.resuming import Progress, TrainingState, state_path

CONFIG = ModelConfig(width=8, layers=1, heads=2, decoder_width=8, longest=4, pointer=True)
INDEX = Index.build(Catalog.from_arrays([[a, b] for a in range(4) for b in range(4)]))
HISTORIES = Histories.from_lists([[n % 16, (n + 1) % 16, (n + 5) % 16] for n in range(12)])
SETTINGS = TrainingSettings(epochs=1, batch=8, threads=1)
OTHERS: list[Any] = [DROPPED, None, "x", 1.5, [], {}, [None], {"x": 1}, -1, -(2**70)]


def check_refused(read: Callable[[], object], path: Path, what: Any) -> None:
    """One line that names the file."""
    with pytest.raises(CheckpointError) as refusal:
        pytest.fail(f"{type(read()).__name__} was read, with {what}")
    said = str(refusal.value)
    assert str(path) in said, what
    assert "\n" not in said, what


# The state of a training


def a_state(path: Path) -> TrainingState:
    """Of a model of one layer, after a step."""
    torch.manual_seed(0)
    model, average = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.autograd.backward(model(torch.ones(1, 3)).sum())
    optimizer.step()
    identity = {
        "fingerprint": "f",
        "model": {"config": {"width": 3}, "codebooks": [2]},
        "teacher": None,
        "settings": {"batch": 8, "decay": 0.5},
    }
    return TrainingState(path, model, average, optimizer, identity)


DONE = Progress(epoch=3, step=12, seconds=1.5, best_epoch=2, best_loss=0.25)


def test_a_state_comes_back(tmp_path: Path) -> None:
    for done in (DONE, Progress(1, 0, 0, 1, math.nan), Progress(2, 8, 1e-3, 0, math.inf)):
        a_state(tmp_path / "state").save(done)
        assert str(a_state(tmp_path / "state").load()) == str(done)


def test_a_state_with_fields_that_are_missing_or_of_another_kind_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state"
    a_state(path).save(DONE)
    tensors, metadata = read_tensors(path, resuming.FORMAT, resuming.VERSION)
    for at in places(metadata):
        for value in OTHERS:
            same = value is DROPPED and at == ("identity", "teacher")  # as if there were none
            number = at[-1] in ("seconds", "best_loss") and type(value) in (int, float)
            if same or (number and at[-1] == "best_loss") or value == 1.5:
                continue
            if at == ("identity", "teacher") and value is None:
                continue
            write_tensors(path, tensors, changed(metadata, at, value))
            before = path.read_bytes()
            check_refused(a_state(path).load, path, (at, value))
            assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 0},
        {"epoch": 1},
        {"step": -1},
        {"step": 1.5},
        {"best_epoch": 4},
        {"best_epoch": True},
        {"seconds": -1.0},
        {"seconds": math.inf},
        {"seconds": math.nan},
        {"more": 1},
    ],
    ids=str,
)
def test_progress_that_no_training_reaches_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Progress.restored({**asdict(DONE), **change})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_state_with_other_tensors_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    a_state(path).save(DONE)
    tensors, metadata = read_tensors(path, resuming.FORMAT, resuming.VERSION)
    name = data.draw(st.sampled_from(sorted(tensors)))
    how = data.draw(st.sampled_from(["dropped", "renamed", "another shape"]))
    value = tensors.pop(name)
    if how == "renamed":
        tensors[data.draw(st.sampled_from(["x", f"{name}x", "optimizer.9.step", "model.y"]))] = (
            value
        )
    elif how == "another shape":
        tensors[name] = torch.zeros(data.draw(st.lists(st.integers(4, 6), min_size=1, max_size=3)))
    if how == "renamed" and "x" in tensors:  # a tensor that belongs to nothing is passed over
        del tensors["x"]
    write_tensors(path, tensors, metadata)
    check_refused(a_state(path).load, path, (name, how))


def test_a_training_that_cannot_be_resumed_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model"
    train(HISTORIES, INDEX, path, config=CONFIG, settings=SETTINGS, progress=False)
    state = state_path(path)
    tensors, metadata = read_tensors(state, resuming.FORMAT, resuming.VERSION)
    for at in (("identity", "model"), ("identity",), ("done", "epoch"), ("version",)):
        write_tensors(state, tensors, changed(metadata, at, DROPPED))
        before = (path.read_bytes(), state.read_bytes())
        longer = TrainingSettings(epochs=2, batch=8, threads=1)
        check_refused(
            lambda settings=longer: train(  # type: ignore[misc]
                HISTORIES, INDEX, path, config=CONFIG, settings=settings, resume=True
            ),
            state,
            at,
        )
        assert (path.read_bytes(), state.read_bytes()) == before


# Checkpoints and concepts


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """A model with random weights, whose most frequent items are known."""
    torch.manual_seed(0)
    model = make_model(CONFIG, INDEX.codebooks).eval().requires_grad_(False)
    return Checkpoint(model, INDEX.fingerprint, (3, 1))


def test_a_checkpoint_with_fields_that_are_missing_or_of_another_kind_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    save_checkpoint(checkpoint, path)
    tensors, metadata = read_tensors(path, checkpoints.FORMAT, checkpoints.VERSION)
    for at in places(metadata, whole=("popular",)):  # any number of items, with any identifiers
        for value in OTHERS:
            if value is DROPPED and at[:2] == ("model", "config") and len(at) > 2:
                continue  # the default, as in files of before that field
            if at == ("model", "config", "pointer") or (at, value) in (
                (("popular",), []),
                (("training",), {}),
                (("training",), []),
                (("training",), {"x": 1}),
            ):
                continue
            write_tensors(path, tensors, changed(metadata, at, value))
            check_refused(lambda: load_checkpoint(path, INDEX), path, (at, value))


def test_concepts_that_do_not_fit_are_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "concepts"
    save_concepts(think_ahead(checkpoint, INDEX, HISTORIES, progress=False), path)
    tensors, metadata = read_tensors(path, kept.FORMAT, kept.VERSION)
    for name in metadata:
        for value in OTHERS:
            if name == "users" and value is None:
                continue
            if name in ("model", "catalog") and value == "x":
                continue  # of another model or catalog
            write_tensors(path, tensors, changed(metadata, (name,), value))
            check_refused(lambda: load_concepts(path), path, (name, value))
    for name, tensor in tensors.items():
        for other in (None, tensor[:-1], tensor[None], tensor.to(torch.complex64)):
            rest = {each: value for each, value in tensors.items() if each != name}
            write_tensors(path, rest if other is None else {**rest, name: other}, metadata)
            check_refused(lambda: load_concepts(path), path, (name, other))


@pytest.mark.parametrize("name", ["concepts", "sids", "codes", "pointer"])
def test_concepts_of_other_sizes_or_codes_are_not_spelt(
    checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "concepts"
    save_concepts(think_ahead(checkpoint, INDEX, HISTORIES, progress=False), path)
    tensors, metadata = read_tensors(path, kept.FORMAT, kept.VERSION)
    if name == "codes":
        tensors["sids"][0, 0, 1] = 4
    elif name == "pointer":
        tensors = {"concepts": tensors["concepts"]}
    else:
        tensors[name] = tensors[name][..., :-1]
    write_tensors(path, tensors, metadata)
    with pytest.raises(CheckpointError, match="damaged"):
        list(recommend(checkpoint, INDEX, load_concepts(path), backend="reference"))


def test_what_was_cut_off_anywhere_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "model"
    save_checkpoint(checkpoint, path)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int).tolist():
        path.write_bytes(whole[:length])
        check_refused(lambda: load_checkpoint(path, INDEX), path, length)
