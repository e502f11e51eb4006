"""Launches of the selective projection: only the valid tokens of each beam are scored."""

from __future__ import annotations

from typing import Any

import torch

from beamsieve_backends.triton_slots.call import Call, NewBeams
from beamsieve_backends.triton_slots.launch import cdiv, launch
from beamsieve_backends.triton_slots.rank import BY_SLOT
from beamsieve_backends.triton_slots.slots import finish_slots, score_slots
from beamsieve_backends.triton_slots.tuning import PROCESSORS, TUNING, beams_up


def selective(call: Call) -> NewBeams:
    """Every candidate in a slot, then the best of them."""
    table, B, M, W = call.table, call.B, call.M, call.W
    shape = dict(TUNING["slots_few" if M <= 128 else "slots_many"])
    shape |= call.block_k(shape["BLOCK_K"])
    shape["TILE_K"] = min(shape["TILE_K"], shape["BLOCK_K"], 4096 // table.tile)
    most_tiles = table.most_tiles(M, call.beams.distinct)
    capacity = M * table.slots + most_tiles * table.tile
    slot_logits, slot_tokens = (
        call.empty(B, capacity, dtype=kind) for kind in (torch.float32, torch.int32)
    )
    first_entry = call.empty(B, M, dtype=torch.int64)
    beam_peak, beam_sum, tops, log_sums = (call.empty(B, M) for _ in range(4))
    tile_starts = call.empty(B, M + 1, dtype=torch.int32)
    tile_beam = call.empty(B, max(1, most_tiles), dtype=torch.int32)
    tile_peak, tile_sum = (call.empty(B, max(1, most_tiles)) for _ in range(2))
    wide_from = cdiv(M, shape["BEAMS"])
    for_tiles = 0
    if most_tiles:
        expected = int(M * table.typical_tiles * 1.25) + 1
        for_tiles = min(most_tiles, max(4, min(expected, 8 * PROCESSORS // B)))
    launch(
        score_slots, (B, wide_from + for_tiles), call.hidden, call.head, call.bias,
        call.logits, call.beams.rows, call.finished, *table.starts, table.tokens,
        table.token_bits, table.bitmap, table.ranks, table.rank_mask, table.words,
        table.rank_words, call.has_bias, slot_logits, slot_tokens, first_entry, beam_peak,
        beam_sum, tile_starts, tile_beam, tile_peak, tile_sum, M, call.V, call.D, capacity,
        max(1, most_tiles), wide_from, *_arguments_of(call), call.over_kept,
        TARGETED=call.targeting is not None, DENSE=table.dense, SLOTS=table.slots,
        TILE=table.tile, BEAMS_UP=beams_up(M), HAS_LOGITS=call.has_logits, **shape,
    )  # fmt: skip
    keys = call.empty(B, capacity, dtype=torch.int64)
    best_keys = call.empty(B, capacity, dtype=torch.int64)
    best_slots = call.empty(B, capacity, dtype=torch.int32)
    scores = best_scores = call.beams.scores
    if call.has_nudge:
        scores, best_scores = call.empty(B, capacity), call.empty(B, capacity)
    typical = M * table.slots + int(1.25 * M * table.typical_tiles) * table.tile
    chunk = 1024 if typical <= 1024 else 4096 if typical <= 4096 else 8192
    launch(
        finish_slots, (B, call.finishers), call.beams.scores, slot_logits, slot_tokens, beam_peak,
        beam_sum, tile_starts, tile_beam, tile_peak, tile_sum, first_entry, call.bonus, call.nudge,
        tops, log_sums, keys, scores, best_keys, best_scores, best_slots,
        *call.writing(int(BY_SLOT)), call.slack,
        capacity, max(1, most_tiles), table.slots, table.tile, int(most_tiles > 0),
        call.has_bonus, call.has_nudge,
        BEAM_BLOCK=128 if W <= 128 else 512, CHUNK=chunk, **call.finish(chunk),
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
