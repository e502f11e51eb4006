import numpy as np
import pytest
import torch
from walks import PartedError, Walk

from beamsieve_backends.triton_slots import step as planning

SHAPES = [(40, 3, 200, [8, 8, 8]), (70, 3, 300, [70, 33, 50]), (200, 2, 800, [50, 100])]
WAYS = {
    "as it is": {},
    "dense": {"layout": "dense"},
    "sparse": {"layout": "sparse"},
    "whole codebook": {"normalize": "all"},
    "eligible": {"normalize": "eligible", "layout": "sparse"},
    "several lengths": {"ragged": True},
    "several lengths, dense": {"ragged": True, "layout": "dense"},
}


def follow(walk, widths, batch=2, dtype=torch.float32, **how):
    walk.begin(batch)
    for done, width in enumerate(widths):
        try:
            walk.step(width, **walk.normal(width, dtype), **how)
        except PartedError:
            assert done > 0, "the first step has no near ties here"
            return


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_search_agrees(shape, way):
    *catalog, widths = shape
    follow(Walk(1, *catalog, **way), widths)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_lose_nothing(dtype):
    follow(Walk(2, 70, 3, 300), [70, 33, 50], dtype=dtype)


@pytest.mark.parametrize("projection", ["full", "selective"])
def test_both_projections_of_sparse_tables(projection):
    follow(Walk(3, 70, 3, 300, layout="sparse"), [70, 33, 50], projection=projection)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_guidance_counts_and_kills(layout):
    walk = Walk(4, 70, 2, 300, layout=layout)
    walk.begin(2)
    for width in (20, 30):
        shape = (*walk.beams.rows.shape, 70)
        bonus, nudge = (walk.draw.standard_normal(shape).astype(np.float32) for _ in range(2))
        bonus[walk.draw.random(shape) < 0.1] = -np.inf
        nudge[walk.draw.random(shape) < 0.1] = np.nan
        walk.step(width, **walk.normal(width), bonus=bonus, nudge=nudge)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_equal_logits_go_by_parent_and_token(layout):
    # Far more groups reach the threshold than are listed, so they are chosen in exact order.
    walk = Walk(5, 200, 2, 3000, layout=layout)
    walk.begin(2)
    for width in (8, 3):
        walk.step(width, logits=np.zeros((*walk.beams.rows.shape, 200), np.float32))


def test_one_beam_far_ahead_of_the_others():
    walk = Walk(6, 300, 2, 6000, layout="dense")
    walk.begin(1)
    first = np.zeros((1, 1, 300), np.float32)
    first[0, 0, 7] = 40
    walk.step(80, logits=first)
    logits = walk.draw.standard_normal((1, 80, 300)).astype(np.float32)
    walk.step(6, logits=logits)


def test_many_candidates_are_thinned_out(monkeypatch):
    monkeypatch.setattr(planning, "THIN_FROM", 0)
    thinned = []
    start = planning.launch
    monkeypatch.setattr(
        planning, "launch", lambda kernel, *a, **k: (thinned.append(kernel), start(kernel, *a, **k))
    )
    follow(Walk(7, 1000, 2, 2500, layout="sparse"), [40, 5])
    assert planning.thin_candidates in thinned


def test_accidents_in_logits_kill_their_own_token_alone():
    walk = Walk(8, 70, 2, 300)
    walk.begin(2)
    for width in (20, 30):
        logits = walk.draw.standard_normal((*walk.beams.rows.shape, 70)).astype(np.float32)
        for accident in (np.nan, np.inf, -np.inf):
            logits[walk.draw.random(logits.shape) < 0.05] = accident
        walk.step(width, logits=logits)


def test_beams_made_by_hand_may_share_a_row():
    from dataclasses import replace

    walk = Walk(9, 40, 2, 300, layout="sparse")
    walk.begin(1)
    walk.step(12, **walk.normal(12))
    same = torch.zeros_like(walk.beams.rows)
    beams = replace(walk.beams, rows=same)
    found = walk.engine.step(beams, 500, logits=np.zeros((1, 12, 40), np.float32))
    children = len(walk.trie.children(walk.trie.prefixes[1][0]))
    assert found.count.tolist() == [12 * children]
