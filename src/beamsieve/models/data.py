"""Histories: what each user has had, in order, and what came next.

One row is one history. These are the columns (:class:`HistoryColumns` gives them other names):

=========== ====== ===============================================================================
``history`` needed the items, oldest first; may be empty or null. A list in Parquet and JSONL; in
                   CSV a JSON list (``[3112, 642]``, ``["a", "b"]``), a Python list literal
                   (``['a', 'b']``) or ids with spaces between them
``target``         the item that came next, or null
``user``           the user's id. Rows of one user are in time order, and may each hold the same
                   history one item further on
=========== ====== ===============================================================================

The names in MiniOneRec's files (``history_item_id``, ``item_id``, ``user_id``) are understood as
well. The file's ending names its format: ``.parquet``, ``.jsonl`` or ``.csv``, the last two also
with ``.gz``.
"""

from __future__ import annotations

import ast
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.errors import InputError
from beamsieve.models.history_tables import READERS

Item = str | int

KNOWN_COLUMNS = {
    "history": ("history", "history_item_id"),
    "target": ("target", "item_id"),
    "user": ("user", "user_id"),
}


@dataclass(frozen=True)
class HistoryColumns:
    """Names of the columns; None takes the first known name that the file has."""

    history: str | None = None
    target: str | None = None
    user: str | None = None

    def find(self, present: Sequence[str], path: Path) -> dict[str, str]:
        """Which of the file's columns is which.

        Raises:
            InputError: a named column, or any history column, is absent.
        """
        found = {}
        for role, known in KNOWN_COLUMNS.items():
            wanted = getattr(self, role)
            if wanted is not None and wanted not in present:
                raise InputError(f"{path} has no column {wanted!r}; it has {_named(present)}.")
            name = wanted or next((name for name in known if name in present), None)
            if name is not None:
                found[role] = name
        if "history" not in found:
            raise InputError(
                f"{path} has no column 'history' (or 'history_item_id'); it has "
                f"{_named(present)}. Say which one holds the histories."
            )
        return found


@dataclass(frozen=True)
class Histories:
    """Histories with the users' own item ids, all integers or all strings.

    Attributes:
        items: Arrow int64 or large_string; all histories one after the other, oldest item first.
        starts: int64 [N + 1]; history n is ``items[starts[n]:starts[n + 1]]``.
        targets: Arrow array [N], the item after each history or null; None if there are none.
        users: Arrow array [N], each row's user; None if it is not known.
        source: the file, for messages.
    """

    items: pa.Array
    starts: NDArray[np.int64]
    targets: pa.Array | None = None
    users: pa.Array | None = None
    source: str = "histories"

    def __len__(self) -> int:
        return len(self.starts) - 1

    def history(self, row: int) -> list[Item]:
        """Items of one row, oldest first."""
        start, end = int(self.starts[row]), int(self.starts[row + 1])
        items: list[Item] = self.items.slice(start, end - start).to_pylist()
        return items

    def target(self, row: int) -> Item | None:
        """The item after one row's history, where it is known."""
        item: Item | None = None if self.targets is None else self.targets[row].as_py()
        return item

    def user(self, row: int) -> Item | None:
        """The user of one row, where it is known."""
        user: Item | None = None if self.users is None else self.users[row].as_py()
        return user

    @classmethod
    def from_lists(
        cls,
        histories: Iterable[Sequence[Item]],
        targets: Sequence[Item | None] | None = None,
        users: Sequence[Item] | None = None,
        source: str = "histories",
    ) -> Histories:
        """Histories from one sequence of item ids per row.

        Raises:
            InputError: ids are neither integers nor strings, or both; or targets or users do not
                have one entry per history.
        """
        flat: list[Item] = []
        starts = [0]
        for history in histories:
            flat.extend(history)
            starts.append(len(flat))
        for name, column in (("targets", targets), ("users", users)):
            if column is not None and len(column) != len(starts) - 1:
                raise InputError(
                    f"{source}: {len(column)} {name} for {len(starts) - 1} histories; "
                    "give one for each."
                )
        return cls(
            _ids(flat, source, "history"),
            np.asarray(starts, np.int64),
            None if targets is None else _ids(targets, source, "target"),
            None if users is None else _ids(users, source, "user"),
            source,
        )


def read_histories(path: str | Path, columns: HistoryColumns | None = None) -> Histories:
    """Read histories from a Parquet, JSONL or CSV file; see the top of this module.

    Raises:
        InputError: the file is absent, of another kind, empty, without a history column, or a row
            of it cannot be read (the message names it; data rows count from 1, without the header).
    """
    path = Path(path)
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in READERS or (kind == "parquet" and path.suffix == ".gz"):
        raise InputError(
            f"{path} is of no known kind; histories are read from .parquet, .jsonl, .jsonl.gz, "
            ".csv and .csv.gz."
        )
    try:
        table = READERS[kind](path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, pa.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{path} cannot be read as {kind}: {first}") from error
    found = (columns or HistoryColumns()).find(table.column_names, path)
    if not table.num_rows:
        raise InputError(f"{path} holds no histories.")
    items, starts = _lists(table[found["history"]].combine_chunks(), str(path))
    rest = {
        role: _ids(table[found[role]].combine_chunks(), str(path), role)
        for role in ("target", "user")
        if role in found
    }
    return Histories(items, starts, rest.get("target"), rest.get("user"), str(path))


def _lists(column: pa.Array, source: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """Flat items and starts of a column of lists, or of their text."""
    if pa.types.is_null(column.type):
        return pa.array([], pa.int64()), np.zeros(len(column) + 1, np.int64)
    if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
        column = _lists_from_text(column.to_pylist(), source)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise InputError(f"{source}: the history column holds {column.type}, not lists of items.")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return _ids(column.flatten(), source, "history", starts), starts


def _lists_from_text(cells: Sequence[str | None], source: str) -> pa.Array:
    rows = []
    for number, cell in enumerate(cells, 1):
        text = (cell or "").strip()
        if not text.startswith("["):
            rows.append(text.split())
            continue
        try:
            # JSON is ten times faster to read than a Python literal, and usually both agree.
            row = json.loads(text)
        except (ValueError, RecursionError):
            try:
                row = ast.literal_eval(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                row = None
        if not isinstance(row, list):
            raise InputError(f"{source}, data row {number}: {_short(text)} is no list of items.")
        rows.append(row)
    try:
        return pa.array(rows)
    except UnicodeEncodeError as error:
        raise InputError(f"{source}: an item is no text: {error}.") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Some rows hold numbers and some text: as in the file, they are all text.
        for number, row in enumerate(rows, 1):
            if not all(type(item) in (str, int) for item in row):
                text = _short(cells[number - 1] or "")
                raise InputError(
                    f"{source}, data row {number}: {text} is no list of items."
                ) from None
        return pa.array([[str(item) for item in row] for row in rows])


def _ids(values: Any, source: str, role: str, starts: NDArray[np.int64] | None = None) -> pa.Array:
    """Item or user ids as int64 or large_string."""
    try:
        array = values if isinstance(values, pa.Array) else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise InputError(
            f"{source}: the {role} ids are not all 64-bit integers or all strings: {error}."
        ) from error
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_integer(array.type):
        try:
            array = array.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"{source}: the {role} ids exceed 64 bits: {error}.") from error
    else:
        raise InputError(
            f"{source}: the {role} ids are {array.type}; they must be integers or strings."
        )
    if role == "history" and array.null_count:
        place = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        row = 0 if starts is None else int(np.searchsorted(starts, place, side="right"))
        raise InputError(f"{source}, data row {row}: an item of the history is null.")
    return array


def _named(columns: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in columns) or "none"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")
