"""Positions beyond 2**31, reached by strides and row numbers rather than by memory.

A small catalog can stand at the far end of a large address space: an array whose rows lie 2**31
elements apart needs that many addresses, of which only the touched pages take memory; and row
number times codebook passes 2**31 with a few hundred rows of a codebook of millions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from beamsieve.interface import Projection
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

FAR = 2**31 + 64
"""Elements between two rows."""


def far_apart(values: NDArray[np.float32], subject: Subject) -> Any:
    """``values`` on the device, with its first axis spread over 2**31 elements or more."""
    rows, *rest = values.shape
    row = int(np.prod(rest))
    gap = FAR // (rows - 1) + 1
    memory: Any
    if subject.device == "cpu":
        memory = np.zeros(gap * (rows - 1) + row, np.float32)  # untouched pages take no memory
    else:
        torch = pytest.importorskip("torch", reason="a strided array on a GPU is made by torch")
        memory = torch.zeros(gap * (rows - 1) + row, device=subject.device)
    for number in range(rows):
        memory[gap * number : gap * number + row] = subject.put(values[number].reshape(-1))
    shape, strides = values.shape, (gap, *(s // 4 for s in values.strides[1:]))
    if subject.device == "cpu":
        steps = [4 * stride for stride in strides]
        return np.lib.stride_tricks.as_strided(memory, shape, steps)
    return memory.as_strided(shape, strides)


def take(trial: Trial, beams: Any, width: int, inputs: Inputs, spread: str) -> None:
    """One step with the array named ``spread`` far apart, judged."""
    before = trial.host(beams)
    arguments = trial.subject.arguments(inputs)
    arguments[spread] = far_apart(getattr(inputs, spread), trial.subject)
    trial.judge(before, trial.call(beams, width, arguments), width, inputs)


@pytest.mark.parametrize("spread", ["logits", "hidden", "head"])
def test_inputs_may_be_strided_beyond_31_bits(subject: Subject, spread: str) -> None:
    trial = Trial(subject, World.of([(v,) for v in range(5)], [5]))
    rng = np.random.default_rng(0)
    beams = trial.begin(2)
    if spread == "logits":
        inputs = Inputs(logits=rng.standard_normal((2, 1, 5)).astype(np.float32))
    else:
        inputs = Inputs(
            hidden=rng.standard_normal((2, 1, 3)).astype(np.float32),
            head=rng.standard_normal((5, 3)).astype(np.float32),
        )
    take(trial, beams, 4, inputs, spread)


def test_row_times_codebook_may_pass_31_bits(subject: Subject) -> None:
    size = 2**22 + 3
    sids = [(a, b) for a in range(600) for b in (0, 7 * a + 1, size - 1 - a)]
    trial = Trial(subject, World.of(sids, [600, size]))
    beams = trial.begin(2, prefix=[(599,), (512,)])
    logits = np.zeros((2, 1, size), np.float32)
    logits[:, :, 0], logits[:, :, size - 600 :] = 1.0, 2.0
    found = trial.host(trial.step(beams, 4, trial.logits(beams, logits)))
    assert found.tokens[0, :3, 1].tolist() == [size - 600, 0, 4194]
    assert found.rows[0, :3].tolist() == [1799, 1797, 1798]


@pytest.mark.slow
@pytest.mark.parametrize("projection", ["selective", "compiled"])
def test_beam_times_codebook_may_pass_31_bits(subject: Subject, projection: Projection) -> None:
    # 2 requests times 300 beams times 4 million tokens: no logit but the valid ones exists.
    size = 2**22 + 3
    sids = [(a, b) for a in range(300) for b in (a, size - 1 - a)]
    trial = Trial(subject, World.of(sids, [300, size]))
    first = trial.begin(2)
    beams = trial.take(first, 300, trial.logits(first, np.linspace(0.5, 0, 300)))
    before = trial.host(beams)
    hidden = np.ones((2, 300, 1), np.float32)
    head = np.zeros((size, 1), np.float32)
    head[size - 300 :] = 3.0
    inputs = Inputs(hidden=hidden, head=head)
    found = trial.host(trial.take(beams, 600, inputs, projection))
    assert found.count.tolist() == [600, 600]
    for b in range(2):
        kept = set(zip(found.parents[b].tolist(), found.tokens[b, :, 1].tolist(), strict=True))
        assert kept == {(m, v) for m in range(300) for v in (m, size - 1 - m)}
    np.testing.assert_allclose(
        found.scores[:, :300] - np.take_along_axis(before.scores, found.parents[:, :300], 1),
        np.full((2, 300), -np.log(1 + np.exp(-3))),
        atol=1e-3,
    )
