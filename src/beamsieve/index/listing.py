"""From the bits of row starts, as the kind sampled holds them, to the kind of fewest bytes.

Where the bits are there already, the starts need not be listed: every eighth of them, and the one
in front of it, say how far blocks of 8, 16, 32 and 64 rows reach, and are the samples of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.index.bits import kth_set_bit
from beamsieve.index.encode import kind_bytes
from beamsieve.index.sets import Places
from beamsieve.index.starts import BLOCKS, SPAN, WORD, RowStarts, starts_dtype

_STEP = min(BLOCKS)
_PIECE = 1 << 13


class Listing:
    """Row starts from their bits; no row may be empty.

    Args:
        bits: uint64; as :mod:`beamsieve.index.starts` describes them.
        rows, entries: of the table.
        widest: the most entries of any row, if that is known.
        compiled: whether to look in compiled loops.

    Attributes:
        starts: the row starts, once :meth:`steps` has ended.
        widest: the most entries of any row, then.
    """

    starts: RowStarts
    widest: int

    def __init__(
        self,
        bits: NDArray[np.uint64],
        rows: int,
        entries: int,
        widest: int | None = None,
        compiled: bool = False,
    ) -> None:
        self._known_widest = widest
        self._compiled = compiled and starts_dtype(entries) == np.int32
        self._bits, self._rows, self._entries = bits, rows, entries
        counts = np.bitwise_count(bits)
        self._before = np.cumsum(counts, dtype=np.int64) - counts
        dtype = starts_dtype(entries)
        self._first = np.zeros(-(-(rows + 1) // _STEP), dtype)
        self._last = np.full(len(self._first), entries, dtype)
        self._seams: list[tuple[int, int, int]] = []

    def steps(self) -> Iterator[list[parallel.Job]]:
        """What is to be done, for :func:`beamsieve.parallel.side_by_side`."""
        pieces = parallel.pieces(len(self._bits), _PIECE)
        look: list[parallel.Job] = [
            partial(self._look_compiled if self._compiled else self._look, *piece)
            for piece in pieces
        ]
        if self._known_widest is None and not self._compiled:
            look += [partial(self._span, *piece) for piece in pieces]
        yield look
        self.widest = self._widest() if self._known_widest is None else self._known_widest
        candidates = kind_bytes(self._rows, self._entries, 0, self._exceptional_counts())
        kind = min(candidates, key=candidates.__getitem__)
        if kind == "plain":
            plain = np.empty(self._rows + 1, starts_dtype(self._entries))
            yield [partial(self._list, plain, *piece) for piece in pieces]
            self.starts = RowStarts(self._rows, self._entries, plain, candidates=candidates)
        elif kind == "identity":
            self.starts = RowStarts(self._rows, self._entries, candidates=candidates)
        else:
            block = int(kind.removeprefix("sampled/"))
            self.starts = self._sampled(block, self._exceptional(block), candidates)

    def _look(self, first: int, last: int) -> None:
        """Note the places of every eighth row, and of those in front of them, in some words."""
        for start, stop in parallel.blocks(first, last, parallel.block_rows() // WORD):
            row, places = int(self._before[start]), self._places(start, stop)
            for found, offset in ((self._first, 0), (self._last, _STEP - 1)):
                own = places[(offset - row) % _STEP :: _STEP]
                at = (row + _STEP - 1 - offset) // _STEP
                found[at : at + len(own)] = own

    def _look_compiled(self, first: int, last: int) -> None:
        """Likewise, and the most entries of a row."""
        from beamsieve.compiled.starts import list_eighths

        seam, row = np.zeros(3, np.int64), int(self._before[first])
        list_eighths(self._bits, first, last, row, self._first, self._last, seam)
        earliest, before, widest = seam.tolist()
        if before >= 0:
            self._seams.append((earliest, before, widest))

    def _places(self, start: int, stop: int) -> Places:
        octets = self._bits[start:stop].view(np.uint8)
        places = np.flatnonzero(np.unpackbits(octets, bitorder="little").view(np.bool_))
        places += start * WORD
        return places

    def _list(self, plain: NDArray[np.signedinteger], first: int, last: int) -> None:
        """List the rows that begin in some words."""
        for start, stop in parallel.blocks(first, last, parallel.block_rows() // WORD):
            row, places = int(self._before[start]), self._places(start, stop)
            plain[row : row + len(places)] = places

    def _span(self, first: int, last: int) -> None:
        """Note the most entries of a row in some words."""
        widest, earliest, before = 0, -1, -1
        for start, stop in parallel.blocks(first, last, parallel.block_rows() // WORD):
            places = self._places(start, stop)
            if not len(places):
                continue
            if before < 0:
                earliest = int(places[0])
            else:
                widest = max(widest, int(places[0]) - before)
            before = int(places[-1])
            widest = max(widest, int(np.max(places[1:] - places[:-1], initial=0)))
        if before >= 0:
            self._seams.append((earliest, before, widest))

    def _widest(self) -> int:
        """The most entries of a row, those across two pieces included."""
        widest, before = 0, None
        for earliest, last, own in sorted(self._seams):
            widest = max(widest, own, 0 if before is None else earliest - before)
            before = last
        return widest

    def _exceptional_counts(self) -> dict[int, int]:
        """How many blocks of each K reach too far for a sample."""
        if not self._compiled:
            return {block: len(self._exceptional(block)) for block in BLOCKS}
        from beamsieve.compiled.starts import count_wide

        counts = np.zeros(len(BLOCKS), np.int64)
        count_wide(self._first, self._last, SPAN, counts)
        return dict(zip(BLOCKS, counts.tolist(), strict=True))

    def _exceptional(self, block: int) -> Places:
        """The blocks of so many rows that reach too far for a sample."""
        step = block // _STEP
        first, last = self._first[::step], self._last[step - 1 :: step]
        if len(last) < len(first):
            last = np.append(last, self._last[-1])
        return np.flatnonzero(last - first >= SPAN)

    def _sampled(self, block: int, listed: Places, candidates: dict[str, int]) -> RowStarts:
        samples = self._first[:: block // _STEP].copy()
        samples[listed] = -1 - np.arange(len(listed))
        return RowStarts(
            self._rows,
            self._entries,
            bits=self._bits,
            samples=samples,
            exceptions=self._list_blocks(block, listed).astype(samples.dtype, copy=False),
            block=block,
            candidates=candidates,
        )

    def _list_blocks(self, block: int, listed: Places) -> NDArray[np.signedinteger]:
        """Where the rows of these blocks begin; the entries for rows behind all."""
        if self._compiled:
            from beamsieve.compiled.starts import list_blocks

            found = np.empty(len(listed) * block, np.int32)
            sizes = block, self._rows, self._entries
            list_blocks(self._bits, self._first, listed, *sizes, found)
            return found
        rows = np.minimum((listed[:, None] * block + np.arange(block)).ravel(), self._rows)
        word = np.searchsorted(self._before, rows, side="right") - 1
        return kth_set_bit(self._bits, word * WORD, rows - self._before[word])
