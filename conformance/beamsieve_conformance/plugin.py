"""The suite as a pytest plug-in: ``pytest -p beamsieve_conformance --backend NAME``.

It opens the backend, leaves out the tests of what the backend does not declare (and says so), turns
known deviations into strict expected failures, and closes with a summary by capability and, of what
failed, by cause. Pytest's own account of each failure comes with ``--verbose`` or ``--tb``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

from beamsieve.errors import BeamsieveError
from beamsieve_conformance import deviations, endings, failures, features, records, report
from beamsieve_conformance.outcome import Run, short_name
from beamsieve_conformance.subject import NotDeclared, Subject

NAMES_OF_FAILURES = "fE"
"""What pytest lists in its short summary unless ``-r`` is given."""
SUITE = Path(__file__).parent / "suite"


KEY = pytest.StashKey[Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's options."""
    group = parser.getgroup("beamsieve", "beamsieve conformance suite")
    group.addoption("--backend", metavar="NAME", help="backend, or config string, to test")
    group.addoption("--device", metavar="DEVICE", help='device to test it on, such as "cuda:0"')
    group.addoption("--quick", action="store_true", help="fewer examples, and no slow tests")
    group.addoption("--examples", type=int, metavar="N", help="random cases per property")
    group.addoption("--record", type=Path, metavar="FILE", help="write the outcome to FILE")
    group.addoption(
        "--causes", type=Path, metavar="FILE", help="write all failures, by cause, to FILE"
    )
    group.addoption("--deviations", type=Path, metavar="FILE", help="known deviations (TOML)")


def pytest_configure(config: pytest.Config) -> None:
    """Open the backend, or stop with one line."""
    for line in (
        "needs(*features): what a backend must declare for this test to apply",
        "refusal: about being refused the feature that the parameter names; only if undeclared",
        "slow: left out by --quick",
    ):
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(endings)
    name = config.getoption("backend")
    if not name:
        raise pytest.UsageError("say which backend to test: --backend NAME")
    quick = bool(config.getoption("quick"))
    try:
        subject = Subject.open(name, config.getoption("device"))
        given = config.getoption("deviations")
        known = deviations.read(given) if given else deviations.find(subject.name, subject.package)
    except (BeamsieveError, deviations.DeviationError) as error:
        raise pytest.UsageError(str(error)) from error
    examples = config.getoption("examples") or (12 if quick else 250)
    config.stash[KEY] = Run(subject, quick, examples, known, repeated(config))
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(SUITE)]
    # The same cases in every run and on every machine, so that two runs can be compared.
    settings.register_profile(
        "beamsieve",
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        print_blob=False,  # the same case comes up again anyway
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("beamsieve")
    # What it looks up once; by default in the folder that the suite is run from.
    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / f"beamsieve-suite-{_user()}")


def _user() -> str:
    """What tells users of one machine apart, where there is anything."""
    return str(os.getuid()) if hasattr(os, "getuid") else "files"


def repeated(config: pytest.Config) -> list[str]:
    """What ``beamsieve conformance`` is given to run a test as it runs here."""
    given = [str(config.getoption("backend"))]
    for name in ("device", "examples", "deviations"):
        value = config.getoption(name)
        given += [] if value is None else [f"--{name}", str(value)]
    return [*given, "--quick"] if config.getoption("quick") else given


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave hypothesis as it was."""
    settings.load_profile("default")
    set_hypothesis_home_dir(None)


@pytest.fixture(scope="session")
def subject(pytestconfig: pytest.Config) -> Subject:
    """The backend under test."""
    return pytestconfig.stash[KEY].subject


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is tested, on what, with which versions and settings."""
    return report.header(config.stash[KEY])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of what the backend declares; mark its deviations."""
    run = config.stash[KEY]
    declared = features.declared(run.subject.capabilities)
    matched: set[str] = set()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        name = short_name(item.nodeid)
        wanted = features.wanted_by(item)
        missing = [feature for feature in wanted if feature not in declared]
        for known in run.known:
            if known.matches(name):
                matched.add(known.test)
                item.add_marker(
                    pytest.mark.xfail(
                        strict=True, raises=known.raises, reason=f"{known.kind}: {known.reason}"
                    )
                )
        if item.get_closest_marker("refusal") is not None:
            applies = _refused_feature(item) not in declared
            wanted = [features.EVERY]
        else:
            applies = not missing
            run.not_declared.update(missing)
        if run.quick and item.get_closest_marker("slow") is not None:
            applies = False
        run.features[item.nodeid] = wanted
        (kept if applies else left).append(item)
    run.unmatched = sorted({known.test for known in run.known} - matched)
    run.partial = _narrowed(config)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def _refused_feature(item: pytest.Item) -> str:
    assert isinstance(item, pytest.Function)
    return str(item.callspec.params["feature"])


def _narrowed(config: pytest.Config) -> str:
    """How the caller narrowed the suite, in words; empty if not at all."""
    ways = []
    if config.getoption("quick"):
        ways.append("--quick")
    if config.getoption("keyword"):
        ways.append(f"-k {config.getoption('keyword')}")
    if config.getoption("markexpr"):
        ways.append(f"-m {config.getoption('markexpr')}")
    if [Path(argument) for argument in config.args] != [SUITE]:
        ways.append(" ".join(config.args))
    return " ".join(ways)


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> None:
    """Keep the sides of a comparison that failed."""
    if op == "==":
        config.stash[KEY].compared = left, right


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how each test ended, and of a failure what is worth knowing."""
    run = item.config.stash[KEY]
    known = None
    if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
        known = _facts(run, item, call.excinfo)
        for line in (*known.example, known.hint):
            call.excinfo.value.add_note(line)
    run.compared = None
    ended = yield
    outcome = _outcome(ended)
    if call.excinfo is not None and isinstance(call.excinfo.value, NotDeclared):
        run.not_declared_late[str(call.excinfo.value)] += 1
    elif outcome is not None and run.outcomes.get(item.nodeid) != "failed":
        run.outcomes[item.nodeid] = outcome
        if outcome in ("deviates", "not run"):
            run.reasons[item.nodeid] = _reason(ended)
    if ended.failed and known is not None:
        vars(ended)[failures.FACTS] = asdict(known)  # travels with the report, from any process
    return ended


def _facts(
    run: Run, item: pytest.Item, caught: pytest.ExceptionInfo[BaseException]
) -> failures.Failure:
    trace = [
        failures.Call(
            str(entry.path), entry.lineno + 1, entry.name, partial(getattr, entry, "statement")
        )
        for entry in caught.traceback
    ]
    name = short_name(item.nodeid)
    return failures.facts_of(caught.value, trace, name, run.subject.package, run.compared)


def _outcome(ended: pytest.TestReport) -> str | None:
    if ended.failed:
        return "failed"
    if ended.skipped:
        return "deviates" if hasattr(ended, "wasxfail") else "not run"
    return "passed" if ended.when == "call" else None


def _reason(ended: pytest.TestReport) -> str:
    if hasattr(ended, "wasxfail"):
        return str(ended.wasxfail)
    return str(ended.longrepr[2]) if isinstance(ended.longrepr, tuple) else str(ended.longrepr)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take in what one of several processes tested (pytest-xdist)."""
    run = node.config.stash[KEY]
    said = getattr(node, "workeroutput", {}).get("beamsieve")
    if error is None and said is not None:
        run.add(said)
    else:
        run.lost.append(f"{node.gateway.id}: {error or 'it ended early'}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail for deviations that match nothing, and write the record."""
    run = session.config.stash.get(KEY, None)
    if run is None:
        return
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:  # one of several processes
        told["beamsieve"] = run.said()
        return
    if (run.unmatched or run.lost) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    path = session.config.getoption("record")
    if path is not None and (run.outcomes or run.lost):
        counts = Counter(run.outcomes.values())
        counts["failed"] += len(run.unmatched) + len(run.lost)
        records.write(
            path,
            run.subject,
            counts,
            capabilities={name: run.counts(name) for name in run.tested()},
            not_declared=sorted(run.left_out()),
            partial=run.partial,
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None]:
    """The outcome by capability and by cause, in place of pytest's account of each failure."""
    run = config.stash[KEY]
    ended = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    tests = [one for one in ended if isinstance(one, pytest.TestReport)]
    groups = failures.grouped([failures.of_report(one) for one in tests])
    is_full = config.get_verbosity() > 0
    if len(tests) == len(ended) and not is_full:
        if config.option.tbstyle == "auto":
            config.option.tbstyle = "no"
        if config.option.reportchars == NAMES_OF_FAILURES:
            terminalreporter.reportchars = terminalreporter.reportchars.strip("fE")
    yield
    path = config.getoption("causes")
    if path is not None:
        path.write_text(json.dumps(report.as_json(run, groups), indent=2) + "\n", encoding="utf-8")
    if run.outcomes:
        terminalreporter.section("by capability")
        for line in report.by_capability(run):
            terminalreporter.write_line(line)
    if groups:
        terminalreporter.section("by cause")
    for line in report.by_cause(run, groups, is_full):
        terminalreporter.write_line(line, red=line.startswith("FAILED"))
    for test in run.unmatched:
        terminalreporter.write_line(f"FAILED: the deviation {test!r} matches no test", red=True)
    for process in run.lost:
        terminalreporter.write_line(f"FAILED: a process of the suite was lost, {process}", red=True)
