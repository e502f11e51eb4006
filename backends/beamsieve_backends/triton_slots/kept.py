"""Launches that tell what targeting leaves of beams' rows, as bits."""

from __future__ import annotations

import torch

from beamsieve_backends.triton_slots.call import Call
from beamsieve_backends.triton_slots.launch import cdiv, launch
from beamsieve_backends.triton_slots.permitted import (
    permitted_tokens_dense,
    permitted_tokens_sparse,
    permitted_units,
)
from beamsieve_backends.triton_slots.tuning import FURTHER, PROCESSORS, TUNING


def kept_tokens(call: Call, words: int) -> torch.Tensor:
    """int32 [B * M, words]: what targeting leaves of each beam's row."""
    assert call.targeting is not None
    table, beams = call.table, call.B * call.M
    kept = call.empty(beams, words, dtype=torch.int32)
    if table.dense:
        shapes = TUNING["permitted"]
        shape = shapes["few" if beams * cdiv(words, 64) <= 2 * PROCESSORS else "many"]
        parts = cdiv(words, shape["WORD_BLOCK"])
        found = call.empty(beams, parts, shape["WORD_BLOCK"], dtype=torch.int32)
        launch(
            permitted_tokens_dense, (beams, parts), call.beams.rows, call.finished, *table.starts,
            table.bitmap.view(torch.int32), table.ranks, table.rank_mask, words, table.rank_words,
            found, kept, call.M, *call.targeting, **shape,
        )  # fmt: skip
    else:
        launch(
            permitted_tokens_sparse, (beams,), call.beams.rows, call.finished, *table.starts,
            table.tokens, table.token_bits, kept, call.M, words, *call.targeting,
            WORD_BLOCK=64, ENTRIES=64, warps=2,
        )  # fmt: skip
    return kept


def kept_units(
    call: Call, counted: tuple[torch.Tensor, ...], units_capacity: int, expected: int
) -> torch.Tensor:
    """int32 [B, M + units_capacity]: what targeting leaves of each unit; where there is none,
    something of the same type, as kernels that do not look at it take it all the same."""
    first_entry, degrees, unit_starts, _ = counted
    if call.targeting is None:
        return degrees
    B, M = call.B, call.M
    kept = call.empty(B, M + units_capacity, dtype=torch.int32)
    shape = TUNING["permitted_units"]
    launch(
        permitted_units, (B, cdiv(M + expected, shape["UNITS"])), first_entry, degrees, unit_starts,
        kept, M, units_capacity, M.bit_length(), *call.targeting, SLOTS=call.table.slots,
        FURTHER=FURTHER, **shape,
    )  # fmt: skip
    return kept
