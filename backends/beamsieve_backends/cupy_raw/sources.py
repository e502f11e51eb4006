"""The kernels' source text, put together for the compiler."""

from __future__ import annotations

from functools import cache
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
SHARED = ("common.cuh", "select.cuh", "narrow.cuh", "bound.cuh", "table.cuh", "step.cuh")
OWN = {
    "tile_slots": ("slots.cuh",),
    "select_slots": ("slots.cuh",),
    "open_tiles": ("opened.cuh",),
    "pool_tiles": ("opened.cuh", "cluster.cuh", "pool.cuh", "pooled.cuh"),
    "rank_tiles": (
        "words.cuh",
        "scored.cuh",
        "opened.cuh",
        "cluster.cuh",
        "pool.cuh",
        "pooled.cuh",
    ),
    "fused_rows": ("cluster.cuh", "pool.cuh", "pieces.cuh"),
    "score_tiles": ("words.cuh", "scored.cuh"),
    "split_halves": ("halves.cuh",),
    "multiply_tiles": ("halves.cuh", "words.cuh", "sixteens.cuh", "tile_sums.cuh", "wgmma.cuh"),
    "key_tiles": ("sixteens.cuh",),
    "reopen_tiles": ("opened.cuh", "sixteens.cuh", "pieces.cuh"),
    "score_rows": ("rows.cuh", "eight.cuh"),
    "multiply_row": ("eight.cuh", "one_beam.cuh", "row_products.cuh"),
    "choose_row": ("one_beam.cuh", "row_choice.cuh"),
    "whole_row": ("eight.cuh", "one_beam.cuh", "row_products.cuh", "row_choice.cuh"),
}
"""What some kernels need besides."""


@cache
def source_of(kernel: str) -> str:
    """Everything that ``kernel`` needs, as one text: the shared parts, then ``kernel``.cu.

    One text rather than ``#include``: the compiler's cache is keyed by the text that it is given.
    """
    names = (*SHARED, *OWN.get(kernel, ()), f"{kernel}.cu")
    return "\n".join((KERNELS / name).read_text(encoding="utf-8") for name in names)


def expression(kernel: str, *parameters: str) -> str:
    """How C++ names an instance of a kernel template: ``score_rows<float, true>``."""
    return f"{kernel}<{', '.join(parameters)}>" if parameters else kernel
