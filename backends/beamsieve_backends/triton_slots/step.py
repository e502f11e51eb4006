"""One step as a chain of kernels, planned on the host from shapes alone.

Nothing here waits for the device, and nothing depends on what the device holds: the same shapes
give the same launches, so a loop of steps can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from beamsieve.interface import Normalize, Projection, StepInputs
from beamsieve_backends.triton_slots.choose import choose_cells
from beamsieve_backends.triton_slots.finish import finish_cells, finish_tokens
from beamsieve_backends.triton_slots.launch import INTERPRETED, cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.project import row_bitmaps, split_rows, statistics
from beamsieve_backends.triton_slots.rank import BY_SLOT, DENSE, SPARSE, write_best
from beamsieve_backends.triton_slots.revisit import list_groups, score_groups, settle_candidates
from beamsieve_backends.triton_slots.slots import finish_slots, score_slots
from beamsieve_backends.triton_slots.tables import DeviceTable, DeviceTables
from beamsieve_backends.triton_slots.targeting import (
    permitted_tokens_dense,
    permitted_tokens_sparse,
)

GROUP = 8
LIMIT = 2
"""Groups that stay after the choice, as a multiple of the width."""
LISTING = 1024
"""Groups that one program looks at when it lists them."""
HELD = 8192
"""The most keys that one program holds in registers."""
CELLS_HELD = 16384
"""The most cells; their keys are half as large."""
WRITTEN = 1 << 20
"""The most logits of a request that are written out, and read again where they may matter."""
WRITTEN_IN_ALL = 1 << 26
"""The same of a batch: 256 MiB. It alone makes a result's last bits depend on the batch's size."""
RANKED_UP_TO = 1024
"""The widest step whose beams one program ranks."""
PROCESSORS = 132
"""How many programs are enough to fill a large GPU; only speed depends on it."""


TUNING: dict[str, dict[str, Any]] = {
    "slots_few": {"BEAMS": 2, "BLOCK_K": 256, "TILES": 1, "TILE_K": 256, "warps": 4},
    "slots_many": {"BEAMS": 4, "BLOCK_K": 256, "TILES": 1, "TILE_K": 256, "warps": 4},
    "statistics_16": {"BLOCK_M": 16, "BLOCK_K": 64, "warps": 4, "stages": 3},
    "statistics_32": {"BLOCK_M": 32, "BLOCK_K": 64, "warps": 4, "stages": 3},
    "statistics_64": {"BLOCK_M": 64, "BLOCK_K": 64, "warps": 4, "stages": 3},
    "statistics_128": {"BLOCK_M": 128, "BLOCK_K": 64, "warps": 8, "stages": 3},
    "groups_few": {"GROUPS": 2, "BLOCK_K": 256, "warps": 4},
    "groups_many": {"GROUPS": 8, "BLOCK_K": 32, "warps": 4, "registers": 64},
    "rank": {"OWN": 32, "OTHERS": 128, "warps": 2},
    "cell": {"few": 16, "many": 64},
    "tile": {"one": 64, "few": 128, "many": 256, "many_narrow": 128},
    "finish_few": {"OWN": 128, "OTHERS": 32, "warps": 8},
    "finish_many": {"OWN": 512, "OTHERS": 32, "warps": 16},
}
"""Block shapes that were fast on an H200. Those that decide the order of a sum follow from a
request's own shape (few or many beams), never from the batch, so that no result does either; of
``statistics`` all give the same bits."""


@dataclass(frozen=True)
class StepArrays:
    """What a step reads of the beams before it: scores [B, M] float32, rows [B, M] int64,
    finished [B, M] bool, tokens [B, M, t] int32, all contiguous."""

    scores: torch.Tensor
    rows: torch.Tensor
    finished: torch.Tensor
    tokens: torch.Tensor
    distinct: bool
    """Whether no two beams of a request share a row."""


@dataclass(frozen=True)
class NewBeams:
    """What a step writes, in the shapes of ``beamsieve.interface.Beams``."""

    tokens: torch.Tensor
    scores: torch.Tensor
    keys: torch.Tensor
    rows: torch.Tensor
    parents: torch.Tensor
    finished: torch.Tensor
    count: torch.Tensor


@dataclass(frozen=True)
class Kept:
    """Candidates that may win, on the device: keys, scores and slots [B, capacity], count [B]."""

    keys: torch.Tensor
    scores: torch.Tensor
    has_scores: bool
    count: torch.Tensor
    capacity: int
    typical: int
    """About how many there are."""
    slots: torch.Tensor | None = None
    by_slot: tuple[Any, ...] | None = None
    """Where slots lie: first_entry, tile_starts, slots of a beam, and of a tile."""


def choose_projection(
    table: DeviceTable, wanted: Projection | None, normalize: Normalize, given_logits: bool
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
    return "full" if table.typical_degree * 24 > table.vocabulary else "selective"


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
    projection = choose_projection(table, inputs.projection, normalize, inputs.logits is not None)
    following = tables.tables[step] if step < len(tables.tables) else None
    call = _Call(table, following, tables.ragged, beams, inputs, normalize, targeting)
    return call.selective() if projection == "selective" else call.full()


class _Call:
    """One step's launches; holds what all of them share."""

    def __init__(
        self,
        table: DeviceTable,
        following: DeviceTable | None,
        ragged: bool,
        beams: StepArrays,
        inputs: StepInputs,
        normalize: Normalize,
        targeting: tuple[Any, ...] | None,
    ) -> None:
        self.table = table
        self.following = following
        self.ragged = ragged
        self.beams = beams
        self.inputs = inputs
        self.all = normalize == "all"
        self.over_kept = int(normalize == "eligible")
        self.targeting = targeting
        self.kept: torch.Tensor | None = None
        self.B, self.M = beams.scores.shape
        self.V = table.vocabulary
        self.W = inputs.width
        self.device = beams.scores.device
        self.finished = beams.finished.view(torch.int8)
        none = beams.scores
        self.hidden = none if inputs.hidden is None else inputs.hidden.contiguous()
        self.head = none if inputs.head is None else inputs.head.contiguous()
        self.bias = none if inputs.bias is None else inputs.bias.float().contiguous()
        self.logits = none if inputs.logits is None else self._plain_logits(inputs.logits)
        self.bonus = none if inputs.bonus is None else inputs.bonus.contiguous()
        self.nudge = none if inputs.nudge is None else inputs.nudge.contiguous()
        self.D = 16 if inputs.hidden is None else int(inputs.hidden.shape[-1])
        self.has_logits = inputs.logits is not None
        self.has_bias = int(inputs.bias is not None)
        self.has_bonus = int(inputs.bonus is not None)
        self.has_nudge = int(inputs.nudge is not None)
        self.child = int(DENSE if table.dense else SPARSE)
        self.by_row = int(table.dense)
        self.new = self._new_beams()

    def _plain_logits(self, logits: torch.Tensor) -> torch.Tensor:
        # Few logits in float32, whatever they were: one kernel less to compile for each dtype.
        if logits.numel() <= 1 << 20:
            logits = logits.float()
        return logits.contiguous()

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def block_k(self, largest: int) -> dict[str, Any]:
        """The part of a hidden state that is read at a time, and whether it goes up evenly."""
        block = max(16, min(largest, power_of_two(self.D)))
        return {"BLOCK_K": block, "EVEN": self.D % block == 0}

    @property
    def slack(self) -> int:
        """How many more than the width a threshold may leave, which saves rounds of its search."""
        return self.W // 8 + 16

    def selective(self) -> NewBeams:
        """Every candidate in a slot, then the best of them."""
        table, B, M, W = self.table, self.B, self.M, self.W
        shape = dict(TUNING["slots_few" if M <= 128 else "slots_many"])
        shape |= self.block_k(shape["BLOCK_K"])
        shape["TILE_K"] = min(shape["TILE_K"], shape["BLOCK_K"], 4096 // table.tile)
        most_tiles = table.most_tiles(M, self.beams.distinct)
        capacity = M * table.slots + most_tiles * table.tile
        slot_logits, slot_tokens = (
            self.empty(B, capacity, dtype=kind) for kind in (torch.float32, torch.int32)
        )
        first_entry = self.empty(B, M, dtype=torch.int64)
        beam_peak, beam_sum, tops, log_sums = (self.empty(B, M) for _ in range(4))
        tile_starts = self.empty(B, M + 1, dtype=torch.int32)
        tile_beam = self.empty(B, max(1, most_tiles), dtype=torch.int32)
        tile_peak, tile_sum = (self.empty(B, max(1, most_tiles)) for _ in range(2))
        wide_from = cdiv(M, shape["BEAMS"])
        for_tiles = 0
        if most_tiles:
            expected = int(M * table.typical_tiles * 1.25) + 1
            for_tiles = min(most_tiles, max(4, min(expected, 8 * PROCESSORS // B)))
        launch(
            score_slots, (B, wide_from + for_tiles), self.hidden, self.head, self.bias,
            self.logits, self.beams.rows, self.finished, *table.starts, table.tokens,
            table.token_bits, table.bitmap, table.ranks, table.rank_mask, table.words,
            table.rank_words, self.has_bias, slot_logits, slot_tokens, first_entry, beam_peak,
            beam_sum, tile_starts, tile_beam, tile_peak, tile_sum, M, self.V, self.D, capacity,
            max(1, most_tiles), wide_from, *self._targeting(), self.over_kept,
            TARGETED=self.targeting is not None, DENSE=table.dense, SLOTS=table.slots,
            TILE=table.tile, BEAMS_UP=_beams_up(M), HAS_LOGITS=self.has_logits, **shape,
        )  # fmt: skip
        keys = self.empty(B, capacity, dtype=torch.int64)
        scores = self.empty(B, capacity) if self.has_nudge else self.beams.scores
        slots = self.empty(B, capacity, dtype=torch.int32)
        count = self.empty(B, dtype=torch.int32)
        typical = M * table.slots + int(1.25 * M * table.typical_tiles) * table.tile
        chunk = 1024 if typical <= 1024 else 4096 if typical <= 4096 else 8192
        ranked = W <= RANKED_UP_TO
        shape = self._finish(chunk)
        launch(
            finish_slots, (B,), self.beams.scores, slot_logits, slot_tokens, beam_peak, beam_sum,
            tile_starts, tile_beam, tile_peak, tile_sum, first_entry, self.bonus, self.nudge, tops,
            log_sums, keys, scores, slots, count, *self._writing(int(BY_SLOT)), self.slack,
            capacity, max(1, most_tiles), table.slots, table.tile, int(most_tiles > 0),
            self.has_bonus, self.has_nudge,
            BEAM_BLOCK=128 if W <= 128 else 512, CHUNK=chunk, RANKED=ranked, **shape,
        )  # fmt: skip
        if ranked:
            return self.new
        by_slot = (first_entry, tile_starts, table.slots, table.tile)
        kept = Kept(keys, scores, bool(self.has_nudge), count, capacity, W, slots, by_slot)
        return self.write(kept)

    def _targeting(self) -> tuple[Any, ...]:
        if self.targeting is not None:
            return self.targeting
        # Of the same types, as a kernel that does not look at them takes them all the same.
        words, numbers, small = self.table.start_bits, self.table.tokens, self.finished
        return (
            numbers, 0, words, 0, numbers, words, small, words, 0, numbers, words, words, small,
            words, words, numbers, numbers, 0, self.B,
        )  # fmt: skip

    def _finish(self, held: int) -> dict[str, Any]:
        shape = dict(TUNING["finish_few" if self.W <= 128 else "finish_many"])
        shape["warps"] = max(shape["warps"], min(16, held // 512))
        return shape | {"T_UP": max(8, power_of_two(self._t))}

    @property
    def _t(self) -> int:
        return int(self.beams.tokens.shape[-1]) + 1

    def full(self) -> NewBeams:
        """Every token of the codebook is scored; the valid ones are told by bitmaps."""
        M, V = self.M, self.V
        bitmap, words = self.table.bitmap, self.table.words * 2
        if not self.table.dense:
            words = cdiv(V, 32)
            bitmap = self._bitmaps(words)
        bitmap = bitmap.view(torch.int32)
        if self.targeting is not None:
            self.kept = self._permitted(words)
            if self.over_kept:
                bitmap, self.by_row = self.kept, 0
        guided = self.has_bonus or self.has_nudge
        cells = power_of_two(M) * power_of_two(V)
        if not guided and _coarse(M) * _columns(V) <= HELD:
            return self._all_held(bitmap, words)
        if not guided and cells <= WRITTEN and self.B * M * V <= WRITTEN_IN_ALL:
            return self._written(bitmap, words)
        return self._revisited(bitmap, words)

    def _permitted(self, words: int) -> torch.Tensor:
        """int32 [B * M, words]: what targeting leaves of each beam's row."""
        assert self.targeting is not None
        table, beams = self.table, self.B * self.M
        kept = self.empty(beams, words, dtype=torch.int32)
        if table.dense:
            block = 64 if self.V <= 64 else 256
            launch(
                permitted_tokens_dense, (beams, cdiv(words * 32, block)), self.beams.rows,
                self.finished, *table.starts, table.bitmap, table.ranks, table.rank_mask,
                table.words, table.rank_words, kept, self.M, self.V, *self.targeting, BLOCK=block,
            )  # fmt: skip
        else:
            launch(
                permitted_tokens_sparse, (beams,), self.beams.rows, self.finished, *table.starts,
                table.tokens, table.token_bits, kept, self.M, words, *self.targeting,
                WORD_BLOCK=64, ENTRIES=32,
            )  # fmt: skip
        return kept

    def _bitmaps(self, words: int) -> torch.Tensor:
        table = self.table
        bitmaps = self.empty(self.B * self.M, words, dtype=torch.int32)
        block = 64 if words <= 64 else 256
        entries = 16 if table.typical_degree > 2 and table.entries >= 1 << 16 else 2
        each = max(1, 8192 // (block * entries))
        launch(
            row_bitmaps, (cdiv(self.B * self.M, each),), self.beams.rows, self.finished,
            *table.starts, table.tokens, table.token_bits, bitmaps, self.B * self.M, words,
            WORD_BLOCK=block, BEAMS=each, ENTRIES=entries,
        )  # fmt: skip
        return bitmaps

    def _split(self) -> tuple[torch.Tensor, ...]:
        """hidden and head, each in two float16 parts, and what undoes their scales."""
        parts: list[torch.Tensor] = []
        counts = [x.numel() // self.D for x in (self.hidden, self.head)]
        for n in counts:
            parts += [self.empty(n, self.D, dtype=torch.float16) for _ in range(2)]
            parts.append(self.empty(n))
        columns = power_of_two(self.D)
        each = max(1, 4096 // columns)
        launch(
            split_rows, (sum(cdiv(n, each) for n in counts),), self.hidden, *parts[:3], counts[0],
            self.head, *parts[3:], counts[1], self.D, D_UP=columns, ROWS=each,
        )  # fmt: skip
        return tuple(parts)

    def _tile(self) -> int:
        """The tokens of a tile: it decides how the log-softmax is summed, so it must not depend on
        the batch."""
        M, V = self.M, self.V
        wide = "many_narrow" if V <= 1024 or self._splits() else "many"
        tile = TUNING["tile"]["one" if M < 64 else "few" if M < 256 else wide]
        return int(min(tile, max(64, power_of_two(V))))

    def _splits(self) -> bool:
        return not self.has_logits and self.hidden.dtype == torch.float32 and self.M >= 16

    def _statistics(
        self, bitmap: torch.Tensor, words: int, tile: int, group: int, cells: int
    ) -> tuple[torch.Tensor, ...]:
        """group_max, cell_best, tile_peak, tile_sum: see ``project.statistics``."""
        beams = self.B * self.M
        tiles = cdiv(self.V, tile)
        group_max = self.empty(self.B, self.M, tiles * tile // group)
        peak, mass = (self.empty(tiles, beams) for _ in range(2))
        best = self.empty(tiles * cells, beams) if cells else peak
        none = self.beams.scores
        hidden, head = self.hidden, self.head
        hidden_low = head_low = hidden_scale = head_scale = none
        split = self._splits()
        if split:
            hidden, hidden_low, hidden_scale, head, head_low, head_scale = self._split()
        rows = (
            16
            if beams <= 256 or self.M < 64
            else 32
            if beams < 1024
            else 64
            if beams <= 4096
            else 128
        )
        shape = dict(TUNING[f"statistics_{rows}"])
        if tile == 256 and rows >= 64:
            shape["warps"] = 8
        row_blocks = cdiv(beams, rows)
        tiles_each = cdiv(tiles, max(1, PROCESSORS // row_blocks)) if rows == 128 else 1
        splits = cdiv(tiles, tiles_each)
        launch(
            statistics, (row_blocks * splits,), hidden, head, hidden_low, head_low, hidden_scale,
            head_scale, self.bias, self.logits, self.bonus, self.nudge, self.beams.rows,
            self.finished, bitmap, bitmap if self.kept is None else self.kept, group_max, best,
            peak, mass, beams, self.V, self.D, words, splits, tiles_each, tiles, self.by_row,
            int(self.all), int(self.kept is not None), self.has_bias, self.has_bonus,
            self.has_nudge,
            GROUP=group, TILE=tile, CELLS=cells, SPLIT=split, HAS_LOGITS=self.has_logits,
            PLAIN=self.M >= 64
            and not (self.all or self.has_bonus or self.has_nudge or self.kept is not None),
            PRECISION="tf32x3" if hidden.dtype == torch.float32 and not self.has_logits else "ieee",
            UPCAST=INTERPRETED, **(shape | self.block_k(shape["BLOCK_K"])),
        )  # fmt: skip
        return group_max, best, peak, mass

    def _all_held(self, bitmap: torch.Tensor, words: int) -> NewBeams:
        B, M, V = self.B, self.M, self.V
        logits, _, peak, mass = self._statistics(bitmap, words, 64, 1, 0)
        beams_up, columns_up = _coarse(M), _columns(V)
        candidates = self.empty(B, M * V, dtype=torch.int64)
        launch(
            finish_tokens, (B,), self.beams.scores, peak, mass, logits, candidates,
            self.beams.rows, *self._writing(self.child), self.slack, B * M, len(peak),
            logits.shape[-1], M * V,
            TILES_UP=columns_up // 64, COLUMNS_UP=columns_up, BEAMS_UP=beams_up,
            **self._finish(beams_up * columns_up),
        )  # fmt: skip
        return self.new

    def _written(self, bitmap: torch.Tensor, words: int) -> NewBeams:
        B, M, V, W = self.B, self.M, self.V, self.W
        held = power_of_two(M) * power_of_two(V)
        cell = max(TUNING["cell"]["few" if held <= 1 << 18 else "many"], held // CELLS_HELD)
        tile = max(self._tile(), cell)
        cells = tile // cell
        logits, best, peak, mass = self._statistics(bitmap, words, tile, 1, cells)
        tiles = len(peak)
        beams_up, tiles_up = power_of_two(M), power_of_two(tiles)
        if M <= 64 and _coarse(M, 8) * _coarse(tiles, 8) * cells <= HELD:
            beams_up, tiles_up = _coarse(M, 8), _coarse(tiles, 8)
        most = W + self.slack
        capacity = most * cell
        tops, log_sums = self.empty(B, M), self.empty(B, M)
        cell_list = self.empty(B, most, dtype=torch.int32)
        candidates = self.empty(B, capacity, dtype=torch.int64)
        count = self.empty(B, dtype=torch.int32)
        ranked = W <= RANKED_UP_TO
        launch(
            finish_cells, (B,), self.beams.scores, best, peak, mass, logits, tops, log_sums,
            cell_list, candidates, count, self.beams.rows, *self._writing(self.child), self.slack,
            B * M, tiles, logits.shape[-1], capacity, most,
            TILES_UP=tiles_up, CELLS=cells, CELL=cell, BEAMS_UP=beams_up,
            GATHER=2048 if W <= 128 else 4096, RANKED=ranked,
            **self._finish(beams_up * tiles_up * cells),
        )  # fmt: skip
        if ranked:
            return self.new
        return self.write(Kept(candidates, self.beams.scores, False, count, capacity, W))

    def _revisited(self, bitmap: torch.Tensor, words: int) -> NewBeams:
        B, M, W = self.B, self.M, self.W
        tile = self._tile()
        # Enough cells that a threshold among them is sharp, as far as one program can hold them.
        cells, tiles = 1, cdiv(self.V, tile)
        if M * self.V >= 1 << 17:
            while cells < tile // 16 and M * tiles * cells < 12 * W:
                cells *= 2
        group_max, best, peak, mass = self._statistics(bitmap, words, tile, GROUP, cells)
        tiles_up, beams_up = power_of_two(tiles), power_of_two(M)
        if M * self.V < 1 << 17 and _coarse(M, 8) * _coarse(tiles, 8) <= HELD:
            beams_up, tiles_up = _coarse(M, 8), _coarse(tiles, 8)
        groups = group_max.shape[-1] // (tiles * cells)
        together = min(tiles_up, max(1, beams_up * tiles_up * cells // max(HELD, beams_up)))
        listed = tiles_up * cells // together
        each = together * groups
        most = W + self.slack
        tops, log_sums, threshold = self.empty(B, M), self.empty(B, M), self.empty(B)
        cell_list = self.empty(B, most, dtype=torch.int32)
        cell_count, group_count, count = (self.empty(B, dtype=torch.int32) for _ in range(3))
        beam_block = max(1, min(beams_up, HELD // (tiles_up * cells)))
        launch(
            choose_cells, (B,), self.beams.scores, best, peak, mass, tops, log_sums,
            self.empty(B, listed, beams_up, dtype=torch.int32), cell_list, cell_count, threshold,
            group_count, count, B * M, M, W, self.slack, tiles,
            TILES_UP=tiles_up, CELLS=cells, TOGETHER=together, BEAM_BLOCK=beam_block,
            BEAMS_UP=beams_up, warps=_warps(beams_up * listed),
        )  # fmt: skip
        limit = LIMIT * W
        group_list = self.empty(B, limit, dtype=torch.int32)
        of_beam, of_beam_up = tiles * cells * groups, tiles_up * cells * groups
        launch(
            list_groups, (B, cdiv(most * each, LISTING)), self.beams.scores, tops, log_sums,
            group_max, cell_list, cell_count, threshold, group_list, group_count, M, most, limit,
            of_beam, of_beam_up, each, BLOCK=LISTING,
        )  # fmt: skip
        shape = dict(TUNING["groups_few" if W < 256 else "groups_many"])
        shape["BLOCK_K"] = min(shape["BLOCK_K"], power_of_two(self.D))
        capacity = limit * GROUP
        keys = self.empty(B, capacity, dtype=torch.int64)
        scores = self.empty(B, capacity)
        if self.kept is not None:
            bitmap, self.by_row = self.kept, 0
        given = (
            self.hidden, self.head, self.bias, self.logits, self.bonus, self.nudge,
            self.beams.rows, self.finished, bitmap, self.beams.scores, tops, log_sums, group_list,
            group_count, threshold, keys, scores, count,
        )  # fmt: skip
        numbers = (
            M, self.V, self.D, words, of_beam_up, self.by_row, self.has_bias,
            self.has_bonus, self.has_nudge,
        )  # fmt: skip
        known = {
            "GROUP": GROUP, "HAS_LOGITS": self.has_logits,
            "WHOLE_D": self.D if self.D % shape["BLOCK_K"] == 0 and self.D <= 1024 else 0, **shape,
        }  # fmt: skip
        launch(
            score_groups, (B, cdiv(most, shape["GROUPS"])), *given, *numbers, limit, capacity,
            **known,
        )  # fmt: skip
        workspace = max(most * each, capacity)
        launch(
            settle_candidates, (B,), *given, group_max, cell_list, cell_count,
            self.empty(B, workspace, dtype=torch.int32), *numbers, W, self.slack, most, capacity,
            limit, workspace, of_beam, each, BLOCK=4096,
            **{**known, "warps": 8, "registers": None},
        )  # fmt: skip
        return self.write(Kept(keys, scores, True, count, capacity, W))

    def _new_beams(self) -> NewBeams:
        """All in one piece of memory, so that one copy keeps them."""
        B, W, t = self.B, self.W, self._t
        sizes = {
            "rows": (torch.int64, (B, W)),
            "parents": (torch.int64, (B, W)),
            "count": (torch.int64, (B,)),
            "scores": (torch.float32, (B, W)),
            "keys": (torch.float32, (B, W)),
            "tokens": (torch.int32, (B, W, t)),
            "finished": (torch.bool, (B, W)),
        }
        bytes_of = {name: kind.itemsize * math.prod(shape) for name, (kind, shape) in sizes.items()}
        padded = {name: cdiv(size, 16) * 16 for name, size in bytes_of.items()}
        buffer = self.empty(sum(padded.values()), dtype=torch.uint8)
        made, place = {}, 0
        for name, (kind, shape) in sizes.items():
            made[name] = buffer[place : place + bytes_of[name]].view(kind).view(shape)
            place += padded[name]
        return NewBeams(**made)

    def _writing(self, child: int) -> tuple[Any, ...]:
        """The arguments from ``rows`` to ``ragged`` of the kernels that write beams."""
        table, following, new = self.table, self.following, self.new
        nowhere = table.start_bits
        return (
            self.beams.rows, self.finished, self.beams.tokens, *table.starts, table.tokens,
            table.token_bits, table.bitmap, table.ranks, table.rank_mask, table.words,
            table.rank_words, child, max(1, table.widest).bit_length(),
            *(table if following is None else following).starts,
            nowhere if table.leaf_first is None else table.leaf_first,
            new.tokens, new.scores, new.keys, new.rows, new.parents,
            new.finished.view(torch.int8), new.count, self.M, self.V, self.W, self._t,
            int(following is None), int(self.ragged),
        )  # fmt: skip

    def write(self, kept: Kept) -> NewBeams:
        """Rank what is left by many programs, and write the new beams."""
        B, W = self.B, self.W
        shape = dict(TUNING["rank"])
        child = self.child if kept.slots is None else int(BY_SLOT)
        writing = self._writing(child)
        none = (self.beams.rows, kept.count, 0, 0) if kept.by_slot is None else kept.by_slot
        outputs = 7
        first_out = len(writing) - outputs - 6
        launch(
            write_best, (B, cdiv(max(kept.typical, W), shape["OWN"])), kept.keys, kept.scores,
            kept.count if kept.slots is None else kept.slots, kept.count, int(kept.has_scores),
            *writing[:first_out], *none, *writing[first_out:], kept.capacity,
            T_UP=max(8, power_of_two(self._t)), **shape,
        )  # fmt: skip
        return self.new


def _coarse(n: int, least: int = 1) -> int:
    """The smallest power of eight from ``n`` on: few sizes of blocks occur, so few kernels are
    compiled, where speed does not depend on it."""
    size = least
    while size < n:
        size *= 8
    return size


def _columns(vocabulary: int) -> int:
    """The columns of a block that holds whole codebooks; of four sizes, for the same reason."""
    return next((n for n in (64, 512, 2048) if vocabulary <= n), max(8192, vocabulary))


def _beams_up(beams: int) -> int:
    return 128 if beams <= 128 else 512 if beams <= 512 else 4096


def _warps(elements: int) -> int:
    return min(32, max(4, elements // 512))
