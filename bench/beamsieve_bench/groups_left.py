"""How many groups of tokens a search leaves to choose from, as a multiple of its width.

    python -m beamsieve_bench.groups_left                                  # like Z1, 512 beams
    python -m beamsieve_bench.groups_left --valid 0.2 --spread 4 --json    # 1M semantic IDs, peaked

The Triton backend's full projection lists the groups of eight tokens that reach a threshold, which
at least the width's number of cells reach (``triton_slots/choose.py``); it has room for ``LIMIT``
times the width of them. Here are two steps of a search over normal logits, on the processor, with
the threshold where the most groups reach it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch

from beamsieve_bench.console import OneLineParser

GROUP = 8


def groups_left(
    vocabulary: int, beams: int, cell: int, valid: float, spread: float, draw: torch.Generator
) -> float:
    """Of one request, as a multiple of ``beams``, which is the width, too.

    Args:
        vocabulary: V, a multiple of ``cell``.
        beams: M, at most V.
        cell: tokens of a cell, of which only the largest is known at first.
        valid: the part of the tokens that may follow each beam.
        spread: deviation of the logits.
    """
    first = torch.randn(vocabulary, generator=draw) * spread
    scores = torch.log_softmax(first, 0).topk(beams).values
    logits = torch.randn(beams, vocabulary, generator=draw) * spread
    left_out = torch.rand(beams, vocabulary, generator=draw) >= valid
    keys = scores[:, None] + torch.log_softmax(logits.masked_fill(left_out, float("-inf")), 1)
    cells = keys.view(beams, -1, cell).amax(2).flatten()
    # The most cells that the threshold may leave: Call.slack more than the width.
    most = min(cells.numel(), beams + beams // 8 + 16)
    threshold = cells.topk(most).values[-1]
    groups = keys.view(beams, -1, GROUP).amax(2)
    return float((groups >= threshold).sum()) / beams


def main(arguments: Sequence[str] | None = None) -> int:
    """Print mean and maximum over requests; 2 for bad arguments."""
    asked = OneLineParser(prog="python -m beamsieve_bench.groups_left", description=__doc__)
    asked.add_argument("--vocabulary", type=int, default=2048, help="V (2048)")
    asked.add_argument("--beams", type=int, default=512, help="M, and the width (512)")
    asked.add_argument("--cell", type=int, default=128, help="tokens of a cell (128)")
    asked.add_argument("--valid", type=float, default=0.83, help="valid part of a row (0.83)")
    asked.add_argument("--spread", type=float, default=1.0, help="deviation of logits (1)")
    asked.add_argument("--requests", type=int, default=32, help="how many are drawn (32)")
    asked.add_argument("--json", action="store_true", help="print one JSON object")
    given = asked.parse_args(arguments)
    if given.cell < GROUP or given.cell % GROUP or given.vocabulary % given.cell:
        asked.error(f"--cell is a multiple of {GROUP} that --vocabulary is a multiple of")
    if not 1 <= given.beams <= given.vocabulary or given.requests < 1:
        asked.error("--beams lies between 1 and --vocabulary, --requests from 1 on")
    if not (0 < given.valid <= 1 and 0 < given.spread < float("inf")):
        asked.error("--valid lies above 0 and up to 1, --spread above 0")
    draw = torch.Generator().manual_seed(0)
    shape = (given.vocabulary, given.beams, given.cell, given.valid, given.spread)
    found = [groups_left(*shape, draw) for _ in range(given.requests)]
    mean, most = sum(found) / len(found), max(found)
    if given.json:
        print(json.dumps({**vars(given), "mean": round(mean, 3), "most": round(most, 3)}))
    else:
        print(f"{mean:.2f} times the width on average, {most:.2f} at the most")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
