"""The two ways through a step against NumPy, at sizes where buffers fill and tiles are many."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_cases import B, M, V, make_case

from beamsieve.index.build import make_table
from beamsieve.interface import Beams, Search, StepInputs
from beamsieve_backends.cupy_raw import tiles

pytestmark = pytest.mark.usefixtures("lists_stay")  # so that both layouts are tested


def expected(valid, rows, scores, logits, width):
    """(parent, token) of the best, per request, with float64 keys."""
    result = []
    for b in range(B):
        masked = np.where(valid[rows[b]], logits[b].astype(np.float64), -np.inf)
        keys = scores[b][:, None] + masked - np.log(np.exp(masked).sum(1, keepdims=True))
        order = np.argsort(-keys.ravel(), kind="stable")[:width]
        result.append((order // V, order % V, keys.ravel()[order]))
    return result


CASES = [
    *(("full", kind, width) for kind in ("smooth", "tied", "equal") for width in (40, 700)),
    *(("selective", "smooth", 40), ("selective", "equal", 700)),
]


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(("projection", "kind", "width"), CASES)
def test_step(backend, layout, kind, width, projection):
    table, valid, rows, scores, logits = make_case(layout, kind)
    index: Any = SimpleNamespace(tables=(table,))
    search = Search(index, backend.load(index), B, None)
    begun = backend.begin(
        search, np.empty((B, 0), np.int32), np.zeros(B, np.int64), np.zeros(B, bool)
    )
    beams = Beams(
        step=0,
        tokens=np.empty((B, M, 0), np.int32),
        scores=scores,
        keys=scores,
        rows=rows,
        parents=np.full((B, M), -1),
        finished=np.zeros((B, M), np.bool_),
        count=np.full(B, M),
        search=begun.search,
    )
    if projection == "full":
        inputs = StepInputs(width, logits=logits)
    else:  # the logits are the hidden states; the head picks them one by one
        inputs = StepInputs(
            width, hidden=logits, head=np.eye(V, dtype=np.float32), projection="selective"
        )
    after = backend.step(beams, inputs, "catalog")
    for b, (parents, tokens, keys) in enumerate(expected(valid, rows, scores, logits, width)):
        n = int(after.count[b])
        assert n == len(parents)
        np.testing.assert_allclose(after.keys[b, :n], keys, rtol=0, atol=3e-6)
        if kind == "equal":
            assert after.parents[b, :n].tolist() == parents.tolist()
            assert after.tokens[b, :n, 0].tolist() == tokens.tolist()
        chosen = set(
            zip(after.parents[b, :n].tolist(), after.tokens[b, :n, 0].tolist(), strict=True)
        )
        assert len(chosen) == n
        again = list(
            zip(-after.keys[b, :n], after.parents[b, :n], after.tokens[b, :n, 0], strict=True)
        )
        assert again == sorted(again)
        starts = table.plain_starts()
        ranks = np.cumsum(valid, axis=1) - 1
        for m, v, row in zip(
            after.parents[b, :n], after.tokens[b, :n, 0], after.rows[b, :n], strict=True
        ):
            assert valid[rows[b, m], v]
            assert row == starts[rows[b, m]] + ranks[rows[b, m], v]


@pytest.mark.parametrize("kind", ["smooth", "equal"])
def test_several_tiles_of_a_list_to_a_thread(backend, monkeypatch, kind):
    monkeypatch.setattr(tiles, "TILES_TO_OPEN", 1 << 20)  # 960 of a request, in one block
    test_step(backend, "sparse", kind, 40, "full")


def test_as_many_beams_as_there_may_be_fit_in_shared_memory(backend):
    rows, places = 5000, 4096
    table = make_table(
        1,
        64,
        np.arange(rows + 1, dtype=np.int32),
        (np.arange(rows) % 64).astype(np.uint8),
        "sparse",
    )
    index: Any = SimpleNamespace(tables=(table,))
    search = Search(index, backend.load(index), 1, None)
    begun = backend.begin(
        search, np.empty((1, 0), np.int32), np.zeros(1, np.int64), np.zeros(1, bool)
    )
    scores = -np.sort(np.random.default_rng(0).random((1, places)).astype(np.float32), axis=1)
    beams = Beams(
        step=0,
        tokens=np.empty((1, places, 0), np.int32),
        scores=scores,
        keys=scores,
        rows=np.arange(places)[None].copy(),
        parents=np.full((1, places), -1),
        finished=np.zeros((1, places), np.bool_),
        count=np.array([places]),
        search=begun.search,
    )
    hidden, head = np.zeros((1, places, 8), np.float32), np.zeros((64, 8), np.float32)
    inputs = StepInputs(places, hidden=hidden, head=head, projection="selective")
    after = backend.step(beams, inputs, "catalog")
    assert after.count.tolist() == [places]
    assert after.parents[0].tolist() == list(range(places))
