"""One catalog of the matrix: all its cells, all contestants in turns."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import beamsieve as bs
from beamsieve_bench.console import say
from beamsieve_bench.gate import GateError
from beamsieve_bench.matrix_cells import Cell
from beamsieve_bench.matrix_contestants import (
    Baselines,
    Contestant,
    backend_contestant,
    draw_inputs,
    valid_tokens,
)
from beamsieve_bench.matrix_gate import open_engine, right_on_the_catalog
from beamsieve_bench.matrix_rows import Row, quantiles, reproduce_line
from beamsieve_bench.matrix_sources import Source
from beamsieve_bench.matrix_timing import Clock, timed_phases, timed_rounds
from beamsieve_bench.matrix_work import least_work
from beamsieve_bench.stage_search import Inputs

PHASES = ("filter", "project", "select", "step")


@dataclass(frozen=True)
class Settings:
    """What holds for all catalogs.

    Attributes:
        backends: config strings, devices included.
        device: where to measure.
        hidden: size of hidden states.
        rounds: how often each contestant is timed.
        budget: seconds per cell, roughly.
        ceilings: what the machine can do.
        without: baselines to leave out.
        clock: what plain calls on a processor are timed with.
        deadline: of ``time.monotonic``: no cell begins later.
        keep_going: whether what fails is noted and left out, in place of ending the run.
        timing: the options that say how it is timed, for the reproduce lines.
    """

    backends: Sequence[str]
    device: torch.device
    hidden: int
    rounds: int
    budget: float
    ceilings: Mapping[str, float]
    without: frozenset[str]
    clock: Clock
    deadline: float
    keep_going: bool
    timing: Mapping[str, object]


@dataclass
class Found:
    """What one catalog brought."""

    rows: list[Row] = field(default_factory=list)
    absent: list[dict[str, str]] = field(default_factory=list)
    gate: dict[str, str] = field(default_factory=dict)
    failed: bool = False
    """Whether something that should have been measured could not."""

    def fail(self, contestant: str, workload: str, reason: str) -> None:
        """Note what went wrong."""
        self.failed = True
        self.miss(contestant, workload, reason)

    def miss(self, contestant: str, workload: str, reason: str) -> None:
        """Note what was not measured."""
        note = missed(contestant, workload, reason)
        if note not in self.absent:
            self.absent.append(note)


def missed(contestant: str, workload: str, reason: str) -> dict[str, str]:
    """What was not measured, and why."""
    return {"contestant": contestant, "workload": workload, "reason": reason}


def measure_catalog(source: Source, cells: Sequence[Cell], settings: Settings) -> Found:
    """The gate on this catalog, then all its cells.

    Raises:
        GateError: a backend's results are not those of the baseline.
        BackendError: a backend cannot serve the catalog.
    """
    found = Found()
    if _too_late(settings, source, found):
        return found
    baselines = Baselines(source, settings.device, settings.without)
    for config in settings.backends:
        say(f"{source.name}: checking {config}")
        try:
            found.gate[config] = right_on_the_catalog(config, source, baselines, settings.device)
        except GateError as error:
            if not settings.keep_going:
                raise
            found.fail(config, source.name, str(error))
    engines: dict[tuple[str, str], bs.Engine] = {}
    for number, cell in enumerate(cells, 1):
        if _too_late(settings, source, found):
            break
        say(f"{source.name}: cell {number} of {len(cells)}")
        serving = []
        for config in found.gate:
            at = (config, cell.normalize)
            if at not in engines:
                engines[at] = open_engine(config, source, cell.normalize)
            why = why_not(engines[at], source, cell)
            if why:
                found.miss(config, source.name, why)
            else:
                serving.append((config, engines[at]))
        if not serving:
            continue
        try:
            measure_cell(source, cell, serving, baselines, settings, found, _detailed(cell, cells))
        except (GateError, RuntimeError) as error:
            if not settings.keep_going:
                raise
            for config, _ in serving:
                found.fail(config, source.name, f"{cell}: {' '.join(str(error).split())[:300]}")
    return found


def _too_late(settings: Settings, source: Source, found: Found) -> bool:
    late = time.monotonic() > settings.deadline
    if late:
        for config in settings.backends:
            found.miss(config, source.name, "cells were left when the time of --limit was over")
    return late


def _detailed(cell: Cell, cells: Iterable[Cell]) -> bool:
    """Whether a cell is the largest of its kind in the grid, which is then taken apart."""
    if "grid" not in cell.sweep or not cell.with_baselines:
        return False
    like = [other for other in cells if "grid" in other.sweep and other.dtype == cell.dtype]
    return cell.batch * cell.width == max(other.batch * other.width for other in like)


def why_not(engine: bs.Engine, source: Source, cell: Cell) -> str:
    """Why a backend cannot serve this cell; empty where it can."""
    can = engine.capabilities
    if cell.dtype not in can.dtypes:
        return f"takes no {cell.dtype}"
    if cell.normalize not in can.normalizers:
        return f"has not the normalizer {cell.normalize!r}"
    if can.largest_width is not None and cell.width > can.largest_width:
        return f"keeps at most {can.largest_width} beams per request"
    if cell.share is not None and "bits" not in can.targeting:
        return "has no targeting by bits"
    if cell.share is not None and cell.share not in source.shares:
        return f"the catalog has no targeting share {cell.share:g}"
    return ""


def measure_cell(
    source: Source,
    cell: Cell,
    serving: Sequence[tuple[str, bs.Engine]],
    baselines: Baselines,
    settings: Settings,
    found: Found,
    detailed: bool,
) -> None:
    """All contestants of one cell, in turns; their rows go to ``found``.

    Raises:
        GateError: a contestant's time came out as nothing.
    """
    inputs = draw_inputs(source, cell, settings.hidden, settings.device)
    running = [backend_contestant(asked, engine, source, cell, inputs) for asked, engine in serving]
    valid = valid_tokens(serving[0][1], inputs)
    if cell.with_baselines:
        more, reasons = baselines.of(cell, inputs, max(valid))
        running += more
        for name, why in reasons.items():
            found.miss(name, source.name, why)
    taken, timed = timed_rounds(
        {one.name: one.run for one in running},
        settings.rounds,
        settings.device,
        {one.name: one.capturable for one in running},
        settings.budget,
        settings.clock,
    )
    for one in running:
        if not taken[one.name] or min(taken[one.name]) <= 0:
            raise GateError(f"{one.name} took no time in {cell}; nothing was measured.")
        phases = _by_phase(one, settings) if detailed else {}
        times = taken[one.name]
        found.rows.append(
            _row(source, cell, settings, one, times, timed[one.name], valid, phases, inputs)
        )


def _by_phase(one: Contestant, settings: Settings) -> dict[str, list[float]]:
    """Per phase and step, its milliseconds; a backend's projection without the filter before it."""
    laps: dict[str, list[float]] = {name: [] for name in PHASES}
    pending: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for name, milliseconds in timed_phases(one.phases, settings.device, clock=settings.clock):
        if not name:
            continue
        pending[name] += milliseconds
        if name == ("step" if one.kind == "backend" else "select"):
            if one.kind == "backend":
                pending["project"] = max(0.0, pending["project"] - pending["filter"])
            for phase in PHASES:
                laps[phase].append(float(f"{pending[phase]:.5g}"))
            pending = dict.fromkeys(PHASES, 0.0)
    if one.kind == "baseline":
        laps["step"] = []
    return {f"{phase}_ms": times for phase, times in laps.items()}


def _row(
    source: Source,
    cell: Cell,
    settings: Settings,
    one: Contestant,
    times: Sequence[float],
    timed: str,
    valid: Sequence[int],
    phases: dict[str, list[float]],
    inputs: Inputs,
) -> Row:
    p20, p50, p80 = quantiles(times)
    flops, moved = least_work(
        cell, source.codebooks, settings.hidden, valid, one.full, one.kind == "baseline"
    )
    limits = settings.ceilings
    values: dict[str, Any] = dict(phases)
    return Row(
        contestant=one.name,
        asked=one.asked,
        kind=one.kind,
        device=str(settings.device),
        workload=source.name,
        items=source.index.leaf_count,
        vocabulary=max(source.codebooks),
        length=len(source.codebooks),
        batch=cell.batch,
        width=cell.width,
        hidden=settings.hidden,
        dtype=cell.dtype,
        normalize=cell.normalize if one.kind == "backend" else "own",
        share=cell.share,
        sweep=cell.sweep,
        timed=timed.partition(":")[0],
        rounds=len(times),
        p20=p20,
        p50=p50,
        p80=p80,
        index_bytes=one.index_bytes,
        flops=flops,
        bytes_moved=moved,
        flop_share=_share(flops, p50, limits[f"flops_per_s:{cell.dtype}"]),
        bandwidth_share=_share(moved, p50, limits["bytes_per_s"]),
        note="; ".join(filter(None, (one.note, timed.partition(": ")[2]))),
        reproduce=reproduce_line(
            settings.backends[0] if one.kind == "baseline" else one.asked,
            cell,
            str(settings.device),
            settings.hidden,
            settings.rounds,
            settings.timing,
        ),
        **values,
    )


def _share(work: int, milliseconds: float, ceiling: float) -> float:
    return float(f"{work / (milliseconds / 1e3) / ceiling:.4g}")
