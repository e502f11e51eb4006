"""A step of one beam over a table of one row, as step 1 always is, as launches of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from beamsieve_backends.cupy_raw import arguments
from beamsieve_backends.cupy_raw.selection import THREADS, WARPS, WORDS_BYTES, chooser_bytes
from beamsieve_backends.cupy_raw.tables import DeviceTable

if TYPE_CHECKING:
    from beamsieve_backends.cupy_raw.steps import StepCall

SHORT, LONG = 4 * THREADS, 16 * THREADS
"""Candidates that a block of choose_row can hold in its threads' registers."""
TOKENS = 4
"""Tokens that a warp of multiply_row takes at a time."""
TOGETHER = 8
"""Requests that it takes together."""
FETCHED_BYTES = 8 << 20
"""Up to so much of the head is rather fetched for each request than in a launch of its own."""


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
        if _multiply(call, batch, total, shared, size):
            return
        dtype = "float32"
    else:
        dtype = call.logits()
        if call.normalize == "all":
            call.masses(dtype)
    values = arguments.structure(arguments.STEP, **call.fields)
    call.device.launch("choose_row", (batch,), shared, values, arguments.CUDA_TYPES[dtype], size)


def _multiply(call: StepCall, batch: int, total: int, shared: int, size: str) -> bool:
    """whole_row, or multiply_row; whether it was the whole step. The numbers are the same."""
    hidden = call.inputs.hidden
    assert hidden is not None
    call.projection_fields()
    processors, fours = call.device.multiprocessors, -(-total // TOKENS)
    kind = arguments.CUDA_TYPES[str(hidden.dtype.name)]
    count = batch * call.table.vocabulary
    fetched = batch * total * int(hidden.shape[-1]) * hidden.dtype.itemsize
    short = total <= SHORT
    if call.inputs.nudge is None and (batch == 1 or (short and fetched <= FETCHED_BYTES)):
        work = call.work
        logits = work.zeros("awaited", count) if short else work.take("logits", count, np.float32)
        call.fields.update(logits=call.device.address(logits), request_parts=1)
        values = arguments.structure(arguments.STEP, **call.fields)
        blocks = max(1, min(processors // batch, fours))
        call.device.launch("whole_row", (blocks, batch), shared, values, kind, size)
        return True
    # A share of the requests to a warp, where there are warps enough.
    parts = max(1, min(-(-batch // TOGETHER), processors * WARPS // fours))
    logits = call.device.address(call.work.take("logits", count, np.float32))
    call.fields.update(logits=logits, requests=batch, request_parts=parts)
    values = arguments.structure(arguments.STEP, **call.fields)
    call.device.launch("multiply_row", (min(processors, fours * parts),), 0, values, kind)
    return False
