"""Rows, matchers, requests and exact rules are the specification's, bit for bit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.interface import RequestFilters
from beamsieve.targeting import Attribute, StepMatchers
from beamsieve.targeting.bloom import canonical_form, signatures
from beamsieve_conformance.vectors import read
from beamsieve_spec.targeting_bits import asked, item_row
from beamsieve_spec.targeting_matchers import Targeting

from .worlds import World, as_int, requests, worlds

pytestmark = pytest.mark.filterwarnings("ignore::beamsieve.targeting.UnreachableItemWarning")


def part_rows(step: StepMatchers, entry: int) -> list[tuple[int, ...]]:
    """The rows of one entry, one per part, as integers."""
    parts = [entry]
    if step.part_starts is not None:
        parts = list(range(step.part_starts[entry], step.part_starts[entry + 1]))
    return [
        tuple(as_int(table.rows[table.index[part]]) for table in step.segments) for part in parts
    ]


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_item_rows(world: World) -> None:
    index = world.index()
    if index.item_rules is None:
        assert not world.declared
        return
    attributes = world.spec_attributes()
    segments = index.item_rules.segments()
    for number, item in enumerate(index.items):
        mine = tuple(as_int(table.rows[table.index[number]]) for table in segments)
        assert mine == item_row(attributes, world.rules[item])


partitions = st.one_of(
    st.just({}),
    st.builds(lambda parts: {"static": parts}, st.lists(st.integers(1, 4), min_size=4)),
    st.builds(
        lambda target, most: {"dynamic": (target, most)},
        st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
        st.integers(1, 5),
    ),
)


@settings(max_examples=120, deadline=None)
@given(worlds(), partitions)
def test_matchers(world: World, partition: dict[str, Any]) -> None:
    trie = world.trie()
    if "static" in partition:
        partition = {"static": partition["static"][: trie.length]}
    index = world.index(**partition)
    if index.matchers is None:
        assert not world.declared
        return
    expected = Targeting(trie, world.spec_attributes(), world.rules, **partition)
    assert len(index.matchers.steps) == index.length
    for step, level in zip(index.matchers.steps, trie.prefixes[1:], strict=True):
        for entry, prefix in enumerate(level):
            assert part_rows(step, entry) == expected.matchers[prefix]
        for table in step.segments:
            assert len(np.unique(table.rows, axis=0)) == len(table.rows)


@settings(max_examples=120, deadline=None)
@given(worlds(), st.data())
def test_requests_and_exact_rules(world: World, data: st.DataObject) -> None:
    batch = data.draw(st.lists(requests(world), min_size=1, max_size=4))
    index = world.index()
    filters = index.encode_requests(batch, len(batch))
    attributes = world.spec_attributes()
    expected = Targeting(world.trie(), attributes, world.rules)
    may_see = expected.eligible(batch)
    numbers = np.arange(len(index.items))
    for b, request in enumerate(batch):
        asks = asked(attributes, request)
        assert as_int(filters.bits[b]) == asks.bits
        for signed, counts, own in zip(
            filters.bloom, filters.bloom_count, asks.blooms, strict=True
        ):
            assert {as_int(words) for words in signed[b, : counts[b]]} == set(own)
        permitted = [expected.has_permitted(leaf, request) for leaf in range(index.leaf_count)]
        assert permitted_leaves(index, filters, b).tolist() == permitted
        eligible = [may_see(b, item) for item in index.items]
        assert index.eligible(request, numbers).tolist() == eligible


def permitted_leaves(index: Index, filters: RequestFilters, b: int) -> np.ndarray:
    listed = filters.leaves[filters.leaf_starts[b] : filters.leaf_starts[b + 1]]
    assert (np.diff(listed) > 0).all()
    found = np.full(index.leaf_count, filters.leaf_mode[b] != 1)
    if filters.leaf_mode[b]:
        found[listed] = filters.leaf_mode[b] == 1
    else:
        assert not len(listed)
    return found


def passes(index: Index, filters: RequestFilters, b: int, level: int, entry: int) -> bool:
    """The device's test of one entry, written out."""
    starts, ends = index.leaf_starts(level), index.leaf_ends(level)
    if not permitted_leaves(index, filters, b)[starts[entry] : ends[entry]].any():
        return False
    if index.matchers is None:
        return True
    bits = as_int(filters.bits[b])
    asks = [
        [as_int(words) for words in signed[b, : counts[b]]]
        for signed, counts in zip(filters.bloom, filters.bloom_count, strict=True)
    ]
    return any(
        row[0] & bits == bits
        and all(
            not own or any(segment & one == one for one in own)
            for segment, own in zip(row[1:], asks, strict=True)
        )
        for row in part_rows(index.matchers.steps[level - 1], entry)
    )


@settings(max_examples=120, deadline=None)
@given(worlds(), partitions, st.data())
def test_no_eligible_item_is_lost(
    world: World, partition: dict[str, Any], data: st.DataObject
) -> None:
    length = len(world.codebooks) + world.end_token
    if "static" in partition:
        partition = {"static": partition["static"][:length]}
    index = world.index(**partition)
    request = data.draw(requests(world))
    filters = index.encode_requests([request], 1)
    eligible = index.eligible(request, np.arange(len(index.items)))
    for leaf in range(index.leaf_count):
        _, items = index.items_of_leaves([leaf])
        if not eligible[items].any():
            continue
        for level in range(1, index.length + 1):
            starts, ends = index.leaf_starts(level), index.leaf_ends(level)
            covering = np.flatnonzero((starts[:-1] <= leaf) & (leaf < ends))
            assert len(covering) <= 1
            assert all(passes(index, filters, 0, level, int(entry)) for entry in covering)


@settings(max_examples=50, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter_to_the_matchers(world: World, random: Any) -> None:
    order = list(range(len(world.sids)))
    random.shuffle(order)
    one, other = Index.build(world.catalog()), Index.build(world.catalog(order))
    if one.matchers is None or other.matchers is None:
        return
    mine, theirs = one.matchers.arrays(), other.matchers.arrays()
    assert mine.keys() == theirs.keys()
    assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


@pytest.mark.parametrize("case", read("bloom"), ids=lambda case: repr(case["value"])[:20])
def test_golden_bloom_signatures(case: dict[str, Any]) -> None:
    form = canonical_form(case["value"])
    assert form.encode().hex() == case["form"]
    for width, bits in case["bits"].items():
        found = as_int(signatures([form], int(width))[0])
        assert [bit for bit in range(int(width)) if found >> bit & 1] == bits


@pytest.mark.parametrize("case", read("targeting"), ids=lambda case: case["about"])
def test_golden_targeting(case: dict[str, Any]) -> None:
    given_ = case["catalog"]
    catalog = Catalog.from_arrays(
        given_["sids"],
        given_["items"],
        given_["codebooks"],
        end_token=given_["end_token"],
        attributes=[Attribute(**one) for one in case["attributes"]],
        rules=case["rules"],
    )
    index = Index.build(catalog, **case["partition"])
    assert index.matchers is not None
    for matcher in case["matchers"]:
        place = index.row_of(matcher["prefix"])
        assert place is not None
        entry = place[0]
        found = [
            tuple(
                hexadecimal(row, table.words)
                for row, table in zip(rows, step.segments, strict=True)
            )
            for step in [index.matchers.steps[len(matcher["prefix"]) - 1]]
            for rows in part_rows(step, entry)
        ]
        expected = [tuple(segment for segment in row) for row in matcher["rows"]]
        assert [list(map(list, row)) for row in found] == [list(map(list, e)) for e in expected]
    batch = len(case["requests"])
    filters = index.encode_requests(case["requests"], batch)
    for b, expected_ in enumerate(case["asked"]):
        assert hexadecimal(as_int(filters.bits[b]), index.row_layout.bit_words) == expected_["bits"]
        for signed, counts, own in zip(
            filters.bloom, filters.bloom_count, expected_["blooms"], strict=True
        ):
            found_ = [[f"{word:016x}" for word in row] for row in signed[b, : counts[b]].tolist()]
            assert found_ == own
        leaves = np.flatnonzero(permitted_leaves(index, filters, b))
        assert leaves.tolist() == expected_["permitted_leaves"]
        for level in range(1, index.length + 1):
            table = index.tables[level - 1]
            for entry in range(table.entries):
                first = index.sid_of_leaf(index.leaf_starts(level)[entry])[:level].tolist()
                assert passes(index, filters, b, level, entry) == (first in expected_["prefixes"])
        numbers = np.flatnonzero(index.eligible(case["requests"][b], range(len(index.items))))
        assert sorted(index.items.list(numbers)) == sorted(expected_["items"])


def hexadecimal(segment: int, words: int) -> list[str]:
    return [f"{segment >> 64 * word & (2**64 - 1):016x}" for word in range(words)]


def test_attributes_may_be_left_without_rules() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        catalog = Catalog.from_arrays([[0], [1]], attributes=[Attribute("age", [18, 25])])
    index = Index.build(catalog)
    assert index.eligible({"age": 18}, [0, 1]).tolist() == [True, True]
    assert index.matchers is not None
    assert index.matchers.stats()[0]["fill"]["all"] == 1.0
