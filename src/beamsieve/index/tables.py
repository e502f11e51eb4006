"""The per-step tables: which tokens may follow each valid prefix, and which row each leads to.

Step t's table has one row per valid prefix of length t-1, in lexicographic order (step 1's only
row is the root). Row r owns the entries ``row_starts[r] : row_starts[r + 1]``, in ascending token
order, so all entries of a table are in lexicographic order too. **The position of an entry is the
row of its child in the next table**: no successor is stored (ZeroGR, index layout), and

    tables[t].rows == tables[t - 1].entries

always holds. A row without entries is a prefix that is itself a complete semantic ID; only
catalogs with semantic IDs of several lengths have such rows. The last table's entries have no
children at all: each is a complete semantic ID.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Layout = Literal["dense", "sparse"]

WORD = 64
"""Bits in a word of a bitmap."""


@dataclass(frozen=True)
class StepTable:
    """One step's table, on the host.

    Attributes:
        step: 1 for the table that the first decoded token is looked up in.
        vocabulary: V_t, the number of tokens in this level's codebook.
        row_starts: int32 or int64 [rows + 1], int64 once entries reach 2**31.
        tokens: sparse layout; uint8, uint16 or uint32 [entries], the smallest that holds V_t - 1;
            ascending within a row. None in the dense layout.
        bitmap: dense layout; uint64 [rows, ceil(V_t / 64)]. Token v of row r is valid exactly when
            bit ``v % 64`` (0 = least significant) of word ``v // 64`` is set; bits from V_t on are
            zero. None in the sparse layout.
        ranks: dense layout; uint16 or uint32 [rows, ceil(V_t / 64)]: how many tokens of the row
            lie in earlier words. The child of (r, v) is
            ``row_starts[r] + ranks[r, w] + popcount(bitmap[r, w] & ((1 << v % 64) - 1))``, where
            ``w = v // 64``.
    """

    step: int
    vocabulary: int
    row_starts: NDArray[np.integer]
    tokens: NDArray[np.unsignedinteger] | None = None
    bitmap: NDArray[np.uint64] | None = None
    ranks: NDArray[np.unsignedinteger] | None = None
    widest: int = 0
    """The most entries of any row."""

    @property
    def layout(self) -> Layout:
        """Whether the valid tokens are a bitmap (dense) or a list (sparse)."""
        return "sparse" if self.bitmap is None else "dense"

    @property
    def rows(self) -> int:
        """How many prefixes of length step-1 there are."""
        return len(self.row_starts) - 1

    @property
    def entries(self) -> int:
        """How many prefixes of length step there are."""
        return int(self.row_starts[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of this table."""
        arrays = (self.row_starts, self.tokens, self.bitmap, self.ranks)
        return sum(array.nbytes for array in arrays if array is not None)


def token_dtype(vocabulary: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type that holds every token of the codebook."""
    for kind in (np.uint8, np.uint16):
        if vocabulary - 1 <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.uint32)


def rank_dtype(vocabulary: int) -> np.dtype[np.unsignedinteger]:
    """The type of a dense table's ranks."""
    return np.dtype(np.uint16 if vocabulary <= np.iinfo(np.uint16).max else np.uint32)


def starts_dtype(entries: int) -> np.dtype[np.signedinteger]:
    """int32, or int64 from 2**31 entries on."""
    return np.dtype(np.int32 if entries < 2**31 else np.int64)


def layout_bytes(rows: int, entries: int, vocabulary: int) -> dict[Layout, int]:
    """The bytes that a table of this size takes in each layout."""
    starts = (rows + 1) * starts_dtype(entries).itemsize
    words = -(-vocabulary // WORD)
    return {
        "sparse": starts + entries * token_dtype(vocabulary).itemsize,
        "dense": starts + rows * words * (8 + rank_dtype(vocabulary).itemsize),
    }


def best_layout(rows: int, entries: int, vocabulary: int) -> Layout:
    """The smaller layout; dense where both are equal, as it needs no search for a token."""
    size = layout_bytes(rows, entries, vocabulary)
    return "dense" if size["dense"] <= size["sparse"] else "sparse"
