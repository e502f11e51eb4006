"""From sorted rows to the plain parts of every step table, in two passes over them.

The first pass counts the entries that each part of the rows has on each level, which says where in
the tables the part's entries go. The second writes them there, all parts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.order import Block, SidOrder
from beamsieve.index.starts import starts_dtype
from beamsieve.index.tokens import token_dtype


@dataclass(frozen=True)
class Level:
    """One step table in its plain parts.

    Attributes:
        vocabulary: the level's codebook.
        row_starts: int32 or int64 [rows + 1]; where each row's entries begin.
        tokens: uint8, uint16 or uint32 [entries].
    """

    vocabulary: int
    row_starts: NDArray[np.signedinteger]
    tokens: NDArray[np.unsignedinteger]

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return len(self.tokens)

    @classmethod
    def empty(cls, vocabulary: int, rows: int, entries: int) -> Level:
        """To be filled."""
        starts = np.zeros(rows + 1, starts_dtype(entries))
        starts[-1] = entries
        return cls(vocabulary, starts, np.empty(entries, token_dtype(vocabulary)))


@dataclass(frozen=True)
class Levels:
    """All tables, and what the leaves stand for.

    Attributes:
        tables: one per level.
        leaf_starts: int64 [leaves + 1]; where the rows of each distinct semantic ID begin; None
            where all differ.
    """

    tables: tuple[Level, ...]
    leaf_starts: NDArray[np.int64] | None


def make_levels(
    order: SidOrder,
    codebooks: Sequence[int],
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Levels:
    """The plain parts of the tables of sorted rows."""
    parts = order.parts
    report = progress or (lambda done, total: None)
    counts = np.array(
        parallel.run(
            lambda part: _count(order, *part),
            parts,
            threads,
            lambda done, total: report(done, 2 * total),
        )
    )
    # Row p: how many entries, level by level, lie before part p; in front the root, behind leaves.
    before = np.cumsum(counts, axis=0) - counts
    totals = counts.sum(axis=0).tolist()
    tables = tuple(
        Level.empty(vocabulary, totals[step], totals[step + 1])
        for step, vocabulary in enumerate(codebooks)
    )
    leaf_starts = None
    if totals[-1] < len(order):
        leaf_starts = np.empty(totals[-1] + 1, np.int64)
        leaf_starts[-1] = len(order)

    def fill(number: int) -> None:
        done = before[number].tolist()
        for block in order.blocks(*parts[number]):
            found = _fill(order, block, tables, done)
            if leaf_starts is not None:
                leaves = np.flatnonzero(order.difference[block.start : block.stop] < order.length)
                leaf_starts[done[-1] : done[-1] + len(leaves)] = leaves + block.start
                found.append(len(leaves))
            done = [a + b for a, b in zip(done, found, strict=False)]

    parallel.run(fill, range(len(parts)), threads, lambda d, total: report(d + total, 2 * total))
    return Levels(tables, leaf_starts)


def _count(order: SidOrder, start: int, stop: int) -> list[int]:
    """How many prefixes of each length, from 0, appear first in these rows; and semantic IDs."""
    counts = np.zeros(order.length + 2, np.int64)
    if not order.padded:
        for first, last in parallel.blocks(start, stop):
            difference = order.difference[first:last]
            for depth in range(1, order.length + 1):
                counts[depth] += np.count_nonzero(difference < depth)
        counts[-1] = counts[-2]
    else:
        for block in order.blocks(start, stop):
            difference = order.difference[block.start : block.stop]
            for depth in range(1, order.length + 1):
                counts[depth] += np.count_nonzero(_is_new(order, block, difference, depth))
            counts[-1] += np.count_nonzero(difference < order.length)
    counts[0] = start == 0
    return counts.tolist()


def _is_new(
    order: SidOrder, block: Block, difference: NDArray[np.integer], depth: int
) -> NDArray[np.bool_]:
    """bool [n]; where a prefix of ``depth`` tokens appears for the first time."""
    new = np.asarray(difference < depth)
    if order.padded:
        new &= block.codes(depth - 1, None) > 0
    return new


def _fill(order: SidOrder, block: Block, tables: Sequence[Level], done: list[int]) -> list[int]:
    """Write a block's entries behind those that are ``done``; how many there were per level."""
    difference = order.difference[block.start : block.stop]
    rows_new: NDArray[np.bool_] | None = None
    found = [0]
    for depth, table in enumerate(tables, 1):
        new = _is_new(order, block, difference, depth)
        count = int(np.count_nonzero(new))
        tokens = block.codes(depth - 1, None if count == len(new) else np.flatnonzero(new))
        if order.padded:
            tokens = tokens - tokens.dtype.type(1)
        first = done[depth]
        table.tokens[first : first + count] = tokens
        if rows_new is not None:
            starts: NDArray[np.integer]
            if order.padded:  # a row may have no entry
                starts = (np.cumsum(new) - new)[rows_new]
            else:
                starts = np.flatnonzero(rows_new if count == len(new) else rows_new[new])
            row = done[depth - 1]
            table.row_starts[row : row + len(starts)] = starts + first
        rows_new = new
        found.append(count)
    return found
