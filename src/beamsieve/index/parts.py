"""What an index is made of, and the fingerprint of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.items import ItemIds
from beamsieve.index.levels import Level
from beamsieve.index.tables import StepTable, token_candidates
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


def fingerprints(
    parts: IndexParts, levels: Sequence[bytes] | None = None, threads: int | None = None
) -> tuple[str, str]:
    """32 hexadecimal digits of the whole, and of codebooks and semantic IDs alone.

    Layouts do not count: a table is hashed as plain row starts and as the list of tokens that the
    sparse layout would hold, packed where it packs them.

    Args:
        parts: the whole.
        levels: what :func:`hash_levels` gave, where the tables' plain parts were at hand.
        threads: how many may hash side by side.
    """
    if levels is None:
        plain: list[Any] = []
        for table in parts.tables:
            plain += (table.plain_starts, partial(_sparse_tokens, table))
        levels = parallel.run(_hash, plain, threads)
    others: list[Any] = [
        b"-" if array is None else array for array in (parts.leaf_starts, parts.leaf_numbers)
    ]
    others.append(b"strings" if parts.items.are_strings else b"integers")
    others += _buffers(parts.items.values)
    if parts.item_rules is not None and parts.matchers is not None:
        others.append(repr(parts.item_rules.layout.attributes).encode())
        for rules in parts.item_rules.blooms:
            others += _buffers(rules.forms)
        arrays = parts.item_rules.arrays() | parts.matchers.arrays()
        for name in sorted(arrays):
            others += (name.encode(), arrays[name])
    digest = xxhash.xxh3_128(b"beamsieve index 2")
    digest.update(repr((list(parts.codebooks), parts.end_token)).encode())
    for one in levels:
        digest.update(one)
    sids = digest.hexdigest()
    for one in parallel.run(_hash, others, threads):
        digest.update(one)
    return digest.hexdigest(), sids


def hash_levels(
    tables: Sequence[StepTable], levels: Sequence[Level], threads: int | None = None
) -> list[bytes]:
    """The hashes of the tables, whose plain parts are at hand."""
    parts: list[Any] = []
    for table, level in zip(tables, levels, strict=True):
        parts += (level.row_starts, partial(_sparse_tokens, table, level))
    return parallel.run(_hash, parts, threads)


def _sparse_tokens(table: StepTable, level: Level | None = None) -> NDArray[np.unsignedinteger]:
    """The tokens as the sparse layout holds them."""
    if "packed" not in token_candidates(table.rows, table.entries, table.vocabulary):
        return table.plain_tokens() if level is None else level.plain_tokens()
    if table.packed is not None:
        return table.packed
    if level is None:
        level = Level(table.vocabulary, table.plain_starts(), table.plain_tokens())
    return level.packed_tokens()


def _hash(given: Any) -> bytes:
    """xxh3 of an array's bytes, of bytes, or of what a function makes."""
    made = given() if callable(given) else given
    held: bytes = xxhash.xxh3_128_digest(_bytes(made) if isinstance(made, np.ndarray) else made)
    return held


def _buffers(array: pa.Array) -> list[Any]:
    """An Arrow array's values as plain buffers, whatever it was sliced from."""
    if pa.types.is_large_string(array.type):
        offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: len(array) + 1]
        data = array.buffers()[2]
        text = b"" if data is None else memoryview(data)[offsets[0] : offsets[-1]]
        return [_bytes(offsets - offsets[0]), text]
    return [np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: len(array)]]


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
