"""Who may be measured: a backend that is what was asked for, and just passed the suite here."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

import beamsieve as bs
from beamsieve.errors import BackendError, BeamsieveError
from beamsieve.registry import BackendSpec, open_backend
from beamsieve_bench.gate import GateError, agrees_with_baseline, agrees_with_specification
from beamsieve_bench.matrix_cells import Cell
from beamsieve_bench.matrix_contestants import Baselines, draw_inputs
from beamsieve_bench.matrix_sources import Source
from beamsieve_conformance.records import facts, package_folder, sha256
from beamsieve_conformance.subject import Subject


def resolved(asked: str, device: str) -> str:
    """The config string that ``asked`` opens on ``device``.

    Raises:
        BackendError: it cannot be opened, "auto" was asked for, or something else answered.
    """
    wanted = BackendSpec.parse(asked)
    if wanted.name == "auto":
        raise BackendError(
            "auto is no backend to measure: which one to take is what the matrix is to answer. "
            "Name them, such as --backends torch,triton,cupy."
        )
    if wanted.device is None:
        wanted = replace(wanted, device=device)
    backend, opened = open_backend(str(wanted))
    check_not_fallen_back(str(wanted), str(opened), backend.device)
    return str(opened)


def check_not_fallen_back(asked: str, answered: str, device: str) -> None:
    """Compare what runs with what was asked for.

    Raises:
        BackendError: another backend, or another device.
    """
    wanted, opened = BackendSpec.parse(asked), BackendSpec.parse(answered)
    if wanted.name != opened.name or not device.startswith(wanted.device or ""):
        raise BackendError(
            f"{asked} was asked for, and {answered} on {device} answered; nothing is measured."
        )


_LOOK = 0.2
"""Seconds after which a suite's end may be asked for again."""
_SUITE = """
import sys
from beamsieve_conformance import run
sys.exit(run(sys.argv[1], quick=True, processes=int(sys.argv[2])))
"""


def passed_the_suite(
    configs: Sequence[str],
    records: Sequence[Path],
    processes: int,
    seconds: float,
    kept: Path | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Hold each backend to the conformance suite, or find that a record of this very state does.

    A record counts where device, hardware, versions and the hashes of all kernel sources are those
    of now; a backend without kernel sources is always run. The suite runs in a process of its own,
    so many at once as may be.

    Args:
        configs: the backends.
        records: files of ``beamsieve conformance --record``.
        processes: what all suites together may use; they run at once where there is one for each.
        seconds: how long one may take.
        kept: a folder of :func:`beamsieve_bench.matrix_sources.state_folder`, where a suite that
            was passed is noted, and found again.

    Returns:
        how each was found right, and for the others why they may not be measured.
    """

    broken_off = threading.Event()

    def outcome(config: str) -> tuple[str, str]:
        subject = Subject.open(config)
        for path in records:
            if _holds(path, subject):
                return f"as the record {path.name} of this state says", ""
        note = None if kept is None else kept / f"{config.replace(':', '-')}.{_facts(subject)}.gate"
        if note is not None and note.is_file():
            return note.read_text("utf-8"), ""
        each = max(1, processes // len(configs))
        code, report = run_suite(config, seconds, each, broken_off)
        lines = report.strip().splitlines()
        if code == 0:
            how = f"conformance --quick: {lines[-1].strip('= ')}"
            if note is not None:
                note.write_text(how, "utf-8")
            return how, ""
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "beamsieve:"))]
        return "", (
            f"{config} fails the conformance suite, so it is not measured; see "
            f"'beamsieve conformance {config} --quick'. {' '.join((failed or lines)[:3])}"
        )

    with ThreadPoolExecutor(processes) as pool:
        try:
            found = dict(zip(configs, pool.map(outcome, configs), strict=True))
        except BaseException:  # Ctrl-C too: the block's end waits for what has begun
            broken_off.set()
            raise
    right = {config: how for config, (how, _) in found.items() if how}
    return right, {config: why for config, (_, why) in found.items() if why}


def _facts(subject: Subject) -> str:
    """Device and versions, as a part of a file's name, whatever else has been imported."""
    found = facts(subject)
    for other in {"triton", "cupy"} - {subject.name}:
        found["versions"].pop(other, None)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def run_suite(
    config: str, seconds: float, processes: int, broken_off: threading.Event
) -> tuple[int, str]:
    """The quick suite's exit code and its report; code 124 where the time was not enough.

    Once ``broken_off`` is set the suite is ended.
    """
    suite = subprocess.Popen(
        [sys.executable, "-c", _SUITE, config, str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + seconds
    while True:
        try:
            report, complaints = suite.communicate(timeout=_LOOK)
            return suite.returncode, f"{complaints}\n{report}"
        except subprocess.TimeoutExpired:
            if not broken_off.is_set() and time.monotonic() < deadline:
                continue
        # Its pipes are not read to their end: workers of its own may hold them a while longer.
        suite.kill()
        suite.wait()
        for pipe in (suite.stdout, suite.stderr):
            assert pipe is not None
            pipe.close()
        return 124, f"ERROR the suite was not through after {seconds:.0f} s"


def _holds(path: Path, subject: Subject) -> bool:
    if not path.is_file() or not subject.kernel_sources:
        return False
    try:
        found = json.loads(path.read_text("utf-8"))["runs"].get(subject.name)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False  # some other file
    if found is None or found["counts"]["failed"] or not found["counts"]["passed"]:
        return False
    now = facts(subject)
    folder = package_folder(subject.package.partition(".")[0])
    return (
        all(found[name] == now[name] for name in ("device", "hardware"))
        and all(now["versions"].get(name, made) == made for name, made in found["versions"].items())
        and found["kernels"] == {name: sha256(folder / name) for name in subject.kernel_sources}
    )


def right_on_the_specification(
    config: str, normalizers: Sequence[str], device: torch.device
) -> str:
    """Every normalizer on a small catalog against the specification.

    Raises:
        GateError: a result differs by more than rounding.
    """
    return "; ".join(
        f"{normalize}: {agrees_with_specification(config, normalize, device)}"
        for normalize in normalizers
    )


def right_on_the_catalog(
    config: str, source: Source, baselines: Baselines, device: torch.device
) -> str:
    """Scoring first, the measured catalog's results against a baseline that shares no code.

    Raises:
        GateError: a result differs by more than rounding.
    """
    why = baselines.no_score_first()
    if why:
        return f"not compared with the score-first decode: {why}"
    cell = Cell(source.name, 2, 32, "float32")
    inputs = draw_inputs(source, cell, 32, device)
    try:
        return agrees_with_baseline(config, source.index, inputs, baselines.score_first())
    except BeamsieveError as error:
        raise GateError(f"{config} cannot decode {source.name}: {error}") from error


def open_engine(asked: str, source: Source, normalize: str) -> bs.Engine:
    """An engine of exactly this backend.

    Raises:
        BackendError: it cannot serve the catalog, or something else answered.
    """
    engine = bs.Engine(source.index, asked, normalize)  # type: ignore[arg-type]
    check_not_fallen_back(asked, engine.backend, engine.device)
    return engine
