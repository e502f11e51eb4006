"""Launches of a step of one beam over a table of one row, as step 1 of a search is: the products of
the row's tokens by the whole GPU, then the choice. Either projection is this one."""

from __future__ import annotations

from typing import Any

import torch

from beamsieve_backends.triton_slots.call import Call, NewBeams
from beamsieve_backends.triton_slots.kept import kept_tokens
from beamsieve_backends.triton_slots.launch import INTERPRETED, cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.products import COLUMNS, UNIT
from beamsieve_backends.triton_slots.row_choice import choose_row
from beamsieve_backends.triton_slots.row_logits import multiply_row
from beamsieve_backends.triton_slots.tuning import HELD, PROCESSORS, TUNING, columns_of


def is_one_row(call: Call) -> bool:
    """Whether a step is of this kind, by its shapes and inputs, whatever the batch.

    What is asked for beside the logits themselves (guidance, a normalizer that counts tokens which
    the row does not have) is left to the other ways, as is targeting of a list of tokens.
    """
    table = call.table
    # What targeting leaves is told by token.
    told = call.targeting is None or table.dense
    plain = told and not (call.has_bonus or call.has_nudge)
    alone = call.M == 1 and table.rows == 1 and table.entries > 0
    whole = not call.all or table.entries == call.V
    return alone and plain and whole and _places(call) <= HELD


def one_row(call: Call) -> NewBeams:
    """The best of the row, by two kernels; by one where the caller gives the logits."""
    table, B, W = call.table, call.B, call.W
    n = _places(call)
    places = columns_of(n)
    tuning = TUNING["one_row"]
    warps = tuning["warps"][places]
    # Of four columns for each thread, no column is shared.
    columns = min(places, 128 * warps)
    holes, listed = int(table.dense and table.entries < call.V), int(not table.dense)
    logits = call.logits
    if not call.has_logits:
        logits = call.empty(B, places)
        _multiply(call, logits, n, places, holes, listed)
    slack = W // 4 + 16
    direct = B * places * places <= tuning["pairs"]
    if direct:
        own = min(places, tuning["own_of_few"] if B * places <= tuning["few"] else tuning["own"])
        programs = cdiv(n, own)
    else:
        # No more programs than run at once: what they share is most of their work.
        at_once = PROCESSORS * (1 if warps >= 8 else 3)
        own = 32 if B * cdiv(W + slack, 32) <= at_once else 128
        programs = min(cdiv(W + slack, own), max(1, at_once // B))
    nowhere = table.start_bits
    kept = call.finished if call.targeting is None else kept_tokens(call, table.words * 2)
    following, new = table if call.following is None else call.following, call.new
    launch(
        choose_row, (B, programs), call.beams.scores, logits,
        nowhere if direct else call.empty(B, places, dtype=torch.int64),
        call.beams.rows, call.finished, call.beams.tokens, kept, table.tokens, table.token_bits,
        table.bitmap.view(torch.int32), table.bitmap, table.ranks, table.rank_mask, table.words,
        table.rank_words, holes, listed, *following.starts,
        nowhere if table.leaf_first is None else table.leaf_first,
        new.tokens, new.scores, new.keys, new.rows, new.parents, new.finished.view(torch.int8),
        new.count, n, logits.numel() // B, W, call.t, int(call.following is None),
        int(call.ragged), slack, table.words * 2, call.over_kept,
        TARGETED=call.targeting is not None, GIVEN=call.has_logits, ROWS=places // columns,
        COLUMNS=columns, BOUND=not direct and columns >= 2 * W, DIRECT=direct, OWN=own,
        OTHERS=max(32, tuning["ranked"] // own),
        T_UP=1 if call.t == 1 else max(8, power_of_two(call.t)), UPCAST=INTERPRETED, warps=warps,
    )  # fmt: skip
    return new


def _places(call: Call) -> int:
    """Of a dense table every token has a place, of another every entry."""
    return call.V if call.table.dense else call.table.entries


def _multiply(
    call: Call, logits: torch.Tensor, n: int, places: int, holes: int, listed: int
) -> None:
    table = call.table
    matrix = call.hidden.dtype != torch.float32
    tuning = TUNING["one_row"]
    together = int(COLUMNS) if matrix else 1 if call.B == 1 else tuning["together"]
    shape: dict[str, Any] = call.block_k(256)
    shape["PART"] = min(64 if matrix else 32, shape["BLOCK_K"])
    launch(
        multiply_row, (cdiv(places, int(UNIT)), cdiv(call.B, together)), call.hidden, call.head,
        call.bias, call.beams.rows, call.finished, table.tokens, table.token_bits,
        table.bitmap.view(torch.int32), logits, call.has_bias, holes, listed, n, call.B, call.D,
        PLACES=places, TOGETHER=together, MATRIX=matrix, UPCAST=INTERPRETED,
        warps=1 if matrix else 4, stages=1, **shape,
    )  # fmt: skip
