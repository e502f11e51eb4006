"""Small catalogs with rules and batches of requests, and who may see what, item by item.

``may_see`` is written from the contract alone, for one item and one request at a time. It shares no
code with the library or the specification, so that agreement with it means something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.targeting import Attribute

COUNTRIES = ["US", "CA", "UK", "DE", "FR"]
AGES = [18, 25, 35, 45, 55]
PLACES = [f"town {number}" for number in range(12)]
TOPICS: list[Any] = ["tea", "rail", 7, "7", -3, "π"]

VALUES: dict[str, list[Any]] = {"country": COUNTRIES, "age": AGES, "place": PLACES, "topic": TOPICS}
UNHEARD_OF: dict[str, Any] = {"country": "Atlantis", "age": 99, "place": "nowhere", "topic": "?"}
DECLARED = {
    "country": Attribute("country", COUNTRIES),
    "place": Attribute("place", bloom=64),
    "age": Attribute("age", AGES),
    "topic": Attribute("topic", bloom=128),
}


@dataclass(frozen=True)
class Market:
    """A catalog row by row, its attributes, and each item's rules."""

    sids: list[tuple[int, ...]]
    items: list[Any]
    codebooks: list[int]
    end_token: bool
    names: list[str]
    rules: dict[Any, dict[str, Any]]

    def index(self, **partition: Any) -> Index:
        """The library's index of it."""
        length = len(self.codebooks)
        return Index.build(
            Catalog.from_arrays(
                [[*sid, *[-1] * (length - len(sid))] for sid in self.sids],
                self.items,
                self.codebooks,
                end_token=self.end_token,
                attributes=[DECLARED[name] for name in self.names],
                rules=[self.rules[item] for item in self.items],
            ),
            **partition,
        )

    def eligible(self, request: Mapping[str, Any] | None) -> set[Any]:
        """The items that the request may see."""
        return {item for item in self.items if may_see(self.rules[item], request, item)}

    def paths(self, items: set[Any]) -> set[tuple[int, ...]]:
        """The semantic IDs of these items."""
        return {sid for sid, item in zip(self.sids, self.items, strict=True) if item in items}


def may_see(rules: Mapping[str, Any], request: Mapping[str, Any] | None, item: Any) -> bool:
    """Whether a request may see an item with these rules."""
    if request is None:
        return True
    if request.get("allow") is not None and item not in request["allow"]:
        return False
    if request.get("exclude") is not None and item in request["exclude"]:
        return False
    for name, rule in rules.items():
        if not rule or rule == {"refuses": []}:
            continue
        said = request.get(name)
        values = list(said) if isinstance(said, list | set | tuple) else [said]
        answers = [takes(name, rule, value) for value in values if value is not None]
        many = any if name in ("place", "topic") else all
        if not answers or not many(answers):
            return False
    return True


def takes(name: str, rule: Mapping[str, Any], value: Any) -> bool:
    """Whether a rule accepts one value."""
    if name in ("country", "age") and value not in VALUES[name]:
        return False
    if "accepts" in rule and not any(same(value, one) for one in rule["accepts"]):
        return False
    if any(same(value, one) for one in rule.get("refuses", [])):
        return False
    return bool(rule.get("from", value) <= value <= rule.get("to", value))


def same(one: Any, other: Any) -> bool:
    """Equal, and of one type."""
    return type(one) is type(other) and bool(one == other)


def some(values: list[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """A few of these values."""
    return st.lists(st.sampled_from(values), max_size=most, unique_by=repr)


def rule(name: str, random: Random) -> dict[str, Any]:
    """A rule on an attribute; every other one accepts one or two values."""
    values = VALUES[name]
    if random.random() < 0.5:
        return {"accepts": random.sample(values, random.randint(1, 2))}
    found: dict[str, Any] = {}
    if random.random() < 0.4:
        found["accepts"] = random.sample(values, random.randint(0, 5))
    if random.random() < 0.5:
        found["refuses"] = random.sample(values, random.randint(0, 3))
    if name == "age":
        bounds = {"from": random.randint(15, 50), "to": random.randint(20, 60)}
        found |= {part: bounds[part] for part in bounds if random.random() < 0.5}
    return found


@st.composite
def markets(draw: st.DrawFn, names: list[str] | None = None) -> Market:
    """A catalog with collisions, items of several semantic IDs and, at times, of several lengths.

    Its rows are drawn from a seed: lists drawn one by one would be too short for subtrees with
    items of many kinds, which is where targeting may go wrong.

    Args:
        names: its attributes; any of them in any order when None.
    """
    if names is None:
        names = draw(st.lists(st.sampled_from(list(DECLARED)), min_size=1, unique=True))
    end_token = draw(st.booleans())
    random = Random(draw(st.integers(0, 2**32 - 1)))
    codebooks = [random.choice([1, 2, 3, 3, 4]) for _ in range(random.randint(1, 4))]
    rows = random.randint(1, 50)
    sids = []
    for _ in range(rows):
        depth = random.randint(1, len(codebooks)) if end_token else len(codebooks)
        sids.append(tuple(random.randrange(size) for size in codebooks[:depth]))
    numbers = [random.randrange(rows) for _ in range(rows)]
    as_text = random.random() < 0.5
    items = [f"item {number}" if as_text else number for number in numbers]
    rules = {
        item: {name: rule(name, random) for name in names if random.random() < 0.7}
        for item in items
    }
    return Market(sids, items, codebooks, end_token, names, rules)


def requests(market: Market) -> st.SearchStrategy[dict[str, Any] | None]:
    """Any request: nothing asked, nothing known, viewers, exact sets, and all of it at once."""
    known = {}
    for name in market.names:
        value = st.sampled_from([*VALUES[name], UNHEARD_OF[name]])
        known[name] = st.none() | value | st.lists(value, max_size=4) | st.sets(value, max_size=4)
    unknown = "unknown item" if isinstance(market.items[0], str) else 987_654
    exact = st.none() | st.lists(st.sampled_from([*market.items, unknown]), max_size=12)
    viewer = st.fixed_dictionaries({}, optional={**known, "allow": exact, "exclude": exact})
    return st.none() | viewer | welcome_viewers(market) | welcome_viewers(market)


@st.composite
def welcome_viewers(draw: st.DrawFn, market: Market) -> dict[str, Any]:
    """A viewer whom some item accepts, if it accepts anyone: chance alone seldom meets one."""
    rules = market.rules[draw(st.sampled_from(market.items))]
    viewer: dict[str, Any] = {}
    for name in market.names:
        accepted = [value for value in VALUES[name] if takes(name, rules.get(name, {}), value)]
        some_value = st.sampled_from(accepted or VALUES[name])
        if name in ("place", "topic"):
            others = draw(some(VALUES[name], 3))
            viewer[name] = draw(st.permutations([draw(some_value), *others]))
        else:
            viewer[name] = draw(some_value | st.lists(some_value, min_size=1, max_size=2))
    if draw(st.integers(0, 3)) == 0:
        viewer["exclude"] = draw(st.lists(st.sampled_from(market.items), max_size=5))
    return viewer


def partitions(length: int) -> st.SearchStrategy[dict[str, Any]]:
    """One matcher per prefix, or static or dynamic parts."""
    static = st.lists(st.integers(1, 5), min_size=length, max_size=length)
    dynamic = st.tuples(st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]), st.integers(1, 6))
    return st.one_of(
        st.just({}),
        st.builds(lambda parts: {"static": parts}, static),
        st.builds(lambda aim: {"dynamic": aim}, dynamic),
    )
