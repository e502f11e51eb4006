"""JSON lines: one object per line, with the columns of a table as its keys."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from beamsieve.catalog.batch import Batch
from beamsieve.catalog.items import NO_TEXT, as_text, no_text
from beamsieve.catalog.readers.columns import Found, Names, find_columns
from beamsieve.catalog.spelling import read_objects
from beamsieve.errors import CatalogError

_BATCH_LINES = 1 << 16


def open_binary(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in .gz."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]  # GzipFile reads like a file
    return path.open("rb")


def read_jsonl(path: Path, columns: Names, most: int | None) -> Iterator[tuple[Batch, int]]:
    """The rows of a JSON lines file. Blank lines are left out."""
    found: Found | None = None
    item_type: type | None = None
    line_number = 0
    try:
        with open_binary(path) as file:
            while lines := list(islice(file, _BATCH_LINES)):
                rows, labels, unreadable = _parsed(lines, line_number + 1)
                line_number += len(lines)
                if not rows:
                    continue
                if found is None:
                    first = next((row for row in rows if row), None)
                    if first is None:
                        if line_number == len(lines):
                            raise CatalogError(
                                f"{path}: line {labels[0]} is no JSON object; a JSON lines file "
                                "has one on every line."
                            )
                        continue
                    found = find_columns(str(path), list(first), columns)
                ids = [row.get(found.item) for row in rows]
                item_type = item_type or next((type(i) for i in ids if type(i) in (int, str)), None)
                for place, item in enumerate(ids):
                    if item is not None and type(item) is not item_type:
                        ids[place] = None
                        unreadable.setdefault(place, _wrong_item(item, item_type))
                yield _batch(path, rows, ids, found, unreadable, labels, most), 0
    except (OSError, EOFError) as error:
        raise CatalogError(f"{path}: cannot be read: {error}.") from error


def _parsed(
    lines: list[bytes], first: int
) -> tuple[list[dict[str, Any]], list[int], dict[int, tuple[str, str]]]:
    """Objects, their line numbers, and which of them (left empty) could not be read."""
    rows: list[dict[str, Any]] = []
    labels: list[int] = []
    unreadable: dict[int, tuple[str, str]] = {}
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            unreadable[len(rows)] = ("unreadable row", "the line is no JSON object")
            row = {}
        rows.append(row)
        labels.append(number)
    return rows, labels, unreadable


def _wrong_item(item: Any, expected: type | None) -> tuple[str, str]:
    if type(item) in (int, str) and expected is not None:
        kind = "an integer" if expected is int else "a string"
        return "mixed item ids", f"the item id is {item!r}, but the first one is {kind}"
    return "unreadable item id", f"the item id {item!r} is neither an integer nor a string"


def _batch(
    path: Path,
    rows: list[dict[str, Any]],
    ids: list[Any],
    found: Found,
    unreadable: dict[int, tuple[str, str]],
    labels: list[int],
    most: int | None,
) -> Batch:
    if found.sid is not None:
        values = [row.get(found.sid) for row in rows]
    else:
        values = [_one_list(row, found.levels) for row in rows]
    spelled = read_objects(values, most)
    titles = None
    if found.title is not None:
        texts = (row.get(found.title) for row in rows)
        titles, bad = as_text(t if t is None else str(t) for t in texts)
        for place in bad:
            unreadable.setdefault(place, ("no text", f"the title {NO_TEXT}"))
    rules = None
    if found.rules is not None:
        rules = [_rules(row.get(found.rules), place, unreadable) for place, row in enumerate(rows)]
    for place in no_text(ids):
        ids[place] = None
        unreadable.setdefault(place, ("unreadable item id", f"the item id {NO_TEXT}"))
    large = 2**63
    for place, item in enumerate(ids):
        if type(item) is int and not -large <= item < large:
            ids[place] = None
            unreadable.setdefault(place, ("unreadable item id", "the item id exceeds 64 bits"))
    return Batch(
        str(path),
        spelled.tokens,
        pa.array(ids),
        titles,
        rules,
        unreadable={**spelled.unreadable, **unreadable},
        labels=labels,
        unit="line",
        values=[row or value for row, value in zip(rows, values, strict=True)],
    )


def _rules(rules: Any, place: int, unreadable: dict[int, tuple[str, str]]) -> Any:
    """Rules may be an object of the line, or text that holds one, as in a table."""
    if not isinstance(rules, str):
        return rules
    try:
        return json.loads(rules) if rules.strip() else None
    except (ValueError, RecursionError):
        unreadable.setdefault(place, ("unreadable rules", "the rules are no JSON"))
        return None


def _one_list(row: dict[str, Any], levels: Sequence[str]) -> list[Any]:
    """Tokens of one column per level; null is no token."""
    tokens = [row.get(name) for name in levels]
    if all(token is None or type(token) is int for token in tokens):
        return [-1 if token is None else token for token in tokens]
    return tokens
