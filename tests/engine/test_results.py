"""From beams to items: collisions, several paths to one item, fewer than asked for."""

from __future__ import annotations

import numpy as np
import pytest

import beamsieve as bs


def decoded(catalog, logits, widths, backend="torch:cpu", batch=1):
    """Search with the same logits at every beam of a level."""
    engine = bs.Engine(bs.Index.build(catalog), backend=backend)

    def score(step, beams):
        shape = (batch, beams.width, len(logits[step - 1]))
        return np.broadcast_to(np.array(logits[step - 1], np.float32), shape).copy()

    return engine, engine.search(score, widths=widths, batch=batch)


@pytest.mark.parametrize("backend", ["torch:cpu", "reference"])
def test_a_collision_expands_in_input_order_under_one_score(backend):
    catalog = bs.Catalog.from_arrays(
        np.array([[1], [0], [1], [1]]), items=["late", "other", "early", "last"], codebooks=(2,)
    )
    engine, beams = decoded(catalog, [[0.0, 1.0]], [2], backend)
    (hits,) = engine.results(beams, k=10)
    assert hits.items == ["late", "early", "last", "other"]
    assert hits[0].score == hits[1].score == hits[2].score > hits[3].score
    assert [hit.sid for hit in hits] == [(1,), (1,), (1,), (0,)]
    assert (hits.generated_sids, hits.generated_items, hits.removed_items) == (2, 4, 0)
    assert hits.reason == ""


def test_k_cuts_within_a_collision_and_may_exceed_what_exists():
    catalog = bs.Catalog.from_arrays(np.array([[0], [0], [0]]), items=[7, 8, 9], codebooks=(1,))
    engine, beams = decoded(catalog, [[0.0]], [1])
    assert engine.results(beams, k=2)[0].items == [7, 8]
    assert engine.results(beams, k=99)[0].items == [7, 8, 9]
    assert engine.results(beams, k=2)[0].generated_items == 3


def test_an_item_with_two_semantic_ids_counts_once_at_its_best_score():
    catalog = bs.Catalog.from_arrays(
        np.array([[0], [1], [2]]), items=["twice", "once", "twice"], codebooks=(3,)
    )
    engine, beams = decoded(catalog, [[0.0, 1.0, 2.0]], [3])
    (hits,) = engine.results(beams)
    assert hits.items == ["twice", "once"]
    assert hits[0].sid == (2,)
    assert hits.generated_sids == 3
    assert hits.generated_items == 2


def test_a_nudge_orders_the_beams_but_results_go_by_score(index):
    engine = bs.Engine(bs.Index.build(bs.Catalog.from_arrays(np.array([[0], [1]]))), "torch:cpu")
    beams = engine.step(
        engine.begin(1),
        2,
        logits=np.array([[[0.0, 1.0]]], np.float32),
        nudge=np.array([[[9.0, 0.0]]], np.float32),
    )
    assert beams.tokens[0, :, 0].tolist() == [0, 1]
    assert [hit.sid for hit in engine.results(beams)[0]] == [(1,), (0,)]


def test_equal_scores_keep_the_order_of_the_beams():
    catalog = bs.Catalog.from_arrays(np.array([[2], [0], [1]]), items=["c", "a", "b"])
    engine, beams = decoded(catalog, [[1.0, 1.0, 1.0]], [3])
    assert engine.results(beams)[0].items == ["a", "b", "c"]


def test_semantic_ids_are_shown_as_users_spell_them():
    rows = np.array([[0, -1], [0, 1], [1, 1]])
    catalog = bs.Catalog.from_arrays(rows, items=["short", "long", "else"], end_token=True)
    engine = bs.Engine(bs.Index.build(catalog), "torch:cpu")
    beams = engine.search(
        lambda step, beams: np.zeros(
            (1, beams.width, engine.index.codebooks[step - 1]), np.float32
        ),
        widths=[4, 4, 4],
        batch=1,
    )
    assert {hit.item: hit.sid for hit in engine.results(beams)[0]} == {
        "short": (0,),
        "long": (0, 1),
        "else": (1, 1),
    }


def test_a_request_without_result_says_why():
    catalog = bs.Catalog.from_arrays(np.array([[0], [1]]), codebooks=(3,))
    engine, beams = decoded(catalog, [[np.nan, -np.inf, 0.0]], [2])
    (hits,) = engine.results(beams)
    assert len(hits) == 0
    assert "no beam is left" in hits.reason
    unknown = engine.results(engine.begin(2, prefix=[[0], [2]]))
    assert unknown[0].items == [0]
    assert "prefix" in unknown[1].reason


def test_hits_are_a_sequence():
    catalog = bs.Catalog.from_arrays(np.array([[0], [1], [2]]))
    engine, beams = decoded(catalog, [[2.0, 1.0, 0.0]], [3])
    (hits,) = engine.results(beams)
    assert [hit.item for hit in hits] == hits.items == [0, 1, 2]
    assert [hit.item for hit in hits[1:]] == [1, 2]
    assert hits[-1] in hits


def test_many_beams_of_many_requests_against_a_plain_loop():
    draw = np.random.default_rng(5)
    sids = draw.integers(0, 12, (300, 2))
    items = draw.integers(0, 80, 300)  # many collisions, many items on several semantic IDs
    catalog = bs.Catalog.from_arrays(sids, items=items, codebooks=(12, 12))
    engine = bs.Engine(bs.Index.build(catalog), "torch:cpu")
    beams = engine.search(
        lambda step, beams: draw.integers(0, 3, (4, beams.width, 12)).astype(np.float32),
        widths=[12, 60],
        batch=4,
    )
    for b, hits in enumerate(engine.results(beams, k=25)):
        best: dict[object, tuple[tuple[int, ...], float]] = {}
        places = sorted(range(int(beams.count[b])), key=lambda m: -float(beams.scores[b, m]))
        for m in places:
            sid = tuple(beams.tokens[b, m].tolist())
            for item in engine.index.items_of(sid):
                best.setdefault(item, (sid, float(beams.scores[b, m])))
        assert [(hit.item, (hit.sid, hit.score)) for hit in hits] == list(best.items())[:25]
        assert hits.generated_items == len(best)
