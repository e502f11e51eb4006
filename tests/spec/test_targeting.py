"""Targeting: the exact rules, the bits, and the law that no eligible item is ever lost."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import xxhash

import beamsieve as bs
from beamsieve_spec import CatalogError, Trie, results, search
from beamsieve_spec.targeting_bits import (
    asked,
    bit_offsets,
    item_row,
    passes,
    row_bits,
    signature,
    union,
    words,
)
from beamsieve_spec.targeting_hash import xxh3_64
from beamsieve_spec.targeting_matchers import Targeting, bits_set, dealt, dealt_to_target
from beamsieve_spec.targeting_rules import (
    Attribute,
    RequestError,
    check_rules,
    eligible,
    permitted,
    rules_by_item,
)

from .models import SID, from_table, random_sids, random_table

COUNTRY = Attribute("country", values=["US", "CA", "UK"])
AGE = Attribute("age", values=[18, 25, 35])
PLACE = Attribute("place", bloom=64)
ALL = [COUNTRY, PLACE, AGE]
PLACES = [f"place-{n}" for n in range(30)]


def random_rules(source: random.Random) -> dict[str, Any]:
    """Rules of one item; each attribute has none half of the time."""
    rules: dict[str, Any] = {}
    if source.random() < 0.5:
        part = source.choice(["accepts", "refuses"])
        rules["country"] = {part: source.sample(["US", "CA", "UK"], source.randint(0, 2))}
    if source.random() < 0.5:
        rules["age"] = source.choice([{"from": 25}, {"to": 25}, {"from": 18, "to": 30}, {}])
    if source.random() < 0.5:
        rules["place"] = source.choice(
            [
                {"accepts": source.sample(PLACES, source.randint(1, 3))},
                {"refuses": source.sample(PLACES, source.randint(0, 3))},
                {"accepts": PLACES[:4], "refuses": PLACES[:2]},
            ]
        )
    return rules


def random_request(source: random.Random, items: int) -> dict[str, Any] | None:
    """A viewer of whom any part may be unknown, with or without exact sets; sometimes None."""
    if source.random() < 0.1:
        return None
    request: dict[str, Any] = {}
    if source.random() < 0.7:
        request["country"] = source.choice(["US", "CA", ["US", "UK"], "Narnia", ["US", "Narnia"]])
    if source.random() < 0.7:
        request["age"] = source.choice([18, [25], 35, None, []])
    if source.random() < 0.7:
        request["place"] = source.sample(PLACES, source.randint(1, 5))
    if source.random() < 0.3:
        request["exclude"] = source.sample(range(items), source.randint(0, items // 2))
    if source.random() < 0.3:
        request["allow"] = source.sample(range(items), source.randint(0, items))
    return request


def world(seed: int) -> tuple[Trie, dict[Any, Any], list[dict[str, Any] | None]]:
    """A random catalog with collisions and items on several SIDs, its rules, and requests."""
    source = random.Random(seed)
    sids = random_sids(source, levels=3, vocabulary=4, count=25)
    rows = sids + source.choices(sids, k=8)
    items = [*range(len(rows) - 4), 0, 1, 2, 3]
    rules = {item: random_rules(source) for item in items}
    return Trie(rows, items), rules, [random_request(source, len(items)) for _ in range(12)]


PARTITIONS: list[dict[str, Any]] = [
    {},
    {"static": [1, 1, 1]},
    {"static": [3, 2, 4]},
    {"dynamic": (0.25, 32)},
    {"dynamic": (0.6, 3)},
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_no_eligible_item_is_ever_lost(seed: int, partition: dict[str, Any]) -> None:
    trie, rules, requests = world(seed)
    permits = Targeting(trie, ALL, rules, **partition).permits(requests)
    reached = 0
    for b, request in enumerate(requests):
        for sid, items in trie.items.items():
            if any(eligible(ALL, rules[i], request) and permitted(i, request) for i in items):
                reached += 1
                assert all(permits(b, sid[:level]) for level in (1, 2, 3)), (request, sid)
    assert reached > 20


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_full_width_finds_exactly_the_eligible_items(seed: int, partition: dict[str, Any]) -> None:
    trie, rules, requests = world(seed)
    targeting = Targeting(trie, ALL, rules, **partition)
    table = random_table(trie, seed)
    beams = search(
        trie,
        from_table(trie, *[table] * len(requests)),
        [len(trie.leaves)] * 3,
        batch=len(requests),
        permits=targeting.permits(requests),
    )
    found = results(trie, beams, eligible=targeting.eligible(requests))
    for hits, request in zip(found, requests, strict=True):
        expected = {i for i in rules if eligible(ALL, rules[i], request) and permitted(i, request)}
        assert {hit.item for hit in hits} == expected


def test_parts_never_let_through_what_one_row_stops() -> None:
    stopped = 0
    for seed in range(6):
        trie, rules, requests = world(seed)
        whole = Targeting(trie, ALL, rules).permits(requests)
        parts = Targeting(trie, ALL, rules, static=[5, 3, 1]).permits(requests)
        prefixes = list(itertools.chain(*trie.prefixes[1:]))
        for b, prefix in itertools.product(range(len(requests)), prefixes):
            assert whole(b, prefix) or not parts(b, prefix)
            stopped += whole(b, prefix) and not parts(b, prefix)
    assert stopped > 0, "the parts made no difference, so nothing was tested"


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        ({}, None, True),
        ({"refuses": []}, None, True),
        ({"accepts": ["US"]}, "US", True),
        ({"accepts": ["US"]}, "CA", False),
        ({"accepts": ["US"]}, None, False),
        ({"accepts": ["US"]}, [], False),
        ({"accepts": ["US", "CA"]}, ["CA", "US"], True),
        ({"accepts": ["US", "CA"]}, ["US", "UK"], False),
        ({"accepts": ["US", "CA", "UK"]}, "Narnia", False),
        ({"accepts": []}, "US", False),
        ({"refuses": ["US"]}, "CA", True),
        ({"refuses": ["US"]}, ["CA", "US"], False),
        ({"refuses": ["US"]}, None, False),
        ({"refuses": ["US"]}, "Narnia", False),
        ({}, "Narnia", True),
    ],
)
def test_bit_attributes_need_every_value(rule: Any, given: Any, expected: bool) -> None:
    request, rules = {"country": given}, {"country": rule}
    assert eligible([COUNTRY], rules, request) is expected
    assert passes(item_row([COUNTRY], rules), asked([COUNTRY], request)) is expected


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        ({}, None, True),
        ({"accepts": ["x", "y"]}, ["a", "x"], True),
        ({"accepts": ["x", "y"]}, ["a", "b"], False),
        ({"accepts": ["x"]}, None, False),
        ({"refuses": ["x"]}, None, False),
        ({"refuses": ["x"]}, ["x", "a"], True),
        ({"accepts": ["x", "y"], "refuses": ["x"]}, "x", False),
        ({"accepts": []}, "x", False),
    ],
)
def test_bloom_attributes_need_one_value(rule: Any, given: Any, expected: bool) -> None:
    place = Attribute("place", bloom=1024)
    request, rules = {"place": given}, {"place": rule}
    assert eligible([place], rules, request) is expected
    assert passes(item_row([place], rules), asked([place], request)) is expected


def test_a_bloom_refusal_counts_in_the_exact_check_alone() -> None:
    rules = {"place": {"refuses": ["x"]}}
    assert not eligible([PLACE], rules, {"place": "x"})
    assert passes(item_row([PLACE], rules), asked([PLACE], {"place": "x"}))


def test_no_targeting_asks_nothing_and_an_empty_request_knows_nothing() -> None:
    nothing = item_row(
        ALL, {"country": {"accepts": []}, "place": {"accepts": []}, "age": {"to": 1}}
    )
    assert nothing == (0, 0)
    assert passes(nothing, asked(ALL, None))
    assert passes(item_row(ALL, {}), asked(ALL, {}))
    for name, rule in (("country", {"refuses": ["US"]}), ("place", {"refuses": ["x"]})):
        assert not passes(item_row(ALL, {name: rule}), asked(ALL, {}))


def test_an_interval_includes_both_ends() -> None:
    rules = {"age": {"from": 18, "to": 25}}
    assert [eligible([AGE], rules, {"age": age}) for age in (18, 25, 35)] == [True, True, False]
    assert eligible([AGE], {"age": {"from": 25}}, {"age": 35})


def test_a_refusal_counts_only_where_the_whole_subtree_refuses() -> None:
    trie = Trie([(0, 0), (0, 1), (1, 0), (1, 1)], items="abcd")
    refuses: dict[str, Any] = {"country": {"refuses": ["US"]}}
    permits = Targeting(trie, ALL, {"a": refuses, "c": refuses, "d": refuses}).permits(
        [{"country": "US"}]
    )
    assert [permits(0, prefix) for prefix in trie.prefixes[1]] == [True, False]
    assert [permits(0, prefix) for prefix in trie.prefixes[2]] == [False, True, False, False]


def test_excluding_every_item_below_a_prefix_prunes_the_prefix() -> None:
    trie = Trie([(1, 2, 3), (1, 2, 4), (1, 2, 4), (1, 5, 6)], items="abcd")
    requests: list[dict[str, Any]] = [
        {"exclude": ["a", "b"]},
        {"exclude": ["a", "b", "c", "unheard of"]},
        {"allow": []},
    ]
    permits = Targeting(trie, [], {}).permits(requests)
    assert [permits(b, (1, 2)) for b in range(3)] == [True, False, False]
    assert [permits(b, (1, 2, 4)) for b in range(3)] == [True, False, False]
    assert [permits(b, (1,)) for b in range(3)] == [True, True, False]


def test_of_a_collision_only_the_eligible_item_is_returned() -> None:
    trie = Trie([(1, 2, 3)] * 3, items="ABC")
    us, ca = {"country": {"accepts": ["US"]}}, {"country": {"accepts": ["CA"]}}
    targeting = Targeting(trie, ALL, {"A": ca, "B": us, "C": us})
    requests = [{"country": "US", "exclude": ["C"]}]
    table: dict[SID, list[float]] = {(): [0] * 2, (1,): [0] * 3, (1, 2): [0] * 4}
    beams = search(trie, from_table(trie, table), [2, 2, 2], permits=targeting.permits(requests))
    hits = results(trie, beams, k=2, eligible=targeting.eligible(requests))[0]
    assert [hit.item for hit in hits] == ["B"]


# Bits


def test_bits_are_where_the_page_says() -> None:
    attributes = [Attribute("n", values=list(range(62))), PLACE, COUNTRY]
    assert bit_offsets(attributes) == {"n": 0, "country": 63}
    assert row_bits(attributes) == 63 + 64 + 4
    row = item_row(attributes, {"n": {"accepts": [0, 61]}, "country": {"accepts": ["US", "UK"]}})
    assert words(row[0], 67) == [1 << 1 | 1 << 62, 1 << 0 | 1 << 2]
    free = item_row(attributes, {})
    assert words(free[0], 67) == [2**64 - 1, 0b111]
    assert words(free[1], 64) == [2**64 - 1]
    asks = asked(attributes, {"n": [0, 99], "country": "CA"})
    assert words(asks.bits, 67) == [0b11, 0b10]


def test_strings_and_integers_have_different_signatures() -> None:
    assert signature("25", 4096) != signature(25, 4096)
    assert signature(-3, 4096) == sum(
        {1 << 1 + (xxhash.xxh3_64_intdigest(b"i-3") >> s & 0xFFFF) % 4095 for s in (0, 16, 32, 48)}
    )


@pytest.mark.parametrize("width", [64, 128, 256, 65536])
def test_a_signature_never_has_the_reserved_bit(width: int) -> None:
    signatures = [signature(place, width) for place in PLACES]
    assert all(0 < s < 1 << width and not s & 1 and s.bit_count() <= 4 for s in signatures)


LENGTHS = [*range(300), 1023, 1024, 1025, 1087, 1088, 1089, 2047, 2048, 2049, 5000]


def test_the_hash_is_xxh3() -> None:
    source = random.Random(3)
    for length in LENGTHS:
        data = source.randbytes(length)
        assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data), length


# Partitions


def test_parts_are_dealt_by_the_fewest_bits_after_the_union() -> None:
    rows = [(0b000011,), (0b110000,), (0b000001,), (0b000111,), (0b110001,)]
    assert dealt(rows, 1) == [union(rows)] == [(0b110111,)]
    # Row 3 joins part 0, three bits against five; row 4 joins part 1, three against five.
    assert dealt(rows, 2) == [(0b000111,), (0b110001,)]
    # Row 2 opens part 2, one bit against two. Row 3 makes three bits of part 0 and of part 2, and
    # joins the first; row 4 makes three of part 1 and of part 2, and joins the first.
    assert dealt(rows, 3) == [(0b000111,), (0b110001,), (0b000001,)]


def test_equal_rows_share_a_part() -> None:
    assert dealt([(0b11,), (0b11,), (0b11,)], 3) == [(0b11,)]


def test_dynamic_parts_stop_at_the_target_or_at_k_max() -> None:
    rows = [(0b0001,), (0b0010,), (0b0100,), (0b1000,)]
    assert len(dealt_to_target(rows, target=1.0, k_max=4, bits=4)) == 1
    assert len(dealt_to_target(rows, target=0.5, k_max=4, bits=4)) == 2
    assert len(dealt_to_target(rows, target=0.25, k_max=4, bits=4)) == 4
    assert len(dealt_to_target(rows, target=0.1, k_max=3, bits=4)) == 3
    assert len(dealt_to_target(rows, target=0.0, k_max=99, bits=4)) == 4


def test_static_parts_differ_by_level() -> None:
    trie, rules, _ = world(1)
    matchers = Targeting(trie, ALL, rules, static=[4, 2, 1]).matchers
    assert max(len(matchers[prefix]) for prefix in trie.prefixes[1]) == 4
    assert max(len(matchers[prefix]) for prefix in trie.prefixes[2]) == 2
    assert all(len(matchers[sid]) == 1 for sid in trie.leaves)
    assert all(bits_set(row) <= row_bits(ALL) for rows in matchers.values() for row in rows)


# Refusals


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "a"},
        {"name": "a", "values": ["x"], "bloom": 64},
        {"name": "a", "bloom": 100},
        {"name": "a", "bloom": 0},
        {"name": "a", "bloom": 131072},
        {"name": "a", "values": ["x", "x"]},
        {"name": "a", "values": [1.5]},
        {"name": "a", "values": [True]},
        {"name": "", "values": ["x"]},
        {"name": "allow", "values": ["x"]},
        {"name": "exclude", "bloom": 64},
    ],
    ids=str,
)
def test_what_no_attribute_may_be_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(CatalogError):
        Attribute(**arguments)


@pytest.mark.parametrize(
    "rules",
    [
        {"planet": {"accepts": ["Mars"]}},
        {"country": {"includes": ["US"]}},
        {"country": {"accepts": ["Narnia"]}},
        {"country": {"refuses": ["Narnia"]}},
        {"country": {"accepts": "US"}},
        {"country": {"accepts": None}},
        {"country": {"accepts": [["US"]]}},
        {"country": {"from": 1}},
        {"place": {"from": 1, "to": 2}},
        {"place": {"accepts": "Boston"}},
        {"age": {"from": "25"}},
        {"age": {"accepts": ["25"]}},
    ],
    ids=str,
)
def test_what_no_rule_may_say_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(CatalogError):
        check_rules(ALL, rules)


@pytest.mark.parametrize(
    "request_",
    [
        {"planet": "Mars"},
        {"country": 7},
        {"age": "25"},
        {"age": True},
        {"place": 1.5},
        {"place": [["a"]]},
        {"country": {"accepts": ["US"]}},
        {"exclude": "item-7"},
        {"allow": 7},
        {"exclude": ["0"]},
        {"allow": [None]},
        {"exclude": [[0]]},
        {"exclude": [True]},
    ],
    ids=str,
)
def test_a_request_that_cannot_be_read_is_named(request_: dict[str, Any]) -> None:
    targeting = Targeting(Trie([(0,)]), ALL, {})
    with pytest.raises(RequestError, match="request 1"):
        targeting.permits([{}, request_])


def test_attributes_of_one_name_and_rows_that_disagree_are_refused() -> None:
    with pytest.raises(CatalogError, match="one name"):
        Targeting(Trie([(0,)]), [COUNTRY, COUNTRY], {})
    with pytest.raises(CatalogError, match="different rules"):
        rules_by_item(ALL, ["a", "a"], [{"age": {"from": 18}}, {}])
    with pytest.raises(CatalogError, match="1 rules for 2 rows"):
        rules_by_item(ALL, ["a", "b"], [{}])
    with pytest.raises(CatalogError, match="no such rule"):
        rules_by_item(ALL, ["a", "b"], [{}, {"planet": {"accepts": ["Mars"]}}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"age": None, "country": {}, "place": {"refuses": []}}),
        (None, {"age": None}),
        ({"age": {"accepts": [25, 35]}}, {"age": {"accepts": [35, 25, 25]}}),
        ({"age": {"from": 20}}, {"age": {"refuses": [18]}, "country": None}),
        (
            {"place": {"accepts": ["x", "y"]}},
            {"place": {"accepts": ["z", "y", "x"], "refuses": ["z"]}},
        ),
    ],
)
def test_rows_of_one_item_may_say_one_rule_in_other_words(one: Any, other: Any) -> None:
    """The library reads them so, too: what an item's rules come to is compared, not their words."""
    found = rules_by_item(ALL, ["a", "a"], [one, other])
    trie = Trie([(0,), (1,)], items=["a", "a"])
    rows = [item_row(ALL, rules or {}) for rules in (one, other)]
    assert rows[0] == rows[1] == Targeting(trie, ALL, found).leaf_rows[0]
    catalog = bs.Catalog.from_arrays(
        [[0], [1]],
        ["a", "a"],
        attributes=[bs.Attribute(a.name, a.values, a.bloom) for a in ALL],
        rules=[one, other],
    )
    assert len(bs.Index.build(catalog).items) == 1


def test_a_rule_of_none_is_no_rule() -> None:
    rules: dict[str, Any] = {"country": None, "place": None}
    check_rules(ALL, rules)
    assert item_row(ALL, rules) == item_row(ALL, {})
    assert eligible(ALL, rules, {})
    trie = Trie([(0,)], items="a")
    assert Targeting(trie, ALL, {"a": rules}).permits([{}])(0, (0,))


def test_an_index_with_end_tokens_is_another_than_one_that_is_spelled_like_it() -> None:
    ends = Trie([(0,)], items="a", codebooks=[1], end_token=True)
    spelled = Trie([(0, 0)], items="a", codebooks=[2, 1])
    assert (ends.codebooks, ends.leaves) == (spelled.codebooks, spelled.leaves)
    assert Targeting(ends, [], {}).identity() != Targeting(spelled, [], {}).identity()
