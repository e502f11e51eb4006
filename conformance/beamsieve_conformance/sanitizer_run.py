"""The quick suite under ``compute-sanitizer``, several parts at a time.

A tool makes kernels ten to a hundred times slower, and one process keeps a GPU nearly idle, so the
suite is cut into parts of a few tests, several of which run at a time::

    python -m beamsieve_conformance.sanitizer_run cupy --device cuda --processes 13 \\
        --reports build/sanitizer --record conformance/records/NAME.json

Every part leaves its report in the folder of ``--reports``. What has ended there is not run again:
the same command goes on with a run that ``--seconds`` or Ctrl-C has cut short. The record must hold
the backend's run, with the same kernel sources.

racecheck watches the backend's own CUDA kernels alone, since other libraries' share no memory with
them. Where that ends in an error of the tool's own, as it does beside some kernels that are left
out, the part runs again with all of them watched. It runs one launch at a time: eight threads that
start kernels, be they CuPy's own, wait for one another for ever under it.
initcheck has to see every write; docs/backends.md says what it cannot see.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from beamsieve.errors import BeamsieveError, InputError
from beamsieve_conformance import sanitizer
from beamsieve_conformance.compile_check import KERNEL
from beamsieve_conformance.records import installed_kernels, sha256
from beamsieve_conformance.runner import SUITE
from beamsieve_conformance.subject import Subject

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "initcheck")
BLOCKING = "CUDA_LAUNCH_BLOCKING"
"""The variable that has every launch wait for its end."""
OWN_ERROR = "Internal Sanitizer Error"
"""What a report says where a tool itself has failed."""
TESTS_OF_A_PART = 12
"""About how many tests a part has: to start one takes seconds, and the longest ends the run."""


@dataclass(frozen=True)
class Part:
    """Some of the suite's tests under one tool.

    Attributes:
        tool: its name.
        functions: the tests, as "module.py::function".
        report: where the tool writes what it found; what the suite prints goes beside it, to
            ``.out``.
    """

    tool: str
    functions: tuple[str, ...]
    report: Path

    @property
    def output(self) -> Path:
        """Where the suite's own words go."""
        return self.report.with_suffix(".out")

    def failed_by_itself(self) -> bool:
        """Whether the tool has come to an error of its own."""
        return self.report.exists() and OWN_ERROR in _text(self.report)

    def ended(self) -> bool:
        """Whether this part has come to its end, the tests passed."""
        try:
            sanitizer.findings(_text(self.report))
            sanitizer.passed_tests(_text(self.output))
        except (OSError, ValueError):
            return False
        return True


def suite_command(backend: str, device: str | None, keyword: str | None) -> list[str]:
    """The command that runs the quick suite, all of it unless tests are named after it."""
    command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "pytest.ini"), "--quick"]
    command += ["-p", "beamsieve_conformance.plugin", "--backend", backend]
    for option, value in (("--device", device), ("-k", keyword)):
        command += [option, value] if value is not None else []
    return command


def functions_of(suite: Sequence[str]) -> Counter[str]:
    """The test functions that a command of the suite runs, each with its number of cases.

    Raises:
        InputError: it runs none.
    """
    listing = [*suite, "--collect-only", "-q", str(SUITE)]
    listed = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    found = Counter(re.findall(r"^(\w+\.py::\w+)", listed, re.MULTILINE))
    if not found:
        raise InputError("No test of the suite runs for this backend as asked.")
    return found


def groups_of(functions: Counter[str]) -> list[tuple[str, ...]]:
    """Functions of one module together, until they have :data:`TESTS_OF_A_PART` cases.

    >>> groups_of(Counter({"a.py::x": 7, "a.py::y": 5, "a.py::z": 1, "b.py::x": 1}))
    [('a.py::x', 'a.py::y'), ('a.py::z',), ('b.py::x',)]
    """
    groups: list[list[str]] = []
    cases, module = 0, ""
    for function, count in functions.items():
        if cases >= TESTS_OF_A_PART or function.partition("::")[0] != module:
            groups.append([])
            cases, module = 0, function.partition("::")[0]
        groups[-1].append(function)
        cases += count
    return [tuple(group) for group in groups]


def open_folder(folder: Path, described: dict[str, object]) -> None:
    """Make the folder of reports; one that is there must be of the run described.

    Raises:
        InputError: it is of another run, or no folder of reports.
    """
    path = folder / "run.json"
    if folder.exists() and any(folder.iterdir()):
        try:
            same = json.loads(_text(path)) == described
        except (OSError, ValueError):
            same = False
        if not same:
            raise InputError(
                f"{folder} holds something else than reports of this backend, these kernels and "
                "these tests; name another folder."
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


class Runner:
    """Runs parts, several at a time.

    Args:
        suite: the command that runs the suite.
        kernels: names of the backend's own CUDA kernels.
        until: when what still runs is cut, as :func:`time.monotonic` counts.
    """

    def __init__(self, suite: Sequence[str], kernels: Sequence[str], until: float) -> None:
        self._suite = suite
        self._only_own = [word for name in kernels for word in ("--kernel-name", f"kns={name}")]
        self._until = until
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, parts: Sequence[Part], processes: int) -> None:
        """Run those that have not ended before, until they have or the time is up."""
        waiting: queue.SimpleQueue[Part] = queue.SimpleQueue()
        for part in parts:
            if not part.ended():
                waiting.put(part)
        workers = [
            threading.Thread(target=self._work, args=(waiting,), daemon=True)
            for _ in range(processes)
        ]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                worker.join()
        finally:  # Ctrl-C
            self._until = 0.0
            for process in list(self._running):
                _end(process)

    def _work(self, waiting: queue.SimpleQueue[Part]) -> None:
        while time.monotonic() < self._until:
            try:
                part = waiting.get_nowait()
            except queue.Empty:
                return
            print(self._run_part(part), flush=True)

    def _run_part(self, part: Part) -> str:
        """Run a part, and say in a line how it ended."""
        began = time.monotonic()
        watched = self._only_own if part.tool == "racecheck" else []
        self._watch(part, watched)
        if watched and part.failed_by_itself():
            self._watch(part, [])
        head = f"{part.tool} {time.monotonic() - began:6.1f} s  {', '.join(part.functions)}:"
        if not part.ended():
            return f"{head} did not end; see {part.output}"
        tests = sanitizer.passed_tests(_text(part.output))
        return f"{head} {tests} passed, {sanitizer.findings(_text(part.report))} found"

    def _watch(self, part: Part, watched: Sequence[str]) -> None:
        """Run a part until it ends or the time is up."""
        tool = [PROGRAM, "--tool", part.tool, *watched, "--log-file", str(part.report)]
        command = [*tool, *self._suite, *(str(SUITE / function) for function in part.functions)]
        environment = os.environ | ({BLOCKING: "1"} if part.tool == "racecheck" else {})
        with open(part.output, "wb") as sink:
            process = subprocess.Popen(
                command, stdout=sink, stderr=sink, env=environment, start_new_session=True
            )
            self._running.add(process)
            try:
                left = self._until - time.monotonic()
                process.wait(None if left == float("inf") else max(0.0, left))
            except subprocess.TimeoutExpired:
                _end(process)
            self._running.discard(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a tool and what runs under it, which is a process of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def conclude(parts: Sequence[Part], backend: str, record: Path | None) -> int:
    """Say per tool what was found in how many tests, and put it into the record.

    Returns:
        0 when every part has ended and no tool found anything, 1 otherwise.
    """
    ended: dict[str, list[tuple[str, str]]] = {}
    for part in parts:
        if part.ended():
            ended.setdefault(part.tool, []).append((_text(part.report), _text(part.output)))
    clean = True
    for tool, of_tool in Counter(part.tool for part in parts).items():
        runs = ended.get(tool, [])
        found = sum(sanitizer.findings(report) for report, _ in runs)
        tests = sum(sanitizer.passed_tests(output) for _, output in runs)
        left = of_tool - len(runs)
        print(f"{tool}: {found} found in {tests} tests" + (f"; {left} parts are left" * (left > 0)))
        clean &= not found and not left
    if record is not None and ended:
        sanitizer.note(record, backend, ended)
    return 0 if clean else 1


def main(arguments: Sequence[str]) -> int:
    """Run the tools; 0 when all is clean, 1 when it is not, 2 when it cannot be run as asked."""
    parser = argparse.ArgumentParser(
        prog="python -m beamsieve_conformance.sanitizer_run",
        description="The quick suite under compute-sanitizer, several parts at a time.",
    )
    parser.add_argument("backend", help="name or config string")
    parser.add_argument("--device", help="device to test on, such as cuda:0")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="which; all when not given")
    parser.add_argument("--reports", type=Path, required=True, help="folder for the reports")
    parser.add_argument("--record", type=Path, help="record to put the findings into")
    parser.add_argument("--processes", type=int, default=1, help="how many parts run at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("-k", dest="keyword", help="only the tests whose names match")
    given = parser.parse_args(arguments)
    until = time.monotonic() + given.seconds
    try:
        if given.processes < 1:
            raise InputError("--processes must be at least 1.")
        if shutil.which(PROGRAM) is None:
            raise InputError(f"{PROGRAM} is not on the path; it comes with the CUDA toolkit.")
        subject = Subject.open(given.backend, given.device)
        if given.record is not None:
            sanitizer.run_in(given.record, subject.name)
        folder, sources = installed_kernels().get(subject.name, (Path(), ()))
        suite = suite_command(given.backend, given.device, given.keyword)
        functions = functions_of(suite)
        tools = tuple(dict.fromkeys(given.tool or TOOLS))
        open_folder(
            given.reports,
            {
                "backend": given.backend,
                "device": given.device,
                "kernels": {name: sha256(folder / name) for name in sources},
                "tests": functions,
                "environment": {"racecheck": {BLOCKING: "1"}},
            },
        )
        parts = [
            Part(tool, group, given.reports / f"{tool}-{number}.log")
            for tool in tools
            for number, group in enumerate(groups_of(functions))
        ]
        Runner(suite, kernel_names(folder, sources), until).run(parts, given.processes)
        return conclude(parts, subject.name, given.record)
    except (BeamsieveError, OSError, ValueError) as error:
        print(f"beamsieve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def kernel_names(folder: Path, sources: Sequence[str]) -> list[str]:
    """The names of the CUDA kernels in a backend's sources."""
    texts = [_text(folder / name) for name in sources if name.endswith(".cu")]
    return sorted({found["name"] for text in texts for found in KERNEL.finditer(text)})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
