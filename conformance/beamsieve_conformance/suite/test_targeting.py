"""Targeting by attributes: rules as bits, the union of a subtree, and Bloom filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beamsieve_conformance.subject import Subject
from beamsieve_conformance.targeted import (
    AGE,
    COUNTRY,
    PLACE,
    PLACES,
    Attribute,
    Request,
    accepts,
    check_all_found,
    items_of,
    refuses,
    search,
)
from beamsieve_conformance.trial import Trial, World

BITS = pytest.mark.needs("targeting: bits")
BLOOM = pytest.mark.needs("targeting: bloom")
ALLOW = pytest.mark.needs("targeting: allow")
EXCLUDE = pytest.mark.needs("targeting: exclude")


# Attributes with bits


@BITS
def test_every_value_of_a_bit_attribute_must_be_accepted(subject: Subject) -> None:
    rules = [accepts(country=["US"]), accepts(country=["US", "CA"]), accepts(country=["CA"]), {}]
    trial = Trial(subject, World.of([(0,), (1,), (2,), (3,)], attributes=[COUNTRY], rules=rules))
    requests: list[Request] = [
        {"country": "US"},
        {"country": ["US", "CA"]},
        {"country": ["US", "CA", "UK"]},
        {"country": "UK"},
    ]
    assert items_of(trial, search(trial, requests)) == [[0, 1, 3], [1, 3], [3], [3]]


@BITS
def test_what_is_not_known_satisfies_no_rule(subject: Subject) -> None:
    rules = [accepts(country=["US", "CA", "UK"]), {}, refuses(country=["UK"]), refuses(country=[])]
    trial = Trial(subject, World.of([(0,), (1,), (2,), (3,)], attributes=[COUNTRY], rules=rules))
    requests: list[Request] = [{}, {"country": None}, {"country": []}, {"country": "FR"}]
    assert items_of(trial, search(trial, requests)) == [[1, 3]] * 4


@BITS
def test_none_asks_for_no_targeting(subject: Subject) -> None:
    rules = [accepts(country=["US"]), accepts(country=[]), {}]
    world = World.of([(0,), (1,), (2,)], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world)
    requests: list[Request] = [None, {"country": "US"}, None]
    assert items_of(trial, search(trial, requests)) == [[0, 1, 2], [0, 2], [0, 1, 2]]


@BITS
def test_an_interval_is_a_set_of_values(subject: Subject) -> None:
    rules = [{"age": {"from": 25}}, {"age": {"to": 25}}, {"age": {"from": 25, "to": 35}}]
    trial = Trial(subject, World.of([(0,), (1,), (2,)], attributes=[AGE], rules=rules))
    requests: list[Request] = [{"age": age} for age in (18, 25, 35, 45)]
    assert items_of(trial, search(trial, requests)) == [[1], [0, 1, 2], [0, 2], [0]]


@BITS
def test_several_attributes_must_all_be_satisfied(subject: Subject) -> None:
    rules = [
        accepts(country=["US"], age=[25]),
        accepts(country=["US"]),
        accepts(age=[25]),
        accepts(country=["CA"], age=[25]),
    ]
    world = World.of([(0,), (1,), (2,), (3,)], attributes=[COUNTRY, AGE], rules=rules)
    trial = Trial(subject, world)
    requests: list[Request] = [{"country": "US", "age": 25}, {"country": "US"}, {"age": 25}]
    assert items_of(trial, search(trial, requests)) == [[0, 1, 2], [1], [2]]


@BITS
@pytest.mark.parametrize("values", [30, 62, 63, 64, 65, 127, 200])
def test_bits_of_every_word_are_tested(subject: Subject, values: int) -> None:
    attributes: list[Attribute] = [{"name": "group", "values": list(range(values))}, COUNTRY]
    rules = [accepts(group=[v], country=["CA"]) for v in range(values)]
    world = World.of([(v,) for v in range(values)], attributes=attributes, rules=rules)
    trial = Trial(subject, world)
    picks = sorted({0, 1, values // 2, values - 2, values - 1})
    requests: list[Request] = [{"group": v, "country": "CA"} for v in picks]
    assert items_of(trial, search(trial, requests)) == [[v] for v in picks]


# The union of a subtree


@BITS
def test_a_prefix_is_kept_for_what_some_item_below_accepts(subject: Subject) -> None:
    # The items are everywhere else unlike each other; a union that needs what all share loses both.
    rules = [accepts(country=["US"]), accepts(country=["CA"]), accepts(country=["UK"])]
    sids = [(0, 0, 0), (0, 0, 1), (0, 1, 0)]
    trial = Trial(subject, World.of(sids, attributes=[COUNTRY], rules=rules))
    requests: list[Request] = [{"country": country} for country in ("US", "CA", "UK")]
    assert items_of(trial, search(trial, requests)) == [[0], [1], [2]]


@BITS
def test_a_refusal_counts_only_where_the_whole_subtree_refuses(subject: Subject) -> None:
    rules = [refuses(country=["US"]), {}, refuses(country=["US"]), refuses(country=["US", "CA"])]
    sids = [(0, 0), (0, 1), (1, 0), (1, 1)]
    trial = Trial(subject, World.of(sids, attributes=[COUNTRY], rules=rules))
    first = trial.begin(requests=[{"country": "US"}, {"country": "CA"}])
    found = trial.host(trial.step(first, 2, trial.logits(first, 0.0)))
    assert found.count.tolist() == [1, 2]  # (1,) is pruned for the US at once, (0,) is not
    check_all_found(trial, [{"country": "US"}, {"country": "CA"}, {"country": "UK"}])


@BITS
def test_what_a_union_lets_through_is_stopped_further_down(subject: Subject) -> None:
    # The toy example of GRACE: two items, neither of which takes this viewer; their union does.
    rules = [accepts(country=["US"], age=[18]), accepts(country=["CA"], age=[25])]
    world = World.of([(0, 0), (0, 1)], attributes=[COUNTRY, AGE], rules=rules)
    trial = Trial(subject, world)
    first = trial.begin(requests=[{"country": "US", "age": 25}])
    beams = trial.step(first, 4, trial.logits(first, 0.0))
    assert trial.host(beams).count.tolist() == [1]
    beams = trial.step(beams, 4, trial.logits(beams, 0.0))
    assert trial.host(beams).count.tolist() == [0]
    (hits,) = trial.engine.results(beams)
    assert list(hits) == []
    assert hits.reason


@BITS
@pytest.mark.parametrize("partition", [{"static": [2, 1]}, {"dynamic": (0.1, 4)}])
def test_an_entry_passes_when_one_of_its_parts_does(
    subject: Subject, partition: dict[str, Any]
) -> None:
    rules = [
        accepts(country=["US"], age=[18]),
        accepts(country=["CA"], age=[25]),
        accepts(country=["UK"], age=[35]),
        accepts(country=["US"], age=[45]),
    ]
    sids = [(0, 0), (0, 1), (0, 2), (1, 0)]
    world = World.of(sids, attributes=[COUNTRY, AGE], rules=rules, **partition)
    trial = Trial(subject, world)
    first = trial.begin(requests=[{"country": "US", "age": 25}, {"country": "CA", "age": 25}])
    trial.step(first, 4, trial.logits(first, 0.0))
    pairs = [{"country": c, "age": a} for c in ("US", "CA", "UK") for a in (18, 25, 35, 45)]
    check_all_found(trial, pairs)


# Bloom attributes


@BLOOM
def test_one_value_of_a_bloom_attribute_is_enough(subject: Subject) -> None:
    rules = [accepts(place=["a", "b"]), accepts(place=["c"]), {}, accepts(place=["d"])]
    world = World.of([(0,), (1,), (2,), (3,)], attributes=[PLACE], rules=rules)
    trial = Trial(subject, world)
    requests: list[Request] = [
        {"place": "a"},
        {"place": ["b", "c"]},
        {"place": ["x", "d", "y"]},
        {"place": "nowhere"},
        {},
    ]
    assert items_of(trial, search(trial, requests)) == [[0, 2], [0, 1, 2], [2, 3], [2], [2]]


@BLOOM
@pytest.mark.parametrize("width", [64, 128, 256, 1024])
def test_signatures_lie_in_the_words_that_they_belong_to(subject: Subject, width: int) -> None:
    attributes = [{"name": "place", "bloom": width}]
    rules = [accepts(place=[place]) for place in PLACES]
    world = World.of([(v, v % 3) for v in range(40)], attributes=attributes, rules=rules)
    trial = Trial(subject, world)
    check_all_found(trial, [{"place": place} for place in PLACES[::3]])


@BLOOM
def test_requests_give_unequal_numbers_of_values(subject: Subject) -> None:
    rules = [accepts(place=PLACES[n : n + 1 + n % 3]) for n in range(30)]
    world = World.of([(v // 6, v % 6) for v in range(30)], attributes=[PLACE], rules=rules)
    trial = Trial(subject, world)
    check_all_found(
        trial,
        [{"place": PLACES[:n]} for n in (0, 1, 2, 5, 40)] + [None, {"place": PLACES[17:30:4]}],
    )


@BLOOM
@pytest.mark.parametrize("number", [64, 65, 128, 130])
def test_a_request_may_give_many_values(subject: Subject, number: int) -> None:
    # Each item accepts one value of its own, so that none of these signatures may be left out.
    rules = [accepts(place=[place]) for place in (0, 62, 63, 64, 127, 128, 129, 139)]
    attributes = [{"name": "place", "bloom": 256}]
    world = World.of([(v,) for v in range(8)], attributes=attributes, rules=rules)
    check_all_found(Trial(subject, world), [{"place": list(range(number))}, {"place": 139}, None])


@BLOOM
def test_a_refusal_of_a_bloom_value_is_left_to_the_exact_rules(subject: Subject) -> None:
    rules = [refuses(place=["a"]), refuses(place=["a", "b"]), {}]
    trial = Trial(subject, World.of([(0,), (1,), (2,)], attributes=[PLACE], rules=rules))
    requests: list[Request] = [{"place": "a"}, {"place": ["a", "b"]}, {"place": "c"}, {}]
    assert items_of(trial, search(trial, requests)) == [[2], [0, 2], [0, 1, 2], [2]]


@BITS
@BLOOM
def test_bits_and_several_bloom_attributes_must_all_pass(subject: Subject) -> None:
    attributes: list[Attribute] = [PLACE, COUNTRY, {"name": "topic", "bloom": 64}]
    rng = np.random.default_rng(0)
    rules = [
        accepts(
            place=[PLACES[int(n)] for n in rng.choice(40, 4)],
            country=[("US", "CA", "UK")[n % 3]],
            topic=[int(t) for t in rng.choice(9, 3)],
        )
        for n in range(60)
    ]
    world = World.of([(v // 12, v % 12) for v in range(60)], attributes=attributes, rules=rules)
    trial = Trial(subject, world)
    check_all_found(
        trial,
        [
            {"country": "US", "place": PLACES[:20], "topic": [1, 2, 3]},
            {"country": "CA", "place": PLACES[20:], "topic": 5},
            {"country": "UK", "place": PLACES, "topic": list(range(9))},
            {"country": "UK", "place": PLACES},
        ],
    )
