"""The gate before a measurement: a step's result against plain float64 arithmetic on the device."""

from __future__ import annotations

import torch

from beamsieve.index.tables import StepTable
from beamsieve_bench.gpu_workloads import StepCase


def valid_tokens(table: StepTable, rows: torch.Tensor) -> torch.Tensor:
    """bool [n, V]: the valid tokens of each row, on the rows' device."""
    host = rows.cpu().numpy()
    valid = torch.zeros((len(host), table.vocabulary), dtype=torch.bool)
    if table.bitmap is not None:
        import numpy as np

        bits = np.unpackbits(
            np.ascontiguousarray(table.bitmap[host]).view(np.uint8), axis=1, bitorder="little"
        )
        return torch.from_numpy(bits[:, : table.vocabulary].astype(bool)).to(rows.device)
    for i, row in enumerate(host):
        start, end = table.starts.bounds(int(row))
        valid[i, torch.from_numpy(table.tokens_at(range(start, end)).astype("int64"))] = True
    return valid.to(rows.device)


def check_step(
    table: StepTable,
    case: StepCase,
    width: int,
    result: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    tolerance: float,
    requests: int = 4,
) -> float:
    """Compare ``(tokens, scores, rows, parents, count)`` with float64 for the first requests.

    Normalised over the catalog. Every beam must carry the score that float64 gives its parent and
    token, scores must descend, no beam may come twice, and the k-th score must be the k-th best.

    Returns:
        the largest score difference.

    Raises:
        AssertionError: any of it does not hold; zero checked beams included.
    """
    tokens, scores, rows, parents, count = result
    largest, checked = 0.0, 0
    for b in range(min(requests, len(case.scores))):
        valid = valid_tokens(table, case.rows[b])
        logits = case.hidden[b].double() @ case.head.double().T
        logits = torch.where(valid, logits, -torch.inf)
        expected = case.scores[b].double()[:, None] + torch.log_softmax(logits, 1)
        n = int(count[b])
        assert n == min(width, int(valid.sum())), f"request {b}: {n} beams"
        token, parent = tokens[b, :n, -1].long(), parents[b, :n]
        assert len(torch.unique(parent * table.vocabulary + token)) == n, f"request {b}: repeated"
        own = expected[parent, token]
        best = torch.topk(expected.flatten(), n).values
        difference = torch.maximum((own - scores[b, :n]).abs(), (best - scores[b, :n]).abs())
        scale = best.abs().clamp(min=1)
        worst = float((difference / scale).max())
        assert worst <= tolerance, f"request {b}: scores differ by {worst}"
        assert bool((scores[b, 1:n] <= scores[b, : n - 1]).all()), f"request {b}: order"
        start = torch.from_numpy(table.starts.start(case.rows[b].cpu().numpy())).to(rows.device)
        child = start[parent] + (valid.long().cumsum(1) - 1)[parent, token]
        assert bool((child == rows[b, :n]).all()), f"request {b}: child rows"
        largest, checked = max(largest, worst), checked + n
    assert checked > 0, "nothing was checked"
    return largest
