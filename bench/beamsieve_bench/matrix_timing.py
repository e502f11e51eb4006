"""Clocks of the matrix: rounds in turns, phases of a step, and what the machine can do at most.

On a processor a round is timed with ``perf_counter``, or with the time that the process spent on
it, which counts what its threads did and nothing that other processes did. On a GPU it is timed
with CUDA events: replays of a captured graph where the contestant can be captured, plain calls,
waits included, where not.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from beamsieve_bench.baselines import Mark
from beamsieve_bench.gpu_timing import captured

Work = Callable[[], Any]
Clock = Callable[[], float]
REPLAYS = 5
"""Graph replays one behind the other in a round, so that the first one's gap counts for little."""
FEWEST = 3


def timed_rounds(
    works: Mapping[str, Work],
    rounds: int,
    device: torch.device,
    capturable: Mapping[str, bool],
    budget: float,
    clock: Clock = time.perf_counter,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Run everyone in every round, so that whatever else the machine does meets all alike.

    A contestant whose share of the budget is used up is left out of some rounds, evenly, but timed
    at least three times.

    Args:
        works: what to run, by contestant.
        rounds: how many.
        device: where the work is done.
        capturable: who can be captured in a CUDA graph.
        budget: seconds for all of it, roughly.
        clock: what plain calls on a processor are timed with.

    Returns:
        the milliseconds of each, and how each was timed: "graph", "calls", "processor" (calls, by
        processor time), or "calls: " and why it could not be captured.
    """
    cuda = device.type == "cuda"
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    timed = dict.fromkeys(works, "processor" if clock is time.process_time else "calls")
    kept: list[Any] = []  # a graph's results live as long as the graph is replayed
    strides = {}
    for name, work in works.items():
        work()
        began = time.perf_counter()
        work()
        if cuda:
            torch.cuda.synchronize()
        took = time.perf_counter() - began
        most = int(budget / len(works) / max(took, 1e-9))
        strides[name] = max(1, rounds // max(FEWEST, most))
        if cuda and capturable[name]:
            try:
                graphs[name] = captured(lambda work=work: kept.append(work()))  # type: ignore[misc]
                timed[name] = "graph"
            except RuntimeError as error:
                torch.cuda.synchronize()
                timed[name] = f"calls: {str(error).splitlines()[0]}"
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds):
        for name, work in works.items():
            if turn % strides[name]:
                continue
            if name in graphs:
                taken[name] += _between_events(graphs[name].replay, REPLAYS)
            elif cuda:
                taken[name] += _between_events(work, 1)
            else:
                began = clock()
                work()
                taken[name].append((clock() - began) * 1e3)
    return taken, timed


def _between_events(work: Work, times: int) -> list[float]:
    torch.cuda.synchronize()
    events = [_event() for _ in range(times + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in itertools.pairwise(events)]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def timed_phases(
    run: Callable[[Mark], object],
    device: torch.device,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
) -> list[tuple[str, float]]:
    """What ``run`` did between its marks, in milliseconds: (name, least of all repeats), in order.

    ``run`` must make the same marks every time. On a GPU it is held back until it has been asked
    for as a whole, so that the time between two marks is the device's own.
    """
    laps: list[list[float]] = []
    names: list[str] = []
    for turn in range(repeats + 1):
        marks: list[tuple[str, Any]] = []
        cuda = device.type == "cuda"

        def mark(name: str, marks: list[tuple[str, Any]] = marks, cuda: bool = cuda) -> None:
            if cuda:
                event = _event()
                event.record()
                marks.append((name, event))
            else:
                marks.append((name, clock()))

        if cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(60_000_000)  # type: ignore[no-untyped-call]  # about thirty ms
        mark("begin")
        run(mark)
        if cuda:
            torch.cuda.synchronize()
        if turn:
            names = [name for name, _ in marks[1:]]
            laps.append(
                [
                    begin.elapsed_time(end) if cuda else (end - begin) * 1e3
                    for (_, begin), (_, end) in itertools.pairwise(marks)
                ]
            )
    return [(name, min(lap)) for name, lap in zip(names, zip(*laps, strict=True), strict=True)]


def ceilings(device: torch.device, dtypes: Sequence[torch.dtype]) -> dict[str, float]:
    """What this machine does at most, measured here and now.

    Returns:
        ``bytes_per_s`` of a copy (read and written bytes), and per dtype ``flops_per_s:DTYPE`` of a
        square matrix product, as the backends' libraries do it.
    """
    cuda = device.type == "cuda"
    size = (1 << 28) if cuda else (1 << 25)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    found = {"bytes_per_s": 2 * size / _least_seconds(lambda: target.copy_(source), device)}
    side = 8192 if cuda else 768
    for dtype in dtypes:
        a = torch.ones((side, side), device=device, dtype=dtype)
        seconds = _least_seconds(lambda a=a: a @ a, device)  # type: ignore[misc]
        found[f"flops_per_s:{str(dtype).removeprefix('torch.')}"] = 2 * side**3 / seconds
    return found


def _least_seconds(work: Work, device: torch.device, repeats: int = 7) -> float:
    if device.type == "cuda":
        work()
        return min(_between_events(work, repeats)) / 1e3
    work()
    laps = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        laps.append(time.perf_counter() - began)
    return min(laps)
