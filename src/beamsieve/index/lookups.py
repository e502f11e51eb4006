"""What an index answers: what follows a prefix, which leaf is which semantic ID, whose items."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from beamsieve.catalog.items import ItemId, ItemIds
from beamsieve.errors import InputError
from beamsieve.index.leaves import LeafBounds, has_no_empty_row, tokens_of_row
from beamsieve.index.pairs import LeafItems, Pairs
from beamsieve.index.parts import IndexParts
from beamsieve.index.prefixes import as_tokens, walk
from beamsieve.index.spelled import Speller
from beamsieve.index.tables import StepTable


class Lookups:
    """The questions that :class:`beamsieve.index.Index` answers from its parts."""

    tables: tuple[StepTable, ...]
    codebooks: tuple[int, ...]
    end_token: bool
    items: ItemIds
    titles: pa.Array | None
    parts: IndexParts

    @property
    def length(self) -> int:
        """L, the number of steps, the end token's included."""
        return len(self.tables)

    @cached_property
    def leaf_count(self) -> int:
        """The number of distinct semantic IDs."""
        ended = sum(
            int(np.count_nonzero(np.diff(table.plain_starts()) == 0))
            for table in self.tables
            if table.starts.has_empty_row
        )
        return self.tables[-1].entries + ended

    @cached_property
    def _one_length(self) -> bool:
        """Whether all semantic IDs have L tokens."""
        return all(has_no_empty_row(table) for table in self.tables)

    @property
    def pair_count(self) -> int:
        """The number of (item, semantic ID) pairs."""
        return len(self._pairs)

    @cached_property
    def _bounds(self) -> LeafBounds:
        return LeafBounds(self.tables)

    @cached_property
    def _speller(self) -> Speller:
        return Speller(
            self.tables,
            self.codebooks,
            self.end_token,
            self.leaf_count,
            self._one_length,
            self._bounds,
        )

    def leaf_starts(self, depth: int) -> NDArray[np.int64]:
        """int64 [rows + 1]: the first leaf of every prefix of ``depth`` tokens; behind the last,
        the number of leaves.

        Row r of table depth+1 covers the leaves ``leaf_starts(depth)[r] : leaf_ends(depth)[r]``.
        Where all semantic IDs are of one length, an end is the next start; a semantic ID that ends
        above ``depth`` is in no interval.
        """
        return self._bounds.by_depth[self._depth(depth)][0]

    def leaf_ends(self, depth: int) -> NDArray[np.int64]:
        """int64 [rows]: one behind the last leaf of every prefix of ``depth`` tokens."""
        return self._bounds.by_depth[self._depth(depth)][1]

    def _depth(self, depth: int) -> int:
        if not isinstance(depth, (int, np.integer)) or not 0 <= depth <= self.length:
            raise InputError(f"depth is {depth!r}; prefixes have 0 to {self.length} tokens.")
        return depth

    def row_of(self, prefix: Iterable[int]) -> tuple[int, bool] | None:
        """Where a prefix leads: (its row in the next table, False), or (its leaf, True) when it is
        a complete semantic ID; None when no semantic ID begins with it.

        The prefix is spelled as the tables are: where the index has an end token, a semantic ID is
        complete only behind it.
        """
        tokens = as_tokens(prefix)
        place = walk(self.tables, tokens)
        if place is None or not place[1] or self._one_length:  # then last entries are the leaves
            return place
        return int(self.leaf_starts(len(tokens))[place[0]]), True

    def children(self, prefix: Iterable[int] = ()) -> NDArray[np.int32]:
        """int32, ascending: the tokens that may follow a prefix; none behind an unknown prefix."""
        tokens = as_tokens(prefix)
        place = self.row_of(tokens)
        if place is None or place[1]:
            return np.empty(0, np.int32)
        return tokens_of_row(self.tables[len(tokens)], place[0])

    def leaf_of(self, sid: Iterable[int]) -> int | None:
        """The leaf of a semantic ID, given with or without its end token; None if unknown."""
        tokens = as_tokens(sid)
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
    def _pairs(self) -> Pairs:
        parts = self.parts
        return Pairs(parts.leaf_starts, parts.leaf_numbers, self.leaf_count, len(self.items))

    @property
    def leaf_items(self) -> LeafItems:
        """The item numbers of every leaf."""
        return self._pairs.leaf_items

    def items_of_leaves(self, leaves: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For many leaves: how many items each has (int64 [leaves]), and their numbers in turn."""
        return self._pairs.items_of_leaves(leaves)

    def sid_of_leaf(self, leaf: ArrayLike) -> NDArray[np.int32]:
        """int32 [..., L]: the semantic IDs of leaves, as users spell them: without an end token,
        -1 behind the end of a shorter one.

        Raises:
            InputError: no integers, or no leaves of this index.
        """
        return self._speller.sid_of_leaf(leaf)

    def leaves_of_items(self, numbers: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For many items: how many leaves each has (int64 [items]), and the leaves in turn."""
        return self._pairs.leaves_of_items(numbers)

    def titles_of(self, numbers: ArrayLike) -> list[str | None]:
        """The titles of these item numbers; None where an item has none."""
        places = np.asarray(numbers, np.int64).ravel()
        if self.titles is None:
            return [None] * len(places)
        titles: list[str | None] = self.titles.take(pa.array(places)).to_pylist()
        return titles
