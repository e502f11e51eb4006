"""The per-step tables: which tokens may follow each valid prefix, and which row each leads to.

Step t's table has one row per valid prefix of length t-1, in lexicographic order (step 1's only
row is the root). Row r owns the entries ``start(r) : start(r + 1)``, in ascending token order, so
all entries of a table are in lexicographic order too. **The position of an entry is the row of its
child in the next table**: no successor is stored (ZeroGR, index layout), and

    tables[t].rows == tables[t - 1].entries

always holds. A row without entries is a prefix that is itself a complete semantic ID; only
catalogs with semantic IDs of several lengths have such rows. The last table's entries have no
children at all: each is a complete semantic ID.

How the starts are held is the module ``starts``; the tokens of sparse tables, ``tokens``. A dense
table answers both questions from a bitmap and its ranks. Each choice is by bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve.index.starts import WORD, RowStarts, starts_dtype
from beamsieve.index.tokens import (
    packed_tokens_at,
    packed_words,
    token_bits,
    token_dtype,
    unpack_tokens,
)

Layout = Literal["dense", "sparse"]

GROUP = 4
"""Words of a dense row that share a rank."""
_CHUNK_CELLS = 1 << 18
"""Cells of a bitmap unpacked in one go: short enough that threads beside it are not held up."""


@dataclass(frozen=True)
class StepTable:
    """One step's table, on the host. Exactly one of tokens, packed and bitmap is there.

    Attributes:
        step: 1 for the table that the first decoded token is looked up in.
        vocabulary: V_t, the number of tokens in this level's codebook.
        starts: where each row's entries begin.
        tokens: sparse layout, plain; uint8, uint16 or uint32 [entries], the smallest that holds
            V_t - 1; ascending within a row.
        packed: sparse layout, packed; uint32 [ceil(entries * b / 32) + 1], b = ``token_bits``.
        bitmap: dense layout; uint64 [rows, ceil(V_t / 64)]. Token v of row r is valid exactly when
            bit ``v % 64`` (0 = least significant) of word ``v // 64`` is set; bits from V_t on are
            zero.
        ranks: dense layout; uint16, or uint32 where V_t is above 65535, [rows, ceil(words / 4)]:
            how many tokens of the row lie before each group of four words. With ``w = v // 64``,
            the child of (r, v) is ``start(r) + ranks[r, w // 4]`` + the set bits of the words
            ``w // 4 * 4 … w - 1`` + ``popcount(bitmap[r, w] & ((1 << v % 64) - 1))``.
        widest: the most entries of any row.
    """

    step: int
    vocabulary: int
    starts: RowStarts
    tokens: NDArray[np.unsignedinteger] | None = None
    packed: NDArray[np.uint32] | None = None
    bitmap: NDArray[np.uint64] | None = None
    ranks: NDArray[np.unsignedinteger] | None = None
    widest: int = 0

    @property
    def layout(self) -> Layout:
        """Whether the valid tokens are a bitmap (dense) or a list (sparse)."""
        return "sparse" if self.bitmap is None else "dense"

    @property
    def token_kind(self) -> Literal["dense", "plain", "packed"]:
        """How the tokens are held, as the candidates are named."""
        if self.bitmap is not None:
            return "dense"
        return "packed" if self.tokens is None else "plain"

    @property
    def rows(self) -> int:
        """How many prefixes of length step-1 there are."""
        return self.starts.rows

    @property
    def entries(self) -> int:
        """How many prefixes of length step there are."""
        return self.starts.entries

    @property
    def token_bits(self) -> int:
        """b: the bits of a packed token."""
        return token_bits(self.vocabulary)

    @property
    def arrays(self) -> dict[str, NDArray[np.integer]]:
        """What is stored, by name."""
        held = {
            "tokens": self.tokens,
            "packed": self.packed,
            "bitmap": self.bitmap,
            "ranks": self.ranks,
        }
        own = {name: array for name, array in held.items() if array is not None}
        return self.starts.arrays | own

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of this table."""
        return sum(array.nbytes for array in self.arrays.values())

    def tokens_at(self, entries: ArrayLike) -> NDArray[np.integer]:
        """The tokens of these entries (integers, any shape); of sparse tables only."""
        if self.packed is not None:
            return packed_tokens_at(self.packed, self.token_bits, entries)
        if self.tokens is None:
            raise ValueError(f"Table {self.step} is dense: its tokens are no list.")
        return self.tokens[np.asarray(entries, np.int64)]

    def plain_starts(self) -> NDArray[np.signedinteger]:
        """int32 [rows + 1] (int64 from 2**31 entries on): every row's start, and the entries."""
        return self.starts.all()

    def plain_tokens(self) -> NDArray[np.unsignedinteger]:
        """uint8, uint16 or uint32 [entries]: every entry's token, whatever the layout."""
        if self.tokens is not None:
            return self.tokens
        if self.packed is not None:
            return unpack_tokens(self.packed, self.vocabulary, self.entries)
        assert self.bitmap is not None
        bits = np.ascontiguousarray(self.bitmap).view(np.uint8)
        found = np.zeros(self.entries, token_dtype(self.vocabulary))
        done = 0
        step = max(1, _CHUNK_CELLS // (8 * bits.shape[1]))
        for start in range(0, self.rows, step):
            part = np.unpackbits(bits[start : start + step], axis=1, bitorder="little")
            # A damaged bitmap may have too many bits, or too few.
            columns = np.nonzero(part)[1][: len(found) - done]
            found[done : done + len(columns)] = columns
            done += len(columns)
        return found

    def word_ranks(self) -> NDArray[np.unsignedinteger]:
        """A dense table's ranks [rows, words], of their type: the row's tokens before each word."""
        assert self.bitmap is not None
        counts = np.bitwise_count(self.bitmap[:, :-1])
        ranks = np.zeros(self.bitmap.shape, rank_dtype(self.vocabulary))
        np.cumsum(counts, axis=1, dtype=ranks.dtype, out=ranks[:, 1:])
        return ranks


def rank_dtype(vocabulary: int) -> np.dtype[np.unsignedinteger]:
    """The type of a dense table's ranks."""
    return np.dtype(np.uint16 if vocabulary <= np.iinfo(np.uint16).max else np.uint32)


def token_candidates(rows: int, entries: int, vocabulary: int) -> dict[str, int]:
    """The bytes of every way to hold the tokens of a table of this size: "dense" (bitmap and
    ranks), "plain", and "packed" where a token saves at least a quarter of its bits.
    """
    words = -(-vocabulary // WORD)
    width, bits = token_dtype(vocabulary).itemsize, token_bits(vocabulary)
    plain, packed = entries * width, 4 * packed_words(entries, bits)
    candidates = {
        "dense": rows * (8 * words + -(-words // GROUP) * rank_dtype(vocabulary).itemsize),
        "plain": plain,
    }
    if bits <= 6 * width and packed < plain:
        candidates["packed"] = packed
    return candidates


def layout_bytes(
    rows: int, entries: int, vocabulary: int, start_bytes: int | None = None
) -> dict[Layout, int]:
    """The bytes that a table of this size takes in each layout.

    ``start_bytes`` are those of its row starts, the same in both; None for plain ones.
    """
    if start_bytes is None:
        start_bytes = (rows + 1) * starts_dtype(entries).itemsize
    candidates = token_candidates(rows, entries, vocabulary)
    dense = candidates.pop("dense")
    return {"sparse": start_bytes + min(candidates.values()), "dense": start_bytes + dense}


def best_layout(rows: int, entries: int, vocabulary: int) -> Layout:
    """The smaller layout; dense where both are equal, as it needs no search for a token."""
    size = layout_bytes(rows, entries, vocabulary, 0)
    return "dense" if size["dense"] <= size["sparse"] else "sparse"
