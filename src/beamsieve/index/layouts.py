"""From plain row starts and tokens to a step table in its layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import IndexFileError
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

_CELLS = 1 << 18
"""Bits of a bitmap to be made at a time, so that they stay in the cache."""


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
    """The bitmap of these rows; ``row_starts`` may be a part of a table's, ``tokens`` its own.

    Raises:
        IndexFileError: the row starts ask for other entries than there are.
    """
    rows, words = len(row_starts) - 1, -(-vocabulary // WORD)
    bitmap = np.empty((rows, words), np.uint64)
    step = max(1, _CELLS // (words * WORD))
    for first in range(0, rows, step):
        last = min(rows, first + step)
        bounds = row_starts[first : last + 1].astype(np.int64)
        counts = np.diff(bounds)
        # Damaged starts could ask for any amount of memory.
        ends = bounds[0] - row_starts[0], bounds[-1] - row_starts[0]
        if counts.min(initial=0) < 0 or not 0 <= ends[0] <= ends[1] <= len(tokens):
            raise IndexFileError(
                "The index is damaged: row starts do not fit the entries of their table; load it "
                "with verify=True, copy it again or build it again."
            )
        cell = np.repeat(np.arange(last - first) * (words * WORD), counts)
        cell += tokens[ends[0] : ends[1]]
        cells = np.zeros((last - first) * words * WORD, np.bool_)
        cells[cell] = True
        octets = np.packbits(cells, bitorder="little")
        bitmap[first:last] = octets.view(np.uint64).reshape(-1, words)
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
