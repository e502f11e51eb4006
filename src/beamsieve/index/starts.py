"""Where the rows of a step table begin, in few bits.

Row r of a table owns the entries ``start(r) : start(r + 1)``; ``start(rows)`` is the number of
entries. The starts ascend, and most rows are short, so a bitmap with one set bit per row tells them
in little more than one bit per entry. There are three kinds, and each table takes the one of fewest
bytes (``encode.start_candidates``):

**plain**: ``plain``, int32 [rows + 1], or int64 from 2**31 entries on; ``start(r) = plain[r]``.

**identity**: no array; every row has exactly one entry, so ``start(r) = r``.

**sampled**: let z be 0 where every row has an entry and 1 where some row has none, so that the
places ``start(r) + z * r`` of the rows 0 … rows (the last one a sentinel) all differ.

- ``bits``: uint64 [ceil((entries + z * rows + 1) / 64) + 2]; bit ``p % 64`` (0 = least significant)
  of word ``p // 64`` is set exactly when p is the place of a row. The last two words are zero, so
  that three words can be read from any place on.
- ``samples``: int32 [ceil((rows + 1) / K)], or int64 where ``entries + z * rows`` reaches 2**31;
  one per block of K = ``block`` rows, K in {8, 16, 32, 64}. It is the place of the block's first
  row, if the places of all its rows lie within 128 bits from there. If they do not, the block is
  the e-th exception (from 0) and its sample is ``-(e + 1)``.
- ``exceptions``: [exceptions * K], of the samples' type: the starts of the rows of the e-th such
  block are ``exceptions[e * K : (e + 1) * K]``; behind row ``rows``, the number of entries.

The look-up, as a loop::

    def start(r):
        p = samples[r // K]
        if p < 0:
            return exceptions[(-p - 1) * K + r % K]
        left = r % K
        while True:  # ends within 128 bits: three words from p // 64 on hold the answer
            if bits[p // 64] >> (p % 64) & 1:
                if left == 0:
                    return p - z * r
                left -= 1
            p += 1

A row wider than 128 entries makes an exception of its own block and costs nothing elsewhere.
(Rank and select over a bitmap: Jacobson, Space-efficient Static Trees and Graphs, FOCS 1989.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve.index.bits import kth_set_bit

StartKind = Literal["plain", "identity", "sampled"]

BLOCKS = (8, 16, 32, 64)
"""How many rows may share a sample."""
SPAN = 128
"""A block whose rows lie within so many bits needs no exception."""
WORD = 64
"""Bits in a word of a bitmap."""
PADDING = 2
"""Zero words behind the bits."""
CHUNK_WORDS = 1 << 14


@dataclass(frozen=True)
class RowStarts:
    """Where each row's entries begin; the module says what each kind's arrays hold.

    Attributes:
        rows, entries: of the table.
        plain: the kind "plain".
        bits, samples, exceptions: the kind "sampled".
        block: K; 0 unless sampled.
        gap: z; 0 unless sampled.
        candidates: the bytes of every kind that was compared, as ``encode.start_candidates`` gives
            them.
    """

    rows: int
    entries: int
    plain: NDArray[np.signedinteger] | None = None
    bits: NDArray[np.uint64] | None = None
    samples: NDArray[np.signedinteger] | None = None
    exceptions: NDArray[np.signedinteger] | None = None
    block: int = 0
    gap: int = 0
    candidates: Mapping[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> StartKind:
        """How the starts are held."""
        if self.plain is not None:
            return "plain"
        return "identity" if self.bits is None else "sampled"

    @property
    def arrays(self) -> dict[str, NDArray[np.integer]]:
        """What is stored, by name."""
        held = {
            "starts": self.plain,
            "start_bits": self.bits,
            "start_samples": self.samples,
            "start_exceptions": self.exceptions,
        }
        return {name: array for name, array in held.items() if array is not None}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def start(self, rows: ArrayLike) -> NDArray[np.int64]:
        """int64, of the shape of ``rows`` (integers from 0 to the number of rows): their starts.

        Arrays that were damaged give wrong starts, but only from 0 to the number of entries.
        """
        wanted = np.asarray(rows, np.int64)
        if self.plain is not None:
            found = self.plain[wanted.ravel()].astype(np.int64)
        elif self.bits is None or self.samples is None or self.exceptions is None:
            return wanted
        else:
            found = self._sampled(wanted.ravel(), self.bits, self.samples, self.exceptions)
        np.minimum(np.maximum(found, 0, out=found), self.entries, out=found)
        return found.reshape(wanted.shape)

    def _sampled(
        self,
        rows: NDArray[np.int64],
        bits: NDArray[np.uint64],
        samples: NDArray[np.signedinteger],
        exceptions: NDArray[np.signedinteger],
    ) -> NDArray[np.int64]:
        place = samples[rows >> (self.block.bit_length() - 1)].astype(np.int64)
        left = rows & (self.block - 1)
        listed = place < 0 if len(exceptions) else None
        if listed is None:
            found = kth_set_bit(bits, place, left)
        else:
            found = kth_set_bit(bits, np.where(listed, 0, place), np.where(listed, 0, left))
        if self.gap:
            found -= rows
        if listed is not None:
            number = np.flatnonzero(listed)
            cell = ~place[number] * self.block + left[number]
            found[number] = exceptions.take(cell, mode="clip")
        return found

    def bounds(self, row: int) -> tuple[int, int]:
        """The first entry of one row, and the one behind its last."""
        start, end = self.start([row, row + 1]).tolist()
        return start, max(start, end)

    @property
    def name(self) -> str:
        """The kind with its block, as the candidates are named."""
        return f"sampled/{self.block}" if self.kind == "sampled" else self.kind

    def row_of(self, entries: ArrayLike) -> NDArray[np.int64]:
        """int64, of the shape of ``entries`` (integers below the number of entries): their rows."""
        wanted = np.asarray(entries, np.int64)
        if self.plain is not None:
            return np.asarray(np.searchsorted(self.plain, wanted, side="right") - 1)
        if self.bits is None:
            return wanted
        flat = wanted.ravel()
        block = np.searchsorted(self._first_of_blocks, flat, side="right") - 1
        row = np.maximum(block, 0) * self.block
        step = self.block
        while step > 1:  # the last row of the block that does not begin behind the entry
            step //= 2
            there = np.minimum(row + step, self.rows)
            row = np.where(self.start(there) <= flat, there, row)
        return np.asarray(np.minimum(row, self.rows - 1).reshape(wanted.shape))

    @cached_property
    def _first_of_blocks(self) -> NDArray[np.int64]:
        """int64 [blocks]; the start of each block's first row."""
        assert self.samples is not None
        assert self.exceptions is not None
        firsts = self.samples.astype(np.int64)
        listed = np.flatnonzero(firsts < 0)
        number = ~firsts[listed] * self.block
        firsts -= self.gap * self.block * np.arange(len(firsts))
        if len(self.exceptions):
            firsts[listed] = self.exceptions.take(number, mode="clip")
        return firsts

    def all(self) -> NDArray[np.signedinteger]:
        """int32 or int64 [rows + 1]: every start, as the plain kind holds them."""
        if self.plain is not None:
            return self.plain
        dtype = starts_dtype(self.entries)
        found = np.arange(self.rows + 1, dtype=dtype)
        if self.bits is None:
            return found
        done = 0
        for first in range(0, len(self.bits), CHUNK_WORDS):
            octets = self.bits[first : first + CHUNK_WORDS].view(np.uint8)
            places = np.flatnonzero(np.unpackbits(octets, bitorder="little").view(np.bool_))
            # A damaged bitmap may have too many bits, or too few.
            places = places[: self.rows + 1 - done] + first * WORD
            if self.gap:
                places -= np.arange(done, done + len(places))
            found[done : done + len(places)] = places
            done += len(places)
        found[done:] = self.entries
        return found

    @property
    def has_empty_row(self) -> bool:
        """Whether some row has no entry, so that a semantic ID ends above this table."""
        if self.plain is None:
            return self.gap > 0
        return not bool(np.all(self.plain[1:] > self.plain[:-1]))


def starts_dtype(entries: int) -> np.dtype[np.signedinteger]:
    """int32, or int64 from 2**31 entries on."""
    return np.dtype(np.int32 if entries < 2**31 else np.int64)
