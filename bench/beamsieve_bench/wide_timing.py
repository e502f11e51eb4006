"""Replays of one CUDA graph, timed one by one: P50 and P99."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve_bench.gpu_timing import captured

PACED = 100
"""Replays of a paced run."""


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


def series_of(
    run: Callable[[], object], replays: int, warm_ups: int = 10, every: float = 0.0
) -> NDArray[np.float64]:
    """Milliseconds [replays, 2] of ``run``, from the first's begin on: when each begins and ends.

    ``run`` starts device work and does not wait for it, so replays queue up: the GPU does nothing
    else, and after about a second its power limit holds its clock down. With ``every``, one begins
    every so many milliseconds, as batches do that are waited for; what the host does to start it
    counts then.
    """
    for _ in range(warm_ups):
        run()
    torch.cuda.synchronize()
    pairs = []
    began = time.monotonic()
    for number in range(replays):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        if every:
            torch.cuda.synchronize()
            _wait_until(began + number * every * 1e-3)
        begin.record()
        run()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    origin = pairs[0][0]
    return np.array([[origin.elapsed_time(event) for event in pair] for pair in pairs])


def _wait_until(moment: float) -> None:
    """Sleep to half a millisecond before, then look at the clock: a sleep may end late."""
    time.sleep(max(0.0, moment - 5e-4 - time.monotonic()))
    while time.monotonic() < moment:
        pass


def times_of(
    run: Callable[[], object], replays: int, warm_ups: int = 10, every: float = 0.0
) -> Times:
    """Each of ``replays`` replays between two events of the current stream (``series_of``)."""
    series = series_of(run, replays, warm_ups, every)
    taken = series[:, 1] - series[:, 0]
    p50, p99 = np.percentile(taken, [50, 99])
    parts = [float(np.median(part)) for part in np.array_split(taken, 3)]
    return Times(
        float(p50), float(p99), float(taken.mean()), replays, (parts[0], parts[1], parts[2])
    )


def paced(run: Callable[[], object], every: float) -> dict[str, Any]:
    """Times of ``run`` with a start every so many milliseconds, as plain values; none without."""
    if not every:
        return {}
    return {"paced": {"every_ms": every, **times_of(run, PACED, every=every).as_dict()}}


def graph_times(work: Callable[[], object], replays: int = 50, warm_ups: int = 5) -> Times:
    """Capture ``work`` as one graph and time its replays."""
    return times_of(captured(work, 2).replay, replays, warm_ups)
