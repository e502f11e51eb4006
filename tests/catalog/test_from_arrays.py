"""Arrays as a catalog: what is accepted, what is refused and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from beamsieve.catalog import Catalog
from beamsieve.errors import CatalogError
from beamsieve.index import Index
from beamsieve.targeting import Attribute

build = Catalog.from_arrays


def test_defaults() -> None:
    catalog = build([[0, 5], [3, 2]])
    assert catalog.codebooks == (4, 6)
    assert list(catalog.items) == [0, 1]
    assert catalog.sids.dtype == np.int32
    assert build([[0, 5]], codebooks=10).codebooks == (10, 10)


@pytest.mark.parametrize(
    "items",
    [
        ["x", "y"],
        np.array(["x", "y"]),
        np.array(["x", "y"], object),
        pa.array(["x", "y"]),
        pa.chunked_array([["x"], ["y"]]),
        pa.array(["x", "y"]).dictionary_encode(),
        pd.Series(["x", "y"]),
        pd.Series(["x", "y"], dtype="category"),
    ],
    ids=lambda items: type(items).__name__,
)
def test_string_items_of_any_kind(items: object) -> None:
    assert list(build([[0], [1]], items).items) == ["x", "y"]


@pytest.mark.parametrize(
    "items",
    [[7, 9], (7, 9), np.array([7, 9], np.uint8), pa.array([7, 9], pa.int16()), pd.Series([7, 9])],
    ids=lambda items: type(items).__name__,
)
def test_integer_items_of_any_kind(items: object) -> None:
    assert list(build([[0], [1]], items).items) == [7, 9]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["x", 1], "sids, row 1: the item id 1 is not a string, as the first"),
        ([1.5, 2.0], "sids, row 0: the item id 1.5 is neither a 64-bit integer nor a string"),
        ([True, False], "not bool"),
        (["x", None], "sids, row 1: the item id is missing"),
        (["x", ""], "sids, row 1: the item id is missing"),
        ([1, 2**63], "row 1: the item id 9223372036854775808 is neither"),
        (np.array([1, 2**63], np.uint64), "64-bit"),
        (["x"], "1 items for 2 semantic IDs"),
        ([b"x", b"y"], "not binary"),
    ],
)
def test_items_refused(items: object, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        build([[0], [1]], items)


@pytest.mark.parametrize(
    ("items", "kept", "reason"),
    [
        (["x", 1, "y"], ["x", "y"], "unreadable item id"),
        ([7, "x", 9], [7, 9], "unreadable item id"),
        ([7, 2**63, 9.0], [7, 9], "unreadable item id"),
        (["x", b"x", "y"], ["x", "y"], "unreadable item id"),
        (["x", "\ud800", "y"], ["x", "y"], "unreadable item id"),
        (["x", None, "y"], ["x", "y"], "missing item id"),
        ([7, float("nan"), 9], [7, 9], "missing item id"),
        (np.array([7, 1.5, 9]), [7, 9], "unreadable item id"),
        (np.array(["x", ["y"], "z"], object), ["x", "z"], "unreadable item id"),
        (pd.Series([7, 1.5, 9]), [7, 9], "unreadable item id"),
        (pa.array([7, None, 9]), [7, 9], "missing item id"),
    ],
    ids=str,
)
def test_rows_whose_item_ids_cannot_be_used_are_skipped(
    items: Any, kept: list[Any], reason: str
) -> None:
    with pytest.raises(CatalogError, match=r"row 1: .* \(rows count from 0\)\.$"):
        build([[0], [1], [2]], items)
    catalog = build([[0], [1], [2]], items, on_error="skip")
    assert list(catalog.items) == kept
    assert catalog.sids.tolist() == [[0], [2]]
    assert catalog.rejected == {reason: 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1, -3], "sids, row 2: token -3 at level 2 is negative"),
        ([9, 1], "sids, row 2: token 9 at level 1 is not below its codebook's size, 9"),
        ([2**40, 1], "sids, row 2: token 1099511627776 at level 1 is not below"),
        ([-1, 1], "sids, row 2: -1 at level 1 is followed by another token"),
        ([-1, -1], "sids, row 2: the semantic ID is missing"),
        ([5, -1], r"sids, row 2: the semantic ID is a proper prefix .* \(value: \[5\]\)"),
    ],
)
def test_bad_rows_raise_or_are_skipped(row: list[int], message: str, tmp_path: Path) -> None:
    sids = [[0, 0], [5, 6], row, [8, 8]]
    with pytest.raises(CatalogError, match=message):
        build(sids, codebooks=[9, 9])
    rejects = tmp_path / "rejects.jsonl"
    catalog = build(sids, "abcd", codebooks=[9, 9], on_error="skip", rejects=rejects)
    assert list(catalog.items) == ["a", "b", "d"]
    assert sum(catalog.rejected.values()) == 1
    written = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(line["file"], line["row"]) for line in written] == [("sids", 2)]
    assert catalog.report.rejected == catalog.rejected


def test_all_prefixes_of_others_are_refused_whatever_the_order() -> None:
    sids = [[1, -1, -1], [1, 2, -1], [1, 2, 3], [1, 2, -1], [0, 0, -1]]
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 3, 4, 1]):
        catalog = build([sids[row] for row in order], order, on_error="skip")
        assert sorted(catalog.items) == [2, 4]
        assert catalog.rejected == {"proper prefix of another": 3}
    both = Index.build(build(sids, end_token=True))
    assert all(both.contains([t for t in sid if t >= 0]) for sid in sids)
    assert both.items_of([1, 2]) == [1, 3]


@pytest.mark.parametrize("sids", [[], np.empty((0, 3), int)])
def test_empty_catalog_is_refused(sids: Any) -> None:
    with pytest.raises(CatalogError, match="at least one item"):
        build(sids)


def test_catalog_of_rejected_rows_is_refused() -> None:
    with pytest.raises(CatalogError, match="every row was rejected"):
        build([[-7, 1], [-1, -1]], on_error="skip")


@pytest.mark.parametrize(
    ("sids", "message"),
    [
        ([0, 1], r"shape \(2,\)"),
        ([[0.5, 1.0]], "dtype float64; tokens must be integers"),
        ([["a", "b"]], "tokens must be integers"),
        ([[0, 1], ["x"]], "row 1: .* no list of integers"),
        ([[0, -1], [1, -1]], "no semantic ID reaches level 2"),
    ],
)
def test_arrays_of_other_kinds_are_refused(sids: Any, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        build(sids)


@pytest.mark.parametrize(
    ("codebooks", "message"),
    [
        ([4], "2 levels, but there are 1 codebook sizes"),
        ([4, 0], "level 2 has size 0"),
        ([4, 2.5], "level 2 has size 2.5"),
        ([], "codebooks is empty"),
        ([4, 2**31], "level 2 has size 2147483648"),
    ],
)
def test_codebooks_refused(codebooks: Any, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        build([[0, 1]], codebooks=codebooks)


def test_lists_of_unequal_lengths_are_padded() -> None:
    catalog = build([[1, 2, 3], [2], [3, 1]])
    assert catalog.sids.tolist() == [[1, 2, 3], [2, -1, -1], [3, 1, -1]]


def test_levels_that_no_sid_reaches_may_be_named_by_codebooks() -> None:
    index = Index.build(build([[1], [0]], codebooks=[2, 5]))
    assert index.length == 2
    assert index.tables[1].entries == 0
    assert index.row_of([1]) == (1, True)


def test_on_error_is_checked() -> None:
    with pytest.raises(CatalogError, match="on_error is 'ignore'"):
        build([[0]], on_error="ignore")  # type: ignore[arg-type]


def test_titles_are_of_the_first_row_of_an_item() -> None:
    catalog = build([[0], [1], [2]], ["x", "y", "x"], titles=["X", None, "other"])
    index = Index.build(catalog)
    assert index.titles_of(index.items.numbers(["y", "x"])) == [None, "X"]
    with pytest.raises(CatalogError, match="1 titles for 2"):
        build([[0], [1]], titles=["X"])


def test_report_counts_everything() -> None:
    sids = [[0, 1], [0, 1], [0, 2], [3, -1], [0, 1], [0, 2], [9, 9]]
    catalog = build(sids, "abcdaac", codebooks=[4, 5], on_error="skip")
    report = catalog.report
    assert report.rows == 6
    assert report.rejected == {"token outside its codebook": 1}
    assert (report.items, report.sids, report.duplicates) == (4, 3, 1)
    assert (report.collisions.groups, report.collisions.items, report.collisions.largest) == (
        2,
        4,
        2,
    )
    assert report.multi_path_items == 1
    assert report.depths == {1: 1, 2: 2}
    first, second = report.levels
    assert (first.rows, first.entries, first.tokens_used, first.max_children) == (1, 2, 2, 2)
    assert (second.rows, second.entries, second.mean_children) == (2, 2, 2.0)
    for layout in ("dense", "sparse", None):
        index = Index.build(catalog, layout)
        assert index.device_bytes == report.index_bytes[layout or "best"]
    assert json.loads(json.dumps(report.as_dict()))["collisions"]["groups"] == 2


def test_report_of_children_per_row() -> None:
    sids = [[0, token] for token in range(7)] + [[1, 0], [2, 0], [3, 3]]
    level = build(sids).report.levels[1]
    assert level.mean_children == 2.5
    assert level.median_children == 1.0
    assert level.p99_children == pytest.approx(np.percentile([7, 1, 1, 1], 99))
    assert level.max_children == 7


def test_item_numbers_are_found_again() -> None:
    items = build([[0], [1], [2]], [5, -3, 5]).items
    assert items.numbers([-3, 5, 6, "5", None, 2**70]).tolist() == [1, 0, -1, -1, -1, -1]
    names = build([[0], [1]], ["b", "a"]).items
    assert names.numbers(["a", "c", 1, "b"]).tolist() == [1, -1, -1, 0]
    assert names[1] == "a"
    assert list(names[::-1]) == ["a", "b"]


@pytest.mark.parametrize(
    ("sids", "row"),
    [
        ([[0, 1.7], [2]], 0),
        ([[0, True], [2]], 0),
        ([[0, 1], [False, 2]], 1),
        ([["1", "2"], [3]], 0),
        ([[0, 1], "23"], 1),
        ([[0, 1], 2], 1),
        ([[0, 1], None], 1),
        ([[0, 1], [2**63]], 1),
        ([[0, 1], np.array([0.5])], 1),
        ([[0, 1], np.array([2**63], np.uint64)], 1),
    ],
)
def test_bad_tokens_of_unequal_rows(sids: list[Any], row: int) -> None:
    with pytest.raises(CatalogError, match=f"row {row}: the semantic ID is no list of") as caught:
        build(sids)
    assert "value: " in str(caught.value)
    kept = build(sids, ["a", "b"], on_error="skip")
    assert list(kept.items) == ["b" if row == 0 else "a"]
    assert kept.rejected == {"unreadable semantic ID": 1}


def test_masked_cells_are_refused() -> None:
    masked = np.ma.masked_array([[0, 1], [2, 3]], [[False, False], [False, True]])
    with pytest.raises(CatalogError, match=r"cell \[1, 1\] is masked"):
        build(masked)
    with pytest.raises(CatalogError, match=r"Item ids: cell \[0\] is masked"):
        build([[0], [1]], np.ma.masked_array([5, 6], [True, False]))
    assert len(build(np.ma.masked_array([[0, 1], [2, 3]]))) == 2


@pytest.mark.parametrize("sids", [[[]], [[], []], np.empty((2, 0), np.int64)])
def test_empty_semantic_ids_alone(sids: Any) -> None:
    with pytest.raises(CatalogError, match="row 0: the semantic ID is missing"):
        build(sids)
    with pytest.raises(CatalogError, match="every row was rejected"):
        build(sids, on_error="skip")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"codebooks": 5.0}, r"codebooks is 5\.0; give one size"),
        ({"codebooks": np.array(5)}, r"codebooks is array\(5\)"),
        ({"codebooks": True}, "size True; give an integer from 1"),
        ({"codebooks": 2**31}, "size 2147483648; give an integer from 1 to 2147483647"),
        ({"items": 5}, "Item ids are 5; give a list"),
        ({"items": ["a", "\ud800"]}, "row 1: the item id .* holds a lone surrogate"),
        ({"items": np.array(["a", "\ud800"])}, "row 1: the item id .* holds a lone surrogate"),
        ({"titles": ["a", "\ud800"]}, "titles, row 1: .* holds a lone surrogate"),
        ({"titles": 5}, "5 is no list of texts"),
        ({"titles": [1, "x"]}, "titles: these are no texts"),
        ({"titles": [[1], [2]]}, "titles: these are no texts"),
        ({"rules": 5}, "rules is 5; give a list"),
        ({"rules": {}}, "rules is {}; give a list"),
        ({"attributes": None}, "attributes is None; give a list"),
        ({"attributes": Attribute("a", bloom=64)}, "attributes is Attribute.*; give a list"),
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        build([[0], [1]], **arguments)


@pytest.mark.parametrize("place", [".", "missing/rejects.jsonl"])
def test_rejects_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    with pytest.raises(CatalogError, match=r"rejects is .* which cannot be written"):
        build([[0], [-3]], on_error="skip", rejects=tmp_path / place)
