"""What all launches of a step share: its arrays, its shapes, and the beams that it writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from beamsieve.interface import Normalize, StepInputs
from beamsieve_backends.triton_slots.launch import cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.rank import write_best
from beamsieve_backends.triton_slots.tables import DeviceTable
from beamsieve_backends.triton_slots.tuning import PROCESSORS, TUNING


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
    """Candidates that may win, on the device: keys and scores [B, capacity], count [B]."""

    keys: torch.Tensor
    scores: torch.Tensor
    count: torch.Tensor
    capacity: int
    typical: int
    """About how many there are."""


class Call:
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
        self.by_row = int(table.dense)
        self.new = self._new_beams()

    def _plain_logits(self, logits: torch.Tensor) -> torch.Tensor:
        # Few logits in float32, whatever they were: one kernel less to compile for each dtype.
        if logits.numel() <= 1 << 20:
            logits = logits.float()
        return logits.contiguous()

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Memory to work in, or to return."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    def block_k(self, largest: int) -> dict[str, Any]:
        """The part of a hidden state that is read at a time, and whether it goes up evenly. Few
        sizes occur, so that few kernels are compiled."""
        block = min(largest, 64 if self.D <= 64 else 128 if self.D <= 128 else 256)
        return {"BLOCK_K": block, "EVEN": self.D % block == 0}

    @property
    def slack(self) -> int:
        """How many more than the width a threshold may leave, which saves rounds of its search."""
        return self.W // 8 + 16

    @property
    def t(self) -> int:
        """How many tokens the new beams have."""
        return int(self.beams.tokens.shape[-1]) + 1

    def finishing(self, candidates: int, held: int) -> tuple[int, dict[str, Any]]:
        """How many programs finish a request, each of which finds the same and writes its own
        share, and their block shapes.

        Args:
            candidates: about how many there are; few are all ranked, else a threshold comes first.
            held: how many numbers a program holds.
        """
        shape = TUNING["finish"]
        direct = self.ranks_all(candidates)
        ranked = candidates if direct else self.W + self.slack
        warps = min(16, max(shape["warps"], held // shape["held_by_warp"]))
        own = self.own_share(ranked, warps)
        return cdiv(ranked, own), {
            "DIRECT": direct,
            "OWN": own,
            "OTHERS": max(32, shape["ranked"] // own),
            "warps": warps,
            "registers": 128 if warps == 8 else None,
            "T_UP": max(8, power_of_two(self.t)),
        }

    def ranks_all(self, candidates: int) -> bool:
        """Whether about so many candidates are all ranked, without a threshold before."""
        few = self.B * cdiv(candidates, 32) <= 2 * PROCESSORS
        return TUNING["finish"]["direct"] and candidates <= 2048 and few

    def own_share(self, ranked: int, warps: int) -> int:
        """How many of a request's ranked candidates a program writes, so that all programs run at
        once: a second round would take as long as the first."""
        at_once = PROCESSORS * (16 // warps)
        sizes = (own for own in (32, 128, 256) if self.B * cdiv(ranked, own) <= at_once)
        return next(sizes, 512)

    def _new_beams(self) -> NewBeams:
        """All in one piece of memory, so that one copy keeps them."""
        B, W, t = self.B, self.W, self.t
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

    def writing(self, by_slot: bool = False) -> tuple[Any, ...]:
        """The arguments from ``rows`` to ``ragged`` of the kernels that write beams; those of the
        table among them unless children are told ``by_slot``."""
        table, following, new = self.table, self.following, self.new
        nowhere = table.start_bits
        looked_up = (
            *table.starts, table.tokens, table.token_bits, table.bitmap, table.ranks,
            table.rank_mask, table.words, table.rank_words, int(table.dense),
            max(1, table.widest).bit_length(),
        )  # fmt: skip
        return (
            self.beams.rows, self.finished, self.beams.tokens, *(() if by_slot else looked_up),
            *(table if following is None else following).starts,
            nowhere if table.leaf_first is None else table.leaf_first,
            new.tokens, new.scores, new.keys, new.rows, new.parents,
            new.finished.view(torch.int8), new.count, self.M, self.V, self.W, self.t,
            int(following is None), int(self.ragged),
        )  # fmt: skip

    def write(self, kept: Kept) -> NewBeams:
        """Rank what is left by many programs, and write the new beams."""
        B = self.B
        shape = dict(TUNING["rank"])
        few = shape.pop("few")
        if B * cdiv(kept.typical, few) <= 2 * PROCESSORS:
            shape["OWN"] = few
        launch(
            write_best, (B, cdiv(kept.typical, shape["OWN"])), kept.keys, kept.scores,
            kept.count, *self.writing(), kept.capacity,
            T_UP=max(8, power_of_two(self.t)), **shape,
        )  # fmt: skip
        return self.new
