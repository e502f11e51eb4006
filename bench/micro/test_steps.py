"""Micro-benchmarks of one step on the CPU, by pytest-benchmark; run by hand.

    pytest bench/micro --benchmark-group-by=group
    pytest bench/micro --benchmark-autosave && pytest bench/micro --benchmark-compare

They assert nothing about time. The catalog has 200 000 semantic IDs of 3 levels with 1024 tokens.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import beamsieve as bs
from beamsieve_bench.matrix_cells import Cell
from beamsieve_bench.matrix_contestants import draw_inputs
from beamsieve_bench.matrix_sources import Source, read_source
from beamsieve_bench.stage_search import Inputs

CELL = Cell("skewed:200000x1024x3", 4, 64, "float32")
STEPS = (1, 2, 3)


@pytest.fixture(scope="module")
def source() -> Source:
    return read_source(CELL.workload, None)


@pytest.fixture(scope="module")
def inputs(source: Source) -> Inputs:
    return draw_inputs(source, CELL, 64, torch.device("cpu"))


@pytest.fixture(scope="module")
def engine(source: Source) -> bs.Engine:
    return bs.Engine(source.index, "torch:cpu")


def before(engine: bs.Engine, inputs: Inputs, step: int) -> bs.Beams:
    """The beams that the step takes."""
    beams = engine.begin(CELL.batch)
    for number in range(step - 1):
        given = {"hidden": inputs.hidden[number], "head": inputs.heads[number]}
        beams = engine.step(beams, CELL.width, **given)
    return beams


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.benchmark(group="step")
def test_step(benchmark: Any, engine: bs.Engine, inputs: Inputs, step: int) -> None:
    beams = before(engine, inputs, step)
    given = {"hidden": inputs.hidden[step - 1], "head": inputs.heads[step - 1]}
    found = benchmark(engine.step, beams, CELL.width, **given)
    assert found.step == step


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.benchmark(group="filter: candidates of given logits")
def test_candidates(benchmark: Any, engine: bs.Engine, inputs: Inputs, step: int) -> None:
    beams = before(engine, inputs, step)
    logits = inputs.hidden[step - 1] @ inputs.heads[step - 1].T
    found = benchmark(engine.candidates, beams, logits=logits)
    assert (found.rows >= 0).any()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.benchmark(group="select: the best of all candidates")
def test_select(benchmark: Any, engine: bs.Engine, inputs: Inputs, step: int) -> None:
    beams = before(engine, inputs, step)
    given = {"hidden": inputs.hidden[step - 1], "head": inputs.heads[step - 1]}
    candidates = engine.candidates(beams, **given)
    found = benchmark(engine.select, beams, candidates, CELL.width)
    assert int(found.count.min()) == CELL.width


@pytest.mark.parametrize("share", [None, 1.0, 0.1, 0.01])
@pytest.mark.benchmark(group="begin: requests encoded")
def test_begin(benchmark: Any, engine: bs.Engine, source: Source, share: float | None) -> None:
    found = benchmark(engine.begin, CELL.batch, source.requests(share, CELL.batch))
    assert found.width == 1


@pytest.mark.benchmark(group="results")
def test_results(benchmark: Any, engine: bs.Engine, inputs: Inputs) -> None:
    beams = before(engine, inputs, len(STEPS) + 1)
    hits = benchmark(engine.results, beams, 10)
    assert all(len(each) == 10 for each in hits)
