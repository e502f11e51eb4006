"""Small catalogs with rules, and requests, for the tests of targeting."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.targeting import Attribute
from beamsieve_spec.targeting_rules import Attribute as SpecAttribute
from beamsieve_spec.trie import Trie

COUNTRIES = [f"C{number:02}" for number in range(70)]
DECLARED: list[dict[str, Any]] = [
    {"name": "country", "values": COUNTRIES},
    {"name": "place", "bloom": 128},
    {"name": "age", "values": [18, 25, 35, 45]},
    {"name": "topic", "bloom": 64},
]


@dataclass(frozen=True)
class World:
    """A catalog in the forms that the library and the specification take."""

    sids: list[list[int]]
    items: list[str]
    codebooks: list[int]
    end_token: bool
    declared: list[dict[str, Any]]
    rules: dict[Hashable, dict[str, Any]]

    def catalog(self, order: list[int] | None = None) -> Catalog:
        rows = range(len(self.sids)) if order is None else order
        items = [self.items[row] for row in rows]
        return Catalog.from_arrays(
            [self.sids[row] for row in rows],
            items,
            self.codebooks,
            end_token=self.end_token,
            attributes=[Attribute(**one) for one in self.declared],
            rules=[self.rules.get(item) for item in items],
        )

    def index(self, **options: Any) -> Index:
        return Index.build(self.catalog(), **options)

    def trie(self) -> Trie:
        plain = [tuple(token for token in sid if token >= 0) for sid in self.sids]
        return Trie(plain, items=self.items, codebooks=self.codebooks, end_token=self.end_token)

    def spec_attributes(self) -> list[SpecAttribute]:
        return [SpecAttribute(**one) for one in self.declared]


def some(values: Any, most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(list(values)), max_size=most, unique=True)


def rule(name: str) -> st.SearchStrategy[dict[str, Any]]:
    if name == "age":
        listed = some([18, 25, 35, 45], 3)
        bounds = st.fixed_dictionaries(
            {}, optional={"from": st.integers(10, 50), "to": st.integers(10, 50)}
        )
        lists = st.fixed_dictionaries({}, optional={"accepts": listed, "refuses": listed})
        return st.builds(lambda one, other: {**one, **other}, bounds, lists)
    values: Any = {"country": COUNTRIES, "place": range(30), "topic": "abcdefgh"}[name]
    return st.fixed_dictionaries(
        {}, optional={"accepts": some(values, 6), "refuses": some(values, 3)}
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    length = draw(st.integers(1, 3))
    end_token = draw(st.booleans())
    sid = st.lists(st.integers(0, 3), min_size=1 if end_token else length, max_size=length)
    drawn = draw(st.lists(sid, min_size=1, max_size=14))
    sids = [one + [-1] * (length - len(one)) for one in drawn]
    items = draw(
        st.lists(st.sampled_from("abcdefghijklmnop"), min_size=len(sids), max_size=len(sids))
    )
    declared = draw(some(range(4), 4))
    attributes = [DECLARED[place] for place in declared]
    names = [attribute["name"] for attribute in attributes]
    rules: dict[Hashable, dict[str, Any]] = {
        item: draw(st.fixed_dictionaries({}, optional={name: rule(name) for name in names}))
        for item in sorted(set(items))
    }
    return World(sids, items, [4] * length, end_token, attributes, rules)


def requests(world: World) -> st.SearchStrategy[Any]:
    """One request of any sort."""
    names = [attribute["name"] for attribute in world.declared]
    values: dict[str, Any] = {
        "country": st.sampled_from([*COUNTRIES[:6], "elsewhere"]),
        "age": st.sampled_from([18, 25, 35, 45, 99]),
        "place": st.integers(0, 40),
        "topic": st.sampled_from("abcdefghxyz"),
    }
    given = {
        name: st.one_of(
            st.none(), values[name], st.lists(values[name], max_size=4), st.sets(values[name])
        )
        for name in names
    }
    sets = st.one_of(st.none(), some([*"abcdefghijklmnop", "unknown"], 12))
    parts = st.fixed_dictionaries({}, optional={**given, "allow": sets, "exclude": sets})
    return st.one_of(st.none(), parts)


def as_int(words: np.ndarray) -> int:
    """A segment of words as one integer."""
    return sum(int(word) << 64 * place for place, word in enumerate(words))
