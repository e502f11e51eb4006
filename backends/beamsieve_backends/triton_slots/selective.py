"""Launches of the selective projection: only the valid tokens of each beam are scored."""

from __future__ import annotations

from typing import Any

import torch

from beamsieve_backends.triton_slots.by_units import FEW_UNITS
from beamsieve_backends.triton_slots.call import Call, NewBeams
from beamsieve_backends.triton_slots.kept import kept_units
from beamsieve_backends.triton_slots.launch import INTERPRETED, cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.rows import link_rows, score_rows
from beamsieve_backends.triton_slots.shares import add_shares
from beamsieve_backends.triton_slots.slots import find_units, score_slots
from beamsieve_backends.triton_slots.survivors import finish_slots
from beamsieve_backends.triton_slots.tuning import (
    FURTHER,
    PROCESSORS,
    TUNING,
    WIDE_ROW,
    beams_up,
    coarse,
)
from beamsieve_backends.triton_slots.units import WIDEST


def selective(call: Call) -> NewBeams:
    """Every candidate in a slot, then the best of them."""
    table, B, M = call.table, call.B, call.M
    slots = table.slots
    most = table.most_units(M, call.beams.distinct)
    expected = min(most, int(M * table.typical_units * 1.25))
    capacity, units_capacity = M * slots + most * FURTHER, max(1, most)
    degrees, unit_starts, unit_beam, slot_ids = (
        call.empty(B, n, dtype=torch.int32) for n in (M, M + 1, units_capacity, capacity)
    )
    first_entry = call.empty(B, M, dtype=torch.int64)
    slot_scores = call.empty(B, capacity)
    unit_peak, unit_sum = (call.empty(B, M + units_capacity) for _ in range(2))
    unit_best = unit_peak if call.targeting is None else torch.empty_like(unit_peak)
    found = (slot_ids, slot_scores, unit_peak, unit_sum, unit_best)
    widest = call.empty(B, int(WIDEST), dtype=torch.int64)
    counted = (first_entry, degrees, unit_starts, widest)
    shape = dict(TUNING["slots"])
    shape |= call.block_k(shape["BLOCK_K"])
    shape |= {
        "PART": min(shape["PART"], shape["BLOCK_K"]),
        "MATRIX": not call.has_logits and call.hidden.dtype != torch.float32,
        "UPCAST": INTERPRETED,
    }
    if _shares_rows(call):
        _score_rows(call, shape, counted, unit_beam, found, units_capacity, capacity, expected)
    else:
        _score_beams(call, shape, counted, unit_beam, found, units_capacity, capacity, expected)
    tops, log_sums = call.empty(B, M), call.empty(B, M)
    # Where most rows are wide, many programs add their units' shares up.
    adds = table.typical_units > 2
    if adds:
        launch(
            add_shares, (B, cdiv(M, 16)), unit_peak, unit_sum, unit_starts, widest, tops,
            log_sums, M, units_capacity, BEAM_BLOCK=16, warps=4,
        )  # fmt: skip
    _finish(
        call, M * slots + expected * FURTHER, capacity, units_capacity,
        (
            *found, unit_starts, widest, unit_beam, first_entry, call.bonus, call.nudge, tops,
            log_sums,
        ),
        adds,
    )  # fmt: skip
    return call.new


PRODUCT = ("EVEN", "BLOCK_K", "PART", "MATRIX", "UPCAST", "registers")


def _shares_rows(call: Call) -> bool:
    """Whether beams are to be scored by the rows that they share: there are more beams than rows,
    and rows are long enough to be worth a list."""
    table = call.table
    return (
        table.slots == FURTHER
        and not call.has_logits
        and table.rows <= TUNING["rows"]["shared"] * call.B * call.M
    )


def _score_rows(
    call: Call, shape: dict[str, Any], counted: tuple[torch.Tensor, ...], unit_beam: torch.Tensor,
    found: tuple[torch.Tensor, ...], units_capacity: int, capacity: int, expected: int,
) -> None:  # fmt: skip
    table, B, M = call.table, call.B, call.M
    first_of_row = torch.full((table.rows,), -1, dtype=torch.int32, device=call.device)
    next_of_row = call.empty(B * M, dtype=torch.int32)
    up = beams_up(M)
    launch(
        link_rows, (B,), call.beams.rows, call.finished, *table.starts, *counted, first_of_row,
        next_of_row, *found, M, capacity, units_capacity,
        BEAMS_UP=up, warps=min(16, up // 32),
    )  # fmt: skip
    each = TUNING["rows"]["units"]
    kept = kept_units(call, counted, units_capacity, expected)
    launch(
        score_rows, (table.rows, cdiv(1 + int(table.typical_units), each)), *table.starts,
        table.tokens, table.token_bits, table.bitmap, table.ranks, table.rank_mask, table.words,
        table.rank_words, call.hidden, call.head, call.bias, call.has_bias, counted[2],
        first_of_row, next_of_row, unit_beam, *found, M, call.V, call.D, capacity, units_capacity,
        kept, call.over_kept, DENSE=table.dense,
        TARGETED=call.targeting is not None, warps=1, stages=1,
        **{name: shape[name] for name in PRODUCT},
    )  # fmt: skip


def _score_beams(
    call: Call, shape: dict[str, Any], counted: tuple[torch.Tensor, ...], unit_beam: torch.Tensor,
    found: tuple[torch.Tensor, ...], units_capacity: int, capacity: int, expected: int,
) -> None:  # fmt: skip
    table, B, M = call.table, call.B, call.M
    slots = table.slots
    of_first = cdiv(M * slots, FURTHER)
    # A wide row may come at any time, and its units are dealt to all programs of this kind.
    most = table.most_units(M, call.beams.distinct)
    if table.widest >= WIDE_ROW and shape["together"] < B:
        shape |= TUNING["slots_of_wide_rows"]
    spread = cdiv(shape["programs"] * PROCESSORS, B)
    up = beams_up(M)
    launch(
        find_units, (B,), call.beams.rows, call.finished, *table.starts, *counted, M, SLOTS=slots,
        FURTHER=FURTHER, BEAMS_UP=up, warps=min(16, up // 32),
    )  # fmt: skip
    kept = kept_units(call, counted, units_capacity, expected)
    launch(
        score_slots, (B, of_first + max(expected, min(most, spread))), call.beams.rows,
        table.tokens, table.token_bits, table.bitmap, table.ranks, table.rank_mask, table.words,
        table.rank_words, call.hidden, call.head, call.bias, call.logits, call.has_bias, *counted,
        unit_beam, *found, M, call.V, call.D, capacity, units_capacity, of_first,
        kept, call.over_kept, BATCH_UP=coarse(B, 32),
        BEAM_BLOCK=128 if M <= 128 else 512, DENSE=table.dense, SLOTS=slots,
        HAS_LOGITS=call.has_logits, TARGETED=call.targeting is not None,
        TOGETHER=shape["together"], warps=1, stages=1,
        **{name: shape[name] for name in PRODUCT},
    )  # fmt: skip


def _finish(
    call: Call, expected: int, capacity: int, units_capacity: int, scored: tuple[Any, ...],
    has_normalizers: bool,
) -> None:  # fmt: skip
    """Choose among about so many slots, and write the new beams."""
    B, M, W = call.B, call.M, call.W
    shape = dict(TUNING["survivors"])
    chunks, warps_by_units = shape.pop("chunks"), shape.pop("warps_by_units")
    chunk = next((size for size in chunks if expected <= size), chunks[-1])
    direct = expected <= chunk and call.ranks_all(expected)
    ranked = expected if direct else W + call.slack
    if expected > chunk:
        # A threshold of units lets a few more slots through than one of slots.
        ranked = W + W // 2
    if expected > chunk or call.table.widest >= WIDE_ROW:
        shape["warps"] = warps_by_units
    # Each of these programs finds the survivors for itself.
    own = call.own_share(ranked, shape["warps"])
    finish = TUNING["finish"]
    others = finish["ranked"] * shape["warps"] // finish["warps"] // own
    units = call.empty(2, B, M + units_capacity, dtype=torch.int32)
    programs = cdiv(ranked, own)
    # Smaller shares are ranked among all others sooner than the borders of intervals are found.
    intervals = own >= finish["interval"]
    room = capacity + W + call.slack
    if intervals:
        # Each program's part of it: twice the most candidates, those of units among them.
        most = W + W // 2 + call.slack + int(FEW_UNITS) * FURTHER
        room = max(room, 2 * programs * most)
    launch(
        finish_slots, (B, programs), call.beams.scores, *scored, *units,
        call.empty(B, room, dtype=torch.int64),
        call.empty(B, room) if call.has_nudge else call.beams.scores,
        call.empty(B, room, dtype=torch.int32), *call.writing(by_slot=True), call.slack, capacity,
        units_capacity, room, call.has_bonus, call.has_nudge, int(has_normalizers),
        SLOTS=call.table.slots, FURTHER=FURTHER, BEAM_BLOCK=128 if M <= 128 else 512, CHUNK=chunk,
        DIRECT=direct, INTERVALS=intervals, OWN=own, OTHERS=others,
        T_UP=max(8, power_of_two(call.t)), **shape,
    )  # fmt: skip
