"""Two indexes have one fingerprint exactly when the specification calls them the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.targeting import Attribute
from beamsieve_spec.targeting_matchers import Targeting

from .worlds import World, rule, worlds

pytestmark = pytest.mark.filterwarnings("ignore::beamsieve.targeting.UnreachableItemWarning")

PARTITIONS: list[dict[str, Any]] = [{}, {"static": [2, 2, 2]}, {"dynamic": (0.2, 3)}]


def changed(draw: st.DrawFn, world: World) -> World:
    """The same catalog in another order or in other words, or another one."""
    rows = range(len(world.sids))
    kind = draw(
        st.sampled_from(
            ["order", "order", "order", "item", "token", "codebook", "rule", "words", "declared"]
        )
    )
    if kind == "order":
        order = draw(st.permutations(rows))
        return replace(
            world, sids=[world.sids[r] for r in order], items=[world.items[r] for r in order]
        )
    if kind == "item":
        place, name = draw(st.sampled_from(rows)), draw(st.sampled_from("abcdefghijklmnop"))
        items = [name if row == place else item for row, item in enumerate(world.items)]
        return replace(world, items=items)
    if kind == "token":
        place, token = draw(st.sampled_from(rows)), draw(st.integers(0, 3))
        sids = [[token, *sid[1:]] if row == place else sid for row, sid in enumerate(world.sids)]
        return replace(world, sids=sids)
    if kind == "codebook":
        return replace(world, codebooks=[*world.codebooks[:-1], draw(st.integers(4, 5))])
    if kind == "declared":
        return replace(world, declared=draw(st.permutations(world.declared)))
    if not world.declared:
        return world
    item = draw(st.sampled_from(world.items))
    name = draw(st.sampled_from([attribute["name"] for attribute in world.declared]))
    mine = dict(world.rules.get(item, {}))
    if kind == "rule":
        mine[name] = draw(rule(name))
    else:  # the same values, in another order and with one of them twice
        mine[name] = {
            part: said if isinstance(said, int) else [*said[::-1], *said[:1]]
            for part, said in mine.get(name, {}).items()
        }
    return replace(world, rules={**world.rules, item: mine})


def identity(world: World, partition: dict[str, Any]) -> Any:
    """What the specification says that the fingerprint names."""
    return Targeting(world.trie(), world.spec_attributes(), world.rules, **partition).identity()


def static_for(world: World, partition: dict[str, Any]) -> dict[str, Any]:
    """A partition with as many levels as the catalog has."""
    if "static" not in partition:
        return partition
    return {"static": (partition["static"] * 2)[: world.trie().length]}


@settings(max_examples=120, deadline=None)
@given(worlds(), st.data())
def test_equal_exactly_when_the_specification_says_so(world: World, data: st.DataObject) -> None:
    other = data.draw(st.composite(changed)(world))
    mine, theirs = (
        static_for(world, data.draw(st.sampled_from(PARTITIONS), label=name))
        for name in ("partition", "the other's")
    )
    if data.draw(st.booleans()):
        theirs = mine
    try:
        same = identity(world, mine) == identity(other, theirs)
    except ValueError:  # a changed token made one semantic ID the prefix of another
        return
    left, right = world.index(**mine), other.index(**theirs)
    assert (left.fingerprint == right.fingerprint) == same
    sids = [(world.trie().codebooks, world.trie().leaves) for world in (world, other)]
    assert (left.sid_fingerprint == right.sid_fingerprint) == (sids[0] == sids[1])


def test_a_number_is_another_item_than_its_digits() -> None:
    numbers, strings = (Catalog.from_arrays([[0], [1]], items) for items in ([1, 2], ["1", "2"]))
    assert Index.build(numbers).fingerprint != Index.build(strings).fingerprint


def test_fingerprints_stay_what_they_are() -> None:
    """Checkpoints and plans name an index by its fingerprint, so another release must find it."""
    sids, items = [[0, 1], [0, 2], [1, 0], [1, 0]], ["a", "b", "c", "d"]
    plain = Index.build(Catalog.from_arrays(sids, items))
    assert plain.sid_fingerprint == "54444c6e7dc171f7a249db93b395eeaa"
    assert plain.fingerprint == "cedfbcaf0fd05651792f66dcf4767f7e"
    country, place = Attribute("country", ["US", "CA"]), Attribute("place", bloom=64)
    rules = [{"country": {"accepts": ["US"]}}, {"place": {"accepts": ["x", 7]}}, {}, {}]
    ruled = Index.build(
        Catalog.from_arrays(sids, items, attributes=[country, place], rules=rules), static=[2, 1]
    )
    assert ruled.fingerprint == "cc8d79ec90fb9503193e7ea495345f0d"
