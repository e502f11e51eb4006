"""What ``compute-sanitizer`` found while the suite ran, added to the record of that run.

Each tool is a run of its own, or several of parts of the suite, each with its report and with what
the suite printed; :mod:`beamsieve_conformance.sanitizer_run` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beamsieve.errors import InputError
from beamsieve_conformance import records

SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
ENDED = re.compile(r"^=+ .*\b(\d+) passed\b.* =+$", re.MULTILINE)
UNWELL = re.compile(r"^=+ .*\b\d+ (?:failed|error).* =+$", re.MULTILINE)


def findings(report: str) -> int:
    """How many errors or hazards a report counts.

    Raises:
        ValueError: it has no summary: the run was cut short.

    >>> findings("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)")
    0
    """
    counts = [int(count) for count in SUMMARY.findall(report)]
    if not counts:
        raise ValueError("no summary: compute-sanitizer did not come to its end")
    return sum(counts)


def passed_tests(output: str) -> int:
    """How many tests the suite's output says have passed.

    Raises:
        ValueError: some have not, or it does not say.

    >>> passed_tests("======= 61 passed, 1 skipped, 620 deselected in 66.81s =======")
    61
    """
    found = ENDED.search(output)
    if found is None or UNWELL.search(output):
        raise ValueError("the suite did not pass under compute-sanitizer")
    return int(found[1])


def run_in(record: Path, backend: str) -> dict[str, Any]:
    """The backend's run in a record.

    Raises:
        InputError: there is none, or it is of other kernel sources than those here.
    """
    run = records.read(record)["runs"].get(backend)
    if run is None:
        raise InputError(f"{record} holds no run of {backend}; make one with --record.")
    folder, sources = records.installed_kernels().get(backend, (Path(), ()))
    if run["kernels"] != {name: records.sha256(folder / name) for name in sources}:
        raise InputError(f"{record} is of other kernel sources than those here.")
    return dict(run)


def note(record: Path, backend: str, runs: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Put what each tool found into the backend's run in ``record``, and in how many tests.

    Args:
        record: where it is.
        backend: its name.
        runs: per tool, of each of its runs what the tool wrote and what the suite printed.

    Raises:
        InputError: as :func:`run_in` says.
        ValueError: a cut report, or a suite that did not pass.
    """
    run = run_in(record, backend)
    found = {tool: sum(findings(report) for report, _ in each) for tool, each in runs.items()}
    tests = {tool: sum(passed_tests(output) for _, output in each) for tool, each in runs.items()}
    run["sanitizer"] = dict(sorted((run.get("sanitizer", {}) | found).items()))
    run["sanitizer_tests"] = dict(sorted((run.get("sanitizer_tests", {}) | tests).items()))
    records.add(record, {backend: run})
