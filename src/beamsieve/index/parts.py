"""What an index is made of, and the fingerprint of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from beamsieve.catalog.items import ItemIds
from beamsieve.index.tables import StepTable
from beamsieve.targeting.item_rules import ItemRules
from beamsieve.targeting.matchers import Matchers


@dataclass(frozen=True)
class IndexParts:
    """Everything that an index holds.

    Attributes:
        tables: one per step.
        codebooks: their sizes, end tokens included.
        end_token: whether semantic IDs end with an end token.
        items: the users' item ids, by item number.
        leaf_starts: int64 [leaves + 1], where each leaf's (leaf, item) pairs begin; None where
            every leaf has one.
        leaf_numbers: integers [pairs], the item number of each pair; None where that is the pair's
            place.
        titles: Arrow large_string [items], or None.
        item_rules: the items' exact targeting rules, or None.
        matchers: the tables' edge matchers, or None.
    """

    tables: tuple[StepTable, ...]
    codebooks: tuple[int, ...]
    end_token: bool
    items: ItemIds
    leaf_starts: NDArray[np.integer] | None
    leaf_numbers: NDArray[np.integer] | None
    titles: pa.Array | None
    item_rules: ItemRules | None
    matchers: Matchers | None


def fingerprints(parts: IndexParts) -> tuple[str, str]:
    """32 hexadecimal digits of the whole, and of codebooks and semantic IDs alone.

    Layouts do not count, so a table's tokens are hashed as a list whatever form they are in.
    """
    digest = xxhash.xxh3_128(b"beamsieve index 1")
    digest.update(repr((list(parts.codebooks), parts.end_token)).encode())
    for table in parts.tables:
        digest.update(_bytes(table.plain_starts()))
        digest.update(_bytes(table.plain_tokens()))
    sids = digest.hexdigest()
    for array in (parts.leaf_starts, parts.leaf_numbers):
        digest.update(b"-" if array is None else _bytes(array))
    digest.update(b"strings" if parts.items.are_strings else b"integers")
    for buffer in _buffers(parts.items.values):
        digest.update(buffer)
    if parts.item_rules is not None and parts.matchers is not None:
        digest.update(repr(parts.item_rules.layout.attributes).encode())
        for rules in parts.item_rules.blooms:
            for buffer in _buffers(rules.forms):
                digest.update(buffer)
        arrays = parts.item_rules.arrays() | parts.matchers.arrays()
        for name in sorted(arrays):
            digest.update(name.encode())
            digest.update(_bytes(arrays[name]))
    return digest.hexdigest(), sids


def _buffers(array: pa.Array) -> list[Any]:
    """An Arrow array's values as plain buffers, whatever it was sliced from."""
    if pa.types.is_large_string(array.type):
        offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: len(array) + 1]
        data = array.buffers()[2]
        text = b"" if data is None else memoryview(data)[offsets[0] : offsets[-1]]
        return [_bytes(offsets - offsets[0]), text]
    return [_bytes(array.to_numpy(zero_copy_only=True))]


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
