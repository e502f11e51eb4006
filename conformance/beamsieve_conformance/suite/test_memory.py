"""Memory: outputs stay what they are, inputs too, and what lay in scratch memory means nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from beamsieve_conformance import compare, model
from beamsieve_conformance.compare import HostBeams
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

TREE = [tuple(int(t) for t in sid) for sid in np.ndindex(5, 4, 6)]
WIDTHS = (5, 20, 9)


def search(
    trial: Trial, seed: int = 0, batch: int = 3, hidden: bool = False, judged: bool = False
) -> list[HostBeams]:
    """Every step of one search, with smooth random inputs."""
    rng = np.random.default_rng(seed)
    beams = trial.begin(batch)
    steps = []
    for width in WIDTHS:
        shape = trial.shape(beams)
        inputs = model.given_hidden(rng, shape) if hidden else model.given_logits(rng, shape)
        beams = trial.step(beams, width, inputs) if judged else trial.take(beams, width, inputs)
        steps.append(trial.host(beams))
    return steps


@pytest.mark.parametrize("hidden", [False, True])
def test_beams_stay_what_they_are_after_later_steps(subject: Subject, hidden: bool) -> None:
    trial = Trial(subject, World.of(TREE))
    rng = np.random.default_rng(1)
    held, copies = [trial.begin(3)], []
    copies.append(trial.host(held[0]))
    for width in WIDTHS:
        shape = trial.shape(held[-1])
        inputs = model.given_hidden(rng, shape) if hidden else model.given_logits(rng, shape)
        held.append(trial.take(held[-1], width, inputs))
        copies.append(trial.host(held[-1]))
    search(trial, seed=2)
    for beams, copy in zip(held, copies, strict=True):
        compare.check_same_bits(trial.host(beams), copy, f"the beams after step {copy.step}")


@pytest.mark.needs("guidance: candidates")
@pytest.mark.parametrize("keyed", [False, True])
def test_candidates_stay_what_they_are_after_select(subject: Subject, keyed: bool) -> None:
    trial = Trial(subject, World.of(TREE))
    beams = trial.begin(2)
    rng = np.random.default_rng(3)
    to_host = subject.backend.to_host
    arguments = subject.arguments(model.given_logits(rng, trial.shape(beams)))
    found = trial.engine.candidates(beams, **arguments)
    held = [found.tokens, found.scores, found.rows]
    if keyed:  # as the user's own array, which stays the user's
        shape = tuple(found.scores.shape)
        held.append(subject.put(rng.standard_normal(shape).astype(np.float32)))
    copies = [np.array(to_host(subject.backend.asarray(array, what="held"))) for array in held]
    after = trial.select(beams, found, 4, held[3] if keyed else None)
    trial.engine.step(after, 9, **subject.arguments(model.given_logits(rng, trial.shape(after))))
    for array, copy in zip(held, copies, strict=True):
        now = np.array(to_host(subject.backend.asarray(array, what="held")))
        assert now.tobytes() == copy.tobytes()


@pytest.mark.parametrize("kind", ["logits", "hidden"])
def test_what_the_model_says_is_not_written_to(subject: Subject, kind: str) -> None:
    trial = Trial(subject, World.of(TREE))
    rng = np.random.default_rng(4)
    beams = trial.walk([5], batch=2)
    guidance: dict[str, Any] = {
        name: model.given_guidance(rng, trial.shape(beams))
        for name in ("bonus", "nudge")
        if name in subject.capabilities.guidance
    }
    if kind == "logits":
        values = rng.standard_normal(trial.shape(beams))
        values[:, 1:, :2] = np.nan, np.inf
        inputs = trial.logits(beams, values, **guidance)
    else:
        inputs = model.given_hidden(rng, trial.shape(beams), bias=True, **guidance)
    arguments = subject.arguments(inputs)
    copies = {name: np.array(_to_host(subject, value)) for name, value in arguments.items()}
    trial.call(beams, 9, arguments)
    for name, value in arguments.items():
        assert np.array(_to_host(subject, value)).tobytes() == copies[name].tobytes(), name


def _to_host(subject: Subject, value: Any) -> Any:
    return subject.backend.to_host(subject.backend.asarray(value, what="input"))


@pytest.mark.parametrize("hidden", [False, True])
def test_an_earlier_search_leaves_no_trace(subject: Subject, hidden: bool) -> None:
    # Wider and hotter searches first, and one of the very same shapes: whatever they left behind
    # must not show in the next one.
    world = World.of(TREE)
    used = Trial(Subject.open(subject.config), world)
    beams = used.begin(7)
    for width in (5, 20, 120):
        beams = used.take(beams, width, used.logits(beams, 1e4))
    search(used, seed=55, batch=1, hidden=hidden)
    found = search(used, seed=5, batch=1, hidden=hidden)
    fresh = search(
        Trial(Subject.open(subject.config), world), seed=5, batch=1, hidden=hidden, judged=True
    )
    for after, expected in zip(found, fresh, strict=True):
        compare.check_same_bits(after, expected, f"step {after.step} after another search")


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Every array that a library allocates without filling it holds garbage."""
    restore: list[tuple[Any, str, Any]] = []

    def poison(owner: Any, name: str, fill: Callable[[Any], None]) -> None:
        original = getattr(owner, name)

        def allocate(*args: Any, **kwargs: Any) -> Any:
            array = original(*args, **kwargs)
            fill(array)
            return array

        restore.append((owner, name, original))
        setattr(owner, name, allocate)

    def fill_numpy(array: Any) -> None:
        if array.dtype.kind in "fiub" and array.size and array.dtype.itemsize:
            array.fill(np.nan if array.dtype.kind == "f" else 1 if array.dtype.kind == "b" else 77)

    def fill_torch(tensor: Any) -> None:
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
        else:
            tensor.fill_(1 if str(tensor.dtype) == "torch.bool" else 77)

    try:
        for library, names, fill in (
            ("numpy", ("empty", "empty_like"), fill_numpy),
            ("cupy", ("empty", "empty_like"), fill_numpy),
            ("torch", ("empty", "empty_like", "empty_strided"), fill_torch),
        ):
            for name in names:
                if library in sys.modules:
                    poison(sys.modules[library], name, fill)
        if "torch" in sys.modules:
            tensor = sys.modules["torch"].Tensor
            poison(tensor, "new_empty", fill_torch)
        yield
    finally:
        for owner, name, original in reversed(restore):
            setattr(owner, name, original)


@pytest.mark.parametrize("hidden", [False, True])
def test_poisoned_scratch_memory_changes_nothing(subject: Subject, hidden: bool) -> None:
    world = World.of(TREE)
    clean = search(Trial(subject, world), seed=6, hidden=hidden)
    with poisoned():
        dirty = search(Trial(subject, world), seed=6, hidden=hidden)
    for found, expected in zip(dirty, clean, strict=True):
        compare.check_same_bits(found, expected, f"step {found.step} in poisoned memory")


def strided(subject: Subject, values: Any, how: str) -> Any:
    """The same numbers on the device in another memory layout."""
    array = subject.put(values)
    if how == "wider rows":  # a row's stride is not its width
        padded = np.full((*values.shape[:-1], values.shape[-1] + 3), 1e9, np.float32)
        padded[..., :-3] = values
        return subject.put(padded)[..., :-3]
    if how == "every second":
        padded = np.full((*values.shape[:-1], 2 * values.shape[-1]), 1e9, np.float32)
        padded[..., ::2] = values
        return subject.put(padded)[..., ::2]
    # The last two axes lie the other way round in memory.
    turned = subject.put(np.ascontiguousarray(np.swapaxes(values, -1, -2)))
    assert how == "transposed"
    assert array.ndim >= 2
    return turned.swapaxes(-1, -2)


@pytest.mark.parametrize("how", ["wider rows", "every second", "transposed"])
@pytest.mark.parametrize(
    "name",
    [
        "logits",
        "hidden",
        "head",
        pytest.param("bonus", marks=pytest.mark.needs("guidance: bonus")),
        pytest.param("nudge", marks=pytest.mark.needs("guidance: nudge")),
    ],
)
def test_inputs_may_have_any_strides(subject: Subject, name: str, how: str) -> None:
    trial = Trial(subject, World.of(TREE))
    rng = np.random.default_rng(7)
    beams = trial.begin(2)
    for width in WIDTHS:
        shape = trial.shape(beams)
        if name in ("hidden", "head"):
            inputs = model.given_hidden(rng, shape)
        elif name == "logits":
            inputs = model.given_logits(rng, shape)
        else:
            guidance: dict[str, Any] = {name: model.given_guidance(rng, shape)}
            inputs = model.given_logits(rng, shape, **guidance)
        arguments = subject.arguments(inputs)
        arguments[name] = strided(subject, getattr(inputs, name), how)
        before = trial.host(beams)
        beams = trial.call(beams, width, arguments)
        trial.judge(before, beams, width, inputs)


def test_a_bias_may_be_strided(subject: Subject) -> None:
    trial = Trial(subject, World.of(TREE))
    rng = np.random.default_rng(8)
    beams = trial.begin(2)
    inputs = model.given_hidden(rng, trial.shape(beams), bias=True)
    arguments = subject.arguments(inputs)
    assert inputs.bias is not None
    arguments["bias"] = subject.put(np.repeat(inputs.bias, 2))[::2]
    before = trial.host(beams)
    trial.judge(before, trial.call(beams, 4, arguments), 4, inputs)


def test_one_row_may_serve_all_beams(subject: Subject) -> None:
    # A broadcast view: all beams read the same memory.
    trial = Trial(subject, World.of(TREE))
    first = trial.begin(2)
    beams = trial.take(first, 5, trial.logits(first, 0.0))
    values = np.random.default_rng(9).standard_normal(4).astype(np.float32)
    inputs = Inputs(logits=np.broadcast_to(values, (2, 5, 4)))
    before = trial.host(beams)
    row = subject.put(values)
    wide = np.broadcast_to(row, (2, 5, 4)) if subject.device == "cpu" else row.expand(2, 5, 4)
    trial.judge(before, trial.engine.step(beams, 9, logits=wide), 9, inputs)
