"""Backends beside baselines, over catalogs and shapes: which one for this catalog on this machine?

    beamsieve bench matrix --backends torch --device cpu --quick --output report.html
    beamsieve bench matrix --backends triton,cupy --device cuda --workloads Z1,Z3 --output run.json
    beamsieve bench matrix --backends torch --workloads items.safetensors --output run.csv

Every backend must first pass the conformance suite on that device, then decode each measured
catalog as a baseline does that shares no code with it; one that does not, or that is not what was
asked for, ends the run. A search is filter, projection and selection of all levels from fixed
inputs, without its model and without 'begin'. Times are quantiles over rounds in which all
contestants take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import beamsieve as bs
from beamsieve_bench.console import (
    BAD_ARGUMENTS,
    FAILED,
    OneLineParser,
    complain,
    say,
    warn_of_load,
)
from beamsieve_bench.gate import GateError
from beamsieve_bench.matrix_cells import NORMALIZERS, SWEEPS, Cell, cells, preset
from beamsieve_bench.matrix_contestants import BASELINES
from beamsieve_bench.matrix_gate import passed_the_suite, resolved, right_on_the_specification
from beamsieve_bench.matrix_measure import Settings, measure_catalog, missed
from beamsieve_bench.matrix_rows import Run, machine
from beamsieve_bench.matrix_sources import (
    Preparation,
    real_catalogs,
    state_folder,
    what_is_named,
)
from beamsieve_bench.matrix_timing import ceilings
from beamsieve_bench.stage_search import DTYPES

WRITTEN = (".json", ".csv", ".html", ".svg", ".png")


def measure(options: argparse.Namespace) -> Run:
    """The whole matrix.

    Raises:
        GateError: a backend is not right, or nothing was measured.
        BeamsieveError: a backend or a catalog is not there.
    """
    began = time.monotonic()
    device = torch.device(options.device)
    backends = [resolved(asked, options.device) for asked in options.backends]
    dtypes = [DTYPES[name] for name in options.dtypes]
    by_workload: dict[str, list[Cell]] = {}
    for cell in options.cells:
        by_workload.setdefault(cell.workload, []).append(cell)
    for workload in by_workload:  # before the suites, which take a minute
        what_is_named(workload, options.data)
    kept = None if options.keep is None else state_folder(options.keep)
    preparation = Preparation(list(by_workload), options.data, options.processes, kept)
    with preparation as sources:
        say("holding the backends to the specification")
        passed, red = passed_the_suite(
            backends, options.record, options.processes, options.suite, kept
        )
        absent = [missed(config, "every", why) for config, why in red.items()]
        options.failed = bool(red)
        if red and (not options.keep_going or not passed):
            raise GateError(" ".join(red.values()))
        gate = {
            config: [how, right_on_the_specification(config, options.normalizers, device)]
            for config, how in passed.items()
        }
        say("measuring what the machine can do")
        limits = ceilings(device, dtypes)
        settings = Settings(
            backends=list(passed),
            device=device,
            hidden=options.hidden,
            rounds=options.rounds,
            budget=options.budget,
            ceilings=limits,
            without=frozenset(options.without),
            clock=time.process_time if options.clock == "processor" else time.perf_counter,
            deadline=began + options.limit,
            keep_going=options.keep_going,
            timing=_timing(options),
        )
        run = Run(machine(device, options.commit), limits, gate, [], absent)
        for source in sources:
            found = measure_catalog(source, by_workload[source.name], settings)
            run.rows.extend(found.rows)
            run.absent.extend(found.absent)
            options.failed |= found.failed
            for config, how in found.gate.items():
                gate[config].append(f"{source.name}: {how}")
            if any(row.kind == "backend" for row in run.rows):
                for path in options.output:  # so that a run that is killed leaves what it had
                    if path.suffix == ".json":
                        run.write(path)
    say("")
    if not any(row.kind == "backend" for row in run.rows):
        reasons = "; ".join(sorted({each["reason"] for each in absent})) or "no cell was named"
        raise GateError(f"No backend was measured in any cell, so there is no result ({reasons}).")
    return run


def _timing(options: argparse.Namespace) -> dict[str, object]:
    """The options of the clock that were given, for the reproduce lines."""
    given = {"budget": options.budget, "threads": options.threads, "clock": options.clock}
    return {name: value for name, value in given.items() if value not in (None, "wall")}


def show(run: Run) -> str:
    """The rows as a table, cell by cell."""
    place = f"{run.machine['device_name']}, {run.machine['device']}, commit {run.machine['commit']}"
    lines = [place, f"{'':24}{'p50 ms':>10}{'p20':>10}{'p80':>10}  timed"]
    before = ""
    for row in run.rows:
        share = "" if row.share is None else f", share {row.share:g}"
        cell = (
            f"{row.workload}: {row.batch} × {row.width}, {row.dtype}, {row.normalize}{share}"
            f" ({row.sweep})"
        )
        if cell != before:
            lines.append(cell)
            before = cell
        lines.append(
            f"  {row.contestant:22}{row.p50:10.3f}{row.p20:10.3f}{row.p80:10.3f}  {row.timed}"
        )
    reasons = dict.fromkeys(f"{each['contestant']}: {each['reason']}" for each in run.absent)
    return "\n".join([*lines, *(f"absent: {reason}" for reason in reasons)])


def write(run: Run, path: Path) -> None:
    """Write the run as the name ends: the data, the report, or a picture of the matrix."""
    if path.suffix in (".json", ".csv"):
        run.write(path)
        return
    from beamsieve_bench.matrix_report import picture, report

    if path.suffix == ".html":
        path.write_text(report(run), encoding="utf-8")
    else:
        picture(run, path)


def parser() -> OneLineParser:
    """The options; lists are comma-separated."""
    made = OneLineParser(
        prog="beamsieve bench matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--backends", default="torch", metavar="LIST", help="names or config strings (torch)")
    add("--workloads", metavar="LIST", help="catalogs: Z1, skewed:NxVxL, uniform:NxVxL, "
        "hub:NxVxL, real:NAME, or a path")  # fmt: skip
    add("--device", default="cpu", help="cpu, cuda or cuda:N (cpu)")
    add("--quick", action="store_true", help="small catalogs, few rounds: under a minute, "
        "the suite before it aside")  # fmt: skip
    add("--output", type=Path, action="append", default=[], metavar="FILE",
        help=f"may be repeated; {', '.join(WRITTEN)}")  # fmt: skip
    add("--batches", metavar="LIST", help="requests")
    add("--widths", metavar="LIST", help="beams per request")
    add("--dtypes", metavar="LIST", help=", ".join(DTYPES))
    add("--normalizers", default="catalog", metavar="LIST", help=", ".join(NORMALIZERS))
    add("--shares", default="none", metavar="LIST", help="parts of the items that targeting lets "
        "through: none, 1, 0.1, 0.01")  # fmt: skip
    add("--sweeps", metavar="LIST", help=f"none, or of {', '.join(SWEEPS)} (all, unless workloads "
        f"are named)")  # fmt: skip
    add("--without", default="", metavar="LIST", help="baselines to leave out")
    add("--hidden", type=int, help="size of hidden states")
    add("--rounds", type=int, help="how often each contestant is timed")
    add("--budget", type=float, help="seconds per cell, roughly")
    add("--clock", choices=("wall", "processor"), default="wall", help="processor: time that this "
        "process spent, where the machine has other work; with one thread")  # fmt: skip
    add("--threads", type=int, help="PyTorch's threads on the CPU")
    add("--keep-going", action="store_true", help="leave out what is not right or breaks, "
        "in place of ending; the exit code is 1 all the same")  # fmt: skip
    add("--suite", type=float, default=math.inf, help="seconds that a conformance suite may take")
    add("--keep", type=Path, metavar="FOLDER", help="keep made catalogs and passed suites there, "
        "and take what is there of this very code")  # fmt: skip
    add("--limit", type=float, default=math.inf, help="seconds after which no cell begins")
    add("--processes", type=int, default=1, help="that make catalogs and run gates (1)")
    add("--data", type=Path, help="folder with real catalogs (NAME.index.json)")
    add("--record", type=Path, action="append", default=[], metavar="FILE",
        help="a conformance record: spares the suite where it is of this very state")  # fmt: skip
    add("--commit", help="what to call the measured code, where it is no checkout")
    add("--json", action="store_true", help="print the whole run as JSON")
    return made


def understood(asked: OneLineParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options with everything filled in; ends with exit code 2 where they are wrong."""
    options = asked.parse_args(arguments)
    around = preset(options.quick, options.device)
    named = options.workloads is not None
    real = [] if named else list(real_catalogs(options.data))
    options.workloads = _words(options.workloads) if named else [*around.workloads, *real]
    options.backends = _words(options.backends)
    options.without = _choices(asked, "without", options.without, (), BASELINES)
    options.dtypes = _choices(asked, "dtypes", options.dtypes, around.dtypes, tuple(DTYPES))
    options.normalizers = _choices(asked, "normalizers", options.normalizers, (), NORMALIZERS)
    sweeps = () if named else SWEEPS
    options.sweeps = _choices(asked, "sweeps", options.sweeps, sweeps, (*SWEEPS, "none"))
    options.sweeps = [sweep for sweep in options.sweeps if sweep != "none"]
    batches = _numbers(asked, "batches", options.batches, around.batches)
    widths = _numbers(asked, "widths", options.widths, around.widths)
    shares = [None if word == "none" else _share(asked, word) for word in _words(options.shares)]
    defaults = {"hidden": around.hidden, "rounds": around.rounds}
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.budget is None:
        options.budget = 0.4 if options.quick else 2.0 if options.device != "cpu" else 20.0
    for name in ("hidden", "rounds", "threads", "processes"):
        value = getattr(options, name)
        if value is not None and value < 1:
            asked.error(f"--{name} is {value}; it must be at least 1")
    if options.clock == "processor" and (options.device != "cpu" or options.threads != 1):
        asked.error("--clock processor is for --device cpu --threads 1")
    if not options.backends or not options.workloads:
        asked.error("at least one backend and one workload must be named")
    if not options.device.startswith(("cpu", "cuda")):
        asked.error(f"--device is {options.device!r}; it must be cpu, cuda or cuda:N")
    for path in options.output:
        if path.suffix not in WRITTEN:
            asked.error(f"--output {path} must end in one of {', '.join(WRITTEN)}")
        if not path.parent.is_dir():
            asked.error(f"--output: the folder {path.parent} does not exist")
    options.cells = cells(
        options.workloads, batches, widths, options.dtypes, options.normalizers, shares,
        options.sweeps, around,
    )  # fmt: skip
    return options


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _choices(
    asked: OneLineParser, name: str, text: str | None, default: Sequence[str], known: Sequence[str]
) -> list[str]:
    words = list(default) if text is None else _words(text)
    for word in words:
        if word not in known:
            asked.error(f"--{name}: {word!r} is none of {', '.join(known)}")
    return words


def _numbers(
    asked: OneLineParser, name: str, text: str | None, default: Sequence[int]
) -> list[int]:
    words = [str(value) for value in default] if text is None else _words(text)
    if not words or not all(word.isdecimal() and int(word) for word in words):
        asked.error(f"--{name} is {text!r}; give whole numbers from 1 on, such as 1,8")
    return [int(word) for word in words]


def _share(asked: OneLineParser, word: str) -> float:
    try:
        share = float(word)
    except ValueError:
        asked.error(f"--shares: {word!r} is no number")
    if not 0 < share <= 1:
        asked.error(f"--shares: {word} is no part; give none, or a number above 0 up to 1")
    return share


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 0, 1 when it failed, 2 for bad arguments."""
    options = understood(parser(), arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.device == "cpu" and options.clock == "wall":  # before the suites, which are work too
        warn_of_load(torch.get_num_threads(), "--threads 1 --clock processor counts its own time.")
    try:
        run = measure(options)
        for path in options.output:
            write(run, path)
    except (bs.BeamsieveError, GateError) as error:
        complain(str(error))
        return BAD_ARGUMENTS if isinstance(error, bs.BackendError | bs.InputError) else FAILED
    print(json.dumps(run.as_dict()) if options.json else show(run))
    return FAILED if options.failed else 0


if __name__ == "__main__":
    sys.exit(main())
