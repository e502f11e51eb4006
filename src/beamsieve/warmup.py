"""Measuring a plan: every projection of every step, timed on the device that will serve."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from beamsieve import checks
from beamsieve.interface import Backend, Beams, Normalize, Projection, StepInputs
from beamsieve.plan import Plan


def measured_plan(
    backend: Backend,
    normalize: Normalize,
    beams: Beams,
    widths: Sequence[int],
    head: Any,
    repeats: int,
) -> Plan:
    """The plan of the fastest projections; arguments and errors as ``Engine.warm_up`` says.

    Args:
        backend: what serves.
        normalize: the engine's normalizer.
        beams: from ``begin``.
        widths: one per level that is left.
        head: [V, d], or one such per level that is left.
        repeats: how often each step is timed.
    """
    index, batch, start = beams.search.index, beams.search.batch, beams.step
    levels = index.length - start
    widths = checks.widths_for(backend, widths, levels, batch)
    heads = checks.heads_for(backend, head, levels)
    chooser = np.random.default_rng(0)
    dtype, size = "", 0
    steps: list[Projection] = []
    timings = []
    for width, given in zip(widths, heads, strict=True):
        table = checks.level_head(backend, beams, given)
        picks = chooser.integers(0, table.shape[0], batch * beams.width)
        dtype, size = checks.dtype_name(table), int(table.shape[-1])
        hidden = table[picks.tolist()].reshape(batch, beams.width, size)
        inputs = checks.step_inputs(backend, beams, width, hidden, given, None, None, None, None)
        timed = _timed(backend, normalize, beams, inputs, repeats)
        steps.append(min(timed, key=lambda projection: timed[projection]))
        timings.append({str(name): seconds * 1e3 for name, seconds in timed.items()})
        beams = backend.step(beams, replace(inputs, projection=steps[-1]), normalize)
    return Plan(
        backend.name,
        backend.device,
        backend.device_name,
        index.fingerprint,
        normalize,
        dtype,
        size,
        batch,
        start,
        tuple(widths),
        tuple(steps),
        tuple(timings),
    )


def _timed(
    backend: Backend, normalize: Normalize, beams: Beams, inputs: StepInputs, repeats: int
) -> dict[Projection, float]:
    """The median seconds of each projection that can serve this step, measured in turns."""
    projections = backend.projections_for(beams, inputs, normalize)
    seconds: dict[Projection, list[float]] = {projection: [] for projection in projections}
    for turn in range(repeats + 1):
        for projection, taken in seconds.items():
            chosen = replace(inputs, projection=projection)
            once = backend.seconds(partial(backend.step, beams, chosen, normalize))
            if turn:  # the first turn warms caches and allocators
                taken.append(once)
    return {projection: statistics.median(taken) for projection, taken in seconds.items()}
