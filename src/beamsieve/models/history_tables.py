"""Files of histories as Arrow tables, whatever their columns mean."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from beamsieve.arrow_paths import for_arrow
from beamsieve.catalog.readers.csv_text import LAST_ROW
from beamsieve.errors import InputError


def read_parquet(path: Path) -> pa.Table:
    """A Parquet file."""
    return pyarrow.parquet.read_table(for_arrow(path))


def read_csv(path: Path) -> pa.Table:
    """A CSV file with a header; every value a string.

    Raises:
        InputError: it is empty, its header cannot be read, or a quote is never closed.
    """
    # Everything stays text: an id such as 0042 must not turn into a number on the way.
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    data = _bytes(path)
    if not data.strip():
        raise InputError(f"{path} is empty.")
    # Not Arrow's streaming reader: one that is dropped early can take the interpreter with it.
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
    try:
        names = next((row for row in csv.reader(text) if row), [])
    except csv.Error as error:
        raise InputError(f"{path} has no header line that can be read: {error}.") from error
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(f"{path} has two columns called {min(twice)!r}; rename one.")
    # In Arrow's own memory: it is let go of by one of Arrow's threads, after this call, and where
    # that is Python's while the interpreter ends, the process ends with "terminate called".
    sink = pa.BufferOutputStream()
    sink.write(data)
    sink.write(b"\n" + b",".join([LAST_ROW] * len(names)) + b"\n")
    table = pyarrow.csv.read_csv(
        pa.BufferReader(sink.getvalue()),
        parse_options=options,
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            strings_can_be_null=True,
            null_values=[""],
        ),
    )
    rows = table.num_rows - 1
    if rows < 0 or table.column(0)[rows].as_py() != LAST_ROW.decode():
        raise InputError(
            f"{path}, data row {rows + 1}: a quote is opened and never closed, so that the rest of "
            "the file belongs to one value; close it, or double it within quotes."
        )
    return table.slice(0, rows)


def read_jsonl(path: Path) -> pa.Table:
    """JSON lines, an object each.

    Raises:
        InputError: a line is none, or the values of one name are of several kinds.
    """
    rows = []
    for number, line in enumerate(_bytes(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number} is no JSON: {error}.") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number} is no JSON object: {row!r}.")
        rows.append(row)
    if not rows:
        raise InputError(f"{path} is empty.")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise InputError(
                f"{path}: the values of {name!r} are not all of one kind, or no ids: {error}."
            ) from error
    return pa.table(columns)


def _bytes(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    with gzip.open(path) as file:
        return file.read()


READERS = {"parquet": read_parquet, "jsonl": read_jsonl, "csv": read_csv}
"""By the ending of a file's name; the last two may be compressed with gzip."""
