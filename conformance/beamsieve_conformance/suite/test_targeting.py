"""Targeting: which candidates a request keeps, in every mixture, and that none is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamsieve.interface import Beams, Normalize
from beamsieve_conformance import compare, model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

Request = Mapping[str, Any] | None
Attribute = Mapping[str, Any]

BITS = pytest.mark.needs("targeting: bits")
BLOOM = pytest.mark.needs("targeting: bloom")
ALLOW = pytest.mark.needs("targeting: allow")
EXCLUDE = pytest.mark.needs("targeting: exclude")

COUNTRY: Attribute = {"name": "country", "values": ["US", "CA", "UK"]}
AGE: Attribute = {"name": "age", "values": [18, 25, 35, 45]}
PLACE: Attribute = {"name": "place", "bloom": 128}
PLACES = [f"place-{n}" for n in range(40)]


def accepts(**values: list[Any]) -> dict[str, Any]:
    """Rules that accept these values of these attributes."""
    return {name: {"accepts": listed} for name, listed in values.items()}


def refuses(**values: list[Any]) -> dict[str, Any]:
    """Rules that refuse these values of these attributes."""
    return {name: {"refuses": listed} for name, listed in values.items()}


def search(
    trial: Trial, requests: Sequence[Request], width: int = 200, seed: int | None = None
) -> Beams:
    """Every step, judged, with equal logits or, given a seed, random ones."""
    rng = None if seed is None else np.random.default_rng(seed)
    beams = trial.begin(requests=requests)
    while beams.step < trial.trie.length:
        if rng is None:
            inputs = trial.logits(beams, 0.0)
        else:
            inputs = model.given_logits(rng, trial.shape(beams))
        beams = trial.step(beams, width, inputs)
    return beams


def items_of(trial: Trial, beams: Beams) -> list[list[Any]]:
    """The items of every request, sorted; and no request is shown what it may not see."""
    found = [sorted(hit.item for hit in hits) for hits in trial.engine.results(beams, k=10_000)]
    return found


def check_all_found(trial: Trial, requests: Sequence[Request], width: int = 200) -> None:
    """With room for every leaf, the results are exactly the eligible items."""
    beams = search(trial, requests, width)
    eligible = trial.world.targeting.eligible(requests)
    everything: set[Any] = {item for sid in trial.trie.leaves for item in trial.trie.items[sid]}
    for b, items in enumerate(items_of(trial, beams)):
        wanted = sorted(item for item in everything if eligible(b, item))
        assert items == wanted, f"request {b}: {requests[b]}"


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


# Exact sets


@EXCLUDE
def test_excluding_all_below_a_prefix_prunes_the_prefix(subject: Subject) -> None:
    # The dead end would take the only place; the prefix that leads there must not be kept.
    trial = Trial(subject, World.of([(1, 2, 3), (1, 2, 4), (1, 5, 6)], 7))
    beams = trial.begin(requests=[{"exclude": [0, 1]}])
    beams = trial.step(beams, 1, trial.logits(beams, 0.0))
    beams = trial.step(beams, 1, trial.logits(beams, [0, 0, 9, 0, 0, 0, 0]))
    assert trial.host(beams).tokens.tolist() == [[[1, 5]]]
    beams = trial.step(beams, 1, trial.logits(beams, 0.0))
    assert items_of(trial, beams) == [[2]]


@EXCLUDE
def test_excluded_items_are_never_returned(subject: Subject) -> None:
    trial = Trial(subject, World.of([(n // 8, n % 8) for n in range(40)], 8))
    check_all_found(
        trial,
        [{"exclude": list(range(n))} for n in (0, 1, 8, 31, 39, 40)] + [{"exclude": [7, 900]}],
    )


@EXCLUDE
def test_excluding_one_item_leaves_the_others_of_its_semantic_id(subject: Subject) -> None:
    sids = [(0, 1), (0, 1), (0, 2), (1, 0)]
    trial = Trial(subject, World.of(sids, items=["a", "b", "c", "d"]))
    check_all_found(trial, [{"exclude": ["a"]}, {"exclude": ["a", "b"]}, {"exclude": ["d", "a"]}])


@ALLOW
def test_only_allowed_items_are_returned(subject: Subject) -> None:
    trial = Trial(subject, World.of([(n // 8, n % 8) for n in range(40)], 8))
    requests: list[Request] = [{"allow": allow} for allow in ([39], [0, 17, 31], [], [900])]
    check_all_found(trial, [*requests, None, {"allow": None}])


@ALLOW
def test_an_allowed_item_is_found_however_unlikely(subject: Subject) -> None:
    # One place, and everything else scores higher: only what leads there may be kept.
    trial = Trial(subject, World.of([tuple(sid) for sid in np.ndindex(4, 4, 2)]))
    beams = trial.begin(requests=[{"allow": [31]}, {"allow": [12]}])
    for _ in range(3):
        size = trial.trie.codebooks[beams.step]
        beams = trial.step(beams, 1, trial.logits(beams, np.linspace(5, -5, size)))
    assert items_of(trial, beams) == [[31], [12]]


@ALLOW
@EXCLUDE
def test_allow_and_exclude_may_come_together(subject: Subject) -> None:
    trial = Trial(subject, World.of([(n // 8, n % 8) for n in range(40)], 8))
    check_all_found(trial, [{"allow": [1, 2, 30], "exclude": [2]}, {"allow": [5], "exclude": [5]}])


@BITS
@ALLOW
@EXCLUDE
def test_rules_and_exact_sets_hold_together(subject: Subject) -> None:
    rules = [accepts(country=[("US", "CA", "UK")[n % 3]]) if n % 4 else {} for n in range(40)]
    sids = [(n // 8, n % 8) for n in range(40)]
    trial = Trial(subject, World.of(sids, 8, attributes=[COUNTRY], rules=rules))
    check_all_found(
        trial,
        [
            {"country": "US", "exclude": [0, 3, 8]},
            {"country": "CA", "allow": list(range(20))},
            {"exclude": list(range(30))},
            {"allow": [4, 5, 6]},
        ],
    )


@BITS
def test_of_colliding_items_only_the_eligible_one_is_returned(subject: Subject) -> None:
    rules = [accepts(country=["US"]), accepts(country=["CA"]), accepts(country=["UK"])]
    world = World.of([(1, 2, 3)] * 3, items=["a", "b", "c"], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world)
    beams = search(trial, [{"country": "CA"}])
    (hits,) = trial.engine.results(beams, k=2)
    assert [hit.item for hit in hits] == ["b"]
    assert hits[0].score == float(trial.host(beams).scores[0, 0])
    assert hits.generated_items == 3
    assert hits.removed_items == 2


# With everything else


@BITS
@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
def test_each_normalizer_counts_what_it_says(subject: Subject, normalize: Normalize) -> None:
    rules = [accepts(country=[("US", "CA", "UK")[n % 3]]) for n in range(30)]
    sids = [(n // 6, n % 6) for n in range(30)]
    world = World.of(sids, [5, 9], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world, normalize)
    search(trial, [{"country": "US"}, None, {"country": ["US", "CA"]}], width=9, seed=1)
    beams = trial.begin(requests=[{"country": "US"}])
    beams = trial.step(beams, 1, trial.logits(beams, 0.0))
    found = trial.host(trial.step(beams, 9, trial.logits(beams, 0.0)))
    mass = {"all": 9, "catalog": 6, "eligible": 2}[normalize]
    gained = found.scores[0, 0] - trial.host(beams).scores[0, 0]
    assert abs(gained + np.log(mass)) < 1e-3


@BITS
def test_a_given_prefix_is_not_tested_only_what_follows(subject: Subject) -> None:
    rules = [accepts(country=["US"]), accepts(country=["CA"]), {}]
    world = World.of([(0, 0), (0, 1), (1, 0)], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world)
    requests: list[Request] = [{"country": "UK"}, {"country": "US"}, {"country": "US"}]
    beams = trial.begin(prefix=[(0,), (0,), (1,)], requests=requests)
    assert trial.host(beams).count.tolist() == [1, 1, 1]
    beams = trial.step(beams, 3, trial.logits(beams, 0.0))
    assert items_of(trial, beams) == [[], [0], [2]]


@BITS
@pytest.mark.needs("variable length")
def test_semantic_ids_of_several_lengths_are_targeted_at_their_end(subject: Subject) -> None:
    sids = [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0)]
    rules = [accepts(country=[("US", "CA")[n % 2]]) for n in range(6)]
    trial = Trial(subject, World.of(sids, attributes=[COUNTRY], rules=rules))
    check_all_found(trial, [{"country": "US"}, {"country": "CA"}, None, {}])


@BITS
def test_one_eligible_item_beside_many(subject: Subject) -> None:
    rules = [accepts(country=["US"]), *[accepts(country=["CA"])] * 15]
    sids = [(n // 4, n % 4) for n in range(16)]
    trial = Trial(subject, World.of(sids, attributes=[COUNTRY], rules=rules))
    batch = trial.host(search(trial, [{"country": "US"}, {"country": "CA"}], width=3))
    assert batch.count.tolist() == [1, 3]
    alone = trial.host(search(trial, [{"country": "CA"}], width=3))
    assert batch.bits(1) == alone.bits(0)


@BITS
@BLOOM
@pytest.mark.needs("deterministic")
@pytest.mark.parametrize("neighbours", [1, 7, 64])
def test_a_targeted_request_depends_on_nothing_else(subject: Subject, neighbours: int) -> None:
    rng = np.random.default_rng(0)
    rules = [
        accepts(country=[("US", "CA", "UK")[n % 3]], place=[PLACES[int(rng.integers(40))]])
        for n in range(120)
    ]
    sids = [(n // 12, n % 12) for n in range(120)]
    world = World.of(sids, attributes=[COUNTRY, PLACE], rules=rules)
    mine: Request = {"country": "US", "place": PLACES[:25]}
    crowd: list[Request] = [
        (None, {}, {"country": "CA", "place": PLACES[: n % 41]}, {"country": "US"})[n % 4]
        for n in range(neighbours)
    ]
    logits = [rng.standard_normal((1, size)).astype(np.float32) for size in world.trie.codebooks]

    def decode(requests: Sequence[Request], place: int) -> compare.HostBeams:
        trial = Trial(subject, world)
        beams = trial.begin(requests=requests)
        for said in logits:
            values = np.zeros(trial.shape(beams), np.float32)
            values[place] = said
            beams = trial.take(beams, 7, trial.logits(beams, values))
        return trial.host(beams)

    alone = decode([mine], 0)
    assert int(alone.count[0]) > 0
    for place in (0, neighbours // 2, neighbours):
        found = decode([*crowd[:place], mine, *crowd[place:]], place)
        assert found.bits(place) == alone.bits(0), f"request {place} of {neighbours + 1}"


@st.composite
def targeted(draw: st.DrawFn, kinds: Sequence[str]) -> tuple[World, list[Request]]:
    """A small catalog with rules, and a batch of requests, of the kinds that are declared."""
    attributes: list[Attribute] = []
    if "bits" in kinds:
        attributes += [COUNTRY, {"name": "group", "values": list(range(draw(st.integers(1, 70))))}]
    if "bloom" in kinds:
        attributes.append({"name": "place", "bloom": draw(st.sampled_from([64, 128, 256]))})
    values = {
        str(attribute["name"]): list(attribute.get("values", PLACES)) for attribute in attributes
    }

    def some(name: str) -> st.SearchStrategy[list[Any]]:
        return st.lists(st.sampled_from(values[name]), max_size=4, unique=True)

    rule = {
        name: st.one_of(
            st.none(),
            some(name).map(lambda listed: {"accepts": listed}),
            some(name).map(lambda listed: {"refuses": listed}),
        )
        for name in values
    }
    levels = draw(st.integers(1, 3))
    sids = draw(st.lists(st.tuples(*[st.integers(0, 4)] * levels), min_size=1, max_size=40))
    rules = [
        {name: said for name, kind in rule.items() if (said := draw(kind)) is not None}
        for _ in sids
    ]
    items = st.lists(st.integers(0, len(sids) + 1), max_size=6, unique=True)
    parts: dict[str, st.SearchStrategy[Any]] = {name: some(name) for name in values}
    parts |= {name: items for name in ("allow", "exclude") if name in kinds}
    request = st.none() | st.fixed_dictionaries({}, optional=parts)
    partition: dict[str, Any] = draw(
        st.sampled_from([{}, {"static": [3] * levels}, {"dynamic": (0.2, 5)}])
    )
    world = World.of(
        sids, 5, attributes=attributes, rules=rules if attributes else None, **partition
    )
    return world, draw(st.lists(request, min_size=1, max_size=4))


@pytest.mark.needs("targeting: bits")
@given(data=st.data())
def test_no_eligible_item_is_ever_lost(subject: Subject, data: st.DataObject) -> None:
    world, requests = data.draw(targeted(subject.capabilities.targeting))
    check_all_found(Trial(subject, world), requests, width=60)


@pytest.mark.needs("targeting: bits")
@given(data=st.data())
def test_any_targeted_step_is_right(subject: Subject, data: st.DataObject) -> None:
    can = subject.capabilities
    world, requests = data.draw(targeted(can.targeting))
    normalize = data.draw(st.sampled_from(can.normalizers))
    trial = Trial(subject, world, normalize)
    search(trial, requests, data.draw(st.integers(1, 6)), seed=data.draw(st.integers(0, 999)))
