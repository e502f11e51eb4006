"""From sorted semantic IDs to step tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beamsieve.catalog.order import SidOrder
from beamsieve.catalog.validate import Progress
from beamsieve.errors import InputError
from beamsieve.index.tables import (
    WORD,
    Layout,
    StepTable,
    best_layout,
    rank_dtype,
    starts_dtype,
    token_dtype,
)

LayoutChoice = Layout | Sequence[Layout | None] | None


def build_tables(
    order: SidOrder,
    codebooks: Sequence[int],
    layout: LayoutChoice = None,
    progress: Progress | None = None,
) -> tuple[StepTable, ...]:
    """One table per level of ``order``, in the layout that takes fewer bytes or the one forced."""
    forced = _forced_layouts(layout, order.length)
    tables = []
    for step, (row_starts, places) in enumerate(order.levels(), 1):
        vocabulary = codebooks[step - 1]
        starts = row_starts.astype(starts_dtype(len(places)), copy=False)
        tokens = order.sids[places, step - 1].astype(token_dtype(vocabulary))
        tables.append(make_table(step, vocabulary, starts, tokens, forced[step - 1]))
        if progress is not None:
            progress("building tables", step, order.length)
    return tuple(tables)


def make_table(
    step: int,
    vocabulary: int,
    row_starts: NDArray[np.integer],
    tokens: NDArray[np.unsignedinteger],
    layout: Layout | None,
) -> StepTable:
    """A table from its sparse parts; dense if forced, or if that is smaller and none is."""
    rows = len(row_starts) - 1
    counts = np.diff(row_starts)
    widest = int(counts.max(initial=0))
    if (layout or best_layout(rows, len(tokens), vocabulary)) == "sparse":
        return StepTable(step, vocabulary, row_starts, tokens=tokens, widest=widest)
    words = -(-vocabulary // WORD)
    cell = np.repeat(np.arange(rows) * words, counts) + tokens // WORD
    bits = np.uint64(1) << (tokens % WORD).astype(np.uint64)
    bitmap = np.zeros((rows, words), np.uint64)
    if len(cell):
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        bitmap.reshape(-1)[cell[first]] = np.bitwise_or.reduceat(bits, first)
    ranks = np.zeros((rows, words), rank_dtype(vocabulary))
    np.cumsum(np.bitwise_count(bitmap[:, :-1]), axis=1, dtype=ranks.dtype, out=ranks[:, 1:])
    return StepTable(step, vocabulary, row_starts, bitmap=bitmap, ranks=ranks, widest=widest)


def _forced_layouts(layout: LayoutChoice, length: int) -> list[Layout | None]:
    if layout is None or layout == "dense" or layout == "sparse":
        return [layout] * length
    if isinstance(layout, str):
        raise InputError(f'layout is {layout!r}; it must be "dense", "sparse" or None.')
    choices = list(layout)
    if len(choices) != length:
        raise InputError(
            f"layout names {len(choices)} tables, but the index has {length}; give one per table."
        )
    for choice in choices:
        if choice not in (None, "dense", "sparse"):
            raise InputError(f'layout is {choice!r}; it must be "dense", "sparse" or None.')
    return choices
