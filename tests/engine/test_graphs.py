"""Searches in graphs, as far as the host goes: what is captured anew, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.errors import BackendError, InputError
from beamsieve.graphs import KEPT, filled_up
from beamsieve.index import Index
from beamsieve.interface import Captured
from beamsieve.targeting import Attribute
from beamsieve_backends.reference import ReferenceBackend

SIDS = [[a, b] for a in range(4) for b in range(a, 5)]
WIDTHS = [3, 6]


class Recorded(Captured):
    """A "graph" that remembers what the scorer said, as a real one remembers kernels."""

    def __init__(self, backend, search, root, loop):
        self.backend = backend
        self.shapes = shapes(search)
        loop(backend.begin(search, *root))
        backend.captures += 1
        self.loop = loop

    def replay(self, search, tokens, rows, finished):
        assert shapes(search) == self.shapes
        return self.loop(self.backend.begin(search, tokens, rows, finished))


def shapes(search):
    if search.requests is None:
        return None
    return [signed.shape for signed in search.requests.bloom], search.requests.leaves.shape


class Capturing(ReferenceBackend):
    captures = 0

    @property
    def capabilities(self):
        return replace(super().capabilities, graph=True)

    def capture(self, search, tokens, rows, finished, loop):
        return Recorded(self, search, (tokens, rows, finished), loop)


def an_index(sids=SIDS):
    names = [f"i{n}" for n in range(len(sids))]
    attributes = [Attribute("country", values=["DE", "FR"]), Attribute("place", bloom=64)]
    rules = [{"country": {"accepts": ["DE"]}} if n % 3 == 0 else {} for n in range(len(sids))]
    return Index.build(
        Catalog.from_arrays(sids, items=names, codebooks=[5, 5], attributes=attributes, rules=rules)
    )


class Model:
    def score(self, step, beams):
        places = beams.scores.shape[1]
        values = np.sin(np.arange(beams.search.batch * places * 5) * step).astype(np.float32)
        return values.reshape(beams.search.batch, places, 5)


@pytest.fixture
def backend():
    return Capturing()


def same(a, b):
    for name in ("tokens", "scores", "rows", "parents", "count"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name


def test_a_second_search_of_one_shape_is_a_replay(backend):
    engine, model = Engine(an_index(), backend), Model()
    plain = engine.search(model.score, WIDTHS, batch=2)
    for _ in range(3):  # a bound method is a new object each time
        same(engine.search(model.score, WIDTHS, batch=2, graph=True), plain)
    assert backend.captures == 1


def test_other_shapes_and_other_scorers_are_captured_anew(backend):
    engine, model = Engine(an_index(), backend), Model()
    engine.search(model.score, WIDTHS, batch=2, graph=True)
    engine.search(model.score, WIDTHS, batch=3, graph=True)
    engine.search(model.score, [3, 5], batch=2, graph=True)
    engine.search(model.score, [6], prefix=[[1], [2]], graph=True)
    engine.search(Model().score, WIDTHS, batch=2, graph=True)
    assert backend.captures == 5
    engine.search(model.score, [6], prefix=[[3], [4]], graph=True)
    assert backend.captures == 5


def test_replays_take_each_searchs_prefix_and_targeting(backend):
    engine, model = Engine(an_index(), backend), Model()
    for prefix in ([[1], [2]], [[3], [0]], [[0], [4]]):
        plain = engine.search(model.score, [6], prefix=prefix)
        same(engine.search(model.score, [6], prefix=prefix, graph=True), plain)
    for requests in (
        [{"country": "DE", "place": ["a"], "exclude": ["i3"]}, None],
        [{"country": "FR", "place": ["b", "c", "d"], "exclude": ["i1", "i2"]}, {"place": "x"}],
    ):
        plain = engine.search(model.score, WIDTHS, requests=requests)
        found = engine.search(model.score, WIDTHS, requests=requests, graph=True)
        same(found, plain)
        assert engine.results(found, 3) == engine.results(plain, 3)
    assert backend.captures == 2
    engine.search(model.score, WIDTHS, requests=[{"country": "FR"}, None], graph=True)
    assert backend.captures == 3  # no exact sets: other kernels


def test_graphs_of_a_replaced_index_are_dropped(backend):
    engine, model = Engine(an_index(), backend), Model()
    engine.search(model.score, WIDTHS, batch=2, graph=True)
    engine.replace(an_index(SIDS[3:]))
    assert len(engine._graphs) == 0  # not only with the next search: they hold the old tables
    plain = engine.search(model.score, WIDTHS, batch=2)
    same(engine.search(model.score, WIDTHS, batch=2, graph=True), plain)
    assert backend.captures == 2
    assert len(engine._graphs) == 1


def test_another_plan_is_captured_anew(backend):
    engine, score = Engine(an_index(), backend), Model().score
    plan = engine.warm_up(batch=2, widths=WIDTHS, head=np.ones((5, 3), np.float32), repeats=1)
    for followed in (plan, replace(plan, batch=3), plan):
        engine.use_plan(followed)
        engine.search(score, WIDTHS, batch=2, graph=True)
    assert backend.captures == 2


def test_the_graph_used_longest_ago_makes_room(backend):
    engine, model = Engine(an_index(), backend), Model()
    for batch in range(1, KEPT + 2):
        engine.search(model.score, WIDTHS, batch=batch, graph=True)
    assert len(engine._graphs) == KEPT
    engine.search(model.score, WIDTHS, batch=KEPT, graph=True)
    assert backend.captures == KEPT + 1
    engine.search(model.score, WIDTHS, batch=1, graph=True)
    assert backend.captures == KEPT + 2


def test_a_backend_without_graphs_refuses_in_one_sentence():
    engine = Engine(an_index(), "reference")
    with pytest.raises(BackendError, match=r"^The backend 'reference' on cpu cannot capture .*\.$"):
        engine.search(Model().score, WIDTHS, batch=2, graph=True)


def test_a_backend_that_declares_graphs_but_has_none_refuses():
    class Idle(ReferenceBackend):
        @property
        def capabilities(self):
            return replace(super().capabilities, graph=True)

    with pytest.raises(BackendError, match="leave out graph=True"):
        Engine(an_index(), Idle()).search(Model().score, WIDTHS, batch=2, graph=True)


def test_a_wrong_score_is_refused_as_without_a_graph(backend):
    engine = Engine(an_index(), backend)
    with pytest.raises(InputError, match="logits has the shape"):
        engine.search(lambda step, beams: np.zeros((1, 1), np.float32), WIDTHS, 2, graph=True)
    assert backend.captures == 0


def test_filled_up_requests_ask_the_same():
    filters = an_index().encode_requests([{"place": ["a", "b", "c"], "allow": ["i1"]}, None], 2)
    more = filled_up(filters)
    assert more.bloom[0].shape[1] == 16
    assert len(more.leaves) == 16
    assert (more.bloom[0][:, :3] == filters.bloom[0]).all()
    assert (more.leaves[: len(filters.leaves)] == filters.leaves).all()
    assert more.leaf_starts is filters.leaf_starts
