"""Runs of a step table's entries, and where tokens stand in its rows, for many at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from beamsieve.index.bits import next_set_bit
from beamsieve.index.encode import start_bits
from beamsieve.index.sets import Places
from beamsieve.index.starts import WORD
from beamsieve.index.tables import GROUP, StepTable
from beamsieve.index.words import whole_words


class TableReader:
    """A step table's entries, by position; of tables without an empty row.

    Args:
        table: the table.
        compiled: whether to look in compiled loops, where there are some for its arrays' types.
    """

    def __init__(self, table: StepTable, compiled: bool = False) -> None:
        self.table = table
        self.compiled = compiled

    def prepare(self) -> None:
        """Make what look-ups need, before several threads ask for it."""
        _ = self._starts_of, self._places_of
        if self.table.starts.bits is not None:
            _ = self._rows_before

    def start_bits(self) -> NDArray[np.uint64]:
        """The bits of the row starts, as the kind sampled holds them."""
        starts = self.table.starts
        return start_bits(starts.all(), 0) if starts.bits is None else starts.bits

    @cached_property
    def _rows_before(self) -> Places:
        """How many rows begin before each word of the bits."""
        assert self.table.starts.bits is not None
        counts = np.bitwise_count(self.table.starts.bits)
        return np.cumsum(counts, dtype=np.int64) - counts

    def rows_of(self, entries: Places) -> Places:
        """The row of each of these entries; of tables without an empty row."""
        starts = self.table.starts
        if starts.kind == "identity":
            return entries
        if starts.bits is None:
            return np.searchsorted(starts.all(), entries, side="right") - 1
        word = entries >> 6
        upto = np.uint64(2**64 - 1) >> (np.uint64(WORD - 1) - (entries & 63).view(np.uint64))
        return np.asarray(self._rows_before[word] + np.bitwise_count(starts.bits[word] & upto) - 1)

    def begins_row(self, entries: Places) -> NDArray[np.bool_]:
        """Whether each of these entries is the first of its row; of tables without plain starts."""
        bits = self.table.starts.bits
        if bits is None:
            return np.ones(len(entries), np.bool_)
        word = bits[entries >> 6] >> (entries & 63).view(np.uint64)
        return np.asarray((word & np.uint64(1)).astype(np.bool_))

    def bounds(self, rows: Places) -> tuple[Places, Places]:
        """The first entry of each of these rows, and the one behind its last."""
        starts = self.table.starts
        if self._starts_of is not None:
            rows = np.ascontiguousarray(rows)
            start, end = np.empty_like(rows), np.empty_like(rows)
            self._starts_of(starts.entries, rows, start, end)
            return start, end
        start = starts.start(rows)
        if starts.bits is None:
            return start, starts.start(np.minimum(rows + 1, starts.rows))
        return start, next_set_bit(starts.bits, start + 1)

    @cached_property
    def _starts_of(self) -> Callable[..., None] | None:
        """The compiled loop of :meth:`bounds`; None where there is none for the arrays' types."""
        starts = self.table.starts
        listed = (starts.plain, starts.samples, starts.exceptions)
        if not self.compiled or any(one is not None and one.dtype != np.int32 for one in listed):
            return None
        from beamsieve.compiled import locate

        none = np.zeros(0, np.int32)
        plain, samples, exceptions = (none if one is None else one for one in listed)
        kinds = {"plain": locate.PLAIN, "identity": locate.IDENTITY, "sampled": locate.SAMPLED}
        bits = np.zeros(0, np.uint64) if starts.bits is None else starts.bits
        shift = max(0, starts.block.bit_length() - 1)
        return partial(locate.bounds, kinds[starts.kind], plain, bits, samples, exceptions, shift)

    @cached_property
    def _places_of(self) -> Callable[..., None] | None:
        """The compiled loop of :meth:`find`; None where there is none for the arrays' types."""
        table = self.table
        if not self.compiled or (table.ranks is not None and table.ranks.dtype != np.uint16):
            return None
        from beamsieve.compiled import locate

        if table.bitmap is not None and table.ranks is not None:
            words, ranks = np.ascontiguousarray(table.bitmap), np.ascontiguousarray(table.ranks)
            sizes = words.shape[1], ranks.reshape(-1), GROUP, ranks.shape[1]
            return partial(locate.find, True, words.reshape(-1), np.uint64(0), *sizes)
        stored = table.tokens if table.packed is None else table.packed
        assert stored is not None
        whole, tail = whole_words(stored)
        width = table.token_bits if table.packed is not None else 8 * stored.itemsize
        none = np.zeros(0, np.uint16)
        return partial(locate.find, False, whole, np.uint64(tail), width, none, GROUP, 0)

    def find(
        self, rows: Places, tokens: NDArray[np.integer], known: NDArray[np.bool_] | None = None
    ) -> tuple[Places, NDArray[np.bool_], Places]:
        """Where in these rows the tokens stand, or where they would go; whether they stand; and how
        many entries the rows have.

        ``known`` says which rows there are. Another one is the row that is there in its place (the
        one behind all, perhaps): its tokens would go where that begins, and it has no entry.
        """
        if known is None:
            known = np.ones(len(rows), np.bool_)
        start, end = self.bounds(rows)
        if self._places_of is not None:
            place, here = np.empty_like(start), np.empty(len(rows), np.bool_)
            asked = np.ascontiguousarray(tokens, np.int32)
            self._places_of(self.table.entries, rows, start, end, known, asked, place, here)
        else:
            place, here = start.copy(), np.zeros(len(rows), np.bool_)
            place[known], here[known] = self._find(
                rows[known], tokens[known], start[known], end[known]
            )
        return place, here, np.where(known, end - start, 0)

    def _find(
        self, rows: Places, tokens: NDArray[np.integer], start: Places, end: Places
    ) -> tuple[Places, NDArray[np.bool_]]:
        table = self.table
        if table.bitmap is not None and table.ranks is not None:
            word, bit = tokens // WORD, (tokens % WORD).astype(np.uint64)
            bits = table.bitmap[rows, word]
            before = np.bitwise_count(bits & ((np.uint64(1) << bit) - np.uint64(1)))
            place = start + table.ranks[rows, word // GROUP] + before
            for back in range(1, GROUP):
                counts = np.bitwise_count(table.bitmap[rows, np.maximum(word - back, 0)])
                place += np.where(word % GROUP >= back, counts, 0)
            return place, (bits >> bit & np.uint64(1)).astype(np.bool_)
        low, high = start, end
        last = max(0, table.entries - 1)
        while (low < high).any():
            middle = (low + high) // 2
            less = (table.tokens_at(np.minimum(middle, last)) < tokens) & (low < high)
            low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
        here = (low < end) & (table.tokens_at(np.minimum(low, last)) == tokens)
        return low, here
