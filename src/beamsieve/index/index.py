"""The index: per-step tables on the host, and what a leaf stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import ArrayLike, NDArray

from beamsieve.catalog.items import ItemId, ItemIds
from beamsieve.catalog.validate import Progress
from beamsieve.errors import IndexFileError, InputError
from beamsieve.index.build import LayoutChoice, build_tables
from beamsieve.index.files import read_file, text_arrays, text_column, write_file
from beamsieve.index.leaves import child_of, leaf_bounds, tokens_of_entries, tokens_of_row
from beamsieve.index.tables import StepTable

if TYPE_CHECKING:
    from beamsieve.catalog import Catalog

_TABLE_PARTS = ("row_starts", "tokens", "bitmap", "ranks")


class LeafItems(NamedTuple):
    """Which items each leaf stands for: ``numbers[starts[leaf] : starts[leaf + 1]]``."""

    starts: NDArray[np.integer]
    """int64 [leaves + 1]."""
    numbers: NDArray[np.integer]
    """Integers [pairs]: positions in ``index.items``; under one leaf, in input order."""


class Index:
    """A catalog, sliced by step. Made by ``Index.build`` or ``Index.load``; never changed.

    A *leaf* is the place of a semantic ID among all distinct ones, in lexicographic order. Items
    are numbered in the order of their first leaf.

    Attributes:
        tables: one per step.
        codebooks: V_1 … V_L as tables and heads use them, end tokens included.
        end_token: whether every semantic ID ends with an end token, which users never see.
        items: the users' item ids by item number.
        titles: Arrow large_string [items], or None.
        fingerprint: 32 hexadecimal digits: equal for equal semantic IDs and items, whatever the
            layouts of the tables.
        sid_fingerprint: the same of codebooks and semantic IDs alone.
    """

    def __init__(
        self,
        tables: Sequence[StepTable],
        codebooks: Sequence[int],
        end_token: bool,
        items: ItemIds,
        leaf_items: tuple[NDArray[np.integer] | None, NDArray[np.integer] | None] = (None, None),
        titles: pa.Array | None = None,
        fingerprints: tuple[str, str] | None = None,
    ) -> None:
        self.tables = tuple(tables)
        self.codebooks = tuple(codebooks)
        self.end_token = end_token
        self.items = items
        self.titles = titles
        self._leaf_starts, self._leaf_numbers = leaf_items
        if fingerprints is None:
            fingerprints = self._fingerprints()
        self.fingerprint, self.sid_fingerprint = fingerprints

    @classmethod
    def build(
        cls, catalog: Catalog, layout: LayoutChoice = None, progress: Progress | None = None
    ) -> Index:
        """Build the tables of a catalog.

        Args:
            catalog: what to build from.
            layout: "dense" or "sparse" forces every table's layout, a sequence each table's own;
                None leaves it to the measured size.
            progress: called with what is being done, how much of it is done, how much there is.
        """
        order = catalog.order
        tables = build_tables(order, catalog.coded_codebooks, layout, progress)
        first = order.difference < order.length
        leaf_starts = None
        if not first.all():
            leaf_starts = np.append(np.flatnonzero(first), len(first))
        numbers = None
        if catalog.row_items is None:
            rows_of_items = order.rows
        else:
            in_order = catalog.row_items[order.rows]
            rows_of_items, numbers = _numbered_by_appearance(in_order)
        take = pa.array(rows_of_items)
        items = ItemIds(catalog.items.values.take(take))
        titles = None if catalog.titles is None else catalog.titles.take(take)
        return cls(
            tables,
            catalog.coded_codebooks,
            catalog.end_token,
            items,
            (leaf_starts, numbers),
            titles,
        )

    def save(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write the index to a safetensors file; never leaves half a file under that name.

        Raises:
            IndexFileError: the file cannot be written.
        """
        description = {
            "codebooks": list(self.codebooks),
            "end_token": self.end_token,
            "leaves": self.leaf_count,
            "items": len(self.items),
            "fingerprint": self.fingerprint,
            "sid_fingerprint": self.sid_fingerprint,
            "widest": [table.widest for table in self.tables],
        }
        arrays: dict[str, NDArray[Any]] = {}
        for table in self.tables:
            for part in _TABLE_PARTS:
                if getattr(table, part) is not None:
                    arrays[f"table.{table.step}.{part}"] = getattr(table, part)
        write_file(path, description, arrays | self._host_arrays(), progress)

    @classmethod
    def load(
        cls,
        path: str | Path,
        mmap: bool = True,
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Index:
        """Read an index from its file.

        Args:
            path: the file.
            mmap: map the file into memory, so that only what is used is read.
            verify: compare the checksum of every array, which reads the whole file once. Without
                it, only the header is checked.
            progress: called as checksums are compared.

        Raises:
            IndexFileError: the file is missing, foreign, newer, truncated or altered.
        """
        file = read_file(path, mmap, verify, progress)
        arrays, about = file.arrays, file.description
        try:
            tables = [
                StepTable(
                    step,
                    vocabulary,
                    widest=about["widest"][step - 1],
                    **{part: arrays.get(f"table.{step}.{part}") for part in _TABLE_PARTS},  # type: ignore[arg-type]  # row_starts is always there
                )
                for step, vocabulary in enumerate(about["codebooks"], 1)
            ]
            items = arrays.get("items")
            index = cls(
                tables,
                about["codebooks"],
                about["end_token"],
                ItemIds(text_column("items", arrays) if items is None else pa.array(items)),
                (arrays.get("leaf_items.starts"), arrays.get("leaf_items.numbers")),
                text_column("titles", arrays) if "titles.offsets" in arrays else None,
                (about["fingerprint"], about["sid_fingerprint"]),
            )
            index.leaf_count = about["leaves"]
        except (KeyError, IndexError, TypeError, pa.ArrowException) as error:
            raise IndexFileError(f"{path}: an array or a field is missing: {error}.") from error
        return index

    @property
    def length(self) -> int:
        """L, the number of steps, the end token's included."""
        return len(self.tables)

    @cached_property
    def leaf_count(self) -> int:
        """The number of distinct semantic IDs."""
        ended = sum(int(np.count_nonzero(np.diff(t.row_starts) == 0)) for t in self.tables)
        return self.tables[-1].entries + ended

    @cached_property
    def _bounds(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return leaf_bounds(self.tables)

    def leaf_starts(self, depth: int) -> NDArray[np.int64]:
        """int64 [rows + 1]: the first leaf of every prefix of ``depth`` tokens; behind the last,
        the number of leaves.

        Row r of table depth+1 covers the leaves ``leaf_starts(depth)[r] : leaf_ends(depth)[r]``.
        Where all semantic IDs are of one length, an end is the next start; a semantic ID that ends
        above ``depth`` is in no interval.
        """
        return self._bounds[self._depth(depth)][0]

    def leaf_ends(self, depth: int) -> NDArray[np.int64]:
        """int64 [rows]: one behind the last leaf of every prefix of ``depth`` tokens."""
        return self._bounds[self._depth(depth)][1]

    def _depth(self, depth: int) -> int:
        if not 0 <= depth <= self.length:
            raise InputError(f"depth is {depth}; prefixes have 0 to {self.length} tokens.")
        return depth

    @cached_property
    def _entry_tokens(self) -> list[NDArray[np.unsignedinteger]]:
        return [tokens_of_entries(table) for table in self.tables]

    def row_of(self, prefix: Iterable[int]) -> tuple[int, bool] | None:
        """Where a prefix leads: (its row in the next table, False), or (its leaf, True) when it is
        a complete semantic ID; None when no semantic ID begins with it.

        The prefix is spelled as the tables are: where the index has an end token, a semantic ID is
        complete only behind it.
        """
        tokens = _as_tokens(prefix)
        if len(tokens) > self.length:
            return None
        row = 0
        for table, token in zip(self.tables, tokens, strict=False):
            row = child_of(table, row, token)
            if row < 0:
                return None
        depth = len(tokens)
        if depth < self.length:
            start, end = self.tables[depth].row_starts[row : row + 2]
            if start < end:
                return row, False
        return int(self.leaf_starts(depth)[row]), True

    def children(self, prefix: Iterable[int] = ()) -> NDArray[np.int32]:
        """int32, ascending: the tokens that may follow a prefix; none behind an unknown prefix."""
        tokens = _as_tokens(prefix)
        place = self.row_of(tokens)
        if place is None or place[1]:
            return np.empty(0, np.int32)
        return tokens_of_row(self.tables[len(tokens)], place[0])

    def leaf_of(self, sid: Iterable[int]) -> int | None:
        """The leaf of a semantic ID, given with or without its end token; None if unknown."""
        tokens = _as_tokens(sid)
        while tokens and tokens[-1] == -1:
            tokens.pop()
        place = self.row_of(tokens)
        if place is not None and not place[1] and self.end_token:
            end = self.codebooks[len(tokens)] - 1
            place = self.row_of([*tokens, end])
        return place[0] if place is not None and place[1] else None

    def contains(self, sid: Iterable[int]) -> bool:
        """Whether ``sid`` is a semantic ID of the catalog."""
        return self.leaf_of(sid) is not None

    def items_of(self, sid: Iterable[int]) -> list[ItemId]:
        """The items of a semantic ID, in input order; none if it is unknown."""
        leaf = self.leaf_of(sid)
        return [] if leaf is None else self.items.list(self.items_of_leaves([leaf])[1])

    @cached_property
    def leaf_items(self) -> LeafItems:
        """The item numbers of every leaf."""
        starts = self._leaf_starts
        if starts is None:
            starts = np.arange(self.leaf_count + 1)
        numbers = self._leaf_numbers
        if numbers is None:
            numbers = np.arange(int(starts[-1]))
        return LeafItems(starts, numbers)

    def items_of_leaves(self, leaves: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For many leaves: how many items each has (int64 [leaves]), and their numbers in turn."""
        places = np.asarray(leaves, np.int64).ravel()
        if self._leaf_starts is None:
            counts, found = np.ones(len(places), np.int64), places
        else:
            starts = self._leaf_starts[places].astype(np.int64)
            counts = self._leaf_starts[places + 1] - starts
            ends = np.cumsum(counts)
            found = np.repeat(starts - ends + counts, counts) + np.arange(counts.sum())
        if self._leaf_numbers is not None:
            found = self._leaf_numbers[found].astype(np.int64)
        return counts, found

    def sid_of_leaf(self, leaf: ArrayLike) -> NDArray[np.int32]:
        """int32 [..., L]: the semantic IDs of leaves, as users spell them: without an end token,
        -1 behind the end of a shorter one.
        """
        leaves = np.asarray(leaf, np.int64)
        flat = leaves.ravel()
        if len(flat) and not 0 <= flat.min() <= flat.max() < self.leaf_count:
            raise InputError(
                f"There is no leaf {flat.min() if flat.min() < 0 else flat.max()}; "
                f"leaves go from 0 to {self.leaf_count - 1}."
            )
        sids = np.full((len(flat), self.length), -1, np.int32)
        reached = np.ones(len(flat), np.bool_)
        for depth in range(1, self.length + 1):
            starts, ends = self._bounds[depth]
            if not len(ends):
                break
            entry = np.maximum(np.searchsorted(starts[:-1], flat, side="right") - 1, 0)
            reached &= (starts[entry] <= flat) & (flat < ends[entry])
            tokens = self._entry_tokens[depth - 1][entry].astype(np.int32)
            if self.end_token:
                is_end = tokens == self.codebooks[depth - 1] - 1
                tokens[is_end] = -1
            sids[:, depth - 1] = np.where(reached, tokens, -1)
        users = sids[:, : self.length - 1] if self.end_token else sids
        return users.reshape(*leaves.shape, users.shape[1])

    def titles_of(self, numbers: ArrayLike) -> list[str | None]:
        """The titles of these item numbers; None where an item has none."""
        places = np.asarray(numbers, np.int64).ravel()
        if self.titles is None:
            return [None] * len(places)
        titles: list[str | None] = self.titles.take(pa.array(places)).to_pylist()
        return titles

    @property
    def device_bytes(self) -> int:
        """Bytes of the tables, which a backend puts on its device."""
        return sum(table.nbytes for table in self.tables)

    @property
    def host_bytes(self) -> int:
        """Bytes of what stays on the host: items, titles, and which leaf stands for which item."""
        return sum(array.nbytes for array in self._host_arrays().values())

    def _host_arrays(self) -> dict[str, NDArray[Any]]:
        """What stays on the host, under the names that it has in a file."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in (("starts", self._leaf_starts), ("numbers", self._leaf_numbers)):
            if array is not None:
                arrays[f"leaf_items.{name}"] = array
        if self.items.are_strings:
            arrays |= text_arrays("items", self.items.values)
        else:
            arrays["items"] = self.items.numpy()
        if self.titles is not None:
            arrays |= text_arrays("titles", self.titles)
        return arrays

    def stats(self) -> Mapping[str, Any]:
        """Sizes, as plain numbers and strings: of the whole, and per table under "tables"."""
        return {
            "length": self.length,
            "codebooks": list(self.codebooks),
            "end_token": self.end_token,
            "sids": self.leaf_count,
            "items": len(self.items),
            "tables": [
                {
                    "step": table.step,
                    "vocabulary": table.vocabulary,
                    "rows": table.rows,
                    "entries": table.entries,
                    "widest": table.widest,
                    "layout": table.layout,
                    "bytes": table.nbytes,
                }
                for table in self.tables
            ],
            "device_bytes": self.device_bytes,
            "host_bytes": self.host_bytes,
            "fingerprint": self.fingerprint,
        }

    def __repr__(self) -> str:
        return (
            f"Index({self.leaf_count} semantic IDs, {len(self.items)} items, codebooks "
            f"{'×'.join(map(str, self.codebooks))}, {self.fingerprint[:8]})"
        )

    def _fingerprints(self) -> tuple[str, str]:
        digest = xxhash.xxh3_128(b"beamsieve index 1")
        digest.update(repr((list(self.codebooks), self.end_token)).encode())
        for table in self.tables:
            digest.update(_bytes(table.row_starts))
            digest.update(_bytes(tokens_of_entries(table)))
        sids = digest.hexdigest()
        for array in (self._leaf_starts, self._leaf_numbers):
            digest.update(b"-" if array is None else _bytes(array))
        digest.update(b"strings" if self.items.are_strings else b"integers")
        for buffer in _buffers(self.items.values):
            digest.update(buffer)
        return digest.hexdigest(), sids


def _numbered_by_appearance(
    items: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Renumber items by first appearance: old number of each new one, and each row's new number.

    The second is None when every item appears once.
    """
    old, first, place = np.unique(items, return_index=True, return_inverse=True)
    if len(old) == len(items):
        return items, None
    by_appearance = np.argsort(first, kind="stable")
    new = np.empty(len(old), np.int64)
    new[by_appearance] = np.arange(len(old))
    return old[by_appearance], new[place]


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


def _as_tokens(prefix: Iterable[int]) -> list[int]:
    tokens = []
    for token in prefix:
        if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
            raise InputError(f"Token {token!r} is no integer; a prefix is a sequence of integers.")
        tokens.append(int(token))
    return tokens
