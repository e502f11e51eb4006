"""Leaves: the distinct semantic IDs in lexicographic order, and each row's interval of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beamsieve.index.bits import kth_set_bit
from beamsieve.index.starts import WORD
from beamsieve.index.tables import GROUP, StepTable


def tokens_of_entries(table: StepTable) -> NDArray[np.unsignedinteger]:
    """The token of every entry of a table, whatever its layout; ascending within a row."""
    return table.plain_tokens()


def tokens_of_row(table: StepTable, row: int) -> NDArray[np.int32]:
    """The tokens that may follow one row, ascending."""
    if table.bitmap is not None:
        words = np.ascontiguousarray(table.bitmap[row]).view(np.uint8)
        return np.flatnonzero(np.unpackbits(words, bitorder="little")).astype(np.int32)
    return table.tokens_at(np.arange(*table.starts.bounds(row))).astype(np.int32)


def token_of_entry(
    table: StepTable, rows: NDArray[np.int64], entries: NDArray[np.int64]
) -> NDArray[np.int32]:
    """int32 [n]: the tokens of these entries (int64 [n]) of these rows (int64 [n])."""
    if table.bitmap is None or table.ranks is None:
        return table.tokens_at(entries).astype(np.int32)
    if table.rows == 1:
        return np.asarray(tokens_of_row(table, 0)[entries])
    left = entries - table.starts.start(rows)
    ranks, top = table.ranks[rows], table.bitmap.shape[1] - 1
    group = np.maximum((ranks <= left[:, None]).sum(axis=1) - 1, 0)
    left -= ranks[np.arange(len(group)), group]
    word = np.minimum(group * GROUP, top)
    for _ in range(GROUP - 1):  # past the words of the group that lie before the entry
        count = np.bitwise_count(table.bitmap[rows, word])
        behind = left >= count
        left -= count * behind
        word = np.minimum(word + behind, top)
    # Each word stands alone, at the head of three, so that no other bit is met.
    alone = np.zeros((len(word), 3), np.uint64)
    alone[:, 0] = table.bitmap[rows, word]
    first = np.arange(len(word)) * (3 * WORD)
    bit = kth_set_bit(alone.ravel(), first, left) - first
    return np.asarray((word * WORD + bit).astype(np.int32))


def spelled_by_lookup(tables: Sequence[StepTable], leaves: NDArray[np.int64]) -> NDArray[np.int32]:
    """int32 [n, L]: the tokens of leaves (int64 [n]) where all semantic IDs have L of them.

    From the last table up, row by row: no table is expanded, so it suits few leaves.
    """
    sids = np.empty((len(leaves), len(tables)), np.int32)
    entries = leaves
    for table in reversed(tables):
        rows = table.starts.row_of(entries)
        sids[:, table.step - 1] = token_of_entry(table, rows, entries)
        entries = rows
    return sids


def child_of(table: StepTable, row: int, token: int) -> int:
    """The entry (the row of the next table) that ``token`` leads to from ``row``; -1 if none."""
    if not 0 <= token < table.vocabulary:
        return -1
    start, end = table.starts.bounds(row)
    if table.bitmap is not None and table.ranks is not None:
        word, bit = divmod(token, 64)
        bits = int(table.bitmap[row, word])
        if not bits >> bit & 1:
            return -1
        group = word // GROUP
        before = int(np.bitwise_count(table.bitmap[row, group * GROUP : word]).sum())
        before += int(table.ranks[row, group])
        return start + before + (bits & ((1 << bit) - 1)).bit_count()
    tokens = table.tokens_at(np.arange(start, end))
    place = int(np.searchsorted(tokens, token))
    return start + place if place < len(tokens) and tokens[place] == token else -1


def leaf_counts(tables: Sequence[StepTable]) -> list[NDArray[np.int64]]:
    """int64 [prefixes] for every depth 0 … L: how many semantic IDs begin with each prefix."""
    counts = [np.ones(tables[-1].entries, np.int64)]
    for table in reversed(tables):
        before = np.concatenate([[0], np.cumsum(counts[0])])
        starts = table.plain_starts()
        own = before[starts[1:]] - before[starts[:-1]]
        own[starts[1:] == starts[:-1]] = 1
        counts.insert(0, own)
    return counts


def leaf_bounds(
    tables: Sequence[StepTable],
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For every depth 0 … L, the first leaf of each prefix and the one behind its last.

    A prefix that is itself a semantic ID covers one leaf at its own depth and is no prefix of any
    deeper one, so between the intervals of a deeper level there may be gaps.
    """
    if all(has_no_empty_row(table) for table in tables):
        starts = np.arange(tables[-1].entries + 1)
        bounds = [(starts, starts[1:])]
        for table in reversed(tables):
            starts = starts[table.plain_starts()]
            bounds.insert(0, (starts, starts[1:]))
        return bounds
    counts = leaf_counts(tables)
    starts = np.zeros(1, np.int64)
    bounds = []
    for depth, count in enumerate(counts):
        ends = starts + count
        bounds.append((np.append(starts, int(counts[0][0])), ends))
        if depth < len(tables):
            table = tables[depth]
            before = np.cumsum(counts[depth + 1]) - counts[depth + 1]
            row = rows_of_entries(table)
            first = before[table.plain_starts()[:-1][row]]
            starts = starts[row] + before - first
    return bounds


class LeafBounds:
    """What :func:`leaf_bounds` finds for tables, worked out when it is first asked for.

    An object of its own, for an index and what the index holds to share: were the latter to ask
    the index, each would keep the other until the garbage collector comes by.

    Args:
        tables: one per step.
    """

    def __init__(self, tables: Sequence[StepTable]) -> None:
        self._tables = tables

    @cached_property
    def by_depth(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For every depth 0 … L, the first leaf of each prefix and the one behind its last."""
        return leaf_bounds(self._tables)


def has_no_empty_row(table: StepTable) -> bool:
    """Whether every row has an entry, so that no semantic ID ends above this table."""
    return not table.starts.has_empty_row


def rows_of_entries(table: StepTable) -> NDArray[np.int64]:
    """int64 [entries]; the row that owns each entry."""
    return np.repeat(np.arange(table.rows), np.diff(table.plain_starts()))
