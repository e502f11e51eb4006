"""The step tables against a dict of prefixes, over tiny catalogs of every shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.catalog import Catalog
from beamsieve.errors import InputError
from beamsieve.index import Index, Layout, StepTable
from beamsieve.index.leaves import child_of, tokens_of_row


@st.composite
def catalogs(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], bool]:
    """Rows of tokens, codebook sizes, and whether an end token is needed."""
    length = draw(st.integers(1, 4))
    codebooks = tuple(draw(st.sampled_from([1, 2, 3, 64, 65, 200])) for _ in range(length))
    end_token = draw(st.booleans())
    rows = draw(
        st.lists(
            st.lists(st.integers(0, 10**6), min_size=1 if end_token else length, max_size=length),
            min_size=1,
            max_size=30,
        )
    )
    sids = np.full((len(rows), length), -1, np.int64)
    for number, row in enumerate(rows):
        sids[number, : len(row)] = [t % v for t, v in zip(row, codebooks, strict=False)]
    return sids, codebooks, end_token


def spelled(sids: np.ndarray, codebooks: tuple[int, ...], end_token: bool) -> list[tuple[int, ...]]:
    """The distinct semantic IDs as tables spell them, sorted."""
    ends = (*codebooks, 0)
    found = set()
    for sid in sids.tolist():
        real = tuple(token for token in sid if token >= 0)
        found.add((*real, ends[len(real)]) if end_token else real)
    return sorted(found)


def prefixes(sids: list[tuple[int, ...]], depth: int) -> list[tuple[int, ...]]:
    return sorted({sid[:depth] for sid in sids if len(sid) >= depth})


@settings(max_examples=150, deadline=None)
@given(catalogs(), st.sampled_from([None, "dense", "sparse"]))
def test_tables_hold_exactly_the_prefixes(drawn, layout) -> None:
    sids, codebooks, end_token = drawn
    index = Index.build(Catalog.from_arrays(sids, codebooks=codebooks, end_token=end_token), layout)
    expected = spelled(sids, codebooks, end_token)

    assert index.leaf_count == len(expected)
    assert index.codebooks == ((*(v + 1 for v in codebooks), 1) if end_token else codebooks)
    for depth, table in enumerate(index.tables):
        parents, children = prefixes(expected, depth), prefixes(expected, depth + 1)
        assert (table.rows, table.entries) == (len(parents), len(children))
        assert layout is None or table.layout == layout
        assert table.widest == max(
            (sum(c[:depth] == p for c in children) for p in parents), default=0
        )
        for row, parent in enumerate(parents):
            tokens = [child[-1] for child in children if child[:depth] == parent]
            assert tokens_of_row(table, row).tolist() == tokens
            for token in range(-1, table.vocabulary + 1):
                child = (*parent, token)
                place = children.index(child) if child in children else -1
                assert child_of(table, row, token) == place


@settings(max_examples=150, deadline=None)
@given(catalogs())
def test_leaves_are_the_sids_in_order_and_rows_cover_them(drawn) -> None:
    sids, codebooks, end_token = drawn
    index = Index.build(Catalog.from_arrays(sids, codebooks=codebooks, end_token=end_token))
    expected = spelled(sids, codebooks, end_token)

    users = [list(sid[:-1] if end_token else sid) for sid in expected]
    shown = [[t for t in row if t >= 0] for row in index.sid_of_leaf(range(len(users))).tolist()]
    assert shown == users
    for depth in range(index.length + 1):
        starts, ends = index.leaf_starts(depth), index.leaf_ends(depth)
        found = prefixes(expected, depth)
        assert len(starts) == len(found) + 1
        assert starts[-1] == len(expected)
        for row, prefix in enumerate(found):
            covered = [n for n, sid in enumerate(expected) if sid[:depth] == prefix]
            assert list(range(starts[row], ends[row])) == covered
            finished = prefix in expected
            place = (expected.index(prefix), True) if finished else (row, False)
            assert index.row_of(prefix) == place
    for leaf, sid in enumerate(users):
        assert index.contains(sid)
        rows = [n for n, row in enumerate(sids.tolist()) if [t for t in row if t >= 0] == sid]
        assert index.items_of(sid) == rows
        assert index.leaf_of(sid) == leaf


@settings(max_examples=50, deadline=None)
@given(catalogs(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter_to_the_tables(drawn, random) -> None:
    sids, codebooks, end_token = drawn
    rows = list(range(len(sids)))
    random.shuffle(rows)
    names = [f"item {row}" for row in rows]
    first = Index.build(Catalog.from_arrays(sids, codebooks=codebooks, end_token=end_token))
    again = Index.build(
        Catalog.from_arrays(sids[rows], names, codebooks=codebooks, end_token=end_token)
    )
    assert first.sid_fingerprint == again.sid_fingerprint
    for one, other in zip(first.tables, again.tables, strict=True):
        assert same_bytes(one, other)


def same_bytes(one: StepTable, other: StepTable) -> bool:
    if one.arrays.keys() != other.arrays.keys():
        return False
    return all(
        array.dtype == other.arrays[name].dtype and array.tobytes() == other.arrays[name].tobytes()
        for name, array in one.arrays.items()
    )


def test_fingerprint_names_sids_and_items_but_not_layout() -> None:
    sids = [[0, 1], [0, 2], [1, 0]]
    build = Index.build
    base = build(Catalog.from_arrays(sids, ["a", "b", "c"]))
    assert (
        base.fingerprint == build(Catalog.from_arrays(sids, ["a", "b", "c"]), "dense").fingerprint
    )
    assert base.fingerprint == build(Catalog.from_arrays(sids[::-1], ["c", "b", "a"])).fingerprint
    renamed = build(Catalog.from_arrays(sids, ["a", "b", "x"]))
    assert base.fingerprint != renamed.fingerprint
    assert base.sid_fingerprint == renamed.sid_fingerprint
    wider = build(Catalog.from_arrays(sids, ["a", "b", "c"], codebooks=[2, 4]))
    assert base.sid_fingerprint != wider.sid_fingerprint


def test_smaller_layout_is_taken() -> None:
    full = np.stack(np.meshgrid(range(64), range(64), indexing="ij"), axis=-1).reshape(-1, 2)
    assert [t.layout for t in Index.build(Catalog.from_arrays(full)).tables] == ["dense", "dense"]
    thin = Index.build(Catalog.from_arrays(full[::64], codebooks=4096))
    assert [t.layout for t in thin.tables] == ["sparse", "sparse"]
    for index in (Index.build(Catalog.from_arrays(full)), thin):
        for table in index.tables:
            other: Layout = "sparse" if table.layout == "dense" else "dense"
            forced = Index.build(Catalog.from_arrays(full[::64], codebooks=4096), other)
            assert forced.tables[table.step - 1].layout == other


def test_chains_of_single_children_cost_their_tokens_alone() -> None:
    rows = np.arange(2000)
    sids = np.column_stack([rows, rows % 7, rows % 5, rows % 3])
    index = Index.build(Catalog.from_arrays(sids, codebooks=[2000, 8, 8, 8]))
    for table in index.tables[1:]:
        assert table.starts.kind == "identity"
        assert table.nbytes <= 2000 * 3 / 8 + 8  # three bits for each token
    assert index.sid_of_leaf(rows).tolist() == sids.tolist()
    ended = Index.build(Catalog.from_arrays(sids, codebooks=[2000, 8, 8, 8], end_token=True))
    assert ended.tables[-1].nbytes <= 2000 / 8 + 8


@pytest.mark.parametrize("codebook", [1, 2, 2**16, 2**24])
def test_catalogs_of_one_item_and_of_the_smallest_and_largest_codebooks(codebook) -> None:
    for count in (1, min(codebook, 300)):
        sids = np.linspace(0, codebook - 1, count).astype(np.int64)
        sids = np.column_stack([sids, sids[::-1]])
        index = Index.build(Catalog.from_arrays(sids, codebooks=codebook))
        assert index.sid_of_leaf(range(count)).tolist() == sids.tolist()
        assert [index.leaf_of(sid) for sid in sids.tolist()] == list(range(count))
        assert not index.contains([sids[0, 0], codebook])
        assert index.device_bytes <= 2 * (count * 4 + 16)


@settings(max_examples=60, deadline=None)
@given(catalogs(), st.sampled_from([None, "dense", "sparse"]))
def test_every_choice_is_explained_by_the_bytes_of_all_candidates(drawn, layout) -> None:
    sids, codebooks, end_token = drawn
    index = Index.build(Catalog.from_arrays(sids, codebooks=codebooks, end_token=end_token), layout)
    for table in index.stats()["tables"]:
        for part in ("starts", "tokens"):
            candidates = table[part]["candidates"]
            assert table[part]["bytes"] == candidates[table[part]["kind"]]
            if layout == "sparse":
                candidates = {kind: size for kind, size in candidates.items() if kind != "dense"}
            if layout != "dense" or part == "starts":
                assert table[part]["bytes"] == min(candidates.values())
        assert table["bytes"] == table["starts"]["bytes"] + table["tokens"]["bytes"]


@pytest.mark.parametrize("layout", [None, "dense"])
@pytest.mark.parametrize("end_token", [False, True])
def test_few_leaves_are_spelled_as_all_are(layout, end_token) -> None:
    sids = np.random.default_rng(2).integers(0, [90, 700, 30], (20_000, 3))
    index = Index.build(
        Catalog.from_arrays(sids, end_token=end_token),
        [layout, layout, None, None][: 3 + end_token],
    )
    whole = index.sid_of_leaf(range(index.leaf_count))
    assert whole.tolist() == np.unique(sids, axis=0).tolist()
    some = np.arange(0, index.leaf_count, 11)[::-1]
    assert index.sid_of_leaf(some).tolist() == whole[some].tolist()


def test_collisions_keep_input_order_and_multi_path_items_are_one() -> None:
    sids = [[1, 1], [0, 0], [1, 1], [1, 1], [0, 5]]
    catalog = Catalog.from_arrays(sids, ["z", "y", "x", "z", "x"])
    index = Index.build(catalog)
    assert catalog.duplicates == 1
    assert index.items_of([1, 1]) == ["z", "x"]
    assert index.items_of([0, 5]) == ["x"]
    assert list(index.items) == ["y", "x", "z"]
    assert index.items_of([3, 3]) == []
    counts, numbers = index.items_of_leaves([2, 0])
    assert counts.tolist() == [2, 1]
    assert index.items.list(numbers) == ["z", "x", "y"]


def test_layout_argument_is_checked() -> None:
    catalog = Catalog.from_arrays([[0, 1]])
    with pytest.raises(InputError, match="names 1 tables, but the index has 2"):
        Index.build(catalog, ["dense"])
    with pytest.raises(InputError, match="'tall'"):
        Index.build(catalog, "tall")  # type: ignore[arg-type]
    assert [t.layout for t in Index.build(catalog, ["dense", "sparse"]).tables] == [
        "dense",
        "sparse",
    ]


def test_arguments_of_another_kind_are_refused() -> None:
    catalog = Catalog.from_arrays([[0, 1], [1, 0]])
    index: Any = Index.build(catalog)
    for call in (index.contains, index.children, index.items_of):
        for wrong in (5, None):
            with pytest.raises(InputError, match=f"{wrong} is no prefix"):
                call(wrong)
    with pytest.raises(InputError, match="depth is 'a'"):
        index.leaf_starts("a")
    for leaf in ("a", None, 0.5, True, [0, "a"], [[0], [0, 1]]):
        with pytest.raises(InputError, match="names no leaf"):
            index.sid_of_leaf(leaf)
    assert index.sid_of_leaf([]).shape == (0, 2)
    build: Any = Index.build
    with pytest.raises(InputError, match="of a Catalog, not of None"):
        build(None)
    with pytest.raises(InputError, match="layout is 5"):
        build(catalog, 5)
    with pytest.raises(InputError, match="static is 5"):
        build(catalog, static=5)


def test_every_semantic_id_of_several_lengths_is_a_leaf(tmp_path: Path) -> None:
    sids = [[0, 1, 2], [0, 2, -1], [1, -1, -1], [0, 1, 0]]
    index = Index.build(Catalog.from_arrays(sids, codebooks=3))
    index.save(tmp_path / "index")
    for each in (index, Index.load(tmp_path / "index")):
        assert each.leaf_count == 4
        assert each.leaf_of([1]) == 3
