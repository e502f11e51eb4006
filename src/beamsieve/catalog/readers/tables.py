"""Tables with columns: Parquet, CSV, Arrow and pandas."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from pyarrow import compute

from beamsieve.arrow_paths import for_arrow
from beamsieve.catalog.batch import Batch
from beamsieve.catalog.items import NO_TEXT, as_titles, is_text
from beamsieve.catalog.readers.columns import Found, Names, find_columns
from beamsieve.catalog.readers.csv_text import LAST_ROW, NO_CHARACTER, TextWithLastRow
from beamsieve.catalog.spelling import read_column, read_levels
from beamsieve.errors import CatalogError

BATCH_ROWS = 1 << 18
_BLOCK_BYTES = 16 << 20


def as_table(source: Any) -> tuple[pa.Table, str]:
    """An Arrow table of an Arrow or pandas object, and what to call it."""
    if isinstance(source, pa.Table):
        return source, "Arrow table"
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        try:
            return pa.Table.from_pandas(source, preserve_index=False), "pandas table"
        except UnicodeEncodeError as error:
            raise CatalogError(f"pandas table: a string {NO_TEXT}: {error}.") from error
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise CatalogError(f"pandas table: a column mixes types: {error}.") from error
        except ValueError as error:
            raise CatalogError(f"pandas table: it cannot be read: {error}.") from error
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source), "Arrow table"
    raise CatalogError(
        f"A catalog cannot be read from {type(source).__name__}; give a path, an Arrow table or a "
        "pandas table (arrays go to Catalog.from_arrays)."
    )


def read_table(
    name: str, table: pa.Table, columns: Names, most: int | None
) -> Iterator[tuple[Batch, int]]:
    """The rows of an Arrow table."""
    found = find_columns(name, table.column_names, columns)
    first = 0
    for batch in table.select(found.all).to_batches(max_chunksize=BATCH_ROWS):
        yield _batch(name, batch, found, most, first), table.num_rows
        first += batch.num_rows


def read_parquet(path: Path, columns: Names, most: int | None) -> Iterator[tuple[Batch, int]]:
    """The rows of a Parquet file, or of all Parquet files in a folder, in the order of names."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise CatalogError(f"{path}: the folder holds no .parquet file.")
    opened = [_open_parquet(file) for file in files]
    total = sum(file.metadata.num_rows for file in opened)
    for file, parquet in zip(files, opened, strict=True):
        found = find_columns(str(file), _names(file, parquet), columns)
        first = 0
        try:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=list(found.all)):
                yield _batch(str(file), batch, found, most, first), total
                first += batch.num_rows
        except CatalogError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise CatalogError(f"{file}: damaged behind row {first}: {_short(error)}") from error


def _open_parquet(path: Path) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(for_arrow(path))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CatalogError(
            f"{path}: not a Parquet file, or a damaged one: {_short(error)}"
        ) from error


def _names(path: Path, parquet: pyarrow.parquet.ParquetFile) -> list[str]:
    try:
        names: list[str] = parquet.schema_arrow.names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: a damaged Parquet file: {_short(error)}") from error
    return names


def read_csv(path: Path, columns: Names, most: int | None) -> Iterator[tuple[Batch, int]]:
    """The rows of a CSV file with a header; separated by commas, semicolons or tabs."""
    header, separator = _header(path)
    found = find_columns(str(path), header, columns)
    bad: list[Any] = []

    def remember(row: Any) -> str:
        bad.append(row)
        return "skip"

    arrow = pyarrow.csv
    try:
        with _stream(path) as stream:
            text = TextWithLastRow(stream, separator, len(header))
            reader = arrow.open_csv(
                text,
                arrow.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                arrow.ParseOptions(
                    delimiter=separator, newlines_in_values=True, invalid_row_handler=remember
                ),
                arrow.ConvertOptions(
                    column_types=dict.fromkeys(found.all, pa.large_binary()),
                    include_columns=list(found.all),
                ),
            )
            first, ended = 0, False
            for batch in reader:
                if batch.num_rows and batch.column(found.item)[-1].as_py() == LAST_ROW:
                    batch, ended = batch.slice(0, batch.num_rows - 1), True
                broken, labels = _numbered(bad, first, batch.num_rows)
                if broken:
                    yield _broken_rows(str(path), broken), 0
                if batch.num_rows:
                    texts, unreadable = _decoded(batch, text.replaced)
                    done = _batch(str(path), texts, found, most, labels + 1, "data row")
                    done.unreadable.update(unreadable)
                    yield done, 0
                    first = int(labels[-1]) + 1
            if not ended:
                row = max([first, *(row.number - 1 for row in bad if row.number is not None)])
                raise CatalogError(
                    f"{path}, data row {row}: a quote is opened and never closed, so that the rest "
                    "of the file belongs to one value; close it, or double it within quotes."
                )
            if bad:
                yield _broken_rows(str(path), bad), 0
    except (pa.ArrowException, OSError) as error:
        raise CatalogError(f"{path}: cannot be read as CSV: {_short(error)}") from error


def _stream(path: Path) -> pa.NativeFile:
    packed = "gzip" if path.suffix.lower() == ".gz" else None
    return pa.input_stream(for_arrow(path), compression=packed)


def _header(path: Path) -> tuple[list[str], str]:
    try:
        with _stream(path) as stream:
            start = stream.read(1 << 16).replace(b"\r", b"\n")  # lines may end as on old Macs
            line = start.split(b"\n")[0].decode("utf-8-sig")
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read, or is damaged: {_short(error)}") from error
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: this is no text in UTF-8, so no CSV file.") from error
    if not line or "\0" in line:
        raise CatalogError(f"{path}: there is no header line, so this is no CSV file.")
    separator = max((",", "\t", ";"), key=line.count)
    return next(csv.reader([line], delimiter=separator)), separator


def _numbered(bad: list[Any], first: int, count: int) -> tuple[list[Any], NDArray[np.int64]]:
    """The numbers of ``count`` good rows from ``first`` on, and the broken ones among them.

    Arrow leaves broken rows out of a batch and reads ahead, so it knows of later ones, too. It
    counts rows from 1, the header included.
    """
    gone = {row.number - 2 for row in bad if row.number is not None}
    labels = np.arange(first, first + count)
    for number in sorted(gone):
        if number >= first:
            labels[labels >= number] += 1
    last = int(labels[-1]) if count else first
    broken = [row for row in bad if row.number is None or row.number - 2 < last]
    bad[:] = [row for row in bad if row not in broken]
    return broken, labels


def _broken_rows(source: str, rows: list[Any]) -> Batch:
    return Batch(
        source,
        np.full((len(rows), 1), -1),
        unreadable={
            place: (
                "wrong number of columns",
                f"the row has {row.actual_columns} columns, the header {row.expected_columns}",
            )
            for place, row in enumerate(rows)
        },
        labels=[row.number - 1 if row.number is not None else "?" for row in rows],
        unit="data row",
        values=[row.text.replace(NO_CHARACTER, "\ufffd") for row in rows],
    )


def _decoded(
    batch: pa.RecordBatch, replaced: bool
) -> tuple[pa.RecordBatch, dict[int, tuple[str, str]]]:
    """Bytes as text; and the rows that are none, where bytes of the file were ``replaced``."""
    unreadable: dict[int, tuple[str, str]] = {}
    columns = [column.cast(pa.large_string()) for column in batch.columns]
    for column in columns if replaced else ():
        found = compute.match_substring(column, NO_CHARACTER).to_numpy(zero_copy_only=False)
        unreadable |= dict.fromkeys(
            np.flatnonzero(found).tolist(), ("no UTF-8", "the row is no text in UTF-8")
        )
    return pa.record_batch(columns, names=batch.schema.names), unreadable


def _batch(
    source: str,
    batch: pa.RecordBatch,
    found: Found,
    most: int | None,
    labels: int | NDArray[np.int64],
    unit: str = "row",
) -> Batch:
    """One Arrow batch as rows of a catalog."""
    columns = {name: _plain(batch.column(name)) for name in found.all}
    if found.sid is not None:
        values = columns[found.sid]
        spelled = read_column(values, f"{source}:{found.sid}", most)
    else:
        levels = [columns[name] for name in found.levels]
        spelled = read_levels(levels, [f"{source}:{name}" for name in found.levels])
        values = pa.StructArray.from_arrays(levels, names=list(found.levels))
    titles = None
    if found.title is not None:
        titles = columns[found.title]
        titles = as_titles(titles, f"{source}: column {found.title!r}")
    rules = None if found.rules is None else _rules(columns[found.rules], source, found.rules)
    return Batch(
        source,
        spelled.tokens,
        columns[found.item],
        titles,
        rules,
        unreadable=spelled.unreadable,
        labels=labels,
        unit=unit,
        values=values,
    )


def _rules(column: pa.Array, source: str, name: str) -> pa.Array | list[Any]:
    """JSON text as it is; structs as dicts, without the fields that are null."""
    if is_text(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.large_string())
    if not pa.types.is_struct(column.type):
        raise CatalogError(
            f"{source}: column {name!r} has type {column.type}; rules are JSON text or structs."
        )
    return [_without_nulls(rules) for rules in column.to_pylist()]


def _without_nulls(rules: Any) -> Any:
    if not isinstance(rules, dict):
        return rules
    return {name: _without_nulls(part) for name, part in rules.items() if part is not None}


def _plain(column: pa.Array) -> pa.Array:
    """The column without dictionary encoding or string views."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_list_view(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    return column


def _short(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") + "." if str(error).strip() else "?"
