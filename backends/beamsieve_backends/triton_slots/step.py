"""One step as a chain of kernels, planned on the host from shapes alone.

Nothing here waits for the device, and nothing depends on what the device holds: the same shapes
give the same launches, so a loop of steps can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from beamsieve.interface import Normalize, Projection, StepInputs
from beamsieve_backends.triton_slots.choose import choose_cells, choose_tokens
from beamsieve_backends.triton_slots.launch import INTERPRETED, cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.project import row_bitmaps, split_rows, statistics
from beamsieve_backends.triton_slots.rank import write_best
from beamsieve_backends.triton_slots.revisit import (
    list_groups,
    score_groups,
    settle_candidates,
    thin_candidates,
)
from beamsieve_backends.triton_slots.slots import score_slots
from beamsieve_backends.triton_slots.tables import DeviceTable, DeviceTables

GROUP = 8
LIMIT = 2
"""Groups that stay after the choice, as a multiple of the width."""
LISTING = 1024
"""Groups that one program looks at when it lists them."""
HELD = 8192
"""The most keys that one program holds in registers."""
THIN_FROM = 2048
"""Fewer candidates than this are ranked as they are."""
PROCESSORS = 132
"""How many programs are enough to fill a large GPU; only speed depends on it."""


TUNING: dict[str, dict[str, Any]] = {
    "slots_few": {"BEAMS": 2, "SLOTS": 4, "BLOCK_K": 256, "warps": 4},
    "slots_few_wide": {"BEAMS": 1, "SLOTS": 8, "BLOCK_K": 256, "warps": 4},
    "slots_many": {"BEAMS": 4, "SLOTS": 2, "BLOCK_K": 256, "warps": 4},
    "slots_many_wide": {"BEAMS": 4, "SLOTS": 4, "BLOCK_K": 256, "warps": 4},
    "statistics_few": {"BLOCK_M": 64, "BLOCK_K": 64, "warps": 4, "stages": 3},
    "statistics_many": {"BLOCK_M": 128, "BLOCK_K": 64, "warps": 8, "stages": 3},
    "groups_few": {"GROUPS": 2, "BLOCK_K": 256, "warps": 4},
    "groups_many": {"GROUPS": 8, "BLOCK_K": 32, "warps": 4, "registers": 64},
    "rank": {"OWN": 32, "OTHERS": 128, "warps": 2},
    "tile": {"narrow": 64, "wide": 256, "split": 128},
}
"""Block shapes that were fast on an H200. Those that decide the order of a sum follow from a
request's own shape (few or many beams), never from the batch, so that no result does either; of
``statistics`` both give the same bits."""


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
    """Candidates that may win, on the device: keys, scores [B, capacity] and count [B]."""

    keys: torch.Tensor
    scores: torch.Tensor
    count: torch.Tensor
    capacity: int
    typical: int
    """About how many there are."""
    rows: torch.Tensor | None = None


def choose_projection(
    table: DeviceTable, wanted: Projection | None, normalize: Normalize, given_logits: bool
) -> Projection:
    """Full for a dense table, or where the whole codebook must be seen; else as wanted.

    A dense table holds no token list, and at its density a full projection costs less anyway.
    """
    if table.dense or normalize == "all":
        return "full"
    if wanted is not None:
        return wanted
    if given_logits:
        return "selective"
    return "full" if table.typical_degree * 24 > table.vocabulary else "selective"


def run_step(
    tables: DeviceTables, beams: StepArrays, step: int, inputs: StepInputs, normalize: Normalize
) -> NewBeams:
    """The ``inputs.width`` best candidates of each request.

    Args:
        step: the table to read, from 1.
    """
    table = tables.tables[step - 1]
    projection = choose_projection(table, inputs.projection, normalize, inputs.logits is not None)
    call = _Call(table, beams, inputs, normalize)
    kept = call.selective() if projection == "selective" else call.full()
    following = tables.tables[step] if step < len(tables.tables) else None
    return call.write(kept, following, tables.ragged)


class _Call:
    """One step's launches; holds what all of them share."""

    def __init__(
        self, table: DeviceTable, beams: StepArrays, inputs: StepInputs, normalize: Normalize
    ) -> None:
        self.table = table
        self.beams = beams
        self.inputs = inputs
        self.all = normalize == "all"
        self.B, self.M = beams.scores.shape
        self.V = table.vocabulary
        self.W = inputs.width
        self.device = beams.scores.device
        self.finished = beams.finished.view(torch.int8)
        none = beams.scores
        self.hidden = none if inputs.hidden is None else inputs.hidden.contiguous()
        self.head = none if inputs.head is None else inputs.head.contiguous()
        self.bias = none if inputs.bias is None else inputs.bias.contiguous()
        self.logits = none if inputs.logits is None else inputs.logits.contiguous()
        self.bonus = none if inputs.bonus is None else inputs.bonus.contiguous()
        self.nudge = none if inputs.nudge is None else inputs.nudge.contiguous()
        self.D = 16 if inputs.hidden is None else int(inputs.hidden.shape[-1])
        self.has = {
            "HAS_LOGITS": inputs.logits is not None,
            "HAS_BIAS": inputs.bias is not None,
            "HAS_BONUS": inputs.bonus is not None,
            "HAS_NUDGE": inputs.nudge is not None,
        }
        self.model = (self.hidden, self.head, self.bias, self.logits, self.bonus, self.nudge)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def selective(self) -> Kept:
        """Every candidate; thinned out where there are many more than the width."""
        table, B, M, W = self.table, self.B, self.M, self.W
        capacity = table.most_candidates(M, self.beams.distinct)
        keys = self.empty(B, capacity, dtype=torch.int64)
        scores = self.empty(B, capacity)
        rows = self.empty(B, capacity, dtype=torch.int64)
        count = self.empty(B, dtype=torch.int32)
        kind = "slots_few" if M < 256 else "slots_many"
        wide = "_wide" if table.entries > 1.5 * table.rows else ""
        shape = dict(TUNING[kind + wide])
        per_program = shape["BEAMS"] = min(shape["BEAMS"], power_of_two(M))
        shape["BLOCK_K"] = min(shape["BLOCK_K"], power_of_two(self.D))
        launch(
            score_slots, (B, cdiv(M, per_program)), *self.model, self.beams.rows, self.finished,
            self.beams.scores, table.row_starts, table.tokens, keys, scores, rows, count,
            M, self.V, capacity,
            D=self.D, TOKEN_MASK=table.token_mask, ALL_BEAMS=power_of_two(M), **self.has, **shape,
        )  # fmt: skip
        typical = min(capacity, int(M * table.typical_degree))
        if typical > max(2 * W, THIN_FROM):
            block = min(8192, max(1024, power_of_two(int(1.25 * M * table.entries / table.rows))))
            launch(
                thin_candidates, (B,), keys, scores, rows, count,
                self.empty(B, capacity, dtype=torch.int32), W, self.slack, capacity, BLOCK=block,
                warps=_warps(block),
            )  # fmt: skip
            typical = W
        return Kept(keys, scores, count, capacity, typical, rows)

    @property
    def slack(self) -> int:
        """How many more than the width a threshold may leave, which saves rounds of its search."""
        return self.W // 8 + 16

    def full(self) -> Kept:
        """The candidates of the groups that can hold one of the best."""
        B, M, V = self.B, self.M, self.V
        bitmap = self.table.bitmap
        words = cdiv(V, 64) * 2
        if bitmap is None:
            words = cdiv(V, 32)
            bitmap = self._bitmaps(words)
        bitmap = bitmap.view(torch.int32)
        guided = self.inputs.bonus is not None or self.inputs.nudge is not None
        beams_up, columns_up = power_of_two(M), power_of_two(V)
        each_token = not guided and beams_up * columns_up <= HELD
        split = self.inputs.hidden is not None and self.hidden.dtype == torch.float32
        # The tile decides how the log-softmax is summed, so it must not depend on the batch.
        kind = "narrow" if each_token or M < 256 else ("split" if split else "wide")
        tile = TUNING["tile"][kind]
        tile = min(tile, max(32, columns_up))
        group = 1 if each_token else GROUP
        tiles = cdiv(V, tile)
        group_max = self.empty(B, M, tiles * tile // group)
        peak, mass = (self.empty(tiles, B * M) for _ in range(2))
        # Enough cells that a threshold among them is sharp, as far as one program can hold them.
        cells = 1
        while cells < tile // 16 and M * tiles * cells < 12 * self.W and not each_token:
            cells *= 2
        best = peak if each_token else self.empty(tiles * cells, B * M)
        self._statistics(bitmap, words, tile, group, cells, group_max, best, peak, mass)
        if not each_token:
            return self._revisited(bitmap, words, cells, group_max, best, peak, mass)
        count = self.empty(B, dtype=torch.int32)
        capacity = self.W + self.slack
        keys = self.empty(B, capacity, dtype=torch.int64)
        scores = self.empty(B, capacity)
        launch(
            choose_tokens, (B,), self.beams.scores, peak, mass, group_max, keys, scores, count,
            B * M, M, V, self.W, self.slack, TILES=tiles, TILES_UP=power_of_two(tiles),
            COLUMNS=tiles * tile, COLUMNS_UP=columns_up, BEAMS=beams_up,
            warps=_warps(beams_up * columns_up),
        )  # fmt: skip
        return Kept(keys, scores, count, capacity, capacity)

    def _bitmaps(self, words: int) -> torch.Tensor:
        table = self.table
        bitmaps = self.empty(self.B * self.M, words, dtype=torch.int32)
        block = min(256, power_of_two(words))
        entries = min(16, power_of_two(max(1, int(table.typical_degree))))
        each = max(1, 8192 // (block * entries))
        launch(
            row_bitmaps, (cdiv(self.B * self.M, each),), self.beams.rows, self.finished,
            table.row_starts, table.tokens, bitmaps, self.B * self.M,
            TOKEN_MASK=table.token_mask, WORDS=words, WORD_BLOCK=block, BEAMS=each,
            ENTRIES=entries,
        )  # fmt: skip
        return bitmaps

    def _split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        n = x.numel() // self.D
        high, low = (self.empty(n, self.D, dtype=torch.float16) for _ in range(2))
        inverse = self.empty(n)
        columns = power_of_two(self.D)
        each = max(1, 4096 // columns)
        launch(
            split_rows, (cdiv(n, each),), x, high, low, inverse, n,
            D=self.D, D_UP=columns, ROWS=each,
        )  # fmt: skip
        return high, low, inverse

    def _statistics(
        self,
        bitmap: torch.Tensor,
        words: int,
        tile: int,
        group: int,
        cells: int,
        *outputs: torch.Tensor,
    ) -> None:
        beams = self.B * self.M
        none = self.beams.scores
        hidden, head, bias, logits, bonus, nudge = self.model
        hidden_low = head_low = hidden_scale = head_scale = none
        split = not self.has["HAS_LOGITS"] and hidden.dtype == torch.float32
        if split:
            hidden, hidden_low, hidden_scale = self._split(hidden)
            head, head_low, head_scale = self._split(head)
        tiles = cdiv(self.V, tile)
        large = beams >= 1024
        shape = dict(TUNING["statistics_many" if large else "statistics_few"])
        row_blocks = cdiv(beams, shape["BLOCK_M"])
        tiles_each = cdiv(tiles, max(1, PROCESSORS // row_blocks)) if large else 1
        splits = cdiv(tiles, tiles_each)
        shape["BLOCK_K"] = min(shape["BLOCK_K"], max(16, power_of_two(self.D)))
        launch(
            statistics, (row_blocks * splits,), hidden, head, hidden_low, head_low, hidden_scale,
            head_scale, bias, logits, bonus, nudge, self.beams.rows, self.finished, bitmap,
            *outputs, beams, self.V, splits, tiles_each,
            D=self.D, WORDS=words, TILES=tiles, GROUP=group, TILE=tile, CELLS=cells,
            ALL=self.all, BY_ROW=self.table.dense, SPLIT=split,
            UPCAST=INTERPRETED, **self.has, **shape,
        )  # fmt: skip

    def _revisited(
        self,
        bitmap: torch.Tensor,
        words: int,
        cells: int,
        group_max: torch.Tensor,
        best: torch.Tensor,
        peak: torch.Tensor,
        mass: torch.Tensor,
    ) -> Kept:
        B, M, W = self.B, self.M, self.W
        tiles = len(peak)
        tiles_up = power_of_two(tiles)
        groups = group_max.shape[-1] // (tiles * cells)
        beams_up = power_of_two(M)
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
            group_count, count, B * M, M, W, self.slack,
            TILES=tiles, TILES_UP=tiles_up, CELLS=cells, TOGETHER=together, BEAM_BLOCK=beam_block,
            BEAMS_UP=beams_up, warps=_warps(beams_up * listed),
        )  # fmt: skip
        limit = LIMIT * W
        group_list = self.empty(B, limit, dtype=torch.int32)
        of_beam, of_beam_up = tiles * cells * groups, tiles_up * cells * groups
        launch(
            list_groups, (B, cdiv(most * each, LISTING)), self.beams.scores, tops, log_sums,
            group_max, cell_list, cell_count, threshold, group_list, group_count, M, most, limit,
            OF_BEAM=of_beam, OF_BEAM_UP=of_beam_up, EACH=each, BLOCK=LISTING,
        )  # fmt: skip
        shape = dict(TUNING["groups_few" if W < 256 else "groups_many"])
        shape["BLOCK_K"] = min(shape["BLOCK_K"], power_of_two(self.D))
        capacity = limit * GROUP
        keys = self.empty(B, capacity, dtype=torch.int64)
        scores = self.empty(B, capacity)
        given = (
            *self.model, self.beams.rows, self.finished, bitmap, self.beams.scores, tops, log_sums,
            group_list, group_count, threshold, keys, scores, count,
        )  # fmt: skip
        known = {
            "D": self.D, "WORDS": words, "GROUP": GROUP, "OF_BEAM_UP": of_beam_up,
            "BY_ROW": self.table.dense, **self.has, **shape,
        }  # fmt: skip
        launch(
            score_groups, (B, cdiv(most, shape["GROUPS"])), *given, M, self.V, limit, capacity,
            **known,
        )  # fmt: skip
        workspace = max(most * each, capacity)
        launch(
            settle_candidates, (B,), *given, group_max, cell_list, cell_count,
            self.empty(B, workspace, dtype=torch.int32), M, self.V, W, self.slack, most, capacity,
            limit, workspace, OF_BEAM=of_beam, EACH=each, BLOCK=4096,
            **{**known, "warps": 8, "registers": None},
        )  # fmt: skip
        return Kept(keys, scores, count, capacity, W)

    def write(self, kept: Kept, following: DeviceTable | None, ragged: bool) -> NewBeams:
        """Rank what is left, and write the new beams."""
        table, B, M, W = self.table, self.B, self.M, self.W
        t = int(self.beams.tokens.shape[-1]) + 1
        new = NewBeams(
            tokens=self.empty(B, W, t, dtype=torch.int32),
            scores=self.empty(B, W),
            keys=self.empty(B, W),
            rows=self.empty(B, W, dtype=torch.int64),
            parents=self.empty(B, W, dtype=torch.int64),
            finished=self.empty(B, W, dtype=torch.bool),
            count=self.empty(B, dtype=torch.int64),
        )
        none = table.row_starts
        child = "given" if kept.rows is not None else ("dense" if table.dense else "sparse")
        shape = dict(TUNING["rank"])
        own = shape["OWN"] = min(shape["OWN"], power_of_two(max(kept.typical, W)))
        shape["OTHERS"] = min(shape["OTHERS"], max(16, power_of_two(kept.typical)))
        launch(
            write_best, (B, cdiv(max(kept.typical, W), own)), kept.keys, kept.scores,
            none if kept.rows is None else kept.rows, kept.count, self.beams.rows, self.finished,
            self.beams.tokens, table.row_starts, _or(table.tokens, none), _or(table.bitmap, none),
            _or(table.ranks, none), none if following is None else following.row_starts,
            _or(table.leaf_first, none), new.tokens, new.scores, new.keys, new.rows, new.parents,
            new.finished.view(torch.int8), new.count, M, self.V, W, kept.capacity,
            T=t, T_UP=power_of_two(t), WORDS64=cdiv(self.V, 64), TOKEN_MASK=table.token_mask,
            RANK_MASK=table.rank_mask, CHILD=child,
            SEARCH_STEPS=max(1, table.widest).bit_length(), LAST=following is None, RAGGED=ragged,
            **shape,
        )  # fmt: skip
        return new


def _or(array: torch.Tensor | None, otherwise: torch.Tensor) -> torch.Tensor:
    return otherwise if array is None else array


def _warps(elements: int) -> int:
    return min(32, max(4, elements // 512))
