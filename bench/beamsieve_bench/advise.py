"""Which config string to use for an index on this machine, measured and not guessed.

    beamsieve bench advise items.safetensors
    beamsieve bench advise items.safetensors --batch 32 --width 512 --dtype bfloat16

Every backend that is installed and can run here decodes the index: one request, and the batch that
is asked for. Each is first held against the specification on a small catalog, and against a
baseline on this index; 'beamsieve conformance' holds it to all the rest. What is printed is the
config string that was fastest for the batch, why, and by how much.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import beamsieve as bs
from beamsieve.registry import BackendSpec, list_backends, open_backend
from beamsieve_bench.console import BAD_ARGUMENTS, FAILED, OneLineParser, complain, say
from beamsieve_bench.gate import GateError
from beamsieve_bench.matrix_cells import NORMALIZERS, Cell
from beamsieve_bench.matrix_contestants import Baselines, backend_contestant, draw_inputs
from beamsieve_bench.matrix_gate import (
    open_engine,
    resolved,
    right_on_the_catalog,
    right_on_the_specification,
)
from beamsieve_bench.matrix_measure import why_not
from beamsieve_bench.matrix_rows import quantiles
from beamsieve_bench.matrix_sources import Source, read_source
from beamsieve_bench.matrix_timing import timed_rounds
from beamsieve_bench.stage_search import DTYPES

NOT_FOR_SPEED = "reference"
"""The specification as a backend: measured only where it is named, or nothing else is there."""


@dataclass(frozen=True)
class Candidate:
    """One config string.

    Attributes:
        config: what opens it.
        one: (p20, p50, p80) milliseconds per search of one request.
        batch: the same of the whole batch.
        projections: per step, which the plan took.
        index_bytes: its tables on the device.
        timed: "graph" or "calls".
    """

    config: str
    one: tuple[float, float, float]
    batch: tuple[float, float, float]
    projections: tuple[str, ...]
    index_bytes: int | None
    timed: str


def configs(named: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The config strings to try, and for the backends that cannot be used the reason."""
    if named:
        return [resolved(one, _own_device(one)) for one in named], {}
    found = list_backends(True)
    usable = [info for info in found if not info.error]
    fast = [info for info in usable if info.name != NOT_FOR_SPEED] or usable
    return (
        [f"{info.name}:{device}" for info in fast for device in info.devices],
        {info.name: info.error for info in found if info.error},
    )


def _own_device(config: str) -> str:
    """The device that a config string opens on; any for "auto", which is refused in any case."""
    named = BackendSpec.parse(config).name != "auto"
    return open_backend(config)[0].device if named else "cpu"


def measured(config: str, source: Source, options: argparse.Namespace) -> Candidate:
    """The two cells of one config string, gate first.

    Raises:
        GateError: its results are not right.
        BackendError: it cannot serve the index.
    """
    engine = open_engine(config, source, options.normalize)
    device = torch.device(engine.device)
    right_on_the_specification(config, [options.normalize], device)
    right_on_the_catalog(config, source, Baselines(source, device, frozenset()), device)
    times: list[tuple[float, float, float]] = []
    made, how = None, ""
    for batch in (1, options.batch):
        cell = Cell(source.name, batch, options.width, options.dtype, options.normalize)
        why = why_not(engine, source, cell)
        if why:
            raise bs.BackendError(f"{config} {why}.")
        inputs = draw_inputs(source, cell, options.hidden, device)
        requests = None if options.request is None else [options.request] * batch
        made = backend_contestant(config, engine, source, cell, inputs, requests)
        taken, timed = timed_rounds(
            {config: made.run}, options.rounds, device, {config: made.capturable}, 5.0
        )
        times.append(quantiles(taken[config]))
        how = timed[config]
    assert made is not None
    assert engine.plan is not None
    one, whole = times
    return Candidate(config, one, whole, engine.plan.steps, made.index_bytes, how)


def advice(found: Sequence[Candidate], options: argparse.Namespace) -> tuple[str, str]:
    """The config string to use, and why."""
    ranked = sorted(found, key=lambda one: one.batch[1])
    best = ranked[0]
    shape = f"{options.batch} × {options.width} beams, {options.dtype}"
    if options.request is not None:
        shape += f", each asking for {json.dumps(options.request)}"
    reasons = [f"{best.batch[1]:.3g} ms per search of {shape}"]
    if len(ranked) > 1:
        second = ranked[1]
        reasons.append(
            f"{second.batch[1] / best.batch[1]:.2f} times as fast as {second.config}, the next best"
        )
        if best.batch[2] > second.batch[0]:
            reasons.append("but their spreads overlap, so the difference may be chance")
        alone = min(found, key=lambda one: one.one[1])
        if alone is not best:
            reasons.append(
                f"for one request alone {alone.config} is faster ({alone.one[1]:.3g} ms, here "
                f"{best.one[1]:.3g})"
            )
    else:
        reasons.append("the only one that can run here")
    reasons.append(f"warm_up takes the projections {', '.join(best.projections)}, step by step")
    return best.config, "; ".join(reasons) + "."


def _request(text: str) -> dict[str, Any]:
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(request, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is no object, such as {{"country": "US"}}')
    return request


def parser() -> OneLineParser:
    """The options."""
    made = OneLineParser(
        prog="beamsieve bench advise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("index", help="an index, a catalog, or a workload of 'beamsieve bench matrix'")
    add("--backends", default="", metavar="LIST", help="config strings (all that can run here)")
    add("--batch", type=int, default=8, help="requests (default: %(default)s)")
    add("--width", type=int, default=128, help="beams per request (default: %(default)s)")
    add("--dtype", default="float32", choices=sorted(DTYPES))
    add("--normalize", default="catalog", choices=NORMALIZERS)
    add("--request", type=_request, metavar="JSON", help="what every request asks for, where items "
        'have rules: {"country": "US"} (default: no targeting)')  # fmt: skip
    add("--hidden", type=int, default=256, help="size of hidden states (default: %(default)s)")
    add("--rounds", type=int, default=15, help="how often each is timed (default: %(default)s)")
    add("--data", type=Path, help="folder with real catalogs")
    add("--json", action="store_true", help="print one JSON object")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and advise; 1 when nothing could be measured, 2 for bad arguments."""
    asked = parser()
    options = asked.parse_args(arguments)
    for name in ("batch", "width", "hidden", "rounds"):
        if getattr(options, name) < 1:
            asked.error(f"--{name} is {getattr(options, name)}; it must be at least 1")
    found: list[Candidate] = []
    try:
        tried, unusable = configs([one for one in options.backends.split(",") if one])
        say("reading the index")
        source = read_source(options.index, options.data)
        if options.request is not None:
            source.index.encode_requests([options.request], 1)
    except bs.BeamsieveError as error:
        complain(str(error))
        return BAD_ARGUMENTS if isinstance(error, bs.BackendError | bs.InputError) else FAILED
    for config in tried:
        say(f"measuring {config}")
        try:
            found.append(measured(config, source, options))
        except (bs.BackendError, GateError) as error:
            unusable[config] = str(error)
    say("")
    if not found:
        reasons = "; ".join(f"{name}: {why}" for name, why in unusable.items())
        complain(f"No backend could be measured, so there is no advice ({reasons}).")
        return FAILED
    best, why = advice(found, options)
    if options.json:
        told: dict[str, Any] = {"config": best, "why": why, "unusable": unusable}
        print(json.dumps(told | {"measured": [asdict(one) for one in found]}))
        return 0
    print(f"{'':20}{'1 request':>12}{'p20 to p80':>18}{'batch':>12}{'p20 to p80':>18}  ms")
    for one in sorted(found, key=lambda one: one.batch[1]):
        cells = "".join(
            f"{p50:12.3f}{f'{p20:.3f} to {p80:.3f}':>18}" for p20, p50, p80 in (one.one, one.batch)
        )
        print(f"{one.config:20}{cells}  {one.timed}")
    for name, reason in unusable.items():
        print(f"{name:20}  not measured: {reason}")
    print(f'\nUse backend="{best}": {why}')
    return 0


if __name__ == "__main__":
    sys.exit(main())
