"""Launches of the full projection: every token is scored, and bitmaps tell the valid ones."""

from __future__ import annotations

import math
from typing import Any

import torch

from beamsieve_backends.triton_slots import halves
from beamsieve_backends.triton_slots.call import Call, Kept, NewBeams
from beamsieve_backends.triton_slots.choose import MOST_PROGRAMS, SPARE, choose_cells, key_cells
from beamsieve_backends.triton_slots.finish import finish_tokens
from beamsieve_backends.triton_slots.kept import kept_tokens
from beamsieve_backends.triton_slots.launch import INTERPRETED, cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.operands import row_bitmaps
from beamsieve_backends.triton_slots.project import statistics
from beamsieve_backends.triton_slots.revisit import score_groups
from beamsieve_backends.triton_slots.tuning import (
    GROUP,
    HELD,
    KEYS_HELD,
    LIMIT,
    LISTING,
    PROCESSORS,
    TOGETHER,
    TUNING,
    coarse,
    columns_of,
    warps_for,
)

MANY_BEAMS = 1024
"""From so many beams of a batch on, blocks have 128 rows, so that each reads the head for more of
them; as long as there are enough blocks."""
GROUPS = 8
"""The groups that a program scores again where there are many requests, half as many of float32,
which fills its registers: with few, most threads compute the same for each of them."""
SMALL = 1 << 15
"""Of fewer logits of a request, few sizes of blocks occur, so that few kernels are compiled."""


def full(call: Call) -> NewBeams:
    """Every token of the codebook is scored; the valid ones are told by bitmaps."""
    M, V = call.M, call.V
    bitmap, words = call.table.bitmap, call.table.words * 2
    if not call.table.dense:
        words = cdiv(V, 32)
        bitmap = _bitmaps(call, words)
    bitmap = bitmap.view(torch.int32)
    if call.targeting is not None:
        call.kept = kept_tokens(call, words)
        if call.over_kept:
            bitmap, call.by_row = call.kept, 0
    guided = call.has_bonus or call.has_nudge
    if not guided and math.prod(_block_of(M, V)) <= HELD:
        return _all_held(call, bitmap, words)
    return _revisited(call, bitmap, words)


def _bitmaps(call: Call, words: int) -> torch.Tensor:
    table = call.table
    bitmaps = call.empty(call.B * call.M, words, dtype=torch.int32)
    launch(
        row_bitmaps, (call.B * call.M,), call.beams.rows, call.finished, *table.starts,
        table.tokens, table.token_bits, bitmaps, words, WORD_BLOCK=64, ENTRIES=64, warps=2,
    )  # fmt: skip
    return bitmaps


def _tile(call: Call) -> int:
    """The tokens of a tile: it decides how the log-softmax is summed, so it must not depend on
    the batch."""
    M, V = call.M, call.V
    of_beams: dict[str, int] = TUNING["tile"]["one" if M < 64 else "few" if M < 256 else "many"]
    wide = V > 2048 if M < 256 else V > 1024 and not _splits(call)
    small = M >= 256 and V <= 1024
    tile = of_beams["small" if small else "wide" if wide else "narrow"]
    return min(tile, max(64, power_of_two(V)))


def _splits(call: Call) -> bool:
    return not call.has_logits and call.hidden.dtype == torch.float32 and call.M >= 16


def _statistics(
    call: Call, bitmap: torch.Tensor, words: int, tile: int, group: int, cells: int,
    counts: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """group_max, cell_best, tile_peak, tile_sum: see ``project.statistics``."""
    beams = call.B * call.M
    tiles = cdiv(call.V, tile)
    peak, mass = (call.empty(tiles, beams) for _ in range(2))
    best = call.empty(tiles * cells, beams) if cells else peak
    none = call.beams.scores
    hidden, head = call.hidden, call.head
    hidden_low = head_low = hidden_scale = head_scale = none
    split = _splits(call)
    if split:
        hidden, hidden_low, hidden_scale, head, head_low, head_scale = halves.split(call)
    # Blocks of 64 and of 128 rows run the same matrix instructions, so the batch may choose. Two
    # tiles of 64 side by side read less of the hidden states; their sums are those of single ones.
    rows, paired = 16, 1
    if call.M >= 64:
        paired = 2 if tile == 64 and tiles > 1 else 1
        many = beams >= MANY_BEAMS and cdiv(beams, 128) * cdiv(tiles, paired) >= PROCESSORS
        rows, paired = (128, paired) if many else (64, 1)
    shape = dict(TUNING[f"statistics_{rows}"])
    plain = call.M >= 64 and not (call.has_bonus or call.has_nudge)
    # Bitmaps that are the kept ones already leave nothing to look at beside them.
    kept = call.kept is not None and not call.over_kept
    if split:
        shape |= TUNING["split"]
    together = TOGETHER if plain else 1
    if together == 1:
        shape["registers"] = None
    if tile == 256 and rows >= 64:
        shape["warps"] = 8
    row_blocks = cdiv(beams, shape["BLOCK_M"])
    blocks = cdiv(tiles, paired)
    group_max = call.empty(call.B, call.M, blocks * paired * tile // group)
    each = cdiv(blocks, max(1, together * PROCESSORS // row_blocks)) if rows == 128 else 1
    splits = cdiv(blocks, each)
    launch(
        statistics, (row_blocks * splits,), hidden, head, hidden_low, head_low, hidden_scale,
        head_scale, call.bias, call.logits, call.bonus, call.nudge, call.beams.rows,
        call.finished, bitmap, bitmap if call.kept is None else call.kept, group_max, best,
        peak, mass, bitmap if counts is None else counts, beams, call.V,
        call.D, words, 0 if counts is None else call.B, splits, each, tiles, call.by_row,
        int(call.all), int(kept), call.has_bias, call.has_bonus,
        call.has_nudge,
        GROUP=group, TILE=tile, TILES=paired, CELLS=cells, SPLIT=split, HAS_LOGITS=call.has_logits,
        PLAIN=plain, KEPT=plain and kept, EVERYTHING=plain and call.all,
        PRECISION="tf32x3" if hidden.dtype == torch.float32 and not call.has_logits else "ieee",
        UPCAST=INTERPRETED, **(shape | call.block_k(shape["BLOCK_K"])),
    )  # fmt: skip
    return group_max, best, peak, mass


def _block_of(M: int, V: int) -> tuple[int, int]:
    """A block that holds all tokens of so many beams; of few sizes, so few kernels are compiled."""
    columns = columns_of(V)
    return 1 if M == 1 else coarse(M, 8 if columns <= 512 else 1), columns


def _all_held(call: Call, bitmap: torch.Tensor, words: int) -> NewBeams:
    B, M, V = call.B, call.M, call.V
    logits, _, peak, mass = _statistics(call, bitmap, words, 64, 1, 0)
    rows_up, columns_up = _block_of(M, V)
    candidates = call.empty(B, M * V, dtype=torch.int64)
    programs, shape = call.finishing(M * V, rows_up * columns_up)
    launch(
        finish_tokens, (B, programs), call.beams.scores, peak, mass, logits, candidates,
        *call.writing(), call.slack, B * M, len(peak),
        logits.shape[-1], M * V,
        TILES_UP=columns_up // 64, COLUMNS_UP=columns_up, BEAMS_UP=rows_up,
        **shape,
    )  # fmt: skip
    return call.new


def _revisited(call: Call, bitmap: torch.Tensor, words: int) -> NewBeams:
    B, M, W = call.B, call.M, call.W
    tile = _tile(call)
    # Enough cells that a threshold among them is sharp, as far as one program can hold them. One
    # beam's tiles may be fewer than the width: then every group would reach the threshold.
    cells, tiles = 1, cdiv(call.V, tile)
    if M * call.V >= SMALL or M * tiles < 2 * W:
        while cells < tile // 16 and M * tiles * cells < 12 * W:
            cells *= 2
    guided = call.has_bonus or call.has_nudge or call.kept is not None or call.all
    peaks = cells == 1 and not guided
    counts = call.empty(2, B, dtype=torch.int32)
    group_max, best, peak, mass = _statistics(
        call, bitmap, words, tile, GROUP, 0 if peaks else cells, counts
    )
    tiles_up, beams_up = power_of_two(tiles), power_of_two(M)
    if M * call.V < SMALL and coarse(M, 8) * coarse(tiles, 8) * cells <= HELD:
        beams_up, tiles_up = coarse(M, 8), coarse(tiles, 8)
    groups = tile // GROUP // cells
    held = beams_up * tiles_up * cells
    whole = held <= HELD
    # A few requests leave processors that list more groups of fewer keys.
    most_keys = KEYS_HELD // 2 if B <= 4 else KEYS_HELD
    together = 1 if whole else min(tiles_up, max(1, held // max(most_keys, beams_up)))
    listed = tiles_up * cells // together
    each = together * groups
    most = W + call.slack
    tops, log_sums, threshold = call.empty(B, M), call.empty(B, M), call.empty(B)
    cell_list = call.empty(B, most, dtype=torch.int32)
    group_count, count = counts
    if not whole:
        beam_block = max(1, min(beams_up, HELD // 4 // (tiles_up * cells)))
        keyed = call.empty(B, listed, beams_up, dtype=torch.int32)
        launch(
            key_cells, (B, cdiv(M, beam_block)), call.beams.scores, best, peak, mass, tops,
            log_sums, keyed, B * M, M, tiles, TILES_UP=tiles_up, CELLS=cells, PEAKS=peaks,
            TOGETHER=together, BEAM_BLOCK=beam_block, BEAMS_UP=beams_up, warps=4,
        )  # fmt: skip
        best = keyed
    limit, kept = LIMIT * W + 8, W + int(SPARE)
    warps = warps_for(beams_up * listed)
    group_list = call.empty(B, 2, limit, dtype=torch.int32)
    group_keys = call.empty(B, most * each, dtype=torch.int32)
    of_beam, of_beam_up = group_max.shape[-1], tiles_up * cells * groups
    shape = dict(TUNING["groups_few" if W < 256 else "groups_many"])
    if B * cdiv(most, shape["GROUPS"]) > 8 * PROCESSORS:
        shape["GROUPS"] = max(shape["GROUPS"], GROUPS * 2 // call.hidden.itemsize)
    shape["BLOCK_K"] = min(shape["BLOCK_K"], 128 if call.D <= 128 else 256)
    whole_d = call.D % shape["BLOCK_K"] == 0 and call.D <= 1024
    capacity = limit * GROUP
    keys = call.empty(B, capacity, dtype=torch.int64)
    scores = call.empty(B, capacity)
    if call.kept is not None:
        bitmap, call.by_row = call.kept, 0
    inputs = (
        call.hidden, call.head, call.bias, call.logits, call.bonus, call.nudge,
        call.beams.rows, call.finished, bitmap,
    )  # fmt: skip
    numbers = (
        M, call.V, call.D, words, of_beam_up, call.by_row, call.has_bias,
        call.has_bonus, call.has_nudge, limit, kept, capacity,
    )  # fmt: skip
    known: dict[str, Any] = {
        "GROUP": GROUP, "HAS_LOGITS": call.has_logits, "WHOLE_D": call.D if whole_d else 0, **shape,
    }  # fmt: skip
    block = LISTING if warps >= 16 else LISTING // 4
    programs = min(cdiv(most * each, block), max(1, PROCESSORS // B), MOST_PROGRAMS)
    launch(
        choose_cells, (B, programs), call.beams.scores, best, peak, mass, group_max, tops,
        log_sums, cell_list, group_keys, threshold, group_list, group_count, B * M, M, W,
        call.slack, tiles, of_beam, of_beam_up, each, limit, kept, TILES_UP=tiles_up, CELLS=cells,
        PEAKS=peaks, LISTED=listed, BEAMS_UP=beams_up, KEYED=not whole, BLOCK=block, warps=warps,
    )  # fmt: skip
    typical = W + W // 2 if B <= 4 else most
    launch(
        score_groups, (B, cdiv(typical, shape["GROUPS"])), *inputs, call.beams.scores, tops,
        log_sums, group_list, group_count, threshold, keys, scores, count, *numbers, **known,
    )  # fmt: skip
    return call.write(Kept(keys, scores, count, capacity, W + W // 2))
