"""Tiles opened by clusters against blocks that meet in device memory: the same bits in any case."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_cases import B, M, launches_of, make_case

from beamsieve.interface import Beams, Search, StepInputs
from beamsieve_backends.cupy_raw import pooled

FIELDS = ("count", "parents", "tokens", "rows", "finished", "scores", "keys")
WAYS = {
    "score_tiles, pool_tiles": ((16, 0), (8, 0), (4, 0)),
    "rank_tiles": ((16, 1 << 20), (8, 1 << 20), (4, 1 << 20)),
}
"""Kernels, and for each the blocks to a request and the logits up to which these score them."""


def begun(backend, table, rows, scores, count):
    """Beams of two requests, every ninth finished, ``count`` of the second one alive."""
    index: Any = SimpleNamespace(tables=(table,))
    search = Search(index, backend.load(index), B, None)
    first = backend.begin(
        search, np.empty((B, 0), np.int32), np.zeros(B, np.int64), np.zeros(B, bool)
    )
    finished = np.zeros((B, M), np.bool_)
    finished[:, ::9] = True
    return Beams(
        step=0,
        tokens=np.empty((B, M, 0), np.int32),
        scores=scores,
        keys=scores,
        rows=rows,
        parents=np.full((B, M), -1),
        finished=finished,
        count=np.array([M, count]),
        search=first.search,
    )


def outcome(backend, monkeypatch, before, inputs, blocks, scored):
    monkeypatch.setattr(pooled, "blocks_for", lambda batch: blocks)
    monkeypatch.setattr(pooled, "MOST_SCORED", scored)
    after = backend.step(before, inputs, "catalog")
    return {name: getattr(after, name).tobytes() for name in FIELDS}


@pytest.mark.parametrize(
    ("layout", "kind", "width"),
    [
        ("dense", "smooth", 40),
        ("dense", "equal", 96),
        ("sparse", "tied", 300),
        ("sparse", "smooth", 40),
    ],
)
def test_clusters_change_no_bit(backend, monkeypatch, layout, kind, width):
    table, _, rows, scores, logits = make_case(layout, kind)
    inputs = StepInputs(width, logits=logits)
    before = begun(backend, table, rows, scores, M - 5)
    expected = outcome(backend, monkeypatch, before, inputs, 0, 0)
    for kernels, ways in WAYS.items():
        for blocks, scored in ways:
            names = launches_of(backend, monkeypatch)
            found = outcome(backend, monkeypatch, before, inputs, blocks, scored)
            assert ", ".join(names) == kernels
            assert found == expected, (kernels, blocks)


@pytest.mark.parametrize("kernels", WAYS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_scores_that_do_not_descend_from_the_first_beam(backend, monkeypatch, layout, kernels):
    """Keys above all intervals, or below them: then the bound is found by the keys' extent."""
    table, _, rows, scores, logits = make_case(layout, "smooth")
    inputs = StepInputs(40, logits=logits)
    for others in (-100.0, 100.0):
        scores[:, 1:] += others
        before = begun(backend, table, rows, scores, 3)
        expected = outcome(backend, monkeypatch, before, inputs, 0, 0)
        for way in WAYS[kernels]:
            assert outcome(backend, monkeypatch, before, inputs, *way) == expected


def test_a_request_without_beams(backend, monkeypatch):
    table, _, rows, scores, logits = make_case("dense", "smooth")
    before = begun(backend, table, rows, scores, 0)
    for ways in WAYS.values():
        outcome(backend, monkeypatch, before, StepInputs(40, logits=logits), *ways[0])
        after = backend.step(before, StepInputs(40, logits=logits), "catalog")
        assert after.count.tolist() == [40, 0]
        assert (after.tokens[1] == -1).all()


def test_guided_steps_go_the_other_way(backend, monkeypatch):
    table, _, rows, scores, logits = make_case("sparse", "smooth")
    before = begun(backend, table, rows, scores, M)
    names = launches_of(backend, monkeypatch)
    backend.step(before, StepInputs(40, logits=logits, bonus=np.zeros_like(logits)), "catalog")
    assert names == ["score_tiles", "open_tiles"]


def test_how_many_blocks_and_what_they_do():
    device = SimpleNamespace(clusters=True)
    fields = {"beams": 128, "width": 128, "tiles": 8, "tile": 64}
    fields |= dict.fromkeys(("bias", "bonus", "nudge"), 0)
    assert [pooled.blocks_for(batch) for batch in (1, 7, 8, 15, 16, 61)] == [16, 16, 8, 8, 4, 0]
    assert [pooled.takes(device, fields, batch) for batch in (1, 60, 61)] == [True, True, False]
    assert [pooled.scores_too(fields, batch) for batch in (1, 15, 16)] == [True, True, False]
    many = {**fields, "tiles": 256}
    assert [pooled.takes(device, many, batch) for batch in (1, 15, 16)] == [True, False, False]
    assert not pooled.scores_too(many, 1)
    assert not pooled.takes(device, {**many, "beams": 512}, 1)
    assert not pooled.takes(SimpleNamespace(clusters=False), fields, 1)
