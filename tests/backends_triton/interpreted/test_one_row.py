"""Step 1, whose table has one row, beside the specification."""

import numpy as np
import pytest
import torch

import beamsieve_spec as spec
from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.index import Index
from beamsieve_backends.triton_slots import TritonBackend
from beamsieve_backends.triton_slots import step as planning
from beamsieve_backends.triton_slots.one_row import one_row as way
from beamsieve_backends.triton_slots.tuning import TUNING

from .walks import WAYS, Walk, follow

CHOICES = {"each against all": 1 << 40, "by a bound": 0}


@pytest.fixture(params=list(CHOICES.values()), ids=list(CHOICES))
def pairs(request, monkeypatch):
    """Either way of choosing, whatever the sizes."""
    monkeypatch.setitem(TUNING["one_row"], "pairs", request.param)


@pytest.fixture
def taken(monkeypatch):
    """The steps that went this way."""
    steps = []

    def one_row(call):
        steps.append(call.t)
        return way(call)

    monkeypatch.setattr(planning, "one_row", one_row)
    return steps


def zeros(walk):
    return np.zeros((*walk.beams.rows.shape, walk.vocabulary), np.float32)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_first_step_agrees(way, pairs, taken):
    length = 2 if way.get("ragged") else 1
    follow(Walk(1, 40, length, 200, **way), [8])
    assert taken == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("layout", "batch"), [("dense", 1), ("sparse", 9)])
def test_rows_with_holes_in_every_dtype(dtype, layout, batch, pairs, taken):
    walk = Walk(3, 700, 1, 600, layout=layout)
    walk.begin(batch)
    walk.step(50, **walk.normal(50, dtype))
    assert taken == [1]


@pytest.mark.parametrize("width", [1, 300, 900])
def test_widths_up_to_more_than_there_are_tokens(width, pairs):
    walk = Walk(3, 700, 1, 600, layout="dense")
    walk.begin(1)
    walk.step(width, **walk.normal(width))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_equal_logits_go_by_token(layout, pairs):
    walk = Walk(5, 600, 1, 3000, layout=layout)
    walk.begin(2)
    walk.step(70, logits=zeros(walk))


@pytest.mark.parametrize("width", [20, 40])
def test_some_equal_logits_among_others(width, pairs):
    # Three values, of which the second reaches from before the last place to behind it.
    walk = Walk(5, 600, 1, 3000, layout="dense")
    walk.begin(2)
    logits = zeros(walk)
    logits[:, :, ::25] = 1
    logits[:, :, ::60] = 2
    walk.step(width, logits=logits)


@pytest.mark.parametrize("living", [0, 3, 130])
def test_logits_that_are_no_number_die(living, pairs):
    walk = Walk(5, 600, 1, 3000, layout="dense")
    walk.begin(2)
    logits = walk.draw.standard_normal((2, 1, 600)).astype(np.float32)
    dead = walk.draw.permutation(600)[living:]
    logits[:, :, dead] = walk.draw.choice([np.nan, np.inf, -np.inf], len(dead))
    walk.step(100, logits=logits)


def test_the_best_in_one_column_of_a_block(pairs):
    # All that count would share one column's largest, which stands for them in the bound.
    walk = Walk(7, 1500, 1, 20000, layout="dense")
    walk.begin(1)
    logits = walk.draw.standard_normal((1, 1, 1500)).astype(np.float32)
    logits[:, :, 5::512] += 30
    walk.step(200, logits=logits)


def test_finished_beams_and_those_that_are_none_go_on_as_they_are(pairs, taken):
    # One item is complete before the last table, which has one row.
    sids = [(0, -1, -1), (1, 2, 3), (1, 2, 4), (1, 2, 9)]
    walk = Walk(14, 12, 2, 5)
    catalog = Catalog.from_arrays(sids, codebooks=[12] * 3)
    walk.trie = spec.Trie([tuple(t for t in sid if t >= 0) for sid in sids], codebooks=[12] * 3)
    walk.engine = Engine(Index.build(catalog), TritonBackend(), "catalog")
    for first in ((0,), (1,), (7,)):
        walk.expected = spec.begin(walk.trie, batch=2, prefixes=[first, (1,)])
        walk.beams = walk.engine.begin(2, prefix=[list(first), [1]])
        for width in (1, 5):
            walk.step(width, **walk.normal(width))
    assert taken == [3] * 3


def test_a_bias_is_added():
    walk = Walk(8, 90, 1, 60, layout="sparse")
    given = {"hidden": torch.zeros(3, 1, 24), "head": torch.zeros(90, 24)}
    bias = torch.from_numpy(walk.draw.standard_normal(90)).float()
    found = walk.engine.step(walk.engine.begin(3), 10, bias=bias, **given)
    again = walk.engine.step(walk.engine.begin(3), 10, logits=bias.expand(3, 1, 90))
    assert found.count.tolist() == [10] * 3
    for name in ("tokens", "scores", "rows"):
        assert torch.equal(getattr(found, name), getattr(again, name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_request_has_the_same_bits_alone_and_among_others(dtype):
    walk = Walk(9, 300, 1, 900)
    walk.begin(11)
    given = walk.normal(40, dtype)
    whole = walk.engine.step(walk.beams, 40, **given)
    for b in (0, 10):
        own = walk.engine.step(
            walk.engine.begin(1), 40, hidden=given["hidden"][b : b + 1], head=given["head"]
        )
        for name in ("tokens", "scores", "rows"):
            assert torch.equal(getattr(own, name)[0], getattr(whole, name)[b])


@pytest.mark.parametrize("way", ["bonus", "nudge", "all"])
def test_what_is_left_to_the_other_ways(way, taken):
    walk = Walk(3, 700, 1, 600, layout="dense", normalize="all" if way == "all" else "catalog")
    walk.begin(1)
    more = {} if way == "all" else {way: walk.draw.standard_normal((1, 1, 700)).astype(np.float32)}
    walk.step(9, **walk.normal(9), **more)
    assert not taken
