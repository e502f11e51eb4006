"""Every kind of file and table, and each way to spell a semantic ID in it."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from beamsieve.catalog import Catalog
from beamsieve.errors import CatalogError

SIDS = [[236, 231, 226], [42, 80, 160], [42, 194, 177], [0, 0, 0]]
ITEMS = ["a", "b", "c", "d"]
TITLES = ["A, first", 'the "B"', None, "d"]


def bracketed(sid: list[int], letters: str = "abc") -> list[str]:
    return [f"<{letter}_{token}>" for letter, token in zip(letters, sid, strict=True)]


def check(catalog: Catalog, items: list[Any] = ITEMS, titles: bool = True) -> None:
    assert catalog.sids.tolist() == SIDS
    assert list(catalog.items) == items
    if titles:
        assert catalog.titles is not None
        assert catalog.titles.to_pylist() == TITLES


def table(**columns: Any) -> pa.Table:
    return pa.table({"item": ITEMS, "title": TITLES, **columns})


SPELLINGS = {
    "lists": pa.array(SIDS),
    "int32 lists": pa.array(SIDS, pa.large_list(pa.int32())),
    "fixed lists": pa.array(SIDS, pa.list_(pa.uint16(), 3)),
    "lists of text": pa.array([bracketed(sid) for sid in SIDS]),
    "lists of digits": pa.array([[str(token) for token in sid] for sid in SIDS]),
    "brackets": pa.array(["".join(bracketed(sid)) for sid in SIDS]),
    "capitals": pa.array(["".join(bracketed(sid, "ABC")) for sid in SIDS]),
    "spaced": pa.array([" ".join(map(str, sid)) for sid in SIDS]),
    "commas": pa.array([",".join(map(str, sid)) for sid in SIDS]),
    "JSON": pa.array([json.dumps(sid) for sid in SIDS]),
    "dictionary": pa.array([str(tuple(sid)) for sid in SIDS]).dictionary_encode(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", ["parquet", "arrow", "pandas"])
def test_tables_in_every_spelling(spelling: str, kind: str, tmp_path: Path) -> None:
    source = table(sid=SPELLINGS[spelling], other=[None] * 4)
    if kind == "arrow":
        check(Catalog.read(source))
    elif kind == "pandas":
        check(Catalog.read(source.to_pandas()))
    else:
        pq.write_table(source, tmp_path / "c.parquet", row_group_size=3)
        check(Catalog.read(tmp_path / "c.parquet"))


LEVELS: list[list[int | None]] = [[0, 5, 7], [1, 2, None], [3, None, None]]


@pytest.mark.parametrize("names", ["sid_{0}", "sid_{1}", "t{1}", "SID{0}", "semantic_id_{1}"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "pandas"])
def test_one_column_per_level(names: str, kind: str, tmp_path: Path) -> None:
    columns = {names.format(n, n + 1): [sid[n] for sid in LEVELS] for n in range(3)}
    source = pa.table({"Item_ID": [9, 8, 7], **columns})
    path = tmp_path / f"c.{kind}"
    if kind == "parquet":
        pq.write_table(source, path)
    elif kind == "csv":
        pyarrow.csv.write_csv(source, path)
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in source.to_pylist()))
    catalog = Catalog.read(source.to_pandas() if kind == "pandas" else path)
    assert catalog.sids.tolist() == [[0, 5, 7], [1, 2, -1], [3, -1, -1]]
    assert list(catalog.items) == (["9", "8", "7"] if kind == "csv" else [9, 8, 7])


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("packed", [False, True])
def test_csv(separator: str, packed: bool, tmp_path: Path) -> None:
    sids = pa.array(["".join(bracketed(sid)) for sid in SIDS])
    path = tmp_path / ("c.csv.gz" if packed else "c.csv")
    plain = tmp_path / "plain.csv"
    pyarrow.csv.write_csv(
        table(sid=sids).to_pandas().fillna("").pipe(pa.Table.from_pandas),
        plain,
        pyarrow.csv.WriteOptions(delimiter=separator, quoting_style="needed"),
    )
    path.write_bytes(gzip.compress(plain.read_bytes()) if packed else plain.read_bytes())
    catalog = Catalog.read(path)
    check(catalog, titles=False)
    assert catalog.titles is not None
    assert catalog.titles.to_pylist() == ["A, first", 'the "B"', "", "d"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a name is text in Unicode")
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "jsonl"])
def test_a_file_s_name_may_be_any_bytes(ending: str, tmp_path: Path) -> None:
    plain = tmp_path / f"items.{ending}"
    given = table(sid=SPELLINGS["spaced"])
    if ending == "parquet":
        pq.write_table(given, plain)
    elif ending == "jsonl":
        plain.write_text("".join(json.dumps(row) + "\n" for row in given.to_pylist()))
    else:
        pyarrow.csv.write_csv(given, tmp_path / "plain.csv")
        text = (tmp_path / "plain.csv").read_bytes()
        plain.write_bytes(gzip.compress(text) if ending == "csv.gz" else text)
    named = plain.rename(tmp_path / os.fsdecode(b"caf\xe9." + ending.encode()))
    check(Catalog.read(named), titles=not ending.startswith("csv"))


def test_csv_keeps_item_ids_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text('item,sid\n007,1 2\n7,"3,4"\nNA,5 6\n"multi\nline",7 8\n')
    assert list(Catalog.read(path).items) == ["007", "7", "NA", "multi\nline"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_whatever_its_lines_end_with(end: str, tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(end.join(["item,sid", "x,1 2", "y,3 4", ""]).encode())
    catalog = Catalog.read(path)
    assert (list(catalog.items), catalog.sids.tolist()) == (["x", "y"], [[1, 2], [3, 4]])


def test_csv_header_with_quotes_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text('"a, b",item,"sid"\n1,x,1 2\n', encoding="utf-8-sig")
    catalog = Catalog.read(path)
    assert (list(catalog.items), catalog.sids.tolist()) == (["x"], [[1, 2]])
    path.write_text('"item",sid\nx,1 2\n', encoding="utf-8-sig")
    assert list(Catalog.read(path).items) == ["x"]


@pytest.mark.parametrize("packed", [False, True])
def test_jsonl(packed: bool, tmp_path: Path) -> None:
    spelled = [SIDS[0], bracketed(SIDS[1]), "".join(bracketed(SIDS[2])), str(SIDS[3])]
    rows = [
        {"item": item, "sid": sid, "title": title}
        for item, sid, title in zip(ITEMS, spelled, TITLES, strict=True)
    ]
    text = "\n\n".join(json.dumps(row) for row in rows) + "\n"
    path = tmp_path / ("c.jsonl.gz" if packed else "c.ndjson")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    check(Catalog.read(path))


@pytest.mark.parametrize("letters", ["abc", "ABC", "aBc"])
def test_index_json(letters: str, tmp_path: Path) -> None:
    path = tmp_path / "x.index.json"
    pairs = {item: bracketed(sid, letters) for item, sid in zip(ITEMS, SIDS, strict=True)}
    path.write_text(json.dumps(pairs))
    check(Catalog.read(path), titles=False)
    check(Catalog.read(path, codebooks=256), titles=False)


def test_info_text(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    lines = [
        f"{''.join(bracketed(sid))}\t{title or ''}\t{item}"
        for item, sid, title in zip(ITEMS, SIDS, ["tab\tin it", *TITLES[1:]], strict=True)
    ]
    path.write_text("\r\n".join(lines) + "\n\n", encoding="utf-8-sig")
    catalog = Catalog.read(path)
    check(catalog, titles=False)
    assert catalog.titles is not None
    assert catalog.titles.to_pylist() == ["tab\tin it", 'the "B"', "", "d"]


def test_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.array(SIDS, np.int16))
    check(Catalog.read(tmp_path / "c.npy"), items=[0, 1, 2, 3], titles=False)
    np.savez(tmp_path / "c.npz", sids=SIDS, items=ITEMS, titles=["A", "B", "C", "D"])
    catalog = Catalog.read(tmp_path / "c.npz")
    check(catalog, titles=False)
    assert catalog.titles is not None
    assert catalog.titles.to_pylist() == ["A", "B", "C", "D"]
    np.savez(tmp_path / "c.npz", sids=SIDS)
    check(Catalog.read(tmp_path / "c.npz"), items=[0, 1, 2, 3], titles=False)


def test_folder_of_parquet_files(tmp_path: Path) -> None:
    source = table(sid=SPELLINGS["lists"])
    pq.write_table(source[:1], tmp_path / "part-0.parquet")
    pq.write_table(source[1:], tmp_path / "part-1.parquet")
    check(Catalog.read(tmp_path))
    bad = source[:3].set_column(2, "sid", pa.array([[1, 2, 3], [-7, 0, 0], [1, 2, 4]]))
    pq.write_table(bad, tmp_path / "part-2.parquet")
    with pytest.raises(CatalogError, match=r"part-2.parquet, row 1: token -7 at level 1"):
        Catalog.read(tmp_path)


def test_other_column_names(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("asin,code,name,c0,c1\nx,1 2,X,3,4\n")
    names = {"item": "asin", "sid": "code", "title": "name"}
    assert Catalog.read(path, columns=names).sids.tolist() == [[1, 2]]
    levels = {"item": "asin", "sid": ["c1", "c0"]}
    assert Catalog.read(path, columns=levels).sids.tolist() == [[4, 3]]
    refused: list[tuple[Any, str]] = [
        ({"item": "nope", "sid": "code"}, "column 'nope' is missing; the file has 'asin'"),
        ({"items": "asin"}, "has the key 'items'"),
        ({"item": ["asin", "name"], "sid": "code"}, "several columns as item"),
    ]
    for wrong, message in refused:
        with pytest.raises(CatalogError, match=message):
            Catalog.read(path, columns=wrong)
