"""Launches of the selective projection: only the valid tokens of each beam are scored."""

from __future__ import annotations

from typing import Any

import torch

from beamsieve_backends.triton_slots.call import Call, NewBeams
from beamsieve_backends.triton_slots.launch import cdiv, launch
from beamsieve_backends.triton_slots.rank import BY_SLOT
from beamsieve_backends.triton_slots.slots import find_slots, finish_slots, score_slots
from beamsieve_backends.triton_slots.tuning import PROCESSORS, TUNING, beams_up


def selective(call: Call) -> NewBeams:
    """Every candidate in a slot, then the best of them."""
    table, B, M = call.table, call.B, call.M
    slots = table.slots
    most = table.most_units(M, call.beams.distinct)
    capacity, units_capacity = (M + most) * slots, max(1, most)
    slot_tokens, degrees, unit_starts, unit_beam = (
        call.empty(B, n, dtype=torch.int32) for n in (capacity, M, M + 1, units_capacity)
    )
    first_entry = call.empty(B, M, dtype=torch.int64)
    shape = dict(TUNING["slots"])
    shape |= call.block_k(shape["BLOCK_K"])
    each = max(1, shape.pop("SLOTS_HELD") // slots)
    expected = M + min(most, int(M * table.typical_units * 1.25))
    programs = cdiv(expected, each)
    most_programs = shape.pop("find") * PROCESSORS
    finds = M <= 512 and B * programs <= most_programs
    held = beams_up(M)
    looking = (
        call.beams.rows, call.finished, *table.starts, table.tokens, table.token_bits, table.bitmap,
        table.ranks, table.rank_mask, table.words, table.rank_words,
    )  # fmt: skip
    if not finds:
        launch(
            find_slots, (B,), *looking, slot_tokens, first_entry, degrees, unit_starts, unit_beam,
            M, capacity, units_capacity, SLOTS=slots, BEAMS_UP=held, SEARCHED=512,
            DENSE=table.dense, warps=min(16, held // 32),
        )  # fmt: skip
    slot_scores = call.empty(B, capacity)
    unit_peak, unit_sum = (call.empty(B, M + units_capacity) for _ in range(2))
    launch(
        score_slots, (B, programs), *looking, degrees, call.hidden, call.head, call.bias,
        call.logits, call.beams.scores, call.has_bias, slot_tokens, first_entry, unit_starts,
        unit_beam, slot_scores, unit_peak, unit_sum, M, call.V, call.D, capacity, units_capacity,
        *_arguments_of(call), call.over_kept, FIND=finds, BEAMS_UP=held if finds else 1,
        SEARCHED=128, DENSE=finds and table.dense, UNITS=each, SLOTS=slots,
        HAS_LOGITS=call.has_logits, TARGETED=call.targeting is not None, **shape,
    )  # fmt: skip
    keys = call.empty(B, capacity, dtype=torch.int64)
    best_keys = call.empty(B, capacity, dtype=torch.int64)
    best_slots = call.empty(B, capacity, dtype=torch.int32)
    tops, log_sums = call.empty(B, M), call.empty(B, M)
    scores = best_scores = call.beams.scores
    if call.has_nudge:
        scores, best_scores = call.empty(B, capacity), call.empty(B, capacity)
    chunk = 512 if expected * slots <= 512 else 2048 if expected * slots <= 2048 else 8192
    programs, shape = call.finishing(expected * slots, chunk)
    if shape["DIRECT"]:  # the chunk is nothing but a loop's
        chunk = 512
    launch(
        finish_slots, (B, programs), call.beams.scores, slot_scores, slot_tokens, unit_peak,
        unit_sum, unit_starts, unit_beam, first_entry, call.bonus, call.nudge, tops, log_sums,
        keys, scores, best_keys, best_scores, best_slots, *call.writing(int(BY_SLOT)), call.slack,
        capacity, units_capacity, call.has_bonus, call.has_nudge, SLOTS=slots,
        BEAM_BLOCK=128 if M <= 128 else 512, CHUNK=chunk, **shape,
    )  # fmt: skip
    return call.new


def _arguments_of(call: Call) -> tuple[Any, ...]:
    if call.targeting is not None:
        return call.targeting
    # Of the same types, as a kernel that does not look at them takes them all the same.
    words, numbers, small = call.table.start_bits, call.table.tokens, call.finished
    return (
        numbers, 0, words, 0, numbers, words, small, words, 0, numbers, words, words, small,
        words, words, numbers, numbers, 0, call.B,
    )  # fmt: skip
