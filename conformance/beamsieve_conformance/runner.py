"""Run the suite from code: what ``beamsieve conformance NAME`` calls."""

from __future__ import annotations

import importlib.util
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from beamsieve.errors import BeamsieveError

SUITE = Path(__file__).parent / "suite"
CURRENT = "PYTEST_CURRENT_TEST"
"""Where pytest says which test is running."""
PASSED, FAILED, BAD_ARGUMENTS = 0, 1, 2


@contextmanager
def os_exit_is_a_failure() -> Iterator[None]:
    """Until this ends, ``os._exit`` gives this process the exit code of a failure, and says so."""
    end, process, told = os._exit, os.getpid(), os.dup(2)  # as pytest takes stderr to itself
    caller = os.environ.get(CURRENT, "")

    def fail(status: int) -> NoReturn:
        if os.getpid() != process:  # a child, which may end as it likes
            end(status)
        test = os.environ.get(CURRENT, "")
        name = test.rpartition("/")[2].rpartition(" (")[0]
        where = f" in {name}" if test != caller else ""
        os.write(told, f"\nbeamsieve: The backend ended this process{where}.\n".encode())
        end(FAILED)

    os._exit = fail
    try:
        yield
    finally:
        os._exit = end
        os.close(told)


@contextmanager
def sigterm_ends_the_run() -> Iterator[None]:
    """SIGTERM, where the caller makes an exception of it, ends the run as Ctrl-C does.

    pytest would take the caller's exception for the failure of one test, and go on.
    """
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        heard = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        if heard:
            before(signal.SIGTERM, None)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@os_exit_is_a_failure()
@sigterm_ends_the_run()
def run(
    name: str,
    *,
    keyword: str | None = None,
    device: str | None = None,
    record: str | Path | None = None,
    quick: bool = False,
    deviations: str | Path | None = None,
    examples: int | None = None,
    processes: int = 1,
    verbose: bool = False,
    causes: str | Path | None = None,
    tests: Sequence[str] = (),
    options: Sequence[str] = (),
) -> int:
    """Run the suite against one backend, and print the report.

    Args:
        name: the backend, or its config string.
        keyword: run only the tests whose names match, as pytest's ``-k``.
        device: such as "cuda:0"; the backend's usual one when None.
        record: where to write the outcome, see :mod:`beamsieve_conformance.records`.
        quick: fewer examples, and no slow tests.
        deviations: a file of known deviations, in place of the backend's own.
        examples: random cases per property.
        processes: how many share the tests (pytest-xdist); 1 runs them here.
        verbose: print every test, every traceback and every cause in full.
        causes: where to write all that is known of every failure, by cause (JSON).
        tests: run only these, as "module.py" or "module.py::function".
        options: further options of pytest.

    Returns:
        0 when the backend passed, 1 when it did not, 2 when it could not be tested as asked; then
        one line on stderr says why.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a backend that raises it.
    """
    try:
        import pytest

        from beamsieve_conformance import records
        from beamsieve_conformance.deviations import DeviationError, read
        from beamsieve_conformance.subject import Subject
    except ModuleNotFoundError as error:
        if error.name not in ("pytest", "hypothesis"):
            raise
        return _refuse(f"{error.name} is not installed: pip install 'beamsieve[conformance]'")
    try:
        if record is not None:
            records.read(Path(record))
        Subject.open(name, device)
        if deviations is not None:
            read(Path(deviations))
    except (BeamsieveError, DeviationError) as error:
        return _refuse(str(error))
    if processes > 1 and importlib.util.find_spec("xdist") is None:
        return _refuse("pytest-xdist is not installed: pip install 'beamsieve[conformance]'")
    arguments = ["-c", str(SUITE / "pytest.ini"), "--backend", name]
    # By name, so that every process loads it.
    arguments += ["-p", "beamsieve_conformance.plugin"]
    for option, value in (
        ("-k", keyword),
        ("--device", device),
        ("--record", record),
        ("--causes", causes),
        ("--deviations", deviations),
        ("--examples", examples),
    ):
        if value is not None:
            arguments += [option, str(value)]
    if quick:
        arguments.append("--quick")
    if verbose:
        arguments.append("--verbose")
    arguments += [*options, *(str(SUITE / test) for test in tests)]
    if keyword is not None or tests:
        # First without a word, so that what cannot be run is said in one line.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as complaint:
            code = pytest.main([*arguments, "--collect-only", "-q"])
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            return _refuse(f"no test of the suite matches {keyword or ', '.join(tests)!r}")
        if code == pytest.ExitCode.USAGE_ERROR:
            return _refuse(complaint.getvalue().replace("ERROR: ", ""))
    if processes > 1:
        arguments += ["--numprocesses", str(processes)]
    stopped = _Interrupts()
    code = pytest.main(arguments, plugins=[stopped])
    if stopped.heard:
        raise KeyboardInterrupt
    if code == pytest.ExitCode.OK:
        return PASSED
    return BAD_ARGUMENTS if code == pytest.ExitCode.USAGE_ERROR else FAILED


class _Interrupts:
    """A plug-in that hears of Ctrl-C, which pytest keeps to itself and reports like other ends."""

    heard = False

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        self.heard |= isinstance(excinfo.value, KeyboardInterrupt)


def _refuse(message: str) -> int:
    print(f"beamsieve: {' '.join(message.split())}", file=sys.stderr)
    return BAD_ARGUMENTS
