"""The demo's world and its figures."""

import contextlib
import io
import json
import re

import numpy as np
import pytest

from beamsieve.demo import run_demo
from beamsieve.demo.world import QUICK, make_world


@pytest.fixture(scope="module")
def told():
    """The result of one run, and what it printed to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        result = run_demo(quick=True, seed=1)
    return result, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def demo(told):
    return told[0]


def test_the_result_is_plain_json(demo):
    assert json.loads(json.dumps(demo, allow_nan=False)) == demo
    assert {"legal_share", "overlap", "recall_at_10", "ms_per_request", "index_bytes"} <= set(demo)


def test_with_the_filter_every_beam_is_legal_and_without_it_many_are_not(demo):
    assert demo["legal_share"]["with_filter"] == 1.0
    assert 0.05 < demo["legal_share"]["without_filter"] < 0.95


def test_the_model_beats_popularity(demo):
    assert demo["recall_at_10"] > 2 * demo["popularity_recall_at_10"]
    assert 0 < demo["ndcg_at_10"] < demo["recall_at_10"]


def test_both_orders_agree_on_much_but_not_by_construction(demo):
    assert 0.3 < demo["overlap"] <= 1.0


def test_times_and_sizes_are_measured(demo):
    assert demo["ms_per_request"].keys() == {"filter_first", "score_first", "without_filter"}
    for name, stage in demo["stage_ms_per_request"].items():
        assert stage > 0
        assert demo["ms_per_request"][name] > 0
    assert 0 < demo["index_bytes"] < 100_000


def test_three_users_are_shown_with_readable_items(demo):
    assert len(demo["users"]) == 3
    for user in demo["users"]:
        assert len(user["recommended"]) == 10
        assert len(user["history"]) == QUICK.events - 1
        for name in [*user["history"], *(item["name"] for item in user["recommended"])]:
            assert re.fullmatch(r"[a-z]+ [a-z]+ [a-z ]+( \d+)?", name)
        scores = [item["score"] for item in user["recommended"]]
        assert scores == sorted(scores, reverse=True)


def test_the_report_says_what_the_result_says(told):
    result, out, err = told
    assert err == ""  # no progress bar where nobody watches
    for text in (
        f"{result['recall_at_10']:.4f}",
        f"{result['ndcg_at_10']:.4f}",
        f"{1 - result['legal_share']['without_filter']:.2%}",
        f"{result['ms_per_request']['score_first']:.3f}",
        result["users"][2]["recommended"][9]["name"],
    ):
        assert text in out
    assert re.search(r"illegal beams +0\.00%", out)


def test_a_seed_is_a_world():
    first, again, other = (make_world(QUICK, seed) for seed in (3, 3, 4))
    assert first.names == again.names
    assert np.array_equal(first.sids, again.sids)
    assert first.training.items.equals(again.training.items)
    assert not first.training.items.equals(other.training.items)


def test_a_world_is_as_large_as_asked_and_names_are_unique():
    world = make_world(QUICK, 0)
    assert len(world.names) == len(set(world.names)) == QUICK.items
    assert len(world.training) == QUICK.users
    assert len(world.held_out) == QUICK.held_out
    assert world.sids.min() >= 0
    assert world.sids.max() < QUICK.codebook
    # Most items have a semantic ID of their own.
    assert len(np.unique(world.sids, axis=0)) > 0.8 * QUICK.items
