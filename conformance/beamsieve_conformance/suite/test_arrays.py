"""What goes in and what comes out: any array goes in, the backend's own arrays come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beamsieve_conformance import model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

TREE = [tuple(int(t) for t in sid) for sid in np.ndindex(4, 6)]


class OnlyDLPack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class OnlyInterface:
    """An array that has the array interface, of the host or of CUDA, and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array
        for name in ("__array_interface__", "__cuda_array_interface__"):
            if hasattr(array, name):
                setattr(self, name, getattr(array, name))
                break


def in_form(subject: Subject, values: Any, form: str) -> Any:
    """float32 numbers on the backend's device, as another library would hand them over."""
    if form == "read-only" and subject.device == "cpu":
        frozen = np.array(values)
        frozen.flags.writeable = False
        return frozen
    array = subject.put(values)
    if form == "DLPack":
        return OnlyDLPack(array)
    if form == "array interface":
        return OnlyInterface(array)
    if form == "torch":
        return pytest.importorskip("torch").from_dlpack(array)
    return array


@pytest.mark.parametrize("form", ["plain", "DLPack", "array interface", "torch", "read-only"])
def test_inputs_may_be_any_array(subject: Subject, form: str) -> None:
    trial = Trial(subject, World.of(TREE))
    rng = np.random.default_rng(0)
    beams = trial.begin(2)
    for width, hidden in ((3, False), (8, True)):
        shape = trial.shape(beams)
        inputs = model.given_hidden(rng, shape) if hidden else model.given_logits(rng, shape)
        arguments = {
            name: in_form(subject, getattr(inputs, name), form)
            for name in ("logits", "hidden", "head")
            if getattr(inputs, name) is not None
        }
        before = trial.host(beams)
        beams = trial.call(beams, width, arguments)
        trial.judge(before, beams, width, inputs)


def test_outputs_are_arrays_of_one_library_on_the_device(subject: Subject) -> None:
    trial = Trial(subject, World.of(TREE))
    beams = trial.walk([3, 8])
    names = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")
    arrays = [getattr(beams, name) for name in names]
    assert len({type(array) for array in arrays}) == 1
    for name, array in zip(names, arrays, strict=True):
        # The backend takes its own output without a copy: it lies where the backend computes.
        assert subject.backend.asarray(array, what=name).shape == array.shape


@pytest.mark.needs("guidance: bonus")
def test_outputs_may_go_back_in(subject: Subject) -> None:
    # Each beam's score as a bonus on all its tokens, made from the outputs as they are.
    trial = Trial(subject, World.of(TREE))
    beams = trial.walk([3], [0.0, 1.0, 2.0, 3.0], batch=2)
    held = trial.host(beams)
    shape = trial.shape(beams)
    inputs = trial.logits(beams, 0.0, bonus=held.scores[..., None])
    arguments = subject.arguments(inputs)
    zeros = subject.backend.asarray(subject.put(np.zeros(shape, np.float32)), what="zeros")
    arguments["bonus"] = beams.scores[..., None] + zeros
    trial.judge(held, trial.call(beams, 9, arguments), 9, inputs)
