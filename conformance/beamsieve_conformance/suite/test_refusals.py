"""What a backend does not declare is refused by the engine, at once and in one clear line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from beamsieve.errors import BackendError, BeamsieveError, InputError
from beamsieve_conformance import arrays, features, model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.targeted import COUNTRY, PLACE
from beamsieve_conformance.trial import Trial, World

SMALL = [(0, 1), (1, 0), (1, 1)]


def refused(call: Callable[[], object], *words: str) -> None:
    """``call`` raises one line, which names the backend's lack."""
    with pytest.raises((BackendError, InputError)) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    for word in words:
        assert word in message, f"{message!r} does not say {word!r}"


def _try(subject: Subject, feature: str) -> None:
    kind, _, form = feature.partition(": ")
    world = World.of(SMALL, 2)
    if kind == "normalizer":
        refused(lambda: subject.engine(world.index, form), form)  # type: ignore[arg-type]
        return
    if feature == features.VARIABLE_LENGTH:
        mixed = World.of([(0,), (1, 1)], 2)
        refused(lambda: subject.engine(mixed.index), "length")
        return
    trial = Trial(subject, world, subject.capabilities.normalizers[0])
    beams = trial.begin()
    values = np.zeros((1, 1, 2), np.float32)
    if kind == "dtype":
        try:
            given = arrays.put(values, form, subject.device)
        except arrays.CannotMakeError as reason:
            pytest.skip(str(reason))
        refused(lambda: trial.engine.step(beams, 2, logits=given))
    elif form in ("bonus", "nudge"):
        guidance = {form: subject.put(values)}
        refused(lambda: trial.engine.step(beams, 2, logits=subject.put(values), **guidance), form)
    elif form == "candidates":
        refused(lambda: trial.engine.candidates(beams, logits=subject.put(values)))
    elif kind == "targeting":
        asked: dict[str, Any] = {form: [0]}
        if form in ("bits", "bloom"):
            attribute = COUNTRY if form == "bits" else PLACE
            world = World.of(SMALL, 2, attributes=[attribute])
            asked = {attribute["name"]: "US"}
        targeted = Trial(subject, world, subject.capabilities.normalizers[0])
        refused(lambda: targeted.engine.begin(batch=1, requests=[asked]), form)
    else:
        pytest.fail(f"the suite knows no way to ask for {feature}")


@pytest.mark.refusal
@pytest.mark.parametrize("feature", [f for f in features.refusable() if "projection" not in f])
def test_what_is_not_declared_is_refused(subject: Subject, feature: str) -> None:
    _try(subject, feature)


def test_a_width_above_the_largest_is_refused(subject: Subject) -> None:
    largest = subject.capabilities.largest_width
    trial = Trial(subject, World.of(SMALL, 2))
    beams = trial.begin()
    if largest is None:  # then any width is served, whatever exists
        found = trial.host(trial.step(beams, 5000, trial.logits(beams, 0.0)))
        assert found.count.tolist() == [2]
        return
    arguments = subject.arguments(trial.logits(beams, 0.0))
    refused(lambda: trial.engine.step(beams, largest + 1, **arguments), str(largest))


def test_a_codebook_above_the_largest_is_refused(subject: Subject) -> None:
    largest = subject.capabilities.largest_codebook
    if largest is None:  # then any codebook is served
        world = World.of([(0,), (2**20,)], 2**20 + 1)
        beams = subject.engine(world.index).begin(batch=1)
        assert beams.step == 0
        return
    world = World.of([(0,), (largest,)], largest + 1)
    refused(lambda: subject.engine(world.index), str(largest))


def test_declared_capabilities_are_plausible(subject: Subject) -> None:
    can = subject.capabilities
    assert can.dtypes
    assert can.normalizers
    assert can.projections
    for name, forms in (
        ("dtype", can.dtypes),
        ("normalizer", can.normalizers),
        ("projection", can.projections),
        ("targeting", can.targeting),
        ("guidance", can.guidance),
    ):
        assert set(forms) <= set(features.KNOWN[name]), f"{name}: {forms}"
    for dtype in can.dtypes:
        assert dtype in can.tolerance, f"no tolerance is declared for {dtype}"
        ceiling = 1e-4 if dtype == "float32" else 5e-2
        assert 0 < can.tolerance[dtype] <= ceiling, f"{dtype}: {can.tolerance[dtype]}"
    assert subject.device.partition(":")[0] in {d.partition(":")[0] for d in can.devices}


def test_a_device_that_is_not_there_is_refused(subject: Subject) -> None:
    refused(lambda: Subject.open(subject.name, "no-such-device"))


def test_an_unknown_option_is_refused(subject: Subject) -> None:
    refused(lambda: Subject.open(f"{subject.name}?no-such-option=1"), "no-such-option")


def wrong_inputs(trial: Trial) -> dict[str, Callable[[], object]]:
    """Calls that no backend may answer."""
    subject, engine = trial.subject, trial.engine
    first = trial.begin()
    beams = trial.take(first, 2, trial.logits(first, 0.0))
    ended = trial.take(beams, 2, trial.logits(beams, 0.0))
    rng = np.random.default_rng(0)
    good = subject.arguments(model.given_hidden(rng, trial.shape(beams)))
    head, hidden = good["head"], good["hidden"]
    logits = subject.put(np.zeros(trial.shape(beams), np.float32))
    return {
        "a batch of 0": lambda: engine.begin(batch=0),
        "prefixes of two lengths": lambda: engine.begin(batch=2, prefix=[(0,), (0, 1)]),
        "too few prefixes": lambda: engine.begin(batch=2, prefix=[(0,)]),
        "too long a prefix": lambda: engine.begin(batch=1, prefix=[(0, 1, 0)]),
        "a width of 0": lambda: engine.step(beams, 0, logits=logits),
        "a negative width": lambda: engine.step(beams, -3, logits=logits),
        "a step too many": lambda: engine.step(ended, 2, logits=logits),
        "nothing from the model": lambda: engine.step(beams, 2),
        "logits and hidden": lambda: engine.step(beams, 2, logits=logits, **good),
        "hidden without head": lambda: engine.step(beams, 2, hidden=hidden),
        "a head with a row too few": lambda: engine.step(beams, 2, hidden=hidden, head=head[:-1]),
        "a head of another d": lambda: engine.step(beams, 2, hidden=hidden, head=head[:, :-1]),
        "a wrong bias": lambda: engine.step(beams, 2, **good, bias=head[:1, 0]),
        "logits for a beam too few": lambda: engine.step(beams, 2, logits=logits[:, :-1]),
        "logits for a token too few": lambda: engine.step(beams, 2, logits=logits[..., :-1]),
        "no array": lambda: engine.step(beams, 2, logits="logits"),
        "results too early": lambda: engine.results(beams),
        "a k of 0": lambda: engine.results(ended, k=0),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        "a batch of 0",
        "prefixes of two lengths",
        "too few prefixes",
        "too long a prefix",
        "a width of 0",
        "a negative width",
        "a step too many",
        "nothing from the model",
        "logits and hidden",
        "hidden without head",
        "a head with a row too few",
        "a head of another d",
        "a wrong bias",
        "logits for a beam too few",
        "logits for a token too few",
        "no array",
        "results too early",
        "a k of 0",
    ],
)
def test_wrong_input_is_one_clear_line(subject: Subject, wrong: str) -> None:
    trial = Trial(subject, World.of(SMALL, 2))
    call = wrong_inputs(trial)[wrong]
    with pytest.raises(InputError) as caught:
        call()
    assert isinstance(caught.value, BeamsieveError)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


class OnGPU:
    """What a host sees of an array in the memory of a GPU: where it lies, and nothing else."""

    shape = (1, 1, 2)
    dtype = np.dtype(np.float32)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # kDLCUDA, the first one

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("this memory is a GPU's")


def test_an_array_on_another_device_is_refused(subject: Subject) -> None:
    elsewhere = OnGPU() if subject.device == "cpu" else np.zeros((1, 1, 2), np.float32)
    trial = Trial(subject, World.of(SMALL, 2))
    beams = trial.begin()
    with pytest.raises(InputError) as caught:
        trial.engine.step(beams, 1, logits=elsewhere)
    assert "logits" in str(caught.value)
    assert "\n" not in str(caught.value)
