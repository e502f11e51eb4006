"""How much work a decode is at the least: what shares of the machine's ceilings are taken of."""

from __future__ import annotations

from collections.abc import Sequence

from beamsieve_bench.matrix_cells import Cell

SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
BEAM_BYTES = 32
"""Score, key, row, parent and token of a beam."""


def least_work(
    cell: Cell,
    codebooks: Sequence[int],
    hidden: int,
    valid: Sequence[int],
    full: Sequence[bool],
    logits_written: bool,
) -> tuple[int, int]:
    """Floating-point operations and bytes that no implementation of this way can avoid.

    Operations are 2 · d for each logit: V per beam in a full projection, else the valid tokens
    alone. Bytes are hidden states, head rows and valid tokens read once each, and beams written; a
    way that keeps its logits between two library calls writes and reads them besides. Caches are
    taken to be perfect, so a share of the bandwidth may seem low where head rows are read often.

    Args:
        cell: the shape.
        codebooks: V_1 … V_L.
        hidden: d.
        valid: per step, the valid tokens of all beams.
        full: per step, whether the whole head is multiplied.
        logits_written: whether the logits go through memory.
    """
    size = SIZES[cell.dtype]
    flops = moved = 0
    for step, (vocabulary, found, whole) in enumerate(zip(codebooks, valid, full, strict=True)):
        beams = cell.batch * (cell.width if step else 1)
        logits = beams * vocabulary if whole else found
        head_rows = vocabulary if whole else min(vocabulary, found)
        token = max(1, (vocabulary - 1).bit_length()) / 8
        flops += 2 * hidden * logits
        moved += (beams + head_rows) * hidden * size + int(found * token)
        moved += cell.batch * cell.width * BEAM_BYTES
        if logits_written:
            moved += 2 * 4 * logits
    return flops, moved
