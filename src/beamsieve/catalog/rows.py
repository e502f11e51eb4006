"""Rows on their way into a catalog: batches come in, bad rows are left out, columns come out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog.batch import Batch, Columns, Kept
from beamsieve.catalog.items import ItemIds, read_ids
from beamsieve.catalog.keys import TokenRanges
from beamsieve.catalog.room import Room
from beamsieve.catalog.sorting import sort_sids
from beamsieve.catalog.validate import Rejects, all_usable, bad_rows, check_codebooks, why_bad
from beamsieve.errors import CatalogError
from beamsieve.targeting.rules import RuleReader


class Rows:
    """Takes batches, then gives all rows that can be used.

    Args:
        rejects: takes the others.
        codebooks: the size per level, one size for every level, or None.
        end_token: whether a semantic ID may be a proper prefix of another.
        rules: reads the rows' rules.
        threads: how many to use.
    """

    def __init__(
        self,
        rejects: Rejects,
        codebooks: int | Iterable[int] | None,
        end_token: bool,
        rules: RuleReader,
        threads: int | None = None,
    ) -> None:
        self.rejects = rejects
        self.end_token = end_token
        self._one_size = isinstance(codebooks, (int, np.integer))
        self._sizes = check_codebooks(codebooks)
        self.most = None if self._one_size or self._sizes is None else len(self._sizes)
        """L where the codebooks tell it."""
        self.seen = 0
        self.rules = rules
        self.threads = threads
        self._kept: list[Kept] = []
        self._rooms: tuple[Room, Room] | None = None
        """For the tokens and for ids that are integers, where the number of rows is known."""

    def add(self, batch: Batch, total: int = 0) -> None:
        """Check a batch and keep what can be used of it; ``total`` rows are to come in all, if that
        is known.
        """
        count, width = batch.sids.shape
        if total and self._rooms is None:
            self._rooms = Room(total), Room(total)
        self.seen += count
        if self.most is not None and width > self.most:
            raise CatalogError(
                f"{batch.source}: its semantic IDs have {width} levels, but there are "
                f"{self.most} codebook sizes; give one size per level."
            )
        sizes = self._sizes_of(width)
        ids, bad_ids = _read_ids(batch)
        found = [list(batch.unreadable)]
        ranges = TokenRanges.of(batch.sids, self.threads) if batch.sids.size else None
        if ranges is None or not all_usable(ranges, sizes):
            found.append(bad_rows(batch.sids, sizes).tolist())
        no_id = set()
        if ids is not None and ids.null_count:
            no_id = set(np.flatnonzero(np.asarray(ids.is_null())).tolist())
        rule_sets, bad_rules = self._read_rules(batch)
        bad = sorted({*chain.from_iterable(found), *no_id, *bad_rules})
        for row in bad:
            if row in batch.unreadable:
                why = batch.unreadable[row]
            elif row in bad_ids:
                why = bad_ids[row]
            elif row in no_id:
                why = ("missing item id", "the item id is missing")
            elif row in bad_rules:
                why = bad_rules[row]
            else:
                why = why_bad(batch.sids[row].tolist(), sizes)
            value = batch.rule(row) if why is bad_rules.get(row) else batch.value(row)
            self.rejects.add(batch.source, batch.unit, batch.label(row), why, value)
        kept = Kept(
            batch.source, batch.unit, batch.sids, ranges, ids, batch.titles, rule_sets, batch.labels
        )
        if bad:
            kept = kept.take(np.delete(np.arange(count), bad))
        if kept.sids.dtype != np.int32:  # what is kept fits
            kept = replace(kept, sids=_as_int32(kept.sids, self.threads))
        self._kept.append(kept if self._rooms is None else self._in_rooms(kept, *self._rooms))

    def _in_rooms(self, kept: Kept, sids: Room, ids: Room) -> Kept:
        """With its columns where all rows will be, so that the batch's own memory is free."""
        run = None
        if kept.ids is not None and pa.types.is_int64(kept.ids.type):
            run = ids.put(ItemIds(kept.ids).numpy())
            kept = replace(kept, ids=ItemIds.numbered(run).values)
        return replace(kept, sids=sids.put(kept.sids), id_run=run)

    def _read_rules(self, batch: Batch) -> tuple[NDArray[np.int32], dict[int, tuple[str, str]]]:
        if batch.rules is not None:
            return self.rules.read(batch.rules)
        return np.zeros((len(batch.sids), len(self.rules.sets)), np.int32), {}

    def _sizes_of(self, width: int) -> tuple[int, ...] | None:
        if self._sizes is None:
            return None
        return self._sizes * width if self._one_size else self._sizes[:width]

    def finish(self) -> Columns:
        """All rows that can be used.

        Raises:
            CatalogError: there are none, or the batches' items differ in kind.
        """
        source = self.rejects.source
        self._refuse_prefixes()
        batches = [batch for batch in self._kept if len(batch.sids)]
        if not batches:
            raise CatalogError(
                f"{source}: {'every row was rejected' if self.seen else 'there are no rows'}; "
                "a catalog needs at least one item."
            )
        widest = max(batch.sids.shape[1] for batch in batches)
        length = widest if self.most is None else self.most
        ranges = TokenRanges.joined([b.ranges for b in batches if b.ranges is not None], length)
        sizes = self._sizes_of(length)
        if sizes is None or self._one_size:
            if ranges.highest[-1] < 0:
                raise CatalogError(
                    f"{source}: no semantic ID reaches level {length}; leave the empty levels out, "
                    "or name the size of each level's codebook with codebooks=."
                )
            sizes = sizes or tuple(top + 1 for top in ranges.highest)
        ids = None
        if all(batch.ids is not None for batch in batches):
            ids = self._joined_ids(batches)
        elif not _are_row_numbers(batches):
            ids = pa.array(np.concatenate([np.asarray(batch.numbers()) for batch in batches]))
        titles = None
        if any(batch.titles is not None for batch in batches):
            none = pa.nulls
            titles = pa.concat_arrays(
                [
                    none(len(b.sids), pa.large_string()) if b.titles is None else b.titles
                    for b in batches
                ]
            )
        rule_sets = np.concatenate([batch.rule_sets for batch in batches])
        self._kept = []
        return Columns(self._matrix(batches, length), ranges, ids, titles, rule_sets, sizes)

    def _joined_ids(self, batches: list[Kept]) -> pa.Array:
        runs = [batch.id_run for batch in batches if batch.id_run is not None]
        if self._rooms is not None and len(runs) == len(batches):
            whole = self._rooms[1].whole(runs)
            if whole is not None:
                return ItemIds.numbered(whole).values
        return _joined([batch.ids for batch in batches], self.rejects.source)

    def _matrix(self, batches: list[Kept], length: int) -> NDArray[np.int32]:
        """All tokens in one array, int32 [n, L]; as they lie where that is one already."""
        whole: NDArray[np.integer] | None = batches[0].sids if len(batches) == 1 else None
        if self._rooms is not None:
            whole = self._rooms[0].whole([batch.sids for batch in batches])
        if whole is not None and whole.shape[1] == length:
            return cast("NDArray[np.int32]", whole)
        firsts = np.cumsum([0] + [len(batch.sids) for batch in batches]).tolist()
        sids = np.empty((firsts[-1], length), np.int32)

        def copy(number: int) -> None:
            batch = batches[number]
            rows = sids[firsts[number] : firsts[number + 1]]
            width = batch.sids.shape[1]
            rows[:, :width] = batch.sids
            rows[:, width:] = -1

        parallel.run(copy, range(len(batches)), self.threads)
        return sids

    def _refuse_prefixes(self) -> None:
        """Refuse each semantic ID that is a proper prefix of another: no step could end on it."""
        if self.end_token or not self._kept:
            return
        widths = {batch.sids.shape[1] for batch in self._kept if len(batch.sids)}
        if len(widths) <= 1 and all(
            batch.ranges is None or batch.ranges.lowest[-1] >= 0 for batch in self._kept
        ):
            return
        firsts = np.cumsum([0] + [len(batch.sids) for batch in self._kept]).tolist()
        sids = np.full((firsts[-1], max(widths)), -1, np.int32)
        for batch, first in zip(self._kept, firsts, strict=False):
            sids[first : first + len(batch.sids), : batch.sids.shape[1]] = batch.sids
        drop: dict[int, list[int]] = {}
        for place in _proper_prefixes(sids).tolist():
            number = bisect_right(firsts, place) - 1
            batch, row = self._kept[number], place - firsts[number]
            why = (
                "proper prefix of another",
                "the semantic ID is a proper prefix of another one; with end_token=True both "
                "could be found",
            )
            sid = sids[place][sids[place] >= 0]
            self.rejects.add(batch.source, batch.unit, batch.label(row), why, sid)
            drop.setdefault(number, []).append(row)
        for number, gone in drop.items():
            batch = self._kept[number]
            self._kept[number] = batch.take(np.delete(np.arange(len(batch.sids)), gone))


def _proper_prefixes(sids: NDArray[np.int32]) -> NDArray[np.int64]:
    """The rows whose semantic ID is a proper prefix of another row's."""
    order = sort_sids(sids)
    first = np.flatnonzero(order.difference < order.length)
    lengths = (order.sids[first] >= 0).sum(axis=1)
    is_prefix = np.zeros(len(first), np.bool_)
    is_prefix[:-1] = order.difference[first[1:]] == lengths[:-1]
    return np.sort(order.rows[is_prefix[order.leaf_of_row()]])


def _read_ids(batch: Batch) -> tuple[pa.Array | None, dict[int, tuple[str, str]]]:
    if batch.ids is None:
        return None, {}
    try:
        return read_ids(batch.ids)
    except CatalogError as error:
        raise CatalogError(f"{batch.source}: {error}") from error


def _as_int32(sids: NDArray[np.integer], threads: int | None) -> NDArray[np.int32]:
    found = np.empty(sids.shape, np.int32)

    def copy(rows: tuple[int, int]) -> None:
        found[slice(*rows)] = sids[slice(*rows)]

    parallel.run(copy, parallel.pieces(len(sids), 1 << 18), threads)
    return found


def _are_row_numbers(batches: Sequence[Kept]) -> bool:
    """Whether the rows are numbered from 0 without a gap."""
    expected = 0
    for batch in batches:
        if type(batch.labels) is not int or batch.labels != expected:
            return False
        expected += len(batch.sids)
    return True


def _joined(columns: list[pa.Array], source: str) -> pa.Array:
    kinds = {str(column.type) for column in columns}
    if len(kinds) > 1:
        raise CatalogError(
            f"{source}: some item ids are integers and some are strings; make them all of one kind."
        )
    return pa.concat_arrays(columns)
