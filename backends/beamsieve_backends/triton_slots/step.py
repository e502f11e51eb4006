"""One step as a chain of kernels, planned on the host from shapes alone.

Nothing here waits for the device, and nothing depends on what the device holds: the same shapes
give the same launches, so a loop of steps can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from beamsieve.interface import Normalize, Projection, StepInputs
from beamsieve_backends.triton_slots.choose import choose_groups, choose_tokens, thin_candidates
from beamsieve_backends.triton_slots.launch import INTERPRETED, cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.project import row_bitmaps, statistics
from beamsieve_backends.triton_slots.rank import write_best
from beamsieve_backends.triton_slots.revisit import score_groups
from beamsieve_backends.triton_slots.slots import score_slots
from beamsieve_backends.triton_slots.tables import DeviceTable, DeviceTables

TILE = 128
GROUP = 16
LIMIT = 2
"""Groups that stay after the choice, as a multiple of the width."""
HELD = 16384
"""The most keys that one program holds in registers."""


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
    if projection == "selective":
        kept = call.selective()
    else:
        kept = call.full()
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
        count = torch.zeros(B, dtype=torch.int32, device=self.device)
        per_program = min(16, power_of_two(M))
        launch(
            score_slots, (B, cdiv(M, per_program)), *self.model, self.beams.rows, self.finished,
            self.beams.scores, table.row_starts, table.tokens, keys, scores, rows, count,
            M, self.V, capacity,
            D=self.D, TOKEN_MASK=table.token_mask, BEAMS=per_program, SLOTS=32,
            BLOCK_K=min(256, power_of_two(self.D)), **self.has, warps=4, stages=2,
        )  # fmt: skip
        typical = min(capacity, int(M * table.typical_degree))
        if typical > 2 * W:
            block = min(8192, max(1024, power_of_two(typical)))
            launch(
                thin_candidates, (B,), keys, scores, rows, count,
                self.empty(B, capacity, dtype=torch.int32), W, capacity, BLOCK=block,
                warps=max(4, block // 512),
            )  # fmt: skip
            typical = W
        return Kept(keys, scores, count, capacity, typical, rows)

    def full(self) -> Kept:
        """The candidates of the groups that can hold one of the best."""
        table, B, M, V = self.table, self.B, self.M, self.V
        bitmap = table.bitmap
        words = cdiv(V, 64) * 2
        if bitmap is None:
            words = cdiv(V, 32)
            bitmap = self._bitmaps(words)
        bitmap = bitmap.view(torch.int32)
        guided = self.inputs.bonus is not None or self.inputs.nudge is not None
        beams_up, columns_up = power_of_two(M), power_of_two(V)
        each_token = not guided and beams_up * columns_up <= HELD
        tile = min(64 if each_token else TILE, max(32, columns_up))
        group = 1 if each_token else GROUP
        tiles = cdiv(V, tile)
        groups = tile // group
        count = self.empty(B, dtype=torch.int32)
        group_max = self.empty(B, M, tiles * groups)
        tile_best, tile_peak, tile_sum = (self.empty(B, M, tiles) for _ in range(3))
        self._statistics(bitmap, words, tile, group, group_max, tile_best, tile_peak, tile_sum)
        tiles_up = power_of_two(tiles)
        if each_token:
            capacity = min(self.W, M * V)
            keys = self.empty(B, capacity, dtype=torch.int64)
            scores = self.empty(B, capacity)
            launch(
                choose_tokens, (B,), self.beams.scores, tile_peak, tile_sum, group_max,
                keys, scores, count, M, V, min(self.W, M * V), capacity,
                TILES=tiles, TILES_UP=tiles_up, COLUMNS=tiles * groups, COLUMNS_UP=columns_up,
                BEAMS=beams_up, warps=_warps(beams_up * columns_up),
            )  # fmt: skip
            return Kept(keys, scores, count, capacity, capacity)
        return self._revisited(bitmap, words, group_max, tile_best, tile_peak, tile_sum, groups)

    def _bitmaps(self, words: int) -> torch.Tensor:
        table = self.table
        bitmaps = self.empty(self.B * self.M, words, dtype=torch.int32)
        entries = min(64, power_of_two(max(1, int(table.typical_degree))))
        launch(
            row_bitmaps, (self.B * self.M,), self.beams.rows, self.finished, table.row_starts,
            table.tokens, bitmaps, TOKEN_MASK=table.token_mask, WORDS=words,
            WORD_BLOCK=min(256, power_of_two(words)), ENTRY_BLOCK=entries, warps=1,
        )  # fmt: skip
        return bitmaps

    def _statistics(
        self,
        bitmap: torch.Tensor,
        words: int,
        tile: int,
        group: int,
        *outputs: torch.Tensor,
    ) -> None:
        beams = self.B * self.M
        large = beams * self.V >= 1 << 24
        block_m = 128 if large else 64
        block_n = tile
        dtype = (self.logits if self.has["HAS_LOGITS"] else self.hidden).dtype
        launch(
            statistics, (cdiv(beams, block_m) * cdiv(self.V, block_n),), *self.model,
            self.beams.rows, self.finished, bitmap, *outputs, beams, self.V,
            D=self.D, WORDS=words, TILES=cdiv(self.V, tile), TILE=tile, GROUP=group,
            BLOCK_M=block_m, BLOCK_N=block_n,
            BLOCK_K=min(32 if dtype == torch.float32 else 64, max(16, power_of_two(self.D))),
            ALL=self.all, BY_ROW=self.table.dense,
            PRECISION="tf32x3" if dtype == torch.float32 else "ieee",
            UPCAST=INTERPRETED, **self.has, warps=8 if large else 4, stages=3,
        )  # fmt: skip

    def _revisited(
        self,
        bitmap: torch.Tensor,
        words: int,
        group_max: torch.Tensor,
        tile_best: torch.Tensor,
        tile_peak: torch.Tensor,
        tile_sum: torch.Tensor,
        groups: int,
    ) -> Kept:
        B, M, W = self.B, self.M, self.W
        tiles = tile_best.shape[-1]
        tiles_up = power_of_two(tiles)
        beam_block = max(1, min(power_of_two(M), HELD // tiles_up))
        list_block = min(4096, power_of_two(W * groups))
        log_sums = self.empty(B, M)
        group_list = self.empty(B, LIMIT * W, dtype=torch.int32)
        group_count = self.empty(B, dtype=torch.int32)
        count = self.empty(B, dtype=torch.int32)
        threshold = self.empty(B)
        launch(
            choose_groups, (B,), self.beams.scores, tile_best, tile_peak, tile_sum, group_max,
            log_sums, self.empty(B, max(M * tiles_up, W * groups), dtype=torch.int32),
            self.empty(B, W, dtype=torch.int32), group_list, group_count, threshold, count, M, W,
            TILES=tiles, TILES_UP=tiles_up, GROUPS=groups, BEAM_BLOCK=beam_block,
            ONE_BLOCK=beam_block >= M, LIST_BLOCK=list_block, LIMIT=LIMIT,
            warps=_warps(max(beam_block * tiles_up, list_block)),
        )  # fmt: skip
        capacity = LIMIT * W * GROUP
        keys = self.empty(B, capacity, dtype=torch.int64)
        scores = self.empty(B, capacity)
        at_a_time = 2
        launch(
            score_groups, (B, cdiv(W, at_a_time)), *self.model, self.beams.rows, self.finished,
            bitmap, self.beams.scores, log_sums, group_list, group_count, threshold,
            keys, scores, count, M, self.V, LIMIT * W, capacity,
            D=self.D, WORDS=words, GROUP=GROUP, GROUPS_UP=tiles_up * groups,
            GROUPS_A_TIME=at_a_time, BLOCK_K=min(256, power_of_two(self.D)),
            BY_ROW=self.table.dense, **self.has, warps=4, stages=2,
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
        own = min(64, power_of_two(max(kept.typical, W)))
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
            OWN=own, OTHERS=min(256, max(16, power_of_two(kept.typical))), warps=4,
        )  # fmt: skip
        return new


def _or(array: torch.Tensor | None, otherwise: torch.Tensor) -> torch.Tensor:
    return otherwise if array is None else array


def _warps(elements: int) -> int:
    return min(32, max(4, elements // 512))
