"""Beam search without a catalog, as one captured loop: the ladder's rows before the filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
    logits = (hidden @ head.t()).float()
    scores = logits.add_((beams.scores - torch.logsumexp(logits, -1))[..., None])
    best, places = best_of(scores.flatten(1), min(width, scores[0].numel()))
    parents, tokens = places // len(head), (places % len(head)).int()
    if best.shape[1] < width:
        more = (len(best), width - best.shape[1])
        best = torch.cat([best, best.new_full(more, -torch.inf)], 1)
        parents = torch.cat([parents, parents.new_full(more, -1)], 1)
        tokens = torch.cat([tokens, tokens.new_full(more, -1)], 1)
    spelt = beams.tokens.shape[2]
    before = beams.tokens.gather(1, parents.clamp(min=0)[..., None].expand(-1, -1, spelt))
    return FreeBeams(torch.cat([before, tokens[..., None]], -1), best, parents)


def best_of(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """``torch.topk`` of rows [B, n], by way of the groups that can hold one of the best.

    The ``width`` best lie in the ``width`` groups with the largest maxima.
    """
    batch, count = scores.shape
    if count % GROUP or count // GROUP <= width:
        return scores.topk(width)
    grouped = scores.view(batch, -1, GROUP)
    groups = grouped.amax(-1).topk(width, sorted=False).indices
    kept = grouped.gather(1, groups[..., None].expand(-1, -1, GROUP)).flatten(1)
    best, places = kept.topk(width)
    return best, groups.gather(1, places // GROUP) * GROUP + places % GROUP


@torch.no_grad()
def free_search(score: WideScorer, widths: Sequence[int]) -> FreeBeams:
    """All steps."""
    beams = first_beams(score.batch, str(score.weights.device))
    for step, width in enumerate(widths, 1):
        hidden, head = score(step, beams)
        beams = free_step(beams, hidden, head, width)
    return beams
