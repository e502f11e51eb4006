"""CUDA-graph replays, timed with events; medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from beamsieve_backends.triton_slots import launch


def captured(work: Callable[[], object], warm_ups: int = 3) -> torch.cuda.CUDAGraph:
    """``work`` as one graph, after it has run (and compiled) outside of it."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_ups):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def replay_ms(graph: torch.cuda.CUDAGraph, replays: int = 60, warm_ups: int = 10) -> float:
    """The median time of one replay, in milliseconds."""
    for _ in range(warm_ups):
        graph.replay()
    pairs = []
    for _ in range(replays):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        graph.replay()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return float(statistics.median(begin.elapsed_time(end) for begin, end in pairs))


def measured_ms(work: Callable[[], object]) -> float:
    """Capture ``work`` and time its replays."""
    return replay_ms(captured(work))


def kernel_times(work: Callable[[], object], rounds: int = 5) -> list[tuple[str, float]]:
    """The kernels of ``work`` and the median microseconds of each, by the profiler.

    Triton's own are started without overlap, so that each time is that kernel's alone.
    """
    launch.EARLY = False
    try:
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(rounds):
                work()
            torch.cuda.synchronize()
    finally:
        launch.EARLY = True
    seen = [e for e in profile.events() if e.device_type == torch._C._autograd.DeviceType.CUDA]
    seen.sort(key=lambda event: event.time_range.start)
    each = len(seen) // rounds
    return [
        (
            seen[i].name[:24],
            round(
                statistics.median(
                    seen[i + each * r].time_range.elapsed_us() for r in range(rounds)
                ),
                1,
            ),
        )
        for i in range(each)
    ]
