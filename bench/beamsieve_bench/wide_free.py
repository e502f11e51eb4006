"""Beam search without a catalog, as one captured loop: the ladder's rows before the filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beamsieve.models.wide.launch import INTERPRETED
from beamsieve.models.wide.scorer import WideScorer

GROUP = 32


@dataclass(frozen=True)
class FreeBeams:
    """Tokens int32 [B, M, t], scores float32 [B, M], parents int64 [B, M]; -1 where no beam is."""

    tokens: Tensor
    scores: Tensor
    parents: Tensor


def first_beams(batch: int, device: str) -> FreeBeams:
    """One per request, at the root."""
    return FreeBeams(
        torch.empty((batch, 1, 0), dtype=torch.int32, device=device),
        torch.zeros((batch, 1), device=device),
        torch.full((batch, 1), -1, dtype=torch.int64, device=device),
    )


def free_step(beams: FreeBeams, hidden: Tensor, head: Tensor, width: int) -> FreeBeams:
    """The ``width`` best of all continuations over the whole codebook."""
    logits = hidden @ head.t()
    vocabulary = len(head)
    if (logits.is_cuda or INTERPRETED) and by_groups(logits, width):
        return _grouped_step(beams, logits, width)
    best, places = best_continuations(logits, beams.scores, min(width, logits[0].numel()))
    parents, tokens = places // vocabulary, (places % vocabulary).int()
    if best.shape[1] < width:
        more = (len(best), width - best.shape[1])
        best = torch.cat([best, best.new_full(more, -torch.inf)], 1)
        parents = torch.cat([parents, parents.new_full(more, -1)], 1)
        tokens = torch.cat([tokens, tokens.new_full(more, -1)], 1)
    spelt = beams.tokens.shape[2]
    before = beams.tokens.gather(1, parents.clamp(min=0)[..., None].expand(-1, -1, spelt))
    return FreeBeams(torch.cat([before, tokens[..., None]], -1), best, parents)


def by_groups(logits: Tensor, width: int) -> bool:
    """Whether the best of logits [B, M, V] are looked for in groups."""
    _, beams, vocabulary = logits.shape
    return vocabulary % GROUP == 0 and beams * (vocabulary // GROUP) > width


def _grouped_step(beams: FreeBeams, logits: Tensor, width: int) -> FreeBeams:
    """``best_continuations`` and the beams behind them, by kernels."""
    from beamsieve_bench.wide_scores import followed, grouped, opened_groups

    offsets, maxima = grouped(logits, beams.scores, GROUP)
    groups = maxima.topk(width, sorted=False).indices
    best, places = opened_groups(logits, offsets, groups, GROUP).topk(width)
    tokens, parents = followed(places, groups, beams.tokens, logits.shape[2], GROUP)
    return FreeBeams(tokens, best, parents)


def best_continuations(logits: Tensor, scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` best of logits [B, M, V] - their log-sum-exp + scores [B, M], and their places.

    The ``width`` best lie in the ``width`` groups of tokens with the largest maxima, so only these
    groups are opened.
    """
    batch, _, vocabulary = logits.shape
    if not by_groups(logits, width):
        every = logits.float()
        every = every + (scores - torch.logsumexp(every, -1))[..., None]
        return every.flatten(1).topk(width)
    offsets, maxima = _grouped(logits, scores)
    groups = maxima.topk(width, sorted=False).indices
    opened = logits.view(batch, -1, GROUP).gather(1, groups[..., None].expand(-1, -1, GROUP))
    opened = opened.float().add_(offsets.gather(1, groups // (vocabulary // GROUP))[..., None])
    best, places = opened.flatten(1).topk(width)
    return best, groups.gather(1, places // GROUP) * GROUP + places % GROUP


def _grouped(logits: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets [B, M], which make logits scores, and the largest score of each group of tokens."""
    if logits.is_cuda or INTERPRETED:
        from beamsieve_bench.wide_scores import grouped

        return grouped(logits, scores, GROUP)
    wide = logits.float()
    offsets = scores - torch.logsumexp(wide, -1)
    maxima = wide.view(*wide.shape[:2], -1, GROUP).amax(-1)
    return offsets, maxima.add_(offsets[..., None]).flatten(1)


@torch.no_grad()
def free_search(score: WideScorer, widths: Sequence[int]) -> FreeBeams:
    """All steps."""
    beams = first_beams(score.batch, str(score.weights.device))
    for step, width in enumerate(widths, 1):
        hidden, head = score(step, beams)
        beams = free_step(beams, hidden, head, width)
    return beams
