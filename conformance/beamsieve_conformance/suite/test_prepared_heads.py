"""A prepared head is the head: the same beams, whoever takes it, and in a captured search too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beamsieve.interface import Beams, StepInputs
from beamsieve_conformance import features, model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

PARTS = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")
CODEBOOKS = (7, 150, 40)
WIDTHS = (5, 40, 33)


def world() -> World:
    rng = np.random.default_rng(0)
    rows = [tuple(int(rng.integers(0, size)) for size in CODEBOOKS) for _ in range(1500)]
    return World.of(rows, CODEBOOKS)


def assert_same(trial: Trial, mine: Beams, others: Beams) -> None:
    left, right = trial.host(mine), trial.host(others)
    for name in PARTS:
        assert getattr(left, name).tobytes() == getattr(right, name).tobytes(), name


@pytest.mark.parametrize("dtype", features.KNOWN["dtype"])
@pytest.mark.parametrize("projection", features.KNOWN["projection"])
def test_steps_are_the_same_bit_for_bit(subject: Subject, projection: str, dtype: str) -> None:
    trial, backend = Trial(subject, world()), subject.backend
    rng = np.random.default_rng(1)
    beams = trial.begin(3)
    for width in WIDTHS:
        inputs = model.given_hidden(rng, trial.shape(beams), dtype=dtype)
        arrays = {
            name: backend.asarray(value, what=name)
            for name, value in subject.arguments(inputs).items()
        }
        plain = StepInputs(width, projection=projection, **arrays)  # type: ignore[arg-type]
        prepared = trial.engine.prepare_head(arrays["head"])
        before = trial.host(beams)
        after = backend.step(beams, replace(plain, prepared=prepared.made), trial.normalize)
        trial.judge(before, after, width, inputs)
        assert_same(trial, after, backend.step(beams, plain, trial.normalize))
        beams = after


def test_one_head_serves_several_steps_and_batches(subject: Subject) -> None:
    trial = Trial(
        subject, World.of([(a, b, c) for a in range(9) for b in (1, 4, 8) for c in (0, a)], 9)
    )
    rng = np.random.default_rng(2)
    numbers = rng.standard_normal((9, 24)).astype(np.float32)
    numbers[::2] *= np.float32(1e-18)  # rows of very different sizes
    numbers[1::4] *= np.float32(1e12)
    head = subject.put(numbers)
    prepared = trial.engine.prepare_head(head)
    for batch in (1, 4):
        mine, others = trial.begin(batch), trial.begin(batch)
        for width in (6, 20, 20):
            hidden = rng.standard_normal((*trial.shape(mine)[:2], 24)).astype(np.float32)
            said = {"hidden": subject.put(hidden)}
            mine = trial.call(mine, width, {**said, "head": prepared})
            others = trial.call(others, width, {**said, "head": head})
            assert_same(trial, mine, others)


def test_it_may_be_a_part_of_a_larger_array(subject: Subject) -> None:
    trial = Trial(subject, World.of([(a, b) for a in range(12) for b in range(a)], 12))
    rng = np.random.default_rng(3)
    table = subject.put(rng.standard_normal((40, 24)).astype(np.float32))
    mine, others = trial.begin(2), trial.begin(2)
    for step, width in enumerate((12, 30)):
        head = table[3 + 12 * step : 15 + 12 * step, 2:20]  # rows that do not follow one another
        hidden = subject.put(rng.standard_normal((2, trial.shape(mine)[1], 18)).astype(np.float32))
        prepared = trial.engine.prepare_head(head)
        mine = trial.call(mine, width, {"hidden": hidden, "head": prepared})
        others = trial.call(others, width, {"hidden": hidden, "head": head})
        assert_same(trial, mine, others)


@pytest.mark.parametrize("heads", ["one per level", "one"])
def test_warm_up_takes_prepared_heads(subject: Subject, heads: str) -> None:
    trial = Trial(subject, World.of([(a, b) for a in range(6) for b in range(6)], 6))
    rng = np.random.default_rng(4)
    head = trial.engine.prepare_head(subject.put(rng.standard_normal((6, 8)).astype(np.float32)))
    given: Any = head if heads == "one" else [head, head]
    plan = trial.engine.warm_up(2, [4, 9], given, repeats=1)
    assert len(plan.steps) == 2
    beams = trial.begin(2)
    for width in (4, 9):
        hidden = rng.standard_normal((2, trial.shape(beams)[1], 8)).astype(np.float32)
        beams = trial.call(beams, width, {"hidden": subject.put(hidden), "head": head})
    assert trial.host(beams).count.tolist() == [9, 9]


@pytest.mark.needs("CUDA graph")
def test_a_captured_search_takes_prepared_heads(subject: Subject) -> None:
    trial = Trial(subject, world())
    rng = np.random.default_rng(5)

    def numbers(*shape: int) -> Any:
        return subject.put(rng.standard_normal(shape).astype(np.float32))

    hidden = [numbers(2, m, 16) for m in (1, *WIDTHS[:-1])]
    heads = [numbers(size, 16) for size in CODEBOOKS]
    prepared = [trial.engine.prepare_head(head) for head in heads]

    def score(step: int, beams: Beams) -> Any:
        return hidden[step - 1], prepared[step - 1]

    plain = trial.search(lambda step, beams: (hidden[step - 1], heads[step - 1]), WIDTHS, 2)
    for _ in range(3):
        replayed = trial.engine.search(score, list(WIDTHS), batch=2, graph=True)
        assert_same(trial, replayed, plain)
