"""Sorted runs with some places taken out and others put in, and the step tables that this gives.

Everything here is about positions: an old array's entries keep their order, some are deleted, and
inserted ones go in front of given old positions. All arrays of one level change in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.reader import TableReader
from beamsieve.index.sets import Places, among, ascending, counted, rank

_PART = 1 << 17
_LOOKUPS = 1 << 12


@dataclass(frozen=True)
class Steps:
    """A number per position that changes at some of them only.

    Attributes:
        places: int64 [steps], ascending; from which positions on the number is another.
        totals: int64 [steps + 1]; the number before the first place, and from each on.
    """

    places: Places
    totals: Places

    @classmethod
    def of(cls, places: Places, amounts: Places) -> Steps:
        """From 0, changed by an amount from each place on."""
        order = np.argsort(places, kind="stable")
        totals = np.concatenate([[0], np.cumsum(amounts[order])])
        return cls(places[order], totals)

    def over(self, start: int, stop: int) -> Places:
        """int64 [stop - start]; the number at each position."""
        first, last = np.searchsorted(self.places, [start + 1, stop])
        ends = np.append(self.places[first:last], stop)
        ends[1:] -= ends[:-1].copy()
        ends[0] -= start
        return np.repeat(self.totals[first : last + 1], ends)


@dataclass(frozen=True)
class Runs:
    """Old entries that stay side by side.

    Attributes:
        first: int64 [runs], ascending; the first of each.
        length: int64 [runs]; how many.
        now: int64 [runs]; where the first is found afterwards.
    """

    first: Places
    length: Places
    now: Places


@dataclass(frozen=True)
class Merge:
    """What becomes of an array of ``old`` entries.

    Attributes:
        old: how many entries there were.
        deleted: int64, ascending and distinct; the positions taken out.
        at: int64 [inserted], ascending; the old position in front of which each new one goes.
        compiled: whether to work in compiled loops, where there are some for the arrays' types.
    """

    old: int
    deleted: Places
    at: Places
    compiled: bool = False

    @property
    def size(self) -> int:
        """How many entries there are afterwards."""
        return self.old - len(self.deleted) + len(self.at)

    @cached_property
    def inserted(self) -> Places:
        """int64 [inserted]; where the inserted entries are found afterwards."""
        gone = rank(self.deleted, self.at, compiled=self.compiled)
        return self.at - gone + np.arange(len(self.at))

    def moved(self, places: Places) -> Places:
        """Where old entries are found afterwards; for a deleted one, where it would be."""
        gone = rank(self.deleted, places, compiled=self.compiled)
        return places - gone + rank(self.at, places, True, self.compiled)

    @cached_property
    def runs(self) -> Runs:
        """The longest runs of entries that stay side by side."""
        at, put = counted(self.at)
        ends = (self.deleted, self.deleted + 1, at, np.array([0, self.old]))
        cuts = np.sort(np.concatenate(ends))
        new = np.ones(len(cuts), np.bool_)
        np.not_equal(cuts[1:], cuts[:-1], out=new[1:])
        cuts = cuts[new]
        first, length = cuts[:-1], cuts[1:] - cuts[:-1]
        gone = np.searchsorted(first, self.deleted)
        # How far each has moved: by what went and what came in front of it.
        moved = np.zeros(len(cuts), np.int64)
        moved[np.searchsorted(cuts, at)] = put
        moved[gone + 1] -= 1
        now = first + np.cumsum(moved[:-1])
        stays = np.ones(len(first), np.bool_)
        stays[gone] = False
        return Runs(first[stays], length[stays], now[stays])

    @cached_property
    def _ahead(self) -> Steps:
        """By how much the old position of an entry lies ahead of its new one."""
        places = np.concatenate([self.inserted + 1, self.moved(self.deleted)])
        return Steps.of(places, np.repeat([-1, 1], [len(self.at), len(self.deleted)]))

    def sources(self, start: int, stop: int) -> Places:
        """int64 [stop - start], ascending; the old position of each new entry.

        For an inserted one it is the position in front of which it went.
        """
        found = self._ahead.over(start, stop)
        found += np.arange(start, stop)
        return found

    def changed(self, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """An array afterwards: ``old`` [old, …] without the deleted, with ``new`` [inserted, …]."""
        found = np.empty((self.size, *old.shape[1:]), old.dtype)
        for job in self.jobs(old, new, found):
            job()
        return found

    def jobs(self, old: NDArray[Any], new: NDArray[Any], out: NDArray[Any]) -> list[parallel.Job]:
        """What writes :meth:`changed` to ``out``, in any order."""
        plain = all(one.dtype == np.int64 and one.ndim == 1 for one in (old, new, out))
        if self.compiled and plain:
            from beamsieve.compiled.streams import change

            changes = (np.ascontiguousarray(old), self.deleted, self.inserted, new, out)
            return [partial(change, *changes, *p) for p in parallel.pieces(self.size, 4 * _PART)]

        def write(start: int, stop: int) -> None:
            for first, last in parallel.blocks(start, stop):
                if self.old:
                    sources = self.sources(first, last)
                    np.take(old, sources, axis=0, out=out[first:last], mode="clip")
                low, high = np.searchsorted(self.inserted, [first, last])
                out[self.inserted[low:high]] = new[low:high]

        return [partial(write, *piece) for piece in parallel.pieces(self.size, _PART)]


@dataclass(frozen=True)
class LevelChange:
    """How one table changes.

    Attributes:
        merge: of its entries.
        lost: int64 [deleted], ascending; the row of each deleted entry.
        widest: the most entries of any row afterwards; None where the table must be looked at.
        tokens: [inserted]; of the inserted entries.
        parents: int64 [inserted]; the old row of each, -1 where its row is new, too.
        rows: int64 [inserted]; the row that each is in afterwards.
    """

    merge: Merge
    lost: Places
    widest: int | None
    tokens: NDArray[np.integer]
    parents: Places
    rows: Places


@dataclass(frozen=True)
class Found:
    """Where prefixes of one length stand in a table.

    Attributes:
        place: int64 [n]; the entry of each, or the one in front of which it would go.
        here: bool [n]; whether the table has it.
        new: bool [n]; whether it is to be inserted: the first of equal ones that are not there.
        parents: int64 [n]; the row of each, -1 where that is not there, either.
        width: int64 [n]; how many entries that row has, 0 where it is not there.
    """

    place: Places
    here: NDArray[np.bool_]
    new: NDArray[np.bool_]
    parents: Places
    width: Places


def locate(
    readers: Sequence[TableReader], sids: NDArray[np.int32], threads: int | None = None
) -> list[Found]:
    """Where the prefixes of ``sids`` (int32 [n, L], ascending and distinct) stand, per table."""
    count = len(sids)
    place, row, width = (np.empty((len(readers), count), np.int64) for _ in range(3))
    here = np.zeros((len(readers), count), np.bool_)

    def look(part: tuple[int, int]) -> None:
        own = slice(*part)
        above, known = np.zeros(part[1] - part[0], np.int64), np.ones(part[1] - part[0], np.bool_)
        for level, reader in enumerate(readers):
            at, there, wide = reader.find(above, sids[own, level], known)
            place[level, own], here[level, own], width[level, own] = at, there, wide
            row[level, own] = np.where(known, above, -1)
            above, known = at, there

    parallel.run(TableReader.prepare, readers, threads)
    parallel.run(look, parallel.pieces(count, _LOOKUPS), threads)
    differs = np.arange(count) == 0  # whether the prefix is another than the one before
    found: list[Found] = []
    for level in range(len(readers)):
        differs[1:] |= sids[1:, level] != sids[:-1, level]
        new = differs & ~here[level]
        found.append(Found(place[level], here[level], new, row[level], width[level]))
    return found


def changes_of(
    readers: Sequence[TableReader], sids: NDArray[np.int32], found: Sequence[Found], gone: Places
) -> list[LevelChange]:
    """How every table changes when semantic IDs come and leaves go.

    Args:
        readers: of the tables, none of which has an empty row.
        sids: int32 [n, L]; ascending and distinct.
        found: where they stand.
        gone: int64, ascending; the leaves to delete, none of them in ``sids``.
    """
    merges: list[Merge] = []
    lost_rows: list[Places] = []
    narrow: list[bool] = []  # whether only rows lose entries that are not the widest
    for reader, level in zip(reversed(readers), reversed(found), strict=True):
        at = level.place[level.new]
        merges.insert(0, Merge(reader.table.entries, gone, at, reader.compiled))
        lost_rows.insert(0, reader.rows_of(gone))
        rows, lost = counted(lost_rows[0])
        start, end = reader.bounds(rows)
        empty = lost == end - start
        narrow.insert(0, int(np.max(end - start, initial=0)) < reader.table.widest)
        # A row that gets an entry stays, and so does what leads to it.
        rows = rows[empty]
        gone = rows[~among(rows, ascending(level.parents[level.new]), reader.compiled)]
    changes = []
    rows = np.zeros(len(sids), np.int64)
    for number, (merge, lost, level) in enumerate(zip(merges, lost_rows, found, strict=True)):
        new = level.new
        parents, now = level.parents[new], rows[new]
        widest: int | None = None
        if narrow[number]:
            _, got = counted(now)
            first = np.cumsum(got) - got
            other = level.width[new][first] + got  # but for what the row lost
            old = parents[first]
            loops = readers[number].compiled
            other -= rank(lost, old, True, loops) - rank(lost, old, False, loops)
            widest = max(readers[number].table.widest, int(np.max(other, initial=0)))
        changes.append(LevelChange(merge, lost, widest, sids[new, number], parents, now))
        # Where each prefix is found afterwards: an old entry has moved, a new one has its place.
        rows = np.zeros(len(sids), np.int64)
        rows[level.here] = merge.moved(level.place[level.here])
        rows[~level.here] = merge.inserted[np.cumsum(new)[~level.here] - 1]
    return changes
