"""A step table after a change, made from what its layout holds, without decoding it.

Where a part of it changes its form, because another takes fewer bytes by now, or where the caller
forces one, the table is made anew from its plain parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.encode import bit_words, encode_starts
from beamsieve.index.layouts import dense_ranks, make_table
from beamsieve.index.leaves import token_of_entry
from beamsieve.index.listing import Listing
from beamsieve.index.merge import LevelChange, Merge
from beamsieve.index.reader import TableReader
from beamsieve.index.sets import Places, among, ascending, rank
from beamsieve.index.splice import put, splice_jobs
from beamsieve.index.starts import WORD, RowStarts
from beamsieve.index.tables import Layout, StepTable, best_layout, token_candidates
from beamsieve.index.tokens import packed_words, token_bits, token_dtype


class ChangedTable:
    """A table after a change.

    Args:
        reader: of the table before.
        change: of its entries.
        before: of the entries of the table above; None for the first table.
        layout: forces the layout; None takes the smaller one.

    Attributes:
        table: once :meth:`steps` has ended.
    """

    table: StepTable

    def __init__(
        self,
        reader: TableReader,
        change: LevelChange,
        before: Merge | None,
        layout: Layout | None,
    ) -> None:
        self._reader, self._change, self._before = reader, change, before
        self._old = reader.table
        self._rows = 1 if before is None else before.size
        self._entries = change.merge.size
        self._layout: Layout = layout or best_layout(
            self._rows, self._entries, self._old.vocabulary
        )

    def steps(self) -> Iterator[list[parallel.Job]]:
        """What is to be done, for :func:`beamsieve.parallel.side_by_side`."""
        old, vocabulary = self._old, self._old.vocabulary
        kind = self._kind()
        if kind != "other" and self._is_untouched():
            self.table = old
            return
        starts: RowStarts | None = None
        widest = 0
        if old.starts.plain is not None:
            listed = self._plain_starts(old.starts.plain)
            starts, widest = encode_starts(listed), int(np.diff(listed).max(initial=0))
        made: StepTable | None = None
        jobs: list[parallel.Job] = []
        if kind == "dense":
            made = self._dense()
        elif kind != "other":
            made, jobs = self._sparse()
        if starts is None:
            bits = np.empty(bit_words(self._rows, self._entries, 0), np.uint64)
            old_bits, merge = self._reader.start_bits(), self._change.merge
            more = splice_jobs(old_bits, 1, merge, None, bits)
            yield jobs + more
            self._set_first(bits)
            listing = Listing(
                bits, self._rows, self._entries, self._change.widest, self._reader.compiled
            )
            yield from listing.steps()
            starts, widest = listing.starts, listing.widest
        else:
            yield jobs
        if made is None:
            tokens = self._change.merge.changed(old.plain_tokens(), self._change.tokens)
            self.table = make_table(old.step, vocabulary, starts.all(), tokens, self._layout)
        else:
            self.table = replace(made, starts=starts, widest=widest)

    def _kind(self) -> str:
        """How the tokens are held afterwards, where that is as before; else "other"."""
        old = self._old
        if old.token_kind == "dense":
            return "dense" if self._layout == "dense" else "other"
        packs = "packed" in token_candidates(self._rows, self._entries, old.vocabulary)
        kind = "packed" if packs else "plain"
        return "other" if self._layout == "dense" or kind != old.token_kind else kind

    def _is_untouched(self) -> bool:
        """Whether the table stays as it is, so that both indexes may hold its arrays."""
        merge, kinds = self._change.merge, self._old.starts.candidates
        changes = len(merge.deleted) + len(merge.at)
        return not changes and self._old.starts.name == min(kinds, key=kinds.__getitem__)

    def _plain_starts(self, old: NDArray[np.signedinteger]) -> NDArray[np.int64]:
        """int64 [rows + 1]; from how many entries each row had, lost and got."""
        counts = np.diff(old).astype(np.int64, copy=False)
        counts = counts - np.bincount(self._change.lost, minlength=len(counts))
        if self._before is not None:
            counts = self._before.changed(counts, np.zeros(len(self._before.at), np.int64))
        counts += np.bincount(self._change.rows, minlength=self._rows)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def _sparse(self) -> tuple[StepTable, list[parallel.Job]]:
        """All but its starts, once the jobs are done."""
        old, merge, tokens = self._old, self._change.merge, self._change.tokens
        if old.packed is not None:
            width = token_bits(old.vocabulary)
            size = packed_words(self._entries, width)
            words = np.empty(-(-size // 2), np.uint64)
            made = replace(old, packed=words.view(np.uint32)[:size])
            return made, splice_jobs(old.packed, width, merge, tokens, words)
        assert old.tokens is not None
        width = 8 * old.tokens.itemsize
        words = np.empty(-(-self._entries * width // WORD), np.uint64)
        made = replace(old, tokens=words.view(token_dtype(old.vocabulary))[: self._entries])
        return made, splice_jobs(old.tokens, width, merge, tokens, words)

    def _dense(self) -> StepTable:
        """All but its starts."""
        old, change, before = self._old, self._change, self._before
        assert old.bitmap is not None
        assert old.ranks is not None
        lost = change.lost
        tokens = token_of_entry(old, lost, change.merge.deleted).astype(np.int64)
        if before is None:
            bitmap, ranks = old.bitmap.copy(), old.ranks.copy()
        else:
            left = ~among(lost, before.deleted, self._reader.compiled)
            lost, tokens = before.moved(lost[left]), tokens[left]
            width = old.bitmap.shape[1], old.ranks.shape[1]
            bitmap = before.changed(old.bitmap, np.zeros((len(before.at), width[0]), np.uint64))
            ranks = before.changed(old.ranks, np.zeros((len(before.at), width[1]), np.uint64))
        words = bitmap.reshape(-1)
        _clear(words, lost * (bitmap.shape[1] * WORD) + tokens)
        _set(words, change.rows * (bitmap.shape[1] * WORD) + change.tokens)
        touched = ascending(np.concatenate([lost, change.rows]))
        ranks[touched] = dense_ranks(old.vocabulary, bitmap[touched])
        return replace(old, bitmap=bitmap, ranks=ranks)

    def _set_first(self, bits: NDArray[np.uint64]) -> None:
        """Correct which entries are the first of their rows, in the rows that change."""
        change, before = self._change, self._before
        merge = change.merge
        new, reader = change.parents < 0, self._reader
        # Old rows whose first entry goes, or gets another one in front of it; and that stay.
        rows = change.lost[reader.begins_row(merge.deleted)]
        at, parents = merge.at[~new], change.parents[~new]
        front = at < merge.old
        front &= reader.begins_row(np.minimum(at, merge.old - 1))
        at, parents = at[front], parents[front]
        parents = parents[parents == reader.rows_of(at)]
        if before is not None:
            rows = rows[~among(rows, before.deleted, self._reader.compiled)]
        rows = ascending(np.concatenate([rows, parents]))
        old_first = reader.bounds(rows)[0]
        stays = ~among(old_first, merge.deleted, self._reader.compiled)
        _clear(bits, merge.moved(old_first[stays]))
        now = rows if before is None else before.moved(rows)
        gone, earlier = (
            rank(members, places, compiled=self._reader.compiled)
            for members, places in ((merge.deleted, old_first), (change.rows, now))
        )
        _set(bits, old_first - gone + earlier)
        # Rows that are new: their first entry is the first inserted one.
        begins = np.ones(len(new), np.bool_)
        begins[1:] = change.rows[1:] != change.rows[:-1]
        _set(bits, merge.inserted[new & begins])
        put(bits, np.array([self._entries]), np.ones(1, np.int64))


def changed_tables(
    readers: list[TableReader],
    changes: list[LevelChange],
    layouts: list[Layout | None],
) -> list[ChangedTable]:
    """One per table, from the first on; see :func:`beamsieve.index.merge.changes_of`."""
    above = [None, *(change.merge for change in changes[:-1])]
    return [ChangedTable(*parts) for parts in zip(readers, changes, above, layouts, strict=True)]


def _set(bits: NDArray[np.uint64], places: Places) -> None:
    np.bitwise_or.at(bits, places >> 6, _masks(places))


def _clear(bits: NDArray[np.uint64], places: Places) -> None:
    np.bitwise_and.at(bits, places >> 6, ~_masks(places))


def _masks(places: Places) -> NDArray[np.uint64]:
    return np.uint64(1) << (places % WORD).astype(np.uint64)
