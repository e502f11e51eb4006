"""A step of one beam over a table of one row, as step 1 always is, as launches of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.selection import WARPS, WORDS_BYTES, chooser_bytes
from beamsieve_backends.cupy_raw.tables import DeviceTable

if TYPE_CHECKING:
    from beamsieve_backends.cupy_raw.steps import StepCall

THREADS = 32 * WARPS
SHORT, LONG = 4 * THREADS, 16 * THREADS
"""Candidates that a block of choose_row can hold in its threads' registers."""
TOKENS = 4
"""Tokens that a warp of multiply_row takes at a time."""
TOGETHER = 8
"""Requests that it takes together."""


def takes(table: DeviceTable, beams: int) -> bool:
    """Whether a step of so many beams per request goes this way, whatever the batch."""
    return beams == 1 and 0 < table.fields["single"] <= LONG


def launch(call: StepCall) -> None:
    """whole_row; or the logits, of the valid tokens alone where the projection is selective, and
    choose_row."""
    batch, total = call.shape.B, call.table.fields["single"]
    scratch = call.work.take("scratch", batch * total, np.float32)
    call.fields.update(scratch=call.device.address(scratch), scratch_stride=total)
    size = "true" if total > SHORT else "false"
    shared = chooser_bytes(call.fields["capacity"]) + WORDS_BYTES
    if call.inputs.hidden is not None and call.selective():
        whole = batch == 1 and call.inputs.nudge is None
        blocks = _products(call, batch, total, whole)
        kind = arguments.CUDA_TYPES[str(call.inputs.hidden.dtype.name)]
        values = arguments.structure(arguments.STEP, **call.fields)
        if whole:
            call.device.launch("whole_row", (blocks,), shared, values, kind, size)
            return
        call.device.launch("multiply_row", (blocks,), 0, values, kind)
        dtype = "float32"
    else:
        dtype = call.logits()
        if call.normalize == "all":
            call.masses(dtype)
        values = arguments.structure(arguments.STEP, **call.fields)
    kind = arguments.CUDA_TYPES[dtype]
    call.device.launch("choose_row", (batch,), shared, values, kind, size)


def _products(call: StepCall, batch: int, total: int, whole: bool) -> int:
    """Where products come from and go to; as many blocks as there are, or as there is work for."""
    call.projection_fields()
    count = batch * call.table.vocabulary
    work = call.work
    logits = work.zeros("awaited", count) if whole else work.take("logits", count, np.float32)
    processors, fours = call.device.multiprocessors, -(-total // TOKENS)
    # A share of the requests to a warp, where there are warps enough: their sums are the same.
    parts = max(1, min(-(-batch // TOGETHER), processors * WARPS // fours))
    call.fields.update(logits=call.device.address(logits), requests=batch, request_parts=parts)
    return int(min(processors, fours * parts))
