"""Whole searches with targeting, against the brute force of ``market``.

The widths are as large as the catalog, so nothing can be lost but by targeting; the scores are
random, so nothing hangs on their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve import Engine, Index
from beamsieve.interface import Beams

from .market import COUNTRIES, Market, markets, partitions, requests

pytestmark = pytest.mark.filterwarnings("ignore::beamsieve.targeting.UnreachableItemWarning")
BACKENDS = ["torch:cpu", "reference"]


def decode(engine: Engine, beams: Beams, width: int, seed: int = 0) -> Iterator[Beams]:
    """The beams of every level, with random logits that do not depend on the requests."""
    draw = np.random.default_rng(seed)
    table = [draw.normal(size=size).astype(np.float32) for size in engine.index.codebooks]
    while beams.step < engine.index.length:
        logits = table[beams.step] + np.zeros((beams.search.batch, beams.width, 1), np.float32)
        beams = engine.step(beams, width, logits=logits)
        yield beams


def prefixes(beams: Beams, b: int) -> set[tuple[int, ...]]:
    """The prefixes that a request's beams spell."""
    rows = np.asarray(beams.tokens)[b, : int(beams.count[b])].tolist()
    return {tuple(token for token in row if token >= 0) for row in rows}


def targeted(market: Market, data: st.DataObject) -> tuple[Index, list[Any]]:
    """An index of any partition, and a mixed batch."""
    index = market.index(**data.draw(partitions(len(market.codebooks) + market.end_token)))
    return index, data.draw(st.lists(requests(market), min_size=1, max_size=4))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=70, deadline=None)
@given(markets(), st.data())
def test_full_width_gives_exactly_the_eligible_items(
    backend: str, market: Market, data: st.DataObject
) -> None:
    index, batch = targeted(market, data)
    engine = Engine(index, backend)
    steps = list(decode(engine, engine.begin(len(batch), requests=batch), index.leaf_count))
    for beams in steps:
        for b, request in enumerate(batch):
            reached = prefixes(beams, b)
            for sid in market.paths(market.eligible(request)):
                end = (index.codebooks[len(sid)] - 1,) if market.end_token else ()
                assert (sid + end)[: beams.step] in reached, (request, sid)
    hits = engine.results(steps[-1], k=len(market.items))
    for request, found in zip(batch, hits, strict=True):
        assert sorted(map(str, found.items)) == sorted(map(str, market.eligible(request)))
        assert found.generated_items - found.removed_items == len(found)
        assert bool(found.reason) == (len(found) == 0)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(markets(), st.integers(1, 4), st.data())
def test_narrow_beams_return_eligible_items_only(
    backend: str, market: Market, width: int, data: st.DataObject
) -> None:
    index, batch = targeted(market, data)
    engine = Engine(index, backend)
    *_, beams = decode(engine, engine.begin(len(batch), requests=batch), width)
    for request, found in zip(batch, engine.results(beams, k=50), strict=True):
        assert set(found.items) <= market.eligible(request)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(markets(), st.data())
def test_a_prefix_and_targeting_give_the_eligible_items_below_it(
    backend: str, market: Market, data: st.DataObject
) -> None:
    index, batch = targeted(market, data)
    longest = min(map(len, market.sids)) - 1
    depth = data.draw(st.integers(0, longest))
    given_ = [data.draw(st.sampled_from(market.sids))[:depth] for _ in batch]
    engine = Engine(index, backend)
    beams = engine.begin(len(batch), requests=batch, prefix=[list(one) for one in given_])
    *_, beams = decode(engine, beams, index.leaf_count)
    for b, found in enumerate(engine.results(beams, k=50)):
        expected = {
            item
            for sid, item in zip(market.sids, market.items, strict=True)
            if sid[:depth] == given_[b]
        }
        assert set(found.items) == expected & market.eligible(batch[b])


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(markets(names=["country"]), st.data())
def test_no_beam_walks_into_a_dead_end_that_can_be_told(
    backend: str, market: Market, data: st.DataObject
) -> None:
    """Exact sets alone, or one value of one bit attribute, leave live prefixes only."""
    if data.draw(st.booleans()):
        request: dict[str, Any] = {"country": data.draw(st.sampled_from(COUNTRIES))}
    else:
        market = replace(market, rules={item: {} for item in market.items})
        listed = st.lists(st.sampled_from(market.items), max_size=15)
        request = {"exclude": data.draw(listed), "allow": data.draw(st.none() | listed)}
    index = market.index(**data.draw(partitions(len(market.codebooks) + market.end_token)))
    engine = Engine(index, backend)
    paths = {
        (*sid, index.codebooks[len(sid)] - 1) if market.end_token else sid
        for sid in market.paths(market.eligible(request))
    }
    for beams in decode(engine, engine.begin(1, requests=[request]), index.leaf_count):
        assert prefixes(beams, 0) == {path[: beams.step] for path in paths}


def scores_by_leaf(beams: Beams, b: int) -> dict[int, float]:
    """The score of every semantic ID that a request's search ended with."""
    count = int(beams.count[b])
    leaves = np.asarray(beams.rows)[b, :count].tolist()
    return dict(zip(leaves, np.asarray(beams.scores)[b, :count].tolist(), strict=True))


@settings(max_examples=40, deadline=None)
@given(markets(), st.data())
def test_targeting_touches_scores_only_where_asked_to(market: Market, data: st.DataObject) -> None:
    """Normalised over the catalog, an item keeps the score that it has without targeting; over the
    eligible tokens it gains what the others lose.
    """
    index, batch = targeted(market, data)
    over_catalog, over_eligible = (
        Engine(index, "torch:cpu", normalize) for normalize in ("catalog", "eligible")
    )
    ends = [
        list(decode(engine, engine.begin(len(batch), requests=asked), index.leaf_count))[-1]
        for engine, asked in ((over_catalog, None), (over_catalog, batch), (over_eligible, batch))
    ]
    for b in range(len(batch)):
        free, same, raised = (scores_by_leaf(beams, b) for beams in ends)
        assert same.keys() == raised.keys() <= free.keys()
        for leaf, score in same.items():
            assert score == pytest.approx(free[leaf], abs=1e-5)
            assert raised[leaf] >= score - 1e-5
        assert sum(np.exp(list(raised.values()))) <= 1 + 1e-5
