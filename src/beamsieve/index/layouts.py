"""From plain row starts and tokens to a step table in its layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamsieve.index.encode import encode_starts
from beamsieve.index.starts import WORD
from beamsieve.index.tables import (
    GROUP,
    Layout,
    StepTable,
    best_layout,
    rank_dtype,
    token_candidates,
)
from beamsieve.index.tokens import pack_tokens, packed_words, token_bits


def make_table(
    step: int,
    vocabulary: int,
    row_starts: NDArray[np.integer],
    tokens: NDArray[np.unsignedinteger],
    layout: Layout | None,
    compress: bool = True,
) -> StepTable:
    """A table from its plain parts, each part in the form of fewest bytes.

    Args:
        step: from 1.
        vocabulary: V_t.
        row_starts: integers [rows + 1].
        tokens: unsigned integers [entries], of the type that ``token_dtype`` names.
        layout: forces the layout; None takes the smaller one.
        compress: False keeps row starts and tokens plain.
    """
    rows, entries = len(row_starts) - 1, len(tokens)
    widest = int(np.diff(row_starts).max(initial=0))
    starts = encode_starts(row_starts, None if compress else "plain")
    if (layout or best_layout(rows, entries, vocabulary)) == "sparse":
        if compress and "packed" in token_candidates(rows, entries, vocabulary):
            bits = token_bits(vocabulary)
            packed = np.zeros(packed_words(entries, bits), np.uint32)
            pack_tokens(tokens, bits, packed)
            return StepTable(step, vocabulary, starts, packed=packed, widest=widest)
        return StepTable(step, vocabulary, starts, tokens=tokens, widest=widest)
    bitmap = dense_bitmap(vocabulary, row_starts, tokens)
    ranks = dense_ranks(vocabulary, bitmap)
    return StepTable(step, vocabulary, starts, bitmap=bitmap, ranks=ranks, widest=widest)


def dense_bitmap(
    vocabulary: int, row_starts: NDArray[np.integer], tokens: NDArray[np.unsignedinteger]
) -> NDArray[np.uint64]:
    """The bitmap of these rows; ``row_starts`` may be a part of a table's, ``tokens`` its own."""
    rows, words = len(row_starts) - 1, -(-vocabulary // WORD)
    cell = np.repeat(np.arange(rows) * words, np.diff(row_starts)) + tokens // WORD
    bits = np.uint64(1) << (tokens % WORD).astype(np.uint64)
    bitmap = np.zeros((rows, words), np.uint64)
    if len(cell):
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        bitmap.reshape(-1)[cell[first]] = np.bitwise_or.reduceat(bits, first)
    return bitmap


def dense_ranks(vocabulary: int, bitmap: NDArray[np.uint64]) -> NDArray[np.unsignedinteger]:
    """The ranks that go with a bitmap: per group of four words, the row's tokens before it."""
    rows, words = bitmap.shape
    groups = -(-words // GROUP)
    ranks = np.zeros((rows, groups), rank_dtype(vocabulary))
    if groups > 1:
        counts = np.bitwise_count(bitmap[:, : (groups - 1) * GROUP])
        own = counts.reshape(rows, groups - 1, GROUP).sum(axis=2, dtype=ranks.dtype)
        np.cumsum(own, axis=1, dtype=ranks.dtype, out=ranks[:, 1:])
    return ranks
