"""What ``compute-sanitizer`` found while the suite ran, added to the record of that run.

Each tool is a run of its own, or several of parts of the suite, each with its report in a file::

    compute-sanitizer --tool memcheck --log-file memcheck.log \\
        beamsieve conformance cupy --device cuda --quick
    python -m beamsieve_conformance.sanitizer conformance/records/NAME.json cupy \\
        memcheck=memcheck.log racecheck=racecheck.log initcheck=initcheck.log

The record must hold the backend's run already, with the same kernel sources.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from beamsieve_conformance.records import installed_kernels, sha256

SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


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


def note(record: Path, backend: str, reports: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Add the findings of each tool's reports to the backend's run in ``record``, and return them.

    Raises:
        ValueError: no run of the backend, other kernels than those here, or a cut report.
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
    record.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    return found


def main(arguments: list[str]) -> int:
    """Add reports to a record; 0 when no tool found anything."""
    if len(arguments) < 3 or not all("=" in pair for pair in arguments[2:]):
        print("usage: python -m beamsieve_conformance.sanitizer RECORD BACKEND TOOL=LOG…")
        return 2
    record, backend, *pairs = arguments
    reports: dict[str, list[str]] = {}
    try:
        for tool, log in (pair.split("=", 1) for pair in pairs):
            reports.setdefault(tool, []).append(Path(log).read_text(encoding="utf-8"))
        found = note(Path(record), backend, reports)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(", ".join(f"{tool}: {count} found" for tool, count in found.items()))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
