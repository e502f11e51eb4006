"""Which tables go to a GPU as bitmaps though the index stores them as lists."""

from __future__ import annotations

from beamsieve.index.layouts import make_table
from beamsieve.index.tables import StepTable, layout_bytes

DENSE_UP_TO = 2.5
"""A list becomes a bitmap if that takes at most so many times its bytes: a full projection then
finds its valid tokens without a search."""


def with_bitmaps(table: StepTable) -> StepTable:
    """``table``, or the same rows and tokens as a bitmap where that is worth its bytes."""
    if table.bitmap is not None:
        return table
    size = layout_bytes(table.rows, table.entries, table.vocabulary, table.starts.nbytes)
    if size["dense"] > DENSE_UP_TO * size["sparse"]:
        return table
    starts, tokens = table.plain_starts(), table.plain_tokens()
    return make_table(table.step, table.vocabulary, starts, tokens, "dense")
