"""Sorted runs with some places taken out and others put in, and the step tables that this gives.

Everything here is about positions: an old array's entries keep their order, some are deleted, and
inserted ones go in front of given old positions. All arrays of one level change in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.levels import Level
from beamsieve.index.reader import Places, TableReader

_PART = 1 << 19


@dataclass(frozen=True)
class Merge:
    """What becomes of an array of ``old`` entries.

    Attributes:
        old: how many entries there were.
        deleted: int64, ascending and distinct; the positions taken out.
        at: int64 [inserted], ascending; the old position in front of which each new one goes.
    """

    old: int
    deleted: Places
    at: Places

    @property
    def size(self) -> int:
        """How many entries there are afterwards."""
        return self.old - len(self.deleted) + len(self.at)

    @cached_property
    def inserted(self) -> Places:
        """int64 [inserted]; where the inserted entries are found afterwards."""
        return self.at - np.searchsorted(self.deleted, self.at) + np.arange(len(self.at))

    def moved(self, places: Places) -> Places:
        """Where old entries that stay are found afterwards."""
        gone = np.searchsorted(self.deleted, places)
        return places - gone + np.searchsorted(self.at, places, side="right")

    @cached_property
    def _steps(self) -> tuple[Places, Places]:
        """New positions from which on the old ones lie ahead by another number, and that number."""
        behind = self.deleted - np.arange(len(self.deleted))
        behind += np.searchsorted(self.at, self.deleted, side="right")
        places = np.concatenate([self.inserted + 1, behind])
        order = np.argsort(places, kind="stable")
        ahead = np.ones(len(places), np.int64)
        ahead[: len(self.at)] = -1
        return places[order], np.concatenate([[0], np.cumsum(ahead[order])])

    def sources(self, start: int, stop: int) -> Places:
        """int64 [stop - start]; the old position of each new one; any where one was inserted."""
        places, ahead = self._steps
        first, last = np.searchsorted(places, [start + 1, stop])
        cuts = np.concatenate([[start], places[first:last], [stop]])
        found = np.repeat(ahead[first : last + 1], np.diff(cuts))
        found += np.arange(start, stop)
        return np.clip(found, 0, max(0, self.old - 1), out=found)

    def take(
        self,
        old: NDArray[np.int64],
        new: NDArray[np.int64],
        threads: int | None,
    ) -> NDArray[np.int64]:
        """The array afterwards: ``old`` [old] without the deleted, with ``new`` [inserted]."""
        found = np.empty(self.size, old.dtype)

        def fill(part: tuple[int, int]) -> None:
            for first, last in parallel.blocks(*part):
                if self.old:
                    np.take(old, self.sources(first, last), out=found[first:last], mode="clip")

        parallel.run(fill, parallel.pieces(self.size, _PART), threads)
        found[self.inserted] = new
        return found


@dataclass(frozen=True)
class LevelChange:
    """How one table changes.

    Attributes:
        merge: of its entries.
        tokens: [inserted]; of the inserted entries.
        parents: int64 [inserted]; the old row of each, -1 where its row is new, too.
        rows: int64 [inserted]; the row that each is in afterwards.
    """

    merge: Merge
    tokens: NDArray[np.integer]
    parents: Places
    rows: Places


def change_of_rows(
    readers: Sequence[TableReader], sids: NDArray[np.int32], gone: Places
) -> tuple[list[LevelChange], Places, NDArray[np.bool_]]:
    """How every table changes when semantic IDs come and leaves go.

    Args:
        readers: of the tables, none of which has an empty row.
        sids: int32 [n, L]; ascending and distinct.
        gone: int64; the leaves to delete that none of ``sids`` keeps, ascending.

    Returns:
        The changes; for each of ``sids``, the leaf that it is, or in front of which it goes; and
        whether it is there already.
    """
    count = len(sids)
    new_prefix = np.ones(count, np.bool_)  # whether it differs from the prefix before
    new_prefix[1:] = False
    row, known = np.zeros(count, np.int64), np.ones(count, np.bool_)
    found: list[tuple[Places, NDArray[np.bool_], NDArray[np.bool_], Places]] = []
    for level, reader in enumerate(readers):
        place = np.empty(count, np.int64)
        here = np.zeros(count, np.bool_)
        if known.any():
            place[known], here[known] = reader.find(row[known], sids[known, level])
        place[~known] = reader.table.starts.start(row[~known])
        new_prefix[1:] |= sids[1:, level] != sids[:-1, level]
        found.append((place, here, new_prefix & ~here, np.where(known, row, -1)))
        row, known = place, here
    changes: list[tuple[Merge, NDArray[np.bool_], Places]] = []
    for reader, (place, _, inserted, parents) in zip(
        reversed(readers), reversed(found), strict=True
    ):
        changes.insert(0, (Merge(reader.table.entries, gone, place[inserted]), inserted, parents))
        rows, lost = np.unique(reader.rows_of(gone), return_counts=True)
        starts = reader.table.starts
        empty = lost == starts.start(rows + 1) - starts.start(rows)
        # A row that gets an entry stays, and so does what leads to it.
        gone = np.setdiff1d(rows[empty], parents[inserted], assume_unique=False)
    full = []
    new_rows = np.zeros(count, np.int64)
    for level, (merge, inserted, parents) in enumerate(changes):
        full.append(
            LevelChange(merge, sids[inserted, level], parents[inserted], new_rows[inserted])
        )
        place, here = found[level][0], found[level][1]
        # Where each prefix is found afterwards: an old entry has moved, a new one has its place.
        number = np.cumsum(inserted) - 1
        new_rows = np.where(here, merge.moved(place), 0)
        if len(merge.at):
            new_rows = np.where(here, new_rows, merge.inserted[np.maximum(number, 0)])
    return full, row, known


def changed_level(
    reader: TableReader, change: LevelChange, before: Merge | None, threads: int | None
) -> Level:
    """A table in its plain parts, after a change; ``before`` is that of the level above's."""
    table, merge = reader.table, change.merge
    rows = 1 if before is None else before.size
    made = Level.empty(table.vocabulary, rows, merge.size)
    first = np.empty(merge.size, np.bool_)

    def fill(part: tuple[int, int]) -> None:
        for start, stop in parallel.blocks(*part):
            sources = merge.sources(start, stop)
            low, high = int(sources[0]), int(sources[-1]) + 1
            low, high = min(low, int(sources.min())), max(high, int(sources.max()) + 1)
            sources -= low
            np.take(reader.tokens(low, high), sources, out=made.tokens[start:stop], mode="clip")
            np.take(reader.starts_a_row(low, high), sources, out=first[start:stop], mode="clip")

    parts = parallel.pieces(merge.size, _PART)
    if table.entries:
        parallel.run(fill, parts, threads)
    made.tokens[merge.inserted] = change.tokens
    first[merge.inserted] = False
    _set_first(reader, change, before, first)

    counts = parallel.run(lambda part: int(np.count_nonzero(first[slice(*part)])), parts, threads)
    ends = np.cumsum(counts).tolist()

    def list_starts(number: int) -> None:
        done = ends[number] - counts[number]
        for start, stop in parallel.blocks(*parts[number]):
            places = np.flatnonzero(first[start:stop])
            made.row_starts[done : done + len(places)] = places + start
            done += len(places)

    parallel.run(list_starts, range(len(parts)), threads)
    return made


def _set_first(
    reader: TableReader, change: LevelChange, before: Merge | None, first: NDArray[np.bool_]
) -> None:
    """Correct which entries are the first of their rows, in the rows that change."""
    merge, starts = change.merge, reader.table.starts
    # Rows that are new: their first entry is the first inserted one.
    new = change.parents < 0
    begins = np.ones(len(new), np.bool_)
    begins[1:] = change.rows[1:] != change.rows[:-1]
    first[merge.inserted[new & begins]] = True
    # Old rows that lose or get entries, and stay.
    rows = np.union1d(reader.rows_of(merge.deleted), change.parents[~new])
    if before is not None:
        rows = np.setdiff1d(rows, before.deleted, assume_unique=True)
    if not len(rows):
        return
    old_first = starts.start(rows)
    stays = ~np.isin(old_first, merge.deleted, assume_unique=True)
    first[merge.moved(old_first[stays])] = False
    now = rows if before is None else before.moved(rows)
    earlier = np.searchsorted(change.rows, now)
    first[old_first - np.searchsorted(merge.deleted, old_first) + earlier] = True
