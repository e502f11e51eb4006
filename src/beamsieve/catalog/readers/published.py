"""The two files that generative-recommendation projects publish.

``*.index.json`` maps an item id to the tokens of its semantic ID::

    {"0": ["<a_236>", "<b_231>", "<c_226>"], "1": ["<a_42>", "<b_80>", "<c_160>"]}

The info text has one line per item: semantic ID, title and item id, separated by tabs::

    <a_236><b_231><c_226>\tStart kit\t0
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from beamsieve.catalog.batch import Batch
from beamsieve.catalog.items import NO_TEXT, as_text
from beamsieve.catalog.readers.lines import open_binary
from beamsieve.catalog.spelling import read_objects
from beamsieve.errors import CatalogError

_BATCH_LINES = 1 << 16


class _Pairs(list[tuple[str, Any]]):
    """A JSON object's keys and values, repeated keys included."""


def read_index_json(path: Path, most: int | None) -> Iterator[tuple[Batch, int]]:
    """The items of an ``*.index.json`` file."""
    try:
        with open_binary(path) as file:
            content = json.loads(file.read().decode("utf-8-sig"), object_pairs_hook=_Pairs)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise CatalogError(
            f"{path}: not JSON: {error}; if every line is an object of its own, pass "
            'format="jsonl".'
        ) from error
    if not isinstance(content, _Pairs):
        raise CatalogError(
            f'{path}: an index file holds one object, {{"item": ["<a_1>", "<b_2>"], …}}, '
            f"not a {type(content).__name__}."
        )
    if not content:
        raise CatalogError(f"{path}: there are no items; a catalog needs at least one.")
    items = [item for item, _ in content]
    values = [sid for _, sid in content]
    spelled = read_objects(values, most)
    ids, bad = as_text(items)
    for place in bad:
        spelled.unreadable[place] = ("unreadable item id", f"the item id {NO_TEXT}")
    yield (
        Batch(
            str(path),
            spelled.tokens,
            ids,
            unreadable=spelled.unreadable,
            labels=[repr(item) for item in items],
            unit="item",
            values=values,
        ),
        len(items),
    )


def read_info(path: Path, most: int | None) -> Iterator[tuple[Batch, int]]:
    """The lines of an info text. Blank lines are left out."""
    number = 0
    try:
        with open_binary(path) as file:
            while lines := list(islice(file, _BATCH_LINES)):
                batch = _info_batch(path, lines, number + 1, most)
                number += len(lines)
                if len(batch.sids):
                    yield batch, 0
    except (OSError, EOFError) as error:
        raise CatalogError(f"{path}: cannot be read: {error}.") from error


def _info_batch(path: Path, lines: list[bytes], first: int, most: int | None) -> Batch:
    sids: list[str | None] = []
    titles: list[str | None] = []
    items: list[str | None] = []
    labels: list[int] = []
    texts: list[str] = []
    unreadable: dict[int, tuple[str, str]] = {}
    for number, line in enumerate(lines, first):
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").rstrip("\r\n")
        if not text.strip():
            continue
        parts = text.split("\t")
        if "\ufffd" in text:
            unreadable[len(sids)] = ("no UTF-8", "the line is no text in UTF-8")
        elif len(parts) < 3:
            unreadable[len(sids)] = (
                "wrong number of columns",
                "the line does not hold a semantic ID, a title and an item id between tabs",
            )
        fits = len(parts) >= 3
        sids.append(parts[0] if fits else None)
        titles.append("\t".join(parts[1:-1]) if fits else None)
        items.append(parts[-1].strip() if fits else None)
        labels.append(number)
        texts.append(text)
    if first == 1 and labels and len(unreadable) == len(labels):
        raise CatalogError(
            f"{path}: this is no info text; each line holds a semantic ID, a title and an item id "
            "between tabs."
        )
    spelled = read_objects(list(sids), most)
    return Batch(
        str(path),
        spelled.tokens if labels else np.empty((0, 1), np.int64),
        pa.array(items, pa.large_string()),
        pa.array(titles, pa.large_string()),
        unreadable={**spelled.unreadable, **unreadable},
        labels=labels,
        unit="line",
        values=texts,
    )
