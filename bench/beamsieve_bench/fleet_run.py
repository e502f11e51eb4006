"""Trainings of ``beamsieve_bench.fleet`` in turns, for as long as there is time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

import torch

from beamsieve_bench.fleet import Trainee


def train_all(
    trainees: Sequence[Trainee], seconds: float, say: Callable[[str], None] = lambda line: None
) -> None:
    """All of them in turns, until all are done or the time is up."""
    began = time.monotonic()
    gc.collect()
    gc.disable()  # what it frees on the device would end a capture
    try:
        for trainee in trainees:
            why = trainee.prepare()
            if why:
                say(f"{trainee.name}: not captured, its kernels are started one by one: {why}")
    finally:
        gc.enable()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what the rehearsals took; the graphs have memory of their own
    say(f"{len(trainees)} captured in {time.monotonic() - began:.1f} s")
    turn = 0
    while time.monotonic() - began < seconds and not all(t.done for t in trainees):
        passed = (time.monotonic() - began) / seconds
        for trainee in trainees:
            trainee.advance(8, passed)
        if turn % 4 == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()  # the host must not run far ahead of the clock
        turn += 1
    for trainee in trainees:
        trainee.finish()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    for trainee in trainees:
        say(f"{trainee.name}: {trainee.report()} at {time.monotonic() - began:.1f} s")
