"""Runs of a step table's entries, and where tokens stand in its rows, for many at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

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
    """

    def __init__(self, table: StepTable) -> None:
        self.table = table

    def prepare(self) -> None:
        """Count what look-ups need, before several threads ask for it."""
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
        start = starts.start(rows)
        if starts.bits is None:
            return start, starts.start(rows + 1)
        return start, next_set_bit(starts.bits, start + 1)

    def find_compiled(self) -> Callable[..., None] | None:
        """What looks for many tokens at once in a compiled loop; None where the table's arrays are
        of types that no loop is compiled for.

        It takes rows (int64 [n]), whether there is such a row (bool [n]) and tokens (integers [n]);
        and writes what :meth:`find` returns (int64, bool, int64 [n]): where there is no such row,
        where it would begin, False, and 0.
        """
        from beamsieve.compiled import locate

        table, starts = self.table, self.table.starts
        listed = (starts.plain, starts.samples, starts.exceptions)
        if any(array is not None and array.dtype != np.int32 for array in listed):
            return None
        if table.ranks is not None and table.ranks.dtype != np.uint16:
            return None
        none = np.zeros(0, np.int32)
        plain, samples, exceptions = (none if one is None else one for one in listed)
        ranks, groups = np.zeros(0, np.uint16), 0
        if table.bitmap is not None and table.ranks is not None:
            words, tail, width = np.ascontiguousarray(table.bitmap).reshape(-1), 0, 0
            width, groups = table.bitmap.shape[1], table.ranks.shape[1]
            ranks = np.ascontiguousarray(table.ranks).reshape(-1)
        else:
            stored = table.tokens if table.packed is None else table.packed
            assert stored is not None
            words, tail = whole_words(stored)
            width = table.token_bits if table.packed is not None else 8 * stored.itemsize

        def find(
            rows: Places,
            known: NDArray[np.bool_],
            tokens: NDArray[np.integer],
            place: Places,
            here: NDArray[np.bool_],
            held: Places,
        ) -> None:
            locate.find(
                {"plain": locate.PLAIN, "identity": locate.IDENTITY}.get(
                    starts.kind, locate.SAMPLED
                ),
                plain,
                np.zeros(0, np.uint64) if starts.bits is None else starts.bits,
                samples,
                exceptions,
                max(0, starts.block.bit_length() - 1),
                table.bitmap is not None,
                words,
                np.uint64(tail),
                width,
                ranks,
                GROUP,
                groups,
                rows,
                known,
                np.ascontiguousarray(tokens, np.int32),
                place,
                here,
                held,
                0,
                len(rows),
            )

        return find

    def find(
        self, rows: Places, tokens: NDArray[np.integer]
    ) -> tuple[Places, NDArray[np.bool_], Places]:
        """Where in these rows the tokens stand, or where they would go; whether they stand; and how
        many entries the rows have.
        """
        table = self.table
        start, end = self.bounds(rows)
        low = start
        if table.bitmap is not None and table.ranks is not None:
            word, bit = tokens // WORD, (tokens % WORD).astype(np.uint64)
            bits = table.bitmap[rows, word]
            before = np.bitwise_count(bits & ((np.uint64(1) << bit) - np.uint64(1)))
            place = low + table.ranks[rows, word // GROUP] + before
            for back in range(1, GROUP):
                counts = np.bitwise_count(table.bitmap[rows, np.maximum(word - back, 0)])
                place += np.where(word % GROUP >= back, counts, 0)
            return place, (bits >> bit & np.uint64(1)).astype(np.bool_), end - start
        high = end.copy()
        last = max(0, table.entries - 1)
        while (low < high).any():
            middle = (low + high) // 2
            less = (table.tokens_at(np.minimum(middle, last)) < tokens) & (low < high)
            low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
        here = (low < end) & (table.tokens_at(np.minimum(low, last)) == tokens)
        return low, here, end - start
