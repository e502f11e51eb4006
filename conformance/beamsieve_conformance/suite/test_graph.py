"""A whole search in one CUDA graph: captured once, replayed with other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beamsieve.errors import BackendError
from beamsieve.interface import Beams
from beamsieve_conformance import compare
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

pytestmark = pytest.mark.needs("CUDA graph")

WIDTHS = (4, 16, 9)
CODEBOOKS = (8, 40, 7)
HIDDEN = 16


def decode(trial: Trial, first: Beams, said: list[dict[str, Any]]) -> Beams:
    """Every step, from what the model says at each."""
    beams = first
    for width, arguments in zip(WIDTHS, said, strict=True):
        beams = trial.call(beams, width, arguments)
    return beams


@pytest.mark.parametrize("hidden", [False, True])
def test_a_captured_search_is_replayed_with_other_numbers(subject: Subject, hidden: bool) -> None:
    torch = pytest.importorskip("torch", reason="the suite captures graphs through torch")
    rng = np.random.default_rng(0)
    sids = [tuple(int(rng.integers(0, size)) for size in CODEBOOKS) for _ in range(900)]
    trial = Trial(subject, World.of(sids, CODEBOOKS))
    places = (1, *WIDTHS[:-1])

    def numbers(*shape: int) -> Any:
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    def model() -> list[dict[str, Any]]:
        return [
            {"hidden": numbers(2, m, HIDDEN), "head": numbers(size, HIDDEN) / 4}
            if hidden
            else {"logits": numbers(2, m, size)}
            for m, size in zip(places, CODEBOOKS, strict=True)
        ]

    def on_device(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: value.to(subject.device) for name, value in one.items()} for one in said]

    static = on_device(model())
    first = trial.begin(2)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # kernels are compiled and memory is taken before the capture
            decode(trial, first, static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = decode(trial, first, static)
    for turn in range(3):
        fresh = model()
        for mine, given in zip(static, fresh, strict=True):
            for name, value in given.items():
                mine[name].copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        replayed = trial.host(captured)
        eager = trial.host(decode(trial, first, on_device(fresh)))
        # Not bit for bit: a library may multiply in another way while it is captured.
        for name in ("tokens", "rows", "parents", "finished", "count"):
            assert getattr(replayed, name).tolist() == getattr(eager, name).tolist(), (name, turn)
        tolerance = len(WIDTHS) * subject.capabilities.tolerance["float32"]
        size = np.maximum(1, np.abs(eager.scores))
        assert (np.abs(replayed.scores - eager.scores) <= tolerance * size).all(), turn


class Fixed:
    """A scorer of fixed places in memory, as a captured search needs it."""

    def __init__(
        self, subject: Subject, batch: int, hidden: bool, levels: int = len(WIDTHS)
    ) -> None:
        self.rng = np.random.default_rng(1)
        self.subject = subject
        places = (1, *WIDTHS[-levels:-1])
        sizes = CODEBOOKS[-levels:]
        self.hidden = hidden
        self.shapes = [
            [(batch, m, HIDDEN), (size, HIDDEN)] if hidden else [(batch, m, size)]
            for m, size in zip(places, sizes, strict=True)
        ]
        self.held = [[subject.put(self._values(shape)) for shape in one] for one in self.shapes]
        self.asked = 0

    def _values(self, shape: tuple[int, ...]) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32) / len(shape)

    def change(self) -> None:
        for one in self.held:
            for array in one:
                array[...] = self.subject.put(self._values(tuple(array.shape)))

    def score(self, step: int, beams: Beams) -> Any:
        self.asked += 1
        said = self.held[step - 1 - (len(CODEBOOKS) - len(self.held))]
        return tuple(said) if self.hidden else said[0]


def random_world(attributes: bool = False) -> World:
    rng = np.random.default_rng(2)
    sids = sorted({tuple(int(rng.integers(0, size)) for size in CODEBOOKS) for _ in range(900)})
    if not attributes:
        return World.of(sids, CODEBOOKS)
    rules = [
        {"country": {"accepts": ["DE", "FR"][: 1 + n % 2]}, "place": {"accepts": [f"p{n % 40}"]}}
        if n % 3
        else {}
        for n in range(len(sids))
    ]
    declared: list[dict[str, Any]] = [
        {"name": "country", "values": ["DE", "FR"]},
        {"name": "place", "bloom": 128},
    ]
    return World.of(
        sids, CODEBOOKS, items=[f"i{n}" for n in range(len(sids))], attributes=declared, rules=rules
    )


@pytest.mark.parametrize("hidden", [False, True])
def test_a_search_as_a_graph_is_the_same_bit_for_bit(subject: Subject, hidden: bool) -> None:
    trial = Trial(subject, random_world())
    model = Fixed(subject, 2, hidden)
    held = []
    for turn in range(4):
        expected = trial.host(trial.engine.search(model.score, list(WIDTHS), 2))
        asked = model.asked
        found = trial.engine.search(model.score, list(WIDTHS), 2, graph=True)
        assert turn == 0 or model.asked == asked, "the scorer was asked again"
        held.append((found, expected))
        model.change()
    # Compared last: no replay may change what an earlier one returned.
    for turn, (found, expected) in enumerate(held):
        compare.check_same_bits(trial.host(found), expected, f"turn {turn}")


def test_a_graph_takes_each_searchs_own_prefix(subject: Subject) -> None:
    trial = Trial(subject, random_world())
    model = Fixed(subject, 3, hidden=True, levels=2)
    for turn in range(3):
        prefix = [[turn], [7 - turn], [turn * 2]]
        expected = trial.host(trial.engine.search(model.score, [16, 9], prefix=prefix))
        found = trial.engine.search(model.score, [16, 9], prefix=prefix, graph=True)
        compare.check_same_bits(trial.host(found), expected, f"prefixes {prefix}")
        model.change()


@pytest.mark.needs("targeting: bits", "targeting: bloom", "targeting: allow", "targeting: exclude")
def test_a_graph_takes_each_searchs_own_targeting(subject: Subject) -> None:
    trial = Trial(subject, random_world(attributes=True))
    model = Fixed(subject, 3, hidden=False)
    for turn in range(3):
        requests = [
            {"country": ["DE", "FR"][turn % 2], "place": [f"p{n}" for n in range(turn, turn + 12)]},
            {"place": f"p{turn}", "exclude": [f"i{n}" for n in range(0, 200, turn + 2)]},
            {"country": "FR", "allow": [f"i{n}" for n in range(turn, 500, 7)]} if turn else None,
        ]
        beams = trial.engine.search(model.score, list(WIDTHS), requests=requests)
        found = trial.engine.search(model.score, list(WIDTHS), requests=requests, graph=True)
        compare.check_same_bits(trial.host(found), trial.host(beams), f"turn {turn}")
        assert trial.engine.results(found, 5) == trial.engine.results(beams, 5)
        model.change()


def test_a_scorer_that_waits_for_the_device_is_refused(subject: Subject) -> None:
    trial = Trial(subject, random_world())
    model = Fixed(subject, 2, hidden=True)

    def reads(step: int, beams: Beams) -> Any:
        assert np.array(subject.backend.to_host(beams.count)).sum() >= 0
        return model.score(step, beams)

    with pytest.raises(BackendError, match=r"cannot be captured in a CUDA graph.*\.$"):
        trial.engine.search(reads, list(WIDTHS), 2, graph=True)
    expected = trial.host(trial.engine.search(reads, list(WIDTHS), 2))
    found = trial.engine.search(model.score, list(WIDTHS), 2, graph=True)
    compare.check_same_bits(trial.host(found), expected, "the search after a refused capture")


def test_a_graph_is_refused_inside_a_capture_and_its_steps_are_not(subject: Subject) -> None:
    torch = pytest.importorskip("torch", reason="the suite captures graphs through torch")
    trial = Trial(subject, random_world())
    model = Fixed(subject, 2, hidden=True)
    expected = trial.host(trial.engine.search(model.score, list(WIDTHS), 2, graph=True))
    first = trial.begin(2)
    said: list[dict[str, Any]] = [{"hidden": hidden, "head": head} for hidden, head in model.held]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        decode(trial, first, said)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(BackendError, match="part of another capture"):
            trial.engine.search(model.score, list(WIDTHS), 2, graph=True)
        captured = decode(trial, first, said)
    graph.replay()
    torch.cuda.synchronize()
    compare.check_same_bits(trial.host(captured), expected, "the caller's own capture")
