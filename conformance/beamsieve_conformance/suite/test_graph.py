"""A whole search in one CUDA graph: captured once, replayed with other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beamsieve.interface import Beams
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
