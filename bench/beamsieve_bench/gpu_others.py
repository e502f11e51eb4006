"""What the Triton backend is measured beside, in plain PyTorch on the same inputs."""

from __future__ import annotations

import torch

from beamsieve_bench.gpu_workloads import StepCase


def unconstrained_step(case: StepCase, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Full projection, log-softmax over the codebook and top-k, without any filter.

    Returns:
        scores and flat positions ``m * V + v``, both [B, width].
    """
    logits = torch.matmul(case.hidden, case.head.T)
    scores = torch.log_softmax(logits.float(), -1) + case.scores[:, :, None]
    scores = scores.flatten(1)
    best = torch.topk(scores, min(width, scores.shape[1]), dim=1)
    return best.values, best.indices


def naive_selective_step(
    case: StepCase,
    row_starts: torch.Tensor,
    table_tokens: torch.Tensor,
    slots: int,
    width: int,
    length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The valid tokens of every beam as one compact list, their head rows gathered into a matrix.

    The list needs a count, a prefix sum and a compaction, and the matrix is as large as the list is
    long: what padded slots avoid. The table is plain: ``row_starts`` [rows + 1] and the tokens of
    all entries, int32; ``slots`` is its widest row, ``length`` the list's.

    Returns:
        scores and flat slots, both [B, width].
    """
    batch, beams = case.rows.shape
    rows = case.rows.flatten()
    starts = row_starts[rows].long()
    degrees = row_starts[rows + 1].long() - starts
    of_each = torch.arange(len(rows), device=rows.device)
    beam = torch.repeat_interleave(of_each, degrees, output_size=length)
    rank = torch.arange(length, device=rows.device) - (degrees.cumsum(0) - degrees)[beam]
    gathered = case.head[table_tokens[starts[beam] + rank].long()]
    logits = (case.hidden.flatten(0, 1)[beam] * gathered).sum(-1, dtype=torch.float32)
    padded = torch.full((len(rows), slots), -torch.inf, device=rows.device)
    padded[beam, rank] = logits
    scores = torch.log_softmax(padded, 1) + case.scores.flatten()[:, None]
    scores = scores.view(batch, beams * slots).nan_to_num(-torch.inf, neginf=-torch.inf)
    best = torch.topk(scores, min(width, beams * slots), dim=1)
    return best.values, best.indices
