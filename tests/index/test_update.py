"""An updated index is, byte for byte, the one that a full build of the changed catalog gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamsieve import Catalog, CatalogError, Index, InputError
from beamsieve.targeting import Attribute

Pair = tuple[Any, tuple[int, ...]]


ATTRIBUTES = [
    Attribute("country", ["US", "CA", "FR"]),
    Attribute("place", bloom=64),
    Attribute("time", bloom=128),
]
RULES: list[Any] = [
    {},
    {"country": {"accepts": ["US"]}},
    {"country": {"accepts": ["US"]}, "place": {"accepts": ["p", "q"]}},
    {"place": {"accepts": ["q"]}, "time": {"refuses": ["noon"]}},
    {"place": {"accepts": ["q", "p"]}},
    {"country": {"refuses": ["FR", "CA"]}, "time": {"accepts": ["noon", "night"]}},
    {"country": {"accepts": []}, "place": {"accepts": []}, "time": {"refuses": ["dawn"]}},
]


def build(
    pairs: list[Pair],
    codebooks: list[int],
    dynamic: tuple[float, int] | None = None,
    **options: Any,
) -> Index:
    return Index.build(catalog_of(pairs, codebooks, **options), dynamic=dynamic)


def catalog_of(
    pairs: list[Pair],
    codebooks: list[int],
    titles: bool,
    end_token: bool,
    rules: list[int] | None = None,
) -> Catalog:
    """``rules`` say which of RULES an item has: by its id, so that all its rows have the same."""
    width = len(codebooks)
    of_rows = None
    if rules is not None:
        numbers = [int(str(item).strip("i-")) for item, _ in pairs]
        of_rows = [RULES[rules[number % len(rules)]] for number in numbers]
    return Catalog.from_arrays(
        np.array([[*sid, *[-1] * (width - len(sid))] for _, sid in pairs]),
        items=[item for item, _ in pairs],
        codebooks=codebooks,
        titles=[f"about {item}" for item, _ in pairs] if titles else None,
        end_token=end_token,
        attributes=ATTRIBUTES if rules is not None else (),
        rules=of_rows,
    )


def saved(index: Index, folder: Path) -> bytes:
    index.save(folder / "index.safetensors")
    return (folder / "index.safetensors").read_bytes()


def pairs_of(index: Index) -> list[Pair]:
    """The index's pairs, in its own order."""
    found = []
    for leaf in range(index.leaf_count):
        sid = tuple(token for token in index.sid_of_leaf(leaf).tolist() if token >= 0)
        found += [(item, sid) for item in index.items_of(sid)]
    return found


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[Pair], list[Pair], list[int], dict[str, Any]]:
    codebooks = draw(st.sampled_from([[3], [2, 3], [4, 300, 3], [2, 2, 2, 2], [70, 5, 1]]))
    kind = draw(st.sampled_from(["one each", "collisions", "several each"]))
    of_one_length = draw(st.booleans())
    end_token = draw(st.booleans()) if of_one_length else True
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    strings = draw(st.booleans())

    def pairs(count: int, first: int) -> list[Pair]:
        made = []
        for number in range(count):
            length = (
                len(codebooks) if of_one_length else int(random.integers(1, len(codebooks) + 1))
            )
            sid = tuple(int(random.integers(0, size)) for size in codebooks[:length])
            item = first + number if kind != "several each" else int(random.integers(0, 12))
            made.append((f"i{item}" if strings else item * 7 - 5, sid))
        if kind == "one each":
            made = list({sid: (item, sid) for item, sid in made}.values())
        return made

    options: dict[str, Any] = {"titles": draw(st.booleans()), "end_token": end_token}
    if draw(st.booleans()):
        options["rules"] = random.integers(0, len(RULES), 5).tolist()
        options["dynamic"] = draw(st.sampled_from([None, (0.3, 3)]))
    old = pairs(draw(st.integers(1, 40)), 0)
    new = pairs(draw(st.integers(0, 15)), 100)
    return old, new, codebooks, options


@pytest.mark.filterwarnings("ignore::beamsieve.targeting.rules.UnreachableItemWarning")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes(), st.data())
def test_an_update_is_a_full_build(
    tmp_path: Path, change: tuple[Any, ...], data: st.DataObject
) -> None:
    old, new, codebooks, options = change
    dynamic = options.pop("dynamic", None)
    index = build(old, codebooks, dynamic, **options)
    pairs = pairs_of(index)
    way = data.draw(st.sampled_from(["items", "sids", "pairs", "nothing"]))
    chosen = data.draw(st.sets(st.sampled_from(range(len(pairs))))) if way != "nothing" else set()
    picked = [pairs[number] for number in sorted(chosen)]
    arguments: dict[str, Any] = {}
    if way == "items":
        gone = {item for item, _ in picked}
        arguments["remove"] = sorted(gone)
        pairs = [pair for pair in pairs if pair[0] not in gone]
    elif way == "sids" and picked:
        width = len(codebooks)
        arguments["remove_sids"] = [[*sid, *[-1] * (width - len(sid))] for _, sid in picked]
        pairs = [pair for pair in pairs if pair[1] not in {sid for _, sid in picked}]
    elif way == "pairs" and picked:
        arguments["remove"] = catalog_of(picked, codebooks, False, options["end_token"])
        pairs = [pair for pair in pairs if pair not in picked]
    if new:
        arguments["add"] = catalog_of(new, codebooks, **options)
    if not pairs + new:
        with pytest.raises(CatalogError, match="Nothing would be left"):
            index.update(**arguments)
        return
    threads = data.draw(st.integers(1, 3))
    updated = index.update(**arguments, threads=threads)
    expected = build(pairs + new, codebooks, dynamic, **options)
    assert pairs_of(updated) == pairs_of(expected)
    assert saved(updated, tmp_path) == saved(expected, tmp_path)
    assert updated.fingerprint == Index(updated.parts).fingerprint


@pytest.mark.parametrize("length", [3, 4])
def test_many_rows_in_every_layout(tmp_path: Path, length: int) -> None:
    random = np.random.default_rng(length)
    top = [40, 300, 2000, 2000][:length]

    def rows(count: int) -> np.ndarray:
        return (random.random((count, length)) ** 3 * top).astype(np.int64)

    sids = np.unique(rows(60_000), axis=0)
    random.shuffle(sids)
    ids = random.permutation(len(sids)) * 3
    index = Index.build(Catalog.from_arrays(sids, items=ids, codebooks=top))
    forms = {(table.token_kind, table.starts.kind) for table in index.tables}
    assert {kind for kind, _ in forms} >= {"dense", "packed"}
    gone = random.choice(len(sids), 900, replace=False)
    more = np.concatenate([rows(900), sids[gone[:50]]])
    new_ids = np.arange(len(more)) * 3 + 1
    add = Catalog.from_arrays(more, items=new_ids, codebooks=top)
    updated = index.update(add, ids[gone].tolist())
    kept = np.delete(np.arange(len(sids)), gone)
    whole = Catalog.from_arrays(
        np.concatenate([sids[kept], more]),
        items=np.concatenate([ids[kept], new_ids]),
        codebooks=top,
    )
    assert saved(updated, tmp_path) == saved(Index.build(whole), tmp_path)
    dense = index.update(add, ids[gone], layout="dense")
    assert dense.fingerprint == updated.fingerprint
    assert {table.layout for table in dense.tables} == {"dense"}


def test_tables_that_nothing_touches_are_shared() -> None:
    index = small()
    more = Catalog.from_arrays([[0, 1], [2, 2]], items=["d", "e"], codebooks=[3, 4])
    first = index.update(Catalog.from_arrays([[0, 1]], items=["d"], codebooks=[3, 4]))
    assert all(one is other for one, other in zip(first.tables, index.tables, strict=True))
    assert first.items_of([0, 1]) == ["a", "d"]
    second = index.update(more)
    assert second.tables[0] is index.tables[0]
    assert second.tables[1] is not index.tables[1]
    dense = index.update(remove=["c"], add=more, layout="sparse")
    assert {table.layout for table in dense.tables} == {"sparse"}


SMALL = [("a", (0, 1)), ("b", (0, 2)), ("c", (2, 1))]


def small(**options: Any) -> Index:
    return Index.build(
        Catalog.from_arrays([sid for _, sid in SMALL], items=list("abc"), codebooks=4, **options)
    )


def test_what_is_not_there_is_named() -> None:
    index = small()
    with pytest.raises(CatalogError, match="Item 'x' is not in the index"):
        index.update(remove=["a", "x"])
    with pytest.raises(CatalogError, match=r"Semantic ID \[3, 1\] \(row 1 of remove_sids\)"):
        index.update(remove_sids=[[0, 1], [3, 1]])
    other = Catalog.from_arrays([[0, 2]], items=["a"], codebooks=4)
    with pytest.raises(CatalogError, match=r"row 0: the index does not hold item 'a' under"):
        index.update(remove=other)


def test_what_is_not_there_can_be_skipped() -> None:
    index = small()
    other = Catalog.from_arrays([[0, 2], [2, 1]], items=["a", "c"], codebooks=4)
    cases: list[dict[str, Any]] = [
        {"remove": ["x", 5, "c"]},
        {"remove_sids": [[9, 9], [2, 1]]},
        {"remove": other},
    ]
    for arguments in cases:
        updated = index.update(**arguments, on_missing="skip")
        assert sorted(updated.items) == ["a", "b"]
    assert sorted(index.items) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"remove": "a"}, "give a list of item ids"),
        ({"on_missing": "ignore"}, "on_missing is 'ignore'"),
        ({"add": [[1, 2]]}, "add is a list"),
        ({"remove_sids": [[1, 2, 3]]}, "has 3 levels, but the index has 2"),
        ({"add": ([[1, 2, 3]], ["x"])}, "have 3 levels, but those of the index have 2"),
        ({"add": ([[1, 2], [1, 7]], ["x", "y"])}, "row 1: token 7 at level 2 is not below"),
        ({"add": ([[1, 2]], [5])}, "the item ids of the index are strings, but these are integers"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: dict[str, Any], message: str) -> None:
    if isinstance(arguments.get("add"), tuple):
        arguments["add"] = Catalog.from_arrays(arguments["add"][0], items=arguments["add"][1])
    with pytest.raises((InputError, CatalogError), match=message):
        small().update(**arguments)


def test_a_prefix_of_another_is_refused() -> None:
    add = Catalog.from_arrays([[2, -1]], items=["x"], codebooks=[4, 4])
    with pytest.raises(CatalogError, match="proper prefix"):
        small().update(add)


def targeted(rules: list[Any], pairs: Sequence[Pair] = SMALL) -> Catalog:
    sids, items = [sid for _, sid in pairs], [item for item, _ in pairs]
    return Catalog.from_arrays(sids, items, codebooks=4, attributes=ATTRIBUTES, rules=rules)


def test_an_item_that_stays_keeps_its_rules_and_a_returning_one_brings_new_ones() -> None:
    index = Index.build(targeted(RULES[1:4]))
    other = targeted([RULES[5]], [("b", (3, 3))])
    with pytest.raises(CatalogError, match="item 'b' has other rules in the index"):
        index.update(other)
    same = index.update(targeted([RULES[2]], [("b", (3, 3))]))
    changed = index.update(other, remove=["b"])
    for updated, eligible in ((same, [True]), (changed, [False])):
        number = updated.items.numbers(["b"])
        request = {"country": "US", "place": ["q"], "time": ["dusk"]}
        assert updated.eligible(request, number).tolist() == eligible


@pytest.mark.parametrize("attributes", [(), ATTRIBUTES[:1], ATTRIBUTES[::-1]])
def test_other_attributes_are_refused(attributes: list[Attribute]) -> None:
    index = Index.build(targeted(RULES[:3]))
    add = Catalog.from_arrays([[3, 3]], ["x"], codebooks=4, attributes=attributes)
    with pytest.raises(CatalogError, match="declare the very attributes of the index"):
        index.update(add)
    with pytest.raises(CatalogError, match="those of the index on no attributes"):
        small().update(targeted([{}], [("x", (3, 3))]))


def test_partitions_stay_through_a_file_and_an_update(tmp_path: Path) -> None:
    pairs = [(f"i{n}", (n % 3, n // 3 % 4)) for n in range(12)]
    rules = [RULES[n % 6] for n in range(12)]
    Index.build(targeted(rules, pairs), static=[3, 1]).save(tmp_path / "divided")
    updated = Index.load(tmp_path / "divided").update(remove=["i4"])
    kept = [n for n in range(12) if n != 4]
    whole = targeted([rules[n] for n in kept], [pairs[n] for n in kept])
    expected = Index.build(whole, static=[3, 1])
    assert saved(updated, tmp_path) == saved(expected, tmp_path)


def test_an_item_keeps_its_title_and_a_returning_one_gets_a_new_one() -> None:
    index = small(titles=["A", "B", "C"])
    add = Catalog.from_arrays([[3, 3], [3, 2]], items=["a", "b"], codebooks=4, titles=["A2", "B2"])
    updated = index.update(add, ["b"])
    assert updated.titles is not None
    assert dict(zip(updated.items, updated.titles.to_pylist(), strict=True)) == {
        "a": "A",
        "b": "B2",
        "c": "C",
    }
