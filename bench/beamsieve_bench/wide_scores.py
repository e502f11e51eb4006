"""Selection of a decode without a catalog, on a GPU: what lies around its two ``torch.topk``."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beamsieve.models.wide.launch import cdiv, launch, power_of_two


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


@triton.jit
def open_groups(
    logits, offsets, groups, opened, ROWS_ALL, M, K,
    PER_BEAM: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Of each of ``groups`` [B, K], its GROUP logits plus their beam's offset."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = r < ROWS_ALL
    b = r // K
    group = tl.load(groups + r, mask=inside, other=0)
    at = (b.to(tl.int64) * M * PER_BEAM + group)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    offset = tl.load(offsets + b * M + group // PER_BEAM, mask=inside, other=0.0)
    value = tl.load(logits + at, mask=inside[:, None], other=0.0).to(tl.float32)
    out = r[:, None].to(tl.int64) * GROUP + tl.arange(0, GROUP)[None, :]
    tl.store(opened + out, value + offset[:, None], mask=inside[:, None])


@triton.jit
def follow_places(
    places, groups, tokens, new_tokens, parents, ROWS_ALL, WIDTH, M, K,
    T: tl.constexpr, PER_BEAM: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The beams behind ``places`` [B, WIDTH] among the opened groups: parents, and their tokens and
    one more."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = r < ROWS_ALL
    b = r // WIDTH
    place = tl.load(places + r, mask=inside, other=0)
    group = tl.load(groups + b * K + place // GROUP, mask=inside, other=0)
    parent = group // PER_BEAM
    tl.store(parents + r, parent, mask=inside)
    token = (group % PER_BEAM) * GROUP + place % GROUP
    tl.store(new_tokens + r * (T + 1) + T, token.to(tl.int32), mask=inside)
    for j in tl.static_range(T):
        spelt = tl.load(tokens + (b * M + parent) * T + j, mask=inside, other=0)
        tl.store(new_tokens + r * (T + 1) + j, spelt, mask=inside)


def opened_groups(logits: Tensor, offsets: Tensor, groups: Tensor, group: int) -> Tensor:
    """float32 [B, K * group]: logits [B, M, V] of groups int64 [B, K], offsets [B, M] added."""
    (batch, beams, vocabulary), asked = logits.shape, groups.shape[1]
    opened = offsets.new_empty(batch, asked * group)
    launch(
        open_groups, cdiv(groups.numel(), 16), logits, offsets, groups, opened, groups.numel(),
        beams, asked, PER_BEAM=vocabulary // group, GROUP=group, ROWS=16,
    )  # fmt: skip
    return opened


def followed(
    places: Tensor, groups: Tensor, tokens: Tensor, vocabulary: int, group: int
) -> tuple[Tensor, Tensor]:
    """Tokens int32 [B, W, t + 1] and parents int64 [B, W] behind places int64 [B, W] among opened
    groups int64 [B, K], of beams with tokens int32 [B, M, t]."""
    beams, spelt = tokens.shape[1:]
    parents = torch.empty_like(places)
    longer = tokens.new_empty(*places.shape, spelt + 1)
    launch(
        follow_places, cdiv(places.numel(), 128), places, groups, tokens.contiguous(), longer,
        parents, places.numel(), places.shape[1], beams, groups.shape[1],
        T=spelt, PER_BEAM=vocabulary // group, GROUP=group, ROWS=128,
    )  # fmt: skip
    return longer, parents
