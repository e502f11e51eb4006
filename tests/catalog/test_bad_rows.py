"""Rows of files that cannot be used: named by their place, or left out and counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from beamsieve.catalog import Catalog
from beamsieve.errors import CatalogError

ITEMS = ["a", "b", "c", "d"]


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "missing": (None, "the semantic ID is missing"),
    "blank": ("  ", "the semantic ID is missing"),
    "prose": ("none", "the semantic ID cannot be read"),
    "half a token": ("<a_1><b_", "cannot be read"),
    "letters out of order": ("<a_1><c_2><b_3>", "letters of its tokens are not a, b, c"),
    "two numbers glued": ("1 2 3-4", "cannot be read"),
    "negative": ("1 -2 3", "token -2 at level 2 is negative"),
    "too large": ("1 2 300", "token 300 at level 3 is not below its codebook's size, 256"),
    "huge": ("1 2 99999999999999999999", "cannot be read"),
    "over-long": ("1 2 3 4", "4 levels, but at most 3 are possible"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "index.json", "info"])
def test_bad_rows_of_files(case: str, kind: str, tmp_path: Path) -> None:
    value, message = BAD_ROWS[case]
    sids = ["1 2 3", "4 5 6", value, "7 8 9"]
    path = tmp_path / f"c.{ {'info': 'txt', 'index.json': 'json'}.get(kind, kind) }"
    where = {"csv": "data row 3", "parquet": "row 2", "index.json": "item 'c'"}.get(kind, "line 3")
    rows = list(zip(ITEMS, sids, strict=True))
    if kind == "csv":
        path.write_text("item,sid\n" + "".join(f"{i},{s or ''}\n" for i, s in rows))
    elif kind == "parquet":
        pq.write_table(pa.table({"item": ITEMS, "sid": sids}), path)
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps({"item": i, "sid": s}) for i, s in rows))
    elif kind == "info":
        path.write_text("".join(f"{s or ''}\tT\t{i}\n" for i, s in rows))
    else:
        path.write_text(json.dumps(dict(rows)))
    with pytest.raises(CatalogError, match=message) as caught:
        Catalog.read(path, codebooks=[256] * 3)
    assert f"{path}, {where}: " in str(caught.value)

    rejects = tmp_path / "rejects.jsonl"
    catalog = Catalog.read(path, codebooks=[256] * 3, on_error="skip", rejects=rejects)
    assert list(catalog.items) == ["a", "b", "d"]
    assert catalog.sids.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    (line,) = rejects.read_text().splitlines()
    assert json.loads(line)["file"] == str(path)
    assert sum(catalog.report.rejected.values()) == 1


def test_broken_csv_rows_are_named_by_their_place(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(b'item,sid\nx,"1 2"\ny,1,2\n"z\nz",3 4\nlonely\n,5 6\nv,7 8\nw,\xff\nu,9 z\n')
    with pytest.raises(CatalogError, match=r"data row 2: the row has 3 columns, the header 2"):
        Catalog.read(path)
    rejects = tmp_path / "rejects.jsonl"
    catalog = Catalog.read(path, on_error="skip", rejects=rejects)
    assert list(catalog.items) == ["x", "z\nz", "v"]
    written = map(json.loads, rejects.read_text().splitlines())
    found = {(line["data_row"], line["reason"]) for line in written}
    assert found == {
        (2, "the row has 3 columns, the header 2"),
        (4, "the row has 1 columns, the header 2"),
        (5, "the item id is missing"),
        (7, "the row is no text in UTF-8"),
        (8, "the semantic ID cannot be read"),
    }


def test_broken_json_lines_are_named_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"item": 1, "sid": [1, 2]}\n{"item": 2, "sid": [1\n\n[3]\n{"item": "4", "sid": [5, 6]}\n'
        '{"item": 5.5, "sid": [5, 6]}\n{"sid": [5, 6]}\n{"item": 6, "sid": [5, 1.5]}\n'
        '{"item": 7, "sid": {"a": 1}}\n{"item": 99999999999999999999, "sid": [9, 9]}\n'
        '{"item": 8, "sid": [9, 9]}\n'
    )
    with pytest.raises(CatalogError, match="line 2: the line is no JSON object"):
        Catalog.read(path)
    rejects = tmp_path / "rejects.jsonl"
    catalog = Catalog.read(path, on_error="skip", rejects=rejects)
    assert list(catalog.items) == [1, 8]
    lines = [json.loads(line)["line"] for line in rejects.read_text().splitlines()]
    assert lines == [2, 4, 5, 6, 7, 8, 9, 10]


def test_repeated_keys_of_an_index_file_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "c.index.json"
    path.write_text('{"0": ["<a_1>"], "0": ["<a_1>"], "0": ["<a_2>"]}')
    report = Catalog.read(path).report
    assert (report.rows, report.items, report.duplicates, report.multi_path_items) == (3, 1, 1, 1)


def test_integer_and_text_items_of_several_files_do_not_mix(tmp_path: Path) -> None:
    pq.write_table(pa.table({"item": [1], "sid": [[1]]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"item": ["x"], "sid": [[2]]}), tmp_path / "1.parquet")
    with pytest.raises(CatalogError, match="some item ids are integers and some are strings"):
        Catalog.read(tmp_path)


def test_batches_do_not_change_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    sids = np.unique(random.integers(0, 50, (500, 3)), axis=0)
    source = pa.table({"item": pa.array(range(len(sids))), "sid": list(sids)})
    bad = {120: [5, -5, 5], 333: None}
    spelled = [bad.get(row, sid) for row, sid in enumerate(source["sid"].to_pylist())]
    source = source.set_column(1, "sid", pa.array(spelled))
    pq.write_table(source, tmp_path / "c.parquet", row_group_size=90)
    monkeypatch.setattr("beamsieve.catalog.readers.tables.BATCH_ROWS", 64)
    seen: list[tuple[str, int, int]] = []
    catalog = Catalog.read(
        tmp_path / "c.parquet", on_error="skip", progress=lambda *step: seen.append(step)
    )
    kept = [row for row in range(len(sids)) if row not in bad]
    assert list(catalog.items) == kept
    assert catalog.sids.tolist() == sids[kept].tolist()
    assert ("reading", len(sids), len(sids)) in seen
    assert len(seen) > 5
    with pytest.raises(CatalogError, match="row 120: token -5"):
        Catalog.read(tmp_path / "c.parquet")


def test_nan_in_a_list_is_no_padding() -> None:
    rows = pa.table({"item": ["a", "b"], "sid": pa.array([[1.0, float("nan")], [2.0, 3.0]])})
    with pytest.raises(CatalogError, match="row 0: the semantic ID cannot be read"):
        Catalog.read(rows)
    assert list(Catalog.read(rows, on_error="skip").items) == ["b"]


def test_large_unsigned_tokens_beside_a_null() -> None:
    last = pa.array([2**64 - 1, None, 3], pa.uint64())
    rows = pa.table({"item": ["a", "b", "c"], "sid_0": [0, 1, 2], "sid_1": last})
    with pytest.raises(CatalogError, match="row 0: token"):
        Catalog.read(rows)
    kept = Catalog.read(rows, on_error="skip")
    assert list(kept.items) == ["b", "c"]
    assert kept.sids.tolist() == [[1, -1], [2, 3]]


def test_lists_without_any_token() -> None:
    rows = pa.table({"item": ["a", "b"], "sid": pa.array([[], []], pa.list_(pa.int64()))})
    with pytest.raises(CatalogError, match="row 0: the semantic ID is missing"):
        Catalog.read(rows)


SURROGATES = {
    "a.jsonl": (
        b'{"item":"\\ud800","sid":[0],"title":"t"}\n{"item":"b","sid":[1],"title":"\\ud800"}\n'
        b'{"item":"c","sid":"\\ud800"}\n{"item":"d","sid":[2]}\n'
    ),
    "a.index.json": b'{"\\ud800":["<a_0>"],"b":["\\ud800"],"d":["<a_2>"]}',
}


@pytest.mark.parametrize("name", SURROGATES)
def test_lone_surrogates_are_bad_rows(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(SURROGATES[name])
    with pytest.raises(CatalogError, match="the item id holds a lone surrogate"):
        Catalog.read(tmp_path / name)
    rejects = tmp_path / "rejects"
    kept = Catalog.read(tmp_path / name, on_error="skip", rejects=rejects)
    assert list(kept.items) == ["d"]
    records = [json.loads(line) for line in rejects.read_text("utf-8").splitlines()]
    assert len(records) == sum(kept.rejected.values()) == (3 if name == "a.jsonl" else 2)
    assert "\ud800" in json.dumps(records, ensure_ascii=False)


def test_lone_surrogates_in_other_sources(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": pd.Series(["\ud800"], dtype=object), "sid": [[0]]})
    with pytest.raises(CatalogError, match="a string holds a lone surrogate"):
        Catalog.read(frame)
    np.savez(tmp_path / "c.npz", sids=[[0], [1]], items=np.array(["\ud800", "b"]))
    with pytest.raises(CatalogError, match=r"c\.npz, row 0: the item id holds a lone surrogate"):
        Catalog.read(tmp_path / "c.npz")
    assert list(Catalog.read(tmp_path / "c.npz", on_error="skip").items) == ["b"]


@pytest.mark.parametrize("kind", ["npz", "parquet"])
@pytest.mark.parametrize(
    "items",
    [np.array([1.5, 2.0]), np.array([np.inf, 2.0]), np.array([2**63, 2], np.uint64)],
    ids=str,
)
def test_bad_ids_are_bad_rows(tmp_path: Path, items: Any, kind: str) -> None:
    path = tmp_path / f"c.{kind}"
    if kind == "npz":
        np.savez(path, sids=[[0], [1]], items=items)
    else:
        pq.write_table(pa.table({"item": items, "sid": [[0], [1]]}), path)
    with pytest.raises(CatalogError, match=rf"c\.{kind}, row 0: the item id .* is neither"):
        Catalog.read(path)
    kept = Catalog.read(path, on_error="skip")
    assert list(kept.items) == [2]
    assert kept.rejected == {"unreadable item id": 1}


def test_ids_of_no_possible_type_name_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"item": [[1]], "sid": [[0]]}), tmp_path / "c.parquet")
    with pytest.raises(CatalogError, match=r"c\.parquet: Item ids must be"):
        Catalog.read(tmp_path / "c.parquet")
    np.savez(tmp_path / "c.npz", sids=[[0]], items=np.array([True]))
    with pytest.raises(CatalogError, match=r'c\.npz: array "items" has dtype bool'):
        Catalog.read(tmp_path / "c.npz")


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez_compressed(path, sids=np.random.default_rng(0).integers(0, 99, (1000, 3)))
    content = bytearray(path.read_bytes())
    content[500:540] = b"\xff" * 40
    path.write_bytes(bytes(content))
    with pytest.raises(CatalogError, match="or a damaged one"):
        Catalog.read(path)


def test_a_truncated_compressed_csv(tmp_path: Path) -> None:
    rows = b"".join(b"i%d,1 2 %d\n" % (row, row * 7919 % 9999) for row in range(5000))
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"item,sid\n" + rows)[:-4000])
    with pytest.raises(CatalogError, match="is damaged"):
        Catalog.read(tmp_path / "c.csv.gz")


@pytest.mark.parametrize("title", [["a"], {"a": 1}], ids=str)
def test_titles_that_are_no_texts(tmp_path: Path, title: Any) -> None:
    pq.write_table(pa.table({"item": [1], "sid": [[0]], "title": [title]}), tmp_path / "c.parquet")
    with pytest.raises(CatalogError, match="column 'title': these are no texts"):
        Catalog.read(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("item", "columns is 'item'; give a dict"),
        ({"sid": []}, r"names \[\] as sid"),
        ({"sid": 5}, "names 5 as sid"),
    ],
)
def test_columns_of_another_kind_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        Catalog.read(pa.table({"item": [1], "sid": [[0]]}), columns=columns)


def test_a_data_frame_with_repeated_columns() -> None:
    frame = pd.DataFrame([[1, [0], 2]], columns=["item", "sid", "item"])
    with pytest.raises(CatalogError, match="Duplicate column names"):
        Catalog.read(frame)
