"""Item ids as a caller gives them, row by row: those that can be used, and why others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from beamsieve.catalog.items import NO_TEXT, ItemId, as_ids, has_utf8, is_id
from beamsieve.catalog.matrix import refuse_masked
from beamsieve.errors import CatalogError


def ids_of_rows(ids: Any) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
    """A caller's ids as :func:`as_ids` gives them, null where one cannot be used; and why.

    The first usable id says whether they are integers or strings.

    Raises:
        CatalogError: this is no list of ids, or none of them can be used.
    """
    try:
        return as_ids(ids, allow_missing=True), {}
    except CatalogError:
        refuse_masked(ids, "Item ids")
        listed = _listed(ids)
        found = [None if _is_missing(item) else _as_id(item) for item in listed]
        kind = next((type(item) for item in found if item is not None), None)
        if kind is None:
            raise
    bad = {}
    for row, (item, given) in enumerate(zip(found, listed, strict=True)):
        if item is None and not _is_missing(given):
            why = "is neither a 64-bit integer nor a string"
            if isinstance(given, str):
                why = NO_TEXT
            bad[row] = ("unreadable item id", f"the item id {given!r} {why}")
        elif item is not None and type(item) is not kind:
            first = "a string" if kind is str else "an integer"
            bad[row] = ("unreadable item id", f"the item id {given!r} is not {first}, as the first")
            found[row] = None
    return pa.array(found, pa.large_string() if kind is str else pa.int64()), bad


def _listed(ids: Any) -> list[Any]:
    for name in ("to_pylist", "tolist"):  # Arrow; NumPy and pandas
        if hasattr(ids, name):
            return list(getattr(ids, name)())
    return list(ids) if isinstance(ids, Sequence) and not isinstance(ids, (str, bytes)) else []


def _is_missing(item: Any) -> bool:
    return item is None or item == "" or (isinstance(item, float) and item != item)


def _as_id(item: Any) -> ItemId | None:
    if isinstance(item, float) and item.is_integer() and abs(item) <= 2**53:
        return int(item)
    if is_id(item):
        return int(item)
    return item if isinstance(item, str) and has_utf8(item) else None
