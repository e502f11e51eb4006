"""Replays of one CUDA graph, timed one by one: P50 and P99."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from beamsieve_bench.gpu_timing import captured

WARM_SECONDS = 1.0
"""Of whole decodes, before they are timed."""


@dataclass(frozen=True)
class Times:
    """Milliseconds over ``replays`` replays."""

    p50: float
    p99: float
    mean: float
    replays: int
    thirds: tuple[float, float, float]
    """The medians of the first, the second and the last third: they show a drift."""

    def as_dict(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def times_of(
    run: Callable[[], object], replays: int, warm_ups: int = 10, warm_seconds: float = 0.0
) -> Times:
    """Time ``run`` between two events of the current stream, ``replays`` times.

    ``run`` starts device work and does not wait for it. Before that it runs for ``warm_seconds``
    more, as the GPU's clock needs that long to settle under a load that reaches its power limit.
    """
    for _ in range(warm_ups):
        run()
    torch.cuda.synchronize()
    began = time.monotonic()
    while time.monotonic() - began < warm_seconds:
        run()
        torch.cuda.synchronize()
    pairs = []
    for _ in range(replays):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    taken = np.array([begin.elapsed_time(end) for begin, end in pairs])
    p50, p99 = np.percentile(taken, [50, 99])
    parts = [float(np.median(part)) for part in np.array_split(taken, 3)]
    return Times(
        float(p50), float(p99), float(taken.mean()), replays, (parts[0], parts[1], parts[2])
    )


def graph_times(work: Callable[[], object], replays: int = 50, warm_ups: int = 5) -> Times:
    """Capture ``work`` as one graph and time its replays."""
    return times_of(captured(work, 2).replay, replays, warm_ups)
