"""Golden vectors of Bloom signatures and of targeting, from the specification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from beamsieve_conformance.vectors.searches import (
    Case,
    Draw,
    catalog_input,
    logits,
    searched,
    trie_of,
)
from beamsieve_spec.targeting_bits import Asked, asked, item_row, row_bits, signature, words
from beamsieve_spec.targeting_hash import xxh3_64
from beamsieve_spec.targeting_matchers import Targeting
from beamsieve_spec.targeting_rules import Attribute, Request, permitted

COUNTRIES = [f"C{n:02}" for n in range(70)]
DECLARED: list[Case] = [
    {"name": "country", "values": COUNTRIES},
    {"name": "place", "bloom": 128},
    {"name": "age", "values": [18, 25, 35, 45]},
    {"name": "topic", "bloom": 64},
]
"""Two attributes of each kind, in turns; the bits of the first kind fill more than one word."""


def bloom() -> Iterable[Case]:
    """Values, their hashes and their signatures."""
    values: list[Any] = ["", "a", "Boston", "北京", "é", "e\u0301", "25", 25, 0, -3, 1234567890123]
    values += ["x" * n for n in (2, 3, 7, 8, 15, 16, 17, 64, 127, 128, 200, 239, 240, 300, 2000)]
    for value in values:
        form = (f"s{value}" if isinstance(value, str) else f"i{value}").encode()
        yield {
            "value": value,
            "form": form.hex(),
            "hash": f"{xxh3_64(form):016x}",
            "bits": {
                str(width): [i for i in range(width) if signature(value, width) >> i & 1]
                for width in (64, 256, 1024)
            },
        }


def targeting() -> Iterable[Case]:
    """Item rows, request bits, matchers, and what each request may see."""
    toy = [
        {"name": "country", "values": ["US", "CA", "UK"]},
        {"name": "age", "values": ["18-24", "25-34"]},
    ]
    wants = [
        {"country": {"accepts": ["US"]}, "age": {"accepts": ["18-24"]}},
        {"country": {"accepts": ["CA"]}, "age": {"accepts": ["25-34"]}},
    ]
    viewers: list[Request] = [{"country": "US", "age": "25-34"}, {"country": "US"}, {}, None]
    two = catalog_input([(0, 0), (0, 1)], items=["a", "b"])
    yield targeted("the toy example of GRACE, section 3.2", two, toy, wants, viewers)
    yield targeted("the toy example in two parts", two, toy, wants, viewers, static=[2, 1])

    draw = Draw(7)
    sids = draw.sids([3, 3, 3], 30)
    given = catalog_input(sids, [3] * 3, items=[f"item-{n}" for n in range(len(sids))])
    rules = [some_rules(draw) for _ in sids]
    requests: list[Request] = [some_request(draw, given["items"]) for _ in range(10)]
    requests += [None, {}, {"allow": []}, {"exclude": given["items"][:20]}]
    yield targeted("no partition", given, DECLARED, rules, requests)
    yield targeted("a static partition", given, DECLARED, rules, requests, static=[4, 2, 1])
    yield targeted("a dynamic partition", given, DECLARED, rules, requests, dynamic=(0.5, 4))


def some_rules(draw: Draw) -> Case:
    """Rules of one item; on most attributes, none half of the time."""
    rules: Case = {}
    if draw.below(2):
        part = ("accepts", "refuses")[draw.below(2)]
        rules["country"] = {part: draw.some(COUNTRIES, 40)}
    if draw.below(2):
        rules["age"] = ({"from": 25}, {"to": 30}, {"from": 20, "to": 40}, {})[draw.below(4)]
    if draw.below(2):
        part = ("accepts", "accepts", "refuses")[draw.below(3)]
        rules["place"] = {part: draw.some(range(100), 5)}
    if draw.below(3) == 0:
        rules["topic"] = {"accepts": draw.some("abcdefgh", 3), "refuses": ["a"]}
    return rules


def some_request(draw: Draw, items: Sequence[str]) -> dict[str, Any]:
    """A viewer of whom any part may be unknown, sometimes with exact sets."""
    request: dict[str, Any] = {}
    if draw.below(4):
        request["country"] = draw.some([*COUNTRIES[:8], "elsewhere"], 2)
    if draw.below(4):
        request["age"] = (18, 25, [35], None)[draw.below(4)]
    if draw.below(4):
        request["place"] = draw.some(range(100), 20)
    if draw.below(4):
        request["topic"] = draw.some("abcdefgh", 4)
    if draw.below(3) == 0:
        request["exclude"] = draw.some(items, 8)
    if draw.below(4) == 0:
        request["allow"] = [*draw.some(items, 20), "no such item"]
    return request


def targeted(
    about: str,
    given: Case,
    declared: Sequence[Case],
    rules: Sequence[Case],
    requests: Sequence[Request],
    **partition: Any,
) -> Case:
    """One catalog with rules: its bits, what each request asks, and a search that obeys."""
    trie = trie_of(given)
    attributes = [Attribute(**attribute) for attribute in declared]
    by_item = dict(zip(given["items"], rules, strict=True))
    sieve = Targeting(trie, attributes, by_item, **partition)
    permits, may_see = sieve.permits(requests), sieve.eligible(requests)
    widths = segment_widths(attributes)
    search = searched(
        about,
        given,
        [4] * trie.length,
        logits,
        batch=len(requests),
        k=10,
        permits=permits,
        eligible=may_see,
    )
    return {
        "about": about,
        "catalog": given,
        "attributes": declared,
        "rules": rules,
        "partition": partition,
        "requests": requests,
        "item_rows": [as_words(item_row(attributes, mine), widths) for mine in rules],
        "matchers": [
            {"prefix": prefix, "rows": [as_words(row, widths) for row in sieve.matchers[prefix]]}
            for level in trie.prefixes[1:]
            for prefix in level
        ],
        "asked": [
            {
                **asked_words(asked(attributes, request), widths),
                "permitted_leaves": [
                    leaf
                    for leaf, sid in enumerate(trie.leaves)
                    if any(permitted(item, request) for item in trie.items[sid])
                ],
                "prefixes": [p for level in trie.prefixes[1:] for p in level if permits(b, p)],
                "items": [item for item in given["items"] if may_see(b, item)],
            }
            for b, request in enumerate(requests)
        ],
        "normalize": search["normalize"],
        "steps": search["steps"],
        "k": search["k"],
        "results": search["results"],
    }


def segment_widths(attributes: Sequence[Attribute]) -> list[int]:
    """The bits of each segment of a row."""
    first = row_bits([attribute for attribute in attributes if attribute.bloom is None])
    return [first, *(a.bloom for a in attributes if a.bloom is not None)]


def as_words(row: Sequence[int], widths: Sequence[int]) -> list[list[str]]:
    """Each segment as its words, 16 hexadecimal digits each."""
    return [
        [f"{word:016x}" for word in words(segment, bits)]
        for segment, bits in zip(row, widths, strict=True)
    ]


def asked_words(asks: Asked, widths: Sequence[int]) -> Case:
    """What a request asks, as words."""
    return {
        "bits": as_words([asks.bits], widths[:1])[0],
        "blooms": [
            as_words(signatures, [width] * len(signatures))
            for signatures, width in zip(asks.blooms, widths[1:], strict=True)
        ],
    }
