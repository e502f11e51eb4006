"""A step in one launch against the other launches: several blocks, ties, full regions."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_cases import launches_of

from beamsieve.index.build import make_table
from beamsieve.interface import Beams, Search, StepInputs
from beamsieve_backends.cupy_raw import fused

pytestmark = pytest.mark.usefixtures("lists_stay")  # so that both layouts are tested

V, ROWS = 300, 60


@pytest.fixture(autouse=True)
def no_tile_products(backend, monkeypatch):
    """Else these would take the larger cases."""
    monkeypatch.setattr(backend._device, "tile_products", "never")


def make_case(layout, kind, beams, density, size):
    """A last table of random rows, and beams, states and a head for it."""
    rng = np.random.default_rng(0)
    valid = rng.random((ROWS, V)) < density * rng.random((ROWS, 1))
    valid[:, 0] |= ~valid.any(axis=1)
    row, token = np.nonzero(valid)
    starts = np.searchsorted(row, np.arange(ROWS + 1)).astype(np.int32)
    table = make_table(1, V, starts, token.astype(np.uint16), layout)
    rows = rng.permutation(ROWS)[None, :beams]
    scores = np.sort(-4 * rng.random((1, beams)).astype(np.float32), axis=1)[:, ::-1].copy()
    hidden = rng.standard_normal((1, beams, size)).astype(np.float16)
    head = (rng.standard_normal((V, size)) / 4).astype(np.float16)
    if kind == "equal":
        hidden[:] = 0
        scores[:] = -1
    return table, rows, scores, hidden, head


def begun(backend, table, rows, scores, finished):
    index: Any = SimpleNamespace(tables=(table,))
    search = Search(index, backend.load(index), 1, None)
    first = backend.begin(
        search, np.empty((1, 0), np.int32), np.zeros(1, np.int64), np.zeros(1, bool)
    )
    beams = rows.shape[1]
    return Beams(
        step=0,
        tokens=np.empty((1, beams, 0), np.int32),
        scores=scores,
        keys=scores,
        rows=rows,
        parents=np.full((1, beams), -1),
        finished=np.arange(beams)[None] % 7 == finished,
        count=np.array([max(1, beams - 2)]),
        search=first.search,
    )


CASES = [
    ("sparse", "smooth", 40, 0.05, 30, 16, 16),
    ("dense", "equal", 60, 1.0, 40, 8, 8),  # more candidates than a region holds, long rows
    ("sparse", "smooth", 9, 1.0, 600, 12, 8),  # fewer candidates in all than places
]


@pytest.mark.parametrize(("layout", "kind", "beams", "density", "width", "size", "blocks"), CASES)
def test_one_launch_chooses_what_the_others_do(
    backend, monkeypatch, layout, kind, beams, density, width, size, blocks
):
    monkeypatch.setattr(fused, "blocks_for", lambda batch: blocks)
    table, rows, scores, hidden, head = make_case(layout, kind, beams, density, size)
    before = begun(backend, table, rows, scores, finished=3)
    names = launches_of(backend, monkeypatch)
    found, expected = (
        backend.step(before, StepInputs(width, hidden=hidden, head=head, projection=way), "catalog")
        for way in ("fused", "selective")
    )
    assert names == ["fused_rows", "score_rows"]
    for name in ("count", "parents", "tokens", "rows", "finished"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in ("scores", "keys"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=0, atol=5e-6, err_msg=name
        )


def test_a_step_that_it_does_not_take_goes_as_if_no_plan_spoke_of_it(backend, monkeypatch):
    table, rows, scores, hidden, head = make_case("sparse", "smooth", 40, 0.05, 16)
    before = begun(backend, table, rows, scores, finished=3)
    nudged = StepInputs(
        30,
        hidden=hidden,
        head=head,
        nudge=np.zeros((1, 40, V), np.float32),
        projection="fused",
    )
    plain = StepInputs(30, hidden=hidden, head=head)
    assert "fused" in backend.projections_for(before, plain, "catalog")
    assert "fused" not in backend.projections_for(before, plain, "all")
    assert "fused" not in backend.projections_for(before, nudged, "catalog")
    names = launches_of(backend, monkeypatch)
    backend.step(before, nudged, "catalog")
    assert names == ["score_rows"]
