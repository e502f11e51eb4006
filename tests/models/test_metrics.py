"""Recall and NDCG, worked by hand."""

import math

import pytest

from beamsieve.errors import InputError
from beamsieve.models.metrics import Metrics
from beamsieve.models.recommendation import Recommendation, RecommendedItem


def row(items, target, free=0, illegal=0) -> Recommendation:
    hits = tuple(RecommendedItem(item, (0,), -1.0) for item in items)
    return Recommendation(0, None, hits, target, "", free, illegal)


def test_recall_and_ndcg_of_one_target_each():
    metrics = Metrics((1, 2, 3))
    metrics.add(row(["a", "b", "c"], "b"))  # rank 2
    metrics.add(row(["a", "b", "c"], "c"))  # rank 3
    metrics.add(row(["a", "b"], "z"))  # a miss, also for an item the index does not have
    metrics.add(row([], "a"))
    found = metrics.result()
    assert found["rows"] == 4
    assert [found[f"recall_at_{k}"] for k in (1, 2, 3)] == [0, 0.25, 0.5]
    assert found["ndcg_at_1"] == 0
    assert found["ndcg_at_2"] == pytest.approx(1 / math.log2(3) / 4)
    assert found["ndcg_at_3"] == pytest.approx((1 / math.log2(3) + 0.5) / 4)


def test_rows_without_a_target_are_left_out():
    metrics = Metrics((1,))
    metrics.add(row(["a"], None))
    metrics.add(row(["a"], "a"))
    found = metrics.result()
    assert (found["rows"], found["rows_without_target"], found["recall_at_1"]) == (1, 1, 1.0)


def test_ids_of_another_kind_that_spell_the_same_match():
    metrics = Metrics((1,))
    metrics.add(row([42], "42"))
    assert metrics.result()["recall_at_1"] == 1


def test_popularity_is_measured_beside_the_model():
    metrics = Metrics((1, 2), popular=["p", "q", "p"])
    metrics.add(row(["a"], "q"))
    metrics.add(row(["p"], "p"))
    found = metrics.result()
    assert found["popularity_recall_at_1"] == 0.5
    assert found["popularity_recall_at_2"] == 1
    assert found["popularity_ndcg_at_2"] == pytest.approx((1 + 1 / math.log2(3)) / 2)


def test_illegal_share_of_free_beams():
    metrics = Metrics((1,))
    metrics.add(row(["a"], None, free=4, illegal=3))
    metrics.add(row(["a"], "a", free=4, illegal=0))
    assert metrics.result()["illegal_free_share"] == 3 / 8
    assert "illegal_free_share" not in Metrics((1,)).result()


def test_nothing_counted_is_no_number():
    assert math.isnan(Metrics((10,)).result()["recall_at_10"])


def test_cut_offs_below_one_are_refused():
    for ks in ((), (0, 5)):
        with pytest.raises(InputError, match="cut-offs"):
            Metrics(ks)
