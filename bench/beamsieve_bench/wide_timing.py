"""Replays of one CUDA graph, timed one by one: P50 and P99."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from beamsieve_bench.gpu_timing import captured


@dataclass(frozen=True)
class Times:
    """Milliseconds over ``replays`` replays."""

    p50: float
    p99: float
    mean: float
    replays: int

    def as_dict(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def times_of(run: Callable[[], object], replays: int, warm_ups: int = 10) -> Times:
    """Time ``run`` between two events of the current stream, ``replays`` times.

    ``run`` starts device work and does not wait for it.
    """
    for _ in range(warm_ups):
        run()
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
    return Times(float(p50), float(p99), float(taken.mean()), replays)


def graph_times(work: Callable[[], object], replays: int = 50, warm_ups: int = 5) -> Times:
    """Capture ``work`` as one graph and time its replays."""
    return times_of(captured(work, 2).replay, replays, warm_ups)
