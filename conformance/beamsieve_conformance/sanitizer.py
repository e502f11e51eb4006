"""What ``compute-sanitizer`` found while the suite ran, added to the record of that run.

Each tool is a run of its own, or several of parts of the suite, each with its report in a file::

    compute-sanitizer --tool memcheck --log-file memcheck.log \\
        beamsieve conformance cupy --device cuda --quick > memcheck.out
    python -m beamsieve_conformance.sanitizer conformance/records/NAME.json cupy \\
        memcheck=memcheck.log,memcheck.out racecheck=racecheck.log initcheck=initcheck.log

The record must hold the backend's run already, with the same kernel sources. Where the suite's own
output is given as well, the record says how many tests ran under the tool; all of them must have
passed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from beamsieve_conformance.records import installed_kernels, sha256

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


def note(
    record: Path,
    backend: str,
    reports: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, int]:
    """Add the findings of each tool's reports to the backend's run in ``record``, and return them.

    Args:
        record: where it is.
        backend: its name.
        reports: per tool, what it wrote.
        outputs: per tool, what the suite printed in the same runs; every one of them, or none.

    Raises:
        ValueError: no run of the backend, other kernels than those here, a cut report, or a suite
            that did not pass.
    """
    known = json.loads(record.read_text(encoding="utf-8"))
    run = known["runs"].get(backend)
    if run is None:
        raise ValueError(f"{record} holds no run of {backend}")
    folder, sources = installed_kernels()[backend]
    if run["kernels"] != {name: sha256(folder / name) for name in sources}:
        raise ValueError(f"{record} is of other kernel sources than those here")
    found = {tool: sum(map(findings, texts)) for tool, texts in sorted(reports.items())}
    run["sanitizer"] = {**run.get("sanitizer", {}), **found}
    tests = run.pop("sanitizer_tests", {})
    for tool in found:  # of these runs, not of those before
        tests.pop(tool, None)
        if outputs and len(outputs.get(tool, ())) == len(reports[tool]):
            tests[tool] = sum(map(passed_tests, outputs[tool]))
    if tests:
        run["sanitizer_tests"] = tests
    record.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    return found


def main(arguments: list[str]) -> int:
    """Add reports to a record; 0 when no tool found anything."""
    if len(arguments) < 3 or not all("=" in pair for pair in arguments[2:]):
        print("usage: python -m beamsieve_conformance.sanitizer RECORD BACKEND TOOL=LOG[,OUTPUT]…")
        return 2
    record, backend, *pairs = arguments
    reports: dict[str, list[str]] = {}
    outputs: dict[str, list[str]] = {}
    try:
        for tool, files in (pair.split("=", 1) for pair in pairs):
            log, _, output = files.partition(",")
            reports.setdefault(tool, []).append(Path(log).read_text(encoding="utf-8"))
            if output:
                outputs.setdefault(tool, []).append(Path(output).read_text(encoding="utf-8"))
        found = note(Path(record), backend, reports, outputs)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(", ".join(f"{tool}: {count} found" for tool, count in found.items()))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
