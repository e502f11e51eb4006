"""Replays of one CUDA graph, timed one by one: P50 and P99, from a cool chip and in a queue.

A chip that comes from light work runs its first decodes fast, on a budget of power that it averages
over about a second; then its clock is taken down, overshoots, and finds its level. What a queue of
decodes costs in the long run is what is timed behind enough of the same decodes: ``settled_times``
times the first of one queue, lets it go on until the means of its blocks keep still, and times
again, without a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve_bench.gpu_timing import captured

PACED = 100
"""Replays of a paced run."""
BLOCK = 100
"""Replays whose mean is looked at while a queue settles: longer than one swing of the clock."""
STILL = 0.005
"""Two blocks of a settled queue, one after the other, lie within this share of each other."""
Events = list[tuple[torch.cuda.Event, torch.cuda.Event]]


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
    pairs: Events = []
    began = time.monotonic()
    for number in range(replays):
        if every:
            torch.cuda.synchronize()
            _wait_until(began + number * every * 1e-3)
        pairs += _queued(run, 1)
    torch.cuda.synchronize()
    origin = pairs[0][0]
    return np.array([[origin.elapsed_time(event) for event in pair] for pair in pairs])


def _queued(run: Callable[[], object], replays: int) -> Events:
    """Start ``replays`` of them, each between two events, and do not wait."""
    pairs = []
    for _ in range(replays):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        pairs.append((begin, end))
    return pairs


def _wait_until(moment: float) -> None:
    """Sleep to half a millisecond before, then look at the clock: a sleep may end late."""
    time.sleep(max(0.0, moment - 5e-4 - time.monotonic()))
    while time.monotonic() < moment:
        pass


def _summary(taken: NDArray[np.float64]) -> Times:
    p50, p99 = np.percentile(taken, [50, 99])
    parts = [float(np.median(part) if len(part) else p50) for part in np.array_split(taken, 3)]
    return Times(
        float(p50), float(p99), float(taken.mean()), len(taken), (parts[0], parts[1], parts[2])
    )


def times_of(
    run: Callable[[], object], replays: int, warm_ups: int = 10, every: float = 0.0
) -> Times:
    """Each of ``replays`` replays between two events of the current stream (``series_of``)."""
    series = series_of(run, replays, warm_ups, every)
    return _summary(series[:, 1] - series[:, 0])


@dataclass(frozen=True)
class Settled:
    """The last replays of a queue that went on until it kept still.

    Attributes:
        times: of those last replays.
        seconds: of the queue behind the first replays and before the last.
        still: whether the blocks' means kept still; else the time was up.
        blocks: mean milliseconds of each block in between.
    """

    times: Times
    seconds: float
    still: bool
    blocks: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, those of ``times`` among them."""
        rest = {"seconds": self.seconds, "still": self.still, "blocks": list(self.blocks)}
        return self.times.as_dict() | rest


def still(means: Sequence[float]) -> bool:
    """Whether the last two blocks' means are near each other."""
    last = means[-2:]
    return len(last) == 2 and max(last) <= min(last) * (1 + STILL)


def settled_times(
    run: Callable[[], object], replays: int, seconds: float, warm_ups: int = 10
) -> tuple[Times, Settled]:
    """The first ``replays`` of one queue, and as many behind those that it needed to settle.

    Args:
        run: starts device work and does not wait for it.
        replays: timed at the begin and again at the end.
        seconds: the most that lie between, but for the block under way.
        warm_ups: before the first, waited for.
    """
    for _ in range(warm_ups):
        run()
    torch.cuda.synchronize()
    first = _queued(run, replays)
    means: list[float] = []
    taken = 0.0
    ahead = _queued(run, BLOCK)
    while taken < seconds and not still(means):
        following = _queued(run, BLOCK)  # so that there is always work while a block is waited for
        ahead[-1][1].synchronize()
        means.append(float(_milliseconds(ahead).mean()))
        taken = first[-1][1].elapsed_time(ahead[-1][1]) / 1e3
        ahead = following
    kept_still = still(means)
    last = _queued(run, replays)
    torch.cuda.synchronize()
    means.append(float(_milliseconds(ahead).mean()))
    taken = first[-1][1].elapsed_time(last[0][0]) / 1e3
    times = _summary(_milliseconds(last))
    return _summary(_milliseconds(first)), Settled(times, taken, kept_still, tuple(means))


def timed(run: Callable[[], object], replays: int, settle: float) -> tuple[Times, Settled | None]:
    """``times_of``; with ``settle`` seconds, ``settled_times``."""
    return settled_times(run, replays, settle) if settle else (times_of(run, replays), None)


def _milliseconds(pairs: Events) -> NDArray[np.float64]:
    return np.array([begin.elapsed_time(end) for begin, end in pairs])


def paced(run: Callable[[], object], every: float) -> dict[str, Any]:
    """Times of ``run`` with a start every so many milliseconds, as plain values; none without."""
    if not every:
        return {}
    return {"paced": {"every_ms": every, **times_of(run, PACED, every=every).as_dict()}}


def graph_times(work: Callable[[], object], replays: int = 50, warm_ups: int = 5) -> Times:
    """Capture ``work`` as one graph and time its replays."""
    return times_of(captured(work, 2).replay, replays, warm_ups)
