"""Files and tables that are no catalog, each refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from beamsieve.catalog import Catalog
from beamsieve.errors import CatalogError

CSV = "item,sid,title\n"
BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty CSV": ("c.csv", b"", "the file is empty"),
    "empty Parquet": ("c.parquet", b"", "the file is empty"),
    "header only": ("c.csv", CSV.encode(), "there are no rows"),
    "CSV without items": ("c.csv", b"id,sid\n1,2\n", 'column "item" is missing; the file has'),
    "CSV without SIDs": ("c.csv", b"item,title\n1,2\n", 'column "sid" .* is missing'),
    "gap in levels": ("c.csv", b"item,sid_0,sid_2\n1,2,3\n", 'column "sid" .* is missing'),
    "semantic IDs twice": (
        "c.csv",
        b"item,sid,SID_0,sid_1\n1,2 3,4,5\n",
        "column 'sid' and the columns 'SID_0', 'sid_1' both spell semantic IDs; name the one",
    ),
    "quote in a title": ("c.csv", b'item,sid,title\na,0,"A\nb,1,B\n', "row 1: a quote is opened"),
    "quote in a note": (
        "c.csv",
        b'item,sid,note\na,0,A\nb,1,"B\nc,2,C',
        "row 2: a quote is opened",
    ),
    "quote in an id": ("c.csv", b'item,sid\na,0\n"b,1\nc,2\n', "row 2: a quote is opened"),
    "rows end as on old Macs": ("c.csv", b"item,sid\ra,0 1\rb,x\r", "data row 2"),
    "column twice": ("c.csv", b"item,sid,sid\n1,2,3\n", "column 'sid' is there 2 times"),
    "text as Parquet": ("c.parquet", CSV.encode(), "not a Parquet file"),
    "Parquet as CSV": ("c.csv", b"PAR1\0\0\x15\x04", "no CSV file"),
    "binary as CSV": ("c.csv", bytes(range(128, 256)), "no CSV file"),
    "text as npy": ("c.npy", CSV.encode(), "not a .npy file"),
    "text as npz": ("c.npz", CSV.encode(), "not a .npz file"),
    "text as index.json": ("c.index.json", CSV.encode(), "not JSON"),
    "list as index.json": ("c.json", b"[1]", "one object"),
    "empty index.json": ("c.json", b"{}", "there are no items"),
    "text as JSON lines": ("c.jsonl", CSV.encode(), "line 1 is no JSON object"),
    "JSON lines without SIDs": ("c.jsonl", b'{"item": 1}', 'column "sid" .* is missing'),
    "prose as info": ("c.txt", b"Lorem ipsum\n", "no info text"),
    "unknown suffix": ("c.xlsx", b"PK", "does not tell the kind of file"),
    "gz that is none": ("c.jsonl.gz", b'{"item": 1}', "cannot be read"),
}


@pytest.mark.parametrize(("sid", "tokens"), [("sid", [2, 3]), (["sid_0", "sid_1"], [4, 5])])
def test_of_two_spellings_the_one_that_is_named_is_read(sid, tokens, tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(b"item,sid,sid_0,sid_1\n1,2 3,4,5\n")
    assert Catalog.read(path, columns={"sid": sid}).sids.tolist() == [tokens]


@pytest.mark.parametrize("case", BAD_FILES)
def test_files_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    name, content, message = BAD_FILES[case]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CatalogError, match=message) as caught:
        Catalog.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_files_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no such file"):
        Catalog.read(tmp_path / "none.csv")
    (tmp_path / "c.csv").write_text("item,sid\n1,2\n")
    with pytest.raises(CatalogError, match="Format 'xlsx' is unknown"):
        Catalog.read(tmp_path / "c.csv", format="xlsx")  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CatalogError, match=r"no \.parquet file"):
        Catalog.read(tmp_path / "empty")
    with pytest.raises(CatalogError, match="this is a folder"):
        Catalog.read(tmp_path, format="csv")
    with pytest.raises(CatalogError, match="cannot be read from dict"):
        Catalog.read({"item": [1]})
    with pytest.raises(CatalogError, match="names 'sid' twice as sid"):
        Catalog.read(tmp_path / "c.csv", columns={"item": "item", "sid": ["sid", "sid"]})
    np.save(tmp_path / "c.npy", np.zeros((2, 2)))
    with pytest.raises(CatalogError, match="dtype float64"):
        Catalog.read(tmp_path / "c.npy")
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CatalogError, match=r"not a \.npy file of numbers"):
        Catalog.read(tmp_path / "o.npy")
    np.savez(tmp_path / "c.npz", tokens=[[1], [2]])
    with pytest.raises(CatalogError, match='array "sids" is missing; the file has tokens'):
        Catalog.read(tmp_path / "c.npz")
    np.savez(tmp_path / "c.npz", sids=[[1], [2]], items=["x"])
    with pytest.raises(CatalogError, match="give one value for each of the 2 rows"):
        Catalog.read(tmp_path / "c.npz")
    with pytest.raises(CatalogError, match="type bool"):
        Catalog.read(pa.table({"item": [1], "sid": [True]}))
    with pytest.raises(CatalogError, match="mixes types"):
        Catalog.read(pd.DataFrame({"item": [1, "x"], "sid": ["1", "2"]}))


def test_truncated_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"item": ["a", "b"], "sid": [[1, 2], [3, 4]]}), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CatalogError, match="not a Parquet file, or a damaged one"):
        Catalog.read(path)
