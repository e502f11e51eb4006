"""Searches beside the specification, at the edges of the kernels' own blocks, tiles and lists.

../test_suite_interpreted.py runs the conformance suite on the same kernels.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import triton.language as tl

import beamsieve_spec as spec
from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.index import Index
from beamsieve_backends.triton_slots import TritonBackend, choose, full, revisit
from beamsieve_backends.triton_slots import step as planning
from beamsieve_backends.triton_slots.call import Call
from beamsieve_backends.triton_slots.tuning import TUNING

from .walks import WAYS, Walk, follow


@pytest.fixture
def other_ways(monkeypatch):
    """Step 1 as other steps go, which it does where it is guided, targeted or large."""
    monkeypatch.setattr(planning, "is_one_row", lambda call: False)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_search_agrees(way):
    follow(Walk(1, 40, 3, 200, **way), [8, 8, 8])


@pytest.mark.usefixtures("other_ways")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_kernels_of_large_steps_give_the_same(layout, monkeypatch):
    monkeypatch.setitem(TUNING["finish"], "direct", False)
    monkeypatch.setattr(full, "HELD", 64)
    monkeypatch.setattr(full, "KEYS_HELD", 128)
    follow(Walk(10, 70, 2, 400, layout=layout), [20, 40])


@pytest.mark.parametrize(
    ("guided", "vocabulary"), [(False, 150), (True, 150), (False, 40)],
    ids=["alone", "guided", "units of one size"],
)  # fmt: skip
def test_slots_beyond_one_program_are_chosen_by_units(guided, vocabulary, monkeypatch):
    monkeypatch.setitem(TUNING["survivors"], "chunks", (16,))
    walk = Walk(12, vocabulary, 2, 900, layout="sparse")
    walk.begin(2)
    walk.step(12, **walk.normal(12))
    given = walk.normal(12)
    if guided:
        shape = (*walk.beams.rows.shape, vocabulary)
        given |= {name: walk.draw.standard_normal(shape).astype(np.float32)
                  for name in ("bonus", "nudge")}  # fmt: skip
    walk.step(20, **given)


def test_equal_slots_beyond_one_program_go_by_parent_and_token(monkeypatch):
    monkeypatch.setitem(TUNING["survivors"], "chunks", (16,))
    walk = Walk(13, 100, 2, 900, layout="sparse")
    walk.begin(2)
    for width in (9, 4):
        walk.step(width, logits=np.zeros((*walk.beams.rows.shape, 100), np.float32))


@pytest.mark.parametrize(
    ("dtype", "chunk"),
    [(torch.float32, 16), (torch.bfloat16, 256)],
    ids=["chosen by units", "its units beside slots"],
)  # fmt: skip
def test_wide_rows_among_short_ones(dtype, chunk, monkeypatch):
    monkeypatch.setitem(TUNING["survivors"], "chunks", (chunk,))
    sids = [[token, token % 7] for token in range(12)]
    sids += [[3, token] for token in range(600)]
    # Below it one that is not the widest, and one with a few further units.
    sids += [[5, token] for token in range(500)] + [[8, token] for token in range(0, 600, 9)]
    trie = spec.Trie(sorted(set(map(tuple, sids))), codebooks=[12, 600])
    catalog = Catalog.from_arrays(np.unique(sids, axis=0), codebooks=[12, 600])
    walk = Walk(14, 12, 2, 5)
    walk.trie = trie
    walk.engine = Engine(Index.build(catalog, layout="sparse"), TritonBackend(), "catalog")
    walk.begin(3)
    walk.step(12, **walk.normal(12))
    walk.vocabulary = 600
    walk.step(30, **walk.normal(30, dtype))


def spread(monkeypatch, own):
    """Has many programs of a request choose, each of which ranks ``own`` candidates at once."""
    monkeypatch.setitem(TUNING["finish"], "direct", False)
    monkeypatch.setitem(TUNING["finish"], "interval", own)
    monkeypatch.setattr(Call, "own_share", lambda self, ranked, warps: own)


@pytest.mark.parametrize("width", [9, 100])
def test_programs_that_rank_an_interval_each(width, monkeypatch):
    spread(monkeypatch, 16)
    walk = Walk(17, 150, 2, 700, layout="sparse")
    walk.begin(2)
    walk.step(48, **walk.normal(48))
    nudge = walk.draw.standard_normal((*walk.beams.rows.shape, 150)).astype(np.float32)
    walk.step(width, **walk.normal(width), nudge=nudge)


@pytest.mark.parametrize("width", [9, 100])
def test_equal_keys_of_intervals_go_by_parent_and_token(width, monkeypatch):
    spread(monkeypatch, 16)
    walk = Walk(19, 150, 2, 700, layout="sparse")
    walk.begin(2)
    for each in (48, width):
        walk.step(each, logits=np.zeros((*walk.beams.rows.shape, 150), np.float32))


@pytest.mark.parametrize("ahead", [3.0, 5.0, 5.5, 30.0])
def test_units_of_a_wide_row_among_intervals(ahead, monkeypatch):
    # Of the sixty best, one is of that row, some are, half are, or all.
    spread(monkeypatch, 16)
    monkeypatch.setitem(TUNING["survivors"], "chunks", (512,))
    sids = [[token, token % 7] for token in range(100)] + [[3, token] for token in range(600)]
    catalog = Catalog.from_arrays(np.unique(sids, axis=0), codebooks=[100, 600])
    walk = Walk(18, 100, 2, 5)
    walk.trie = spec.Trie(sorted(set(map(tuple, sids))), codebooks=[100, 600])
    walk.engine = Engine(Index.build(catalog, layout="sparse"), TritonBackend(), "catalog")
    walk.begin(2)
    first = walk.draw.standard_normal((2, 1, 100)).astype(np.float32)
    first[:, :, 3] = ahead
    walk.step(60, logits=first)
    walk.vocabulary = 600
    walk.step(60, **walk.normal(60))


@pytest.mark.parametrize("first_too", [False, True])
@pytest.mark.parametrize("projection", ["full", "selective"])
def test_nothing_counts_of_what_memory_held_before(projection, first_too, monkeypatch, request):
    if first_too:
        request.getfixturevalue("other_ways")

    def used(self, *shape, dtype=torch.float32):
        return torch.full(shape, 7, dtype=dtype)

    monkeypatch.setattr(Call, "empty", used)
    follow(Walk(16, 150, 2, 500), [6, 6], batch=1, projection=projection)


def test_tiles_side_by_side_give_the_same(monkeypatch):
    monkeypatch.setattr(full, "MANY_BEAMS", 0)
    monkeypatch.setattr(full, "PROCESSORS", 1)
    follow(Walk(12, 150, 2, 2000), [66, 40], batch=1)


@pytest.mark.usefixtures("other_ways")
def test_several_programs_list_more_groups_than_are_kept(monkeypatch):
    # The best among equals are chosen in exact order, by the program that ends last. Its mark is
    # above all counts, though more groups than that pass.
    for module in (choose, revisit):
        monkeypatch.setattr(module, "ARRIVED", tl.constexpr(64))
    monkeypatch.setattr(full, "LIMIT", 1)
    monkeypatch.setattr(full, "HELD", 256)
    monkeypatch.setattr(full, "LISTING", 64)
    monkeypatch.setattr(full, "PROCESSORS", 2)
    walk = Walk(5, 200, 2, 3000)
    walk.begin(1)
    for width in (24, 20):
        walk.step(width, logits=np.zeros((*walk.beams.rows.shape, 200), np.float32))


@pytest.mark.usefixtures("other_ways")
@pytest.mark.parametrize(("projection", "layout"), [("full", "sparse"), ("selective", "dense")])
def test_a_projection_of_the_layout_that_it_is_not_made_for(projection, layout):
    follow(Walk(3, 300, 2, 600, layout=layout), [20, 30], projection=projection)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_equal_logits_go_by_parent_and_token(layout):
    # Far more groups reach the threshold than are listed, so they are chosen in exact order.
    walk = Walk(5, 200, 2, 3000, layout=layout)
    walk.begin(2)
    for width in (8, 3):
        walk.step(width, logits=np.zeros((*walk.beams.rows.shape, 200), np.float32))


@pytest.mark.usefixtures("other_ways")
def test_a_width_beyond_one_beams_tiles(monkeypatch):
    monkeypatch.setattr(full, "HELD", 64)
    walk = Walk(15, 700, 1, 650, layout="dense")
    walk.begin(2)
    walk.step(40, **walk.normal(40))


def test_one_beam_far_ahead_of_the_others():
    walk = Walk(6, 300, 2, 6000, layout="dense")
    walk.begin(1)
    first = np.zeros((1, 1, 300), np.float32)
    first[0, 0, 7] = 40
    walk.step(80, logits=first)
    logits = walk.draw.standard_normal((1, 80, 300)).astype(np.float32)
    walk.step(6, logits=logits)


def test_beams_made_by_hand_may_share_a_row():
    walk = Walk(9, 40, 2, 300, layout="sparse")
    walk.begin(1)
    walk.step(12, **walk.normal(12))
    same = torch.zeros_like(walk.beams.rows)
    beams = replace(walk.beams, rows=same)
    found = walk.engine.step(beams, 500, logits=np.zeros((1, 12, 40), np.float32))
    children = len(walk.trie.children(walk.trie.prefixes[1][0]))
    assert found.count.tolist() == [12 * children]
