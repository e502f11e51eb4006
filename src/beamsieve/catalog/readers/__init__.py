"""The files that catalogs come in, read batch by batch.

Tables (Parquet, CSV, JSON lines, Arrow, pandas) need these columns; any others are left unread.

| column | holds |
| --- | --- |
| ``item`` or ``item_id`` | the item's id: an integer or a string |
| ``sid`` or ``semantic_id`` | the semantic ID: a list of integers or of strings, or one string |
| ``sid_0 …``, ``sid_1 …`` or ``t1 …`` | in its place, one column per level; null behind the end |
| ``title`` | optional; a text to show |
| ``rules`` | optional; targeting rules (:mod:`beamsieve.targeting.rules`), JSON text or structs |

NumPy files hold the tokens alone (``.npy``, [N, L], items are the row numbers) or the arrays
``sids`` and, if wanted, ``items`` and ``titles`` (``.npz``). The two published files are described
in :mod:`beamsieve.catalog.readers.published`. Text files (CSV, ``*.index.json``, info text) give
string ids; the others keep their type. Text may be gzip-compressed.

Rows are counted from 0, without a header; lines from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from beamsieve.catalog.batch import Batch
from beamsieve.catalog.readers import arrays, lines, published, tables
from beamsieve.catalog.readers.columns import Names
from beamsieve.errors import CatalogError

Format = Literal["parquet", "csv", "jsonl", "npy", "npz", "index.json", "info"]
Batches = Callable[[int | None], Iterator[tuple[Batch, int]]]
"""Given the number of levels (or None), the batches, each with the number of all rows (or 0)."""

_SUFFIXES: Mapping[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
    ".json": "index.json",
    ".txt": "info",
    ".info": "info",
}


def open_source(source: Any, format: Format | None, columns: Names) -> tuple[str, Batches]:
    """What a catalog's source is called, and a function that gives its rows.

    Raises:
        CatalogError: there is no such file, or it is of no known kind.
    """
    if not isinstance(source, (str, Path)):
        table, name = tables.as_table(source)
        return name, lambda most: tables.read_table(name, table, columns, most)
    path = Path(source)
    name = str(source)
    if not path.exists():
        raise CatalogError(f"{name}: there is no such file.")
    kind = format or _format_of(path)
    if kind not in get_args(Format):
        raise CatalogError(
            f"Format {kind!r} is unknown; the formats are {', '.join(get_args(Format))}."
        )
    if columns is not None and kind not in ("parquet", "csv", "jsonl"):
        raise CatalogError(f"{name}: columns= names columns of tables; {kind} files have none.")
    if path.is_file() and path.stat().st_size == 0:
        raise CatalogError(f"{name}: the file is empty.")
    if path.is_dir() and kind != "parquet":
        raise CatalogError(f"{name}: this is a folder; name a file in it.")
    readers: Mapping[Format, Batches] = {
        "parquet": lambda most: tables.read_parquet(path, columns, most),
        "csv": lambda most: tables.read_csv(path, columns, most),
        "jsonl": lambda most: lines.read_jsonl(path, columns, most),
        "npy": lambda _: arrays.read_npy(path),
        "npz": lambda _: arrays.read_npz(path),
        "index.json": lambda most: published.read_index_json(path, most),
        "info": lambda most: published.read_info(path, most),
    }
    return name, readers[kind]


def _format_of(path: Path) -> Format:
    if path.is_dir():
        return "parquet"
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    raise CatalogError(
        f"{path}: the name does not tell the kind of file; name it with format=, one of "
        f"{', '.join(get_args(Format))}."
    )
