"""The golden vectors: searches whose every number is written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beamsieve_conformance import features
from beamsieve_conformance.compare import HostBeams, allowed, check_form
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World
from beamsieve_conformance.vectors import floats, read

CASES = {case["about"]: case for case in read("searches")}
TARGETED = {case["about"]: case for case in read("targeting")}
EXACT = ("tokens", "rows", "parents", "finished", "count")


def needed(case: dict[str, Any]) -> pytest.MarkDecorator:
    """What a backend must declare for one case."""
    said = {name for step in case["steps"] for name in step["inputs"]}
    names = [f"normalizer: {case['normalize']}"]
    names += [f"guidance: {name}" for name in ("bonus", "nudge") if name in said]
    names += [
        f"targeting: {'bits' if attribute.get('values') else 'bloom'}"
        for attribute in case.get("attributes", [])
    ]
    asked = [request for request in case.get("requests", []) if request]
    names += [
        f"targeting: {name}"
        for name in ("allow", "exclude")
        if any(request.get(name) is not None for request in asked)
    ]
    lengths = {len(sid) for sid in case["catalog"]["sids"]}
    if len(lengths) > 1 or case["catalog"]["end_token"]:
        names.append(features.VARIABLE_LENGTH)
    return pytest.mark.needs(*names)


def inputs_of(step: dict[str, Any], dtype: str = "float32") -> Inputs:
    """What the model says in one step of a case."""
    arrays = {name: floats(value).astype(np.float32) for name, value in step["inputs"].items()}
    return Inputs(dtype=dtype, **arrays)


def world_of(case: dict[str, Any]) -> World:
    """The catalog of a case."""
    given = case["catalog"]
    partition = case.get("partition", {})
    return World.of(
        given["sids"],
        given["codebooks"],
        items=given["items"],
        end_token=given["end_token"],
        attributes=case.get("attributes", ()),
        rules=case.get("rules"),
        static=partition.get("static"),
        dynamic=tuple(partition["dynamic"]) if "dynamic" in partition else None,
    )


def check_beams(found: HostBeams, expected: dict[str, Any], tolerance: float, steps: int) -> None:
    """The beams of a vector: scores within the tolerance of the steps taken, the rest exact."""
    scores = floats(expected["scores"])
    check_form(found, step=expected["step"], batch=scores.shape[0], width=scores.shape[1])
    for name in EXACT:
        array = np.array(expected[name]).reshape(getattr(found, name).shape)
        assert getattr(found, name).tolist() == array.tolist(), f"{name} after step {found.step}"
    for name in ("scores", "keys"):
        for left, right in zip(
            getattr(found, name).ravel().tolist(), floats(expected[name]).ravel(), strict=True
        ):
            assert left == right or abs(left - right) <= max(1, steps) * allowed(
                tolerance, right
            ), f"{name} after step {found.step}: {left!r}, not {right!r}"


@pytest.mark.parametrize(
    "about", [pytest.param(about, marks=needed(case)) for about, case in CASES.items()]
)
def test_search_is_as_written_down(subject: Subject, about: str) -> None:
    case = CASES[about]
    trial = Trial(subject, world_of(case), case["normalize"])
    tolerance = subject.capabilities.tolerance["float32"]
    beams = trial.begin(case["batch"], case["prefix"])
    check_beams(trial.host(beams), case["begin"], tolerance, 0)
    for number, step in enumerate(case["steps"], start=1):
        beams = trial.take(beams, step["width"], inputs_of(step))
        check_beams(trial.host(beams), step["beams"], tolerance, number)
    for hits, expected in zip(
        trial.engine.results(beams, k=case["k"]), case["results"], strict=True
    ):
        assert [[hit.item, list(hit.sid)] for hit in hits] == [entry[:2] for entry in expected]


@pytest.mark.needs("guidance: candidates")
@pytest.mark.parametrize(
    "about", [pytest.param(about, marks=needed(case)) for about, case in CASES.items()]
)
def test_candidates_are_as_written_down(subject: Subject, about: str) -> None:
    case = CASES[about]
    trial = Trial(subject, world_of(case), case["normalize"])
    beams = trial.begin(case["batch"], case["prefix"])
    to_host = subject.backend.to_host
    for step in case["steps"]:
        inputs = inputs_of(step)
        given = subject.arguments(inputs)
        given.pop("nudge", None)
        found = trial.engine.candidates(beams, **given)
        tokens, scores, rows = (
            np.array(to_host(getattr(found, name))) for name in ("tokens", "scores", "rows")
        )
        expected = step["candidates"]
        expected_scores = floats(expected["scores"])
        for b, m in np.ndindex(*expected_scores.shape[:2]):
            occupied = np.isfinite(expected_scores[b, m])
            living = np.isfinite(scores[b, m])
            for name, array in (("tokens", tokens), ("rows", rows)):
                wanted = np.array(expected[name])[b, m][occupied].tolist()
                assert array[b, m][living].tolist() == wanted, f"{name} of request {b}, beam {m}"
        beams = trial.take(beams, step["width"], inputs)


@pytest.mark.parametrize("dtype", [d for d in features.KNOWN["dtype"] if d != "float32"])
@pytest.mark.parametrize(
    "about", [pytest.param(about, marks=needed(case)) for about, case in CASES.items()]
)
def test_search_in_another_dtype_is_right(subject: Subject, about: str, dtype: str) -> None:
    # Every number of the vectors is one in half precision too.
    case = CASES[about]
    trial = Trial(subject, world_of(case), case["normalize"])
    beams = trial.begin(case["batch"], case["prefix"])
    for step in case["steps"]:
        beams = trial.step(beams, step["width"], inputs_of(step, dtype))


@pytest.mark.parametrize(
    "about", [pytest.param(about, marks=needed(case)) for about, case in TARGETED.items()]
)
def test_targeted_search_is_as_written_down(subject: Subject, about: str) -> None:
    case = TARGETED[about]
    trial = Trial(subject, world_of(case), case["normalize"])
    tolerance = subject.capabilities.tolerance["float32"]
    beams = trial.begin(requests=case["requests"])
    for number, step in enumerate(case["steps"], start=1):
        beams = trial.take(beams, step["width"], inputs_of(step))
        check_beams(trial.host(beams), step["beams"], tolerance, number)
    results = trial.engine.results(beams, k=case["k"])
    for hits, expected in zip(results, case["results"], strict=True):
        assert [[hit.item, list(hit.sid)] for hit in hits] == [entry[:2] for entry in expected]
