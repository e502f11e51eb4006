"""The law of targeting, on the index alone: every prefix of an eligible item passes its test.

The items' eligibility is decided row by row in ``market``, the test of a prefix is written out here
from the arrays that a device would read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.index import Index
from beamsieve.interface import RequestFilters

from .market import COUNTRIES, Market, markets, partitions, requests

pytestmark = pytest.mark.filterwarnings("ignore::beamsieve.targeting.UnreachableItemWarning")


def kept_entries(index: Index, filters: RequestFilters, b: int, step: int) -> np.ndarray:
    """bool [entries]: what request b may go on to in a table."""
    starts, ends = index.leaf_starts(step)[:-1], index.leaf_ends(step)
    permitted = np.full(index.leaf_count, filters.leaf_mode[b] != 1)
    listed = filters.leaves[filters.leaf_starts[b] : filters.leaf_starts[b + 1]]
    permitted[listed] = filters.leaf_mode[b] == 1
    before = np.concatenate([[0], np.cumsum(permitted)])
    kept: np.ndarray = before[ends] > before[starts]
    if index.matchers is None:
        return kept
    matcher = index.matchers.steps[step - 1]
    bits = matcher.bits.all_rows()
    passed = ((bits & filters.bits[b]) == filters.bits[b]).all(axis=1)
    for table, signatures, count in zip(
        matcher.blooms, filters.bloom, filters.bloom_count, strict=True
    ):
        rows, asked = table.all_rows()[:, None, :], signatures[b, : count[b]]
        if len(asked):
            passed &= ((rows & asked) == asked).all(axis=2).any(axis=1)
    if matcher.part_starts is None:
        return np.asarray(kept & passed)
    owner = np.repeat(np.arange(len(kept)), np.diff(matcher.part_starts))
    return np.asarray(kept & (np.bincount(owner[passed], minlength=len(kept)) > 0))


def entry_of(index: Index, prefix: tuple[int, ...]) -> int:
    """The entry of a prefix in its table: how many prefixes of its length come before it."""
    place = index.row_of(prefix)
    assert place is not None
    if not place[1]:
        return place[0]
    return int(np.searchsorted(index.leaf_starts(len(prefix))[:-1], place[0]))


def spelled(market: Market, index: Index, sid: tuple[int, ...]) -> tuple[int, ...]:
    """A semantic ID as the tables spell it."""
    return (*sid, index.codebooks[len(sid)] - 1) if market.end_token else sid


@settings(max_examples=150, deadline=None)
@given(markets(), st.data())
def test_every_prefix_of_an_eligible_item_is_kept(market: Market, data: st.DataObject) -> None:
    length = len(market.codebooks) + market.end_token
    index = market.index(**data.draw(partitions(length)))
    batch = data.draw(st.lists(requests(market), min_size=1, max_size=3))
    filters = index.encode_requests(batch, len(batch))
    for b, request in enumerate(batch):
        paths = {spelled(market, index, sid) for sid in market.paths(market.eligible(request))}
        for step in range(1, index.length + 1):
            kept = kept_entries(index, filters, b, step)
            for path in paths:
                if len(path) >= step:
                    assert kept[entry_of(index, path[:step])], (request, path[:step])


@settings(max_examples=60, deadline=None)
@given(markets(), st.data())
def test_exact_sets_alone_keep_nothing_else(market: Market, data: st.DataObject) -> None:
    """Without rules in the way, a prefix is kept exactly when a permitted item lies below."""
    free = Market(
        market.sids,
        market.items,
        market.codebooks,
        market.end_token,
        [],
        {item: {} for item in market.items},
    )
    index = free.index()
    request: dict[str, Any] = {
        "exclude": data.draw(st.lists(st.sampled_from(market.items), max_size=15)),
        "allow": data.draw(st.none() | st.lists(st.sampled_from(market.items), max_size=15)),
    }
    filters = index.encode_requests([request], 1)
    paths = {spelled(free, index, sid) for sid in free.paths(free.eligible(request))}
    for step in range(1, index.length + 1):
        expected = {entry_of(index, path[:step]) for path in paths if len(path) >= step}
        assert set(np.flatnonzero(kept_entries(index, filters, 0, step))) == expected


@settings(max_examples=60, deadline=None)
@given(markets(names=["country"]), st.data())
def test_one_value_of_one_bit_attribute_leaves_no_dead_end(
    market: Market, data: st.DataObject
) -> None:
    """A union of single bits is exact, so such a request never walks into an empty subtree."""
    index = market.index(**data.draw(partitions(len(market.codebooks) + market.end_token)))
    request = {"country": data.draw(st.sampled_from(COUNTRIES))}
    filters = index.encode_requests([request], 1)
    paths = {spelled(market, index, sid) for sid in market.paths(market.eligible(request))}
    for step in range(1, index.length + 1):
        expected = {entry_of(index, path[:step]) for path in paths if len(path) >= step}
        assert set(np.flatnonzero(kept_entries(index, filters, 0, step))) == expected


@settings(max_examples=80, deadline=None)
@given(markets(), st.data())
def test_exact_rules_are_the_brute_force(market: Market, data: st.DataObject) -> None:
    index = market.index()
    request = data.draw(requests(market))
    mine = index.eligible(request, np.arange(len(index.items)))
    found = {item for item, may in zip(index.items, mine.tolist(), strict=True) if may}
    assert found == market.eligible(request)
