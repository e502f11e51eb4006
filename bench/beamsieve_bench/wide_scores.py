"""Scores of a decode without a catalog, on a GPU: one kernel between logits and selection."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beamsieve.models.wide.launch import launch, power_of_two


@triton.jit
def score_groups(
    logits, scores, offsets, maxima,
    V: tl.constexpr, V_UP: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One row of logits [R, V] a program: its offset, scores - log-sum-exp, and of each group of
    GROUP tokens the largest logit plus the offset."""
    r = tl.program_id(0).to(tl.int64)
    v = tl.arange(0, V_UP)
    row = tl.load(logits + r * V + v, mask=v < V, other=float("-inf")).to(tl.float32)
    peak = tl.max(row, 0)
    offset = tl.load(scores + r) - (peak + tl.log(tl.sum(tl.exp(row - peak), 0)))
    tl.store(offsets + r, offset)
    best = tl.max(tl.reshape(row + offset, [V_UP // GROUP, GROUP]), 1)
    g = tl.arange(0, V_UP // GROUP)
    tl.store(maxima + r * (V // GROUP) + g, best, mask=g < V // GROUP)


def grouped(logits: Tensor, scores: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Offsets float32 [B, M] and group maxima float32 [B, M * V / group].

    Args:
        logits: [B, M, V], contiguous, V a multiple of ``group``.
        scores: float32 [B, M], of the beams.
        group: tokens of a group, a power of two.
    """
    batch, beams, vocabulary = logits.shape
    offsets = torch.empty_like(scores)
    maxima = scores.new_empty(batch, beams * (vocabulary // group))
    launch(
        score_groups, batch * beams, logits, scores, offsets, maxima,
        V=vocabulary, V_UP=power_of_two(vocabulary), GROUP=group,
        warps=4 if vocabulary > 512 else 1,
    )  # fmt: skip
    return offsets, maxima
