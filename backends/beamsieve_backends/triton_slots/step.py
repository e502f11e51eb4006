"""One step as a chain of kernels, planned on the host from shapes alone.

Nothing here waits for the device, and nothing depends on what the device holds: the same shapes
give the same launches, so a loop of steps can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import Any

from beamsieve.interface import Normalize, Projection, StepInputs
from beamsieve_backends.triton_slots.call import Call, NewBeams, StepArrays
from beamsieve_backends.triton_slots.full import full
from beamsieve_backends.triton_slots.one_row import is_one_row, one_row
from beamsieve_backends.triton_slots.selective import selective
from beamsieve_backends.triton_slots.tables import DeviceTable, DeviceTables

__all__ = ["NewBeams", "StepArrays", "choose_projection", "run_step"]


def choose_projection(
    table: DeviceTable,
    beams: StepArrays,
    wanted: Projection | None,
    normalize: Normalize,
    given_logits: bool,
) -> Projection:
    """Full where the whole codebook must be seen; else as wanted, or as is likely to be faster."""
    if normalize == "all":
        return "full"
    if wanted is not None:
        return wanted
    if table.dense:
        return "full"
    if given_logits:
        return "selective"
    degree = table.degree_of(beams.scores.shape[1], beams.distinct)
    return "full" if degree * 24 > table.vocabulary else "selective"


def run_step(
    tables: DeviceTables,
    beams: StepArrays,
    step: int,
    inputs: StepInputs,
    normalize: Normalize,
    targeting: tuple[Any, ...] | None = None,
) -> NewBeams:
    """The ``inputs.width`` best candidates of each request.

    Args:
        step: the table to read, from 1.
        targeting: what ``targeting.permitted`` takes of this table, where requests have any.
    """
    table = tables.tables[step - 1]
    projection = choose_projection(
        table, beams, inputs.projection, normalize, inputs.logits is not None
    )
    following = tables.tables[step] if step < len(tables.tables) else None
    call = Call(table, following, tables.ragged, beams, inputs, normalize, targeting)
    if is_one_row(call):
        return one_row(call)
    return selective(call) if projection == "selective" else full(call)
