"""What an index is made of, and the fingerprint of that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.items import ItemIds
from beamsieve.errors import IndexFileError
from beamsieve.index.encode import bit_words, encode_starts, start_bits
from beamsieve.index.layouts import dense_bitmap, dense_ranks
from beamsieve.index.starts import RowStarts, starts_dtype
from beamsieve.index.tables import StepTable, best_layout, token_candidates
from beamsieve.index.tokens import pack_tokens, packed_words
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


def fingerprints(parts: IndexParts, threads: int | None = None) -> tuple[str, str]:
    """32 hexadecimal digits of the whole, and of codebooks and semantic IDs alone.

    Layouts do not count: of every table its *plain form* is hashed, which :func:`_plain_form` says.

    Args:
        parts: the whole.
        threads: how many may hash side by side.
    """
    levels = [one for table in parts.tables for one in _plain_form(table)]
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
    hashes = _hashes([*levels, *others], threads)
    digest = xxhash.xxh3_128(b"beamsieve index 3")
    digest.update(repr((list(parts.codebooks), parts.end_token)).encode())
    digest.update(b"".join(hashes[: len(levels)]))
    sids = digest.hexdigest()
    digest.update(b"".join(hashes[len(levels) :]))
    return digest.hexdigest(), sids


def refuse_damaged(parts: IndexParts, prints: tuple[str, str], threads: int | None = None) -> None:
    """Refuse an index whose arrays are not those that its fingerprints are of.

    Raises:
        IndexFileError: they are others.
    """
    try:
        sound = all(map(_agrees, parts.tables)) and fingerprints(parts, threads) == prints
    except (IndexError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise IndexFileError(
            "The index is damaged: its arrays do not fit each other or its fingerprint; load it "
            "with verify=True, copy it again or build it again."
        )


def _agrees(table: StepTable) -> bool:
    """Whether what a table holds for look-ups alone, which is not hashed, fits the rest of it."""
    made = encode_starts(table.plain_starts(), table.starts.name).arrays
    if table.bitmap is not None:
        made["ranks"] = dense_ranks(table.vocabulary, table.bitmap)
    return all(np.array_equal(array, table.arrays[name]) for name, array in made.items())


def _plain_form(table: StepTable) -> list[Any]:
    """What says all about a table, whatever its layout, and is stored so in most; to be hashed.

    - its rows, its entries, and z, in decimal;
    - its row starts: nothing where every row has one entry; plain ones where these take no more
      bytes than the bits of the kind sampled; else those bits;
    - its tokens: a bitmap where the dense layout takes the fewest bytes; else the list that the
      sparse layout holds.
    """
    rows, entries, vocabulary = table.rows, table.entries, table.vocabulary
    starts, gap = table.starts, int(table.starts.has_empty_row)
    found: list[Any] = [f"{rows} {entries} {gap}".encode()]
    if rows == entries and not gap:
        pass
    elif (rows + 1) * starts_dtype(entries).itemsize <= 8 * bit_words(rows, entries, gap):
        found.append(table.plain_starts)
    else:
        found.append(starts.bits if starts.bits is not None else partial(_bits, starts, gap))
    if best_layout(rows, entries, vocabulary) == "dense":
        found.append(partial(_bitmap, table) if table.bitmap is None else table.bitmap)
    elif "packed" in token_candidates(rows, entries, vocabulary):
        found.append(partial(_packed, table) if table.packed is None else table.packed)
    else:
        found.append(table.plain_tokens)
    return found


def _bits(starts: RowStarts, gap: int) -> NDArray[np.uint64]:
    return start_bits(starts.all(), gap)


def _bitmap(table: StepTable) -> NDArray[np.uint64]:
    return dense_bitmap(table.vocabulary, table.plain_starts(), table.plain_tokens())


def _packed(table: StepTable) -> NDArray[np.uint32]:
    bits = table.token_bits
    packed = np.zeros(packed_words(table.entries, bits), np.uint32)
    pack_tokens(table.plain_tokens(), bits, packed)
    return packed


def _hashes(given: list[Any], threads: int | None) -> list[bytes]:
    """Of each; what is still to be made and what is large first, so that threads end together."""

    def size(at: int) -> float:
        return np.inf if callable(given[at]) else memoryview(given[at]).nbytes

    order = sorted(range(len(given)), key=size, reverse=True)
    found = dict(zip(order, parallel.run(lambda at: _hash(given[at]), order, threads), strict=True))
    return [found[at] for at in range(len(given))]


def _hash(given: Any) -> bytes:
    """xxh3 of an array's bytes, of bytes, or of what a function makes."""
    made = given() if callable(given) else given
    held: bytes = xxhash.xxh3_128_digest(_bytes(made) if isinstance(made, np.ndarray) else made)  # pyright: ignore[reportArgumentType]
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
