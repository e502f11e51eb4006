"""The numbers of many items, found in one pass over all ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.items import ItemIds, as_text, is_id, pc

_PART = 1 << 18

Found = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Places among the ids asked for, and the numbers of the items there."""


def find_numbers(
    items: ItemIds, columns: Sequence[Any], threads: int | None, compiled: bool = False
) -> list[NDArray[np.int64]]:
    """Per column of ids, int64: each one's item number, -1 where no item has it.

    See :meth:`ItemIds.find`.
    """
    ends = np.cumsum([len(ids) for ids in columns])
    wanted = pa.concat_arrays([_asked(items, ids) for ids in columns])
    if not len(wanted):
        numbers = np.zeros(0, np.int64)
    elif compiled and not items.are_strings:
        numbers = _find_compiled(items, wanted, threads)
    else:
        numbers = _find(items, wanted, threads)
    return np.split(numbers, ends[:-1])


def _asked(items: ItemIds, ids: Any) -> pa.Array:
    """Ids as the items' type, null where they are of another."""
    kind = items.values.type
    if isinstance(ids, pa.Array):
        return ids if ids.type == kind else pa.nulls(len(ids), kind)
    if items.are_strings:
        return as_text(one if isinstance(one, str) else None for one in ids)[0]
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "i":
        return ItemIds.numbered(np.ascontiguousarray(ids, np.int64)).values
    return pa.array([one if is_id(one) else None for one in ids], kind)


def _find(items: ItemIds, ids: pa.Array, threads: int | None) -> NDArray[np.int64]:
    place, count, look_up = _strings(items, ids) if items.are_strings else _integers(items, ids)
    numbers = np.full(count + 1, -1, np.int64)  # the last is for what is no id
    for places, found in parallel.run(look_up, parallel.pieces(len(items), _PART), threads):
        numbers[places] = found
    numbers[count] = -1
    return numbers[place]


def _find_compiled(items: ItemIds, ids: pa.Array, threads: int | None) -> NDArray[np.int64]:
    from beamsieve.compiled.lookup import Asked

    usable, listed = _listed(ids)
    asked, own = Asked(listed), items.numpy()
    parallel.run(lambda part: asked.look(own, *part), parallel.pieces(len(own), _PART), threads)
    return np.where(usable, asked.numbers, -1)


def _listed(ids: pa.Array) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which integers there are, and all of them, 0 where there is none."""
    usable = np.ones(len(ids), np.bool_)
    if ids.null_count:
        usable = np.asarray(ids.is_valid())
        ids = ids.fill_null(0)
    return usable, ItemIds(ids).numpy()


Distinct = tuple[NDArray[np.int64], int, Callable[[tuple[int, int]], Found]]
"""For each id its place among the distinct ones (-1: no id), how many these are, and what finds
them in a run of items."""


def _strings(items: ItemIds, ids: pa.Array) -> Distinct:
    encoded = ids.dictionary_encode()

    def look_up(part: tuple[int, int]) -> Found:
        first, last = part
        places = pc.index_in(items.values.slice(first, last - first), encoded.dictionary)
        found = np.flatnonzero(np.asarray(places.is_valid()))
        return places.take(pa.array(found)).to_numpy().astype(np.int64), found + first

    place = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return place, len(encoded.dictionary), look_up


def _integers(items: ItemIds, ids: pa.Array) -> Distinct:
    usable, listed = _listed(ids)
    order = np.argsort(listed, kind="stable")
    ordered = listed[order]
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    known, place = ordered[new], np.empty(len(ordered), np.int64)
    place[order] = np.cumsum(new) - 1
    own = items.numpy()
    # Most items are none of those asked for, which a bitmap of hashes tells at once: bit h % 8 of
    # byte h // 8. A cell is a byte; an id of each cell (of several, any one) is looked at first.
    bits = max(16, (4 * len(known)).bit_length())
    hashes = _hashes(known, bits + 3)
    cells = hashes >> 3
    marked = np.zeros(1 << bits, np.uint8)
    np.bitwise_or.at(marked, cells, np.uint8(1) << (hashes & 7).astype(np.uint8))
    holder = np.empty(1 << bits, np.int32)
    holder[cells] = np.arange(len(known), dtype=np.int32)
    others = np.flatnonzero(holder[cells] != np.arange(len(known)))
    crowded = np.zeros(1 << bits, np.bool_)
    crowded[cells[others]] = True
    other_ids = known[others]

    def look_up(part: tuple[int, int]) -> Found:
        places, numbers = [], []
        for first, last in parallel.blocks(*part):
            block = own[first:last]
            hashed = _hashes(block, bits + 3)
            bit = hashed.astype(np.uint8)
            bit &= 7
            hashed >>= 3
            held = marked.take(hashed, mode="clip")
            held >>= bit
            held &= 1
            maybe = np.flatnonzero(held.view(np.bool_))
            cell = hashed[maybe]
            at = holder[cell].astype(np.int64)
            equal = known[at] == block[maybe]
            places.append(at[equal])
            numbers.append(maybe[equal] + first)
            left = maybe[~equal & crowded[cell]]
            if len(left):
                at = np.minimum(np.searchsorted(other_ids, block[left]), len(others) - 1)
                equal = other_ids[at] == block[left]
                places.append(others[at[equal]])
                numbers.append(left[equal] + first)
        return np.concatenate(places), np.concatenate(numbers)

    return np.where(usable, place, -1), len(known), look_up


def _hashes(values: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """A hash of ``bits`` bits of each value: the top of its product with an odd number."""
    product = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    product >>= np.uint64(64 - bits)
    return product.view(np.int64)
