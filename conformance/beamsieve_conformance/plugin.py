"""The suite as a pytest plug-in: ``pytest -p beamsieve_conformance --backend NAME``.

It opens the backend, leaves out the tests of what the backend does not declare (and says so), turns
known deviations into strict expected failures, and closes with a summary by capability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from beamsieve.errors import BeamsieveError
from beamsieve_conformance import deviations, features, records
from beamsieve_conformance.subject import NotDeclared, Subject

SUITE = Path(__file__).parent / "suite"
OUTCOMES = ("passed", "failed", "deviates", "not run")


@dataclass
class Run:
    """One run of the suite against one backend."""

    subject: Subject
    quick: bool
    examples: int
    known: list[deviations.Deviation]
    partial: str = ""
    """What was left out of the suite by the caller's wish; empty when all of it ran."""
    features: dict[str, list[str]] = field(default_factory=dict)
    """Per collected test, what it is about."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """Per test that ran, one of OUTCOMES."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Per test that deviates or was not run, why."""
    not_declared: Counter[str] = field(default_factory=Counter)
    """Per feature that the backend does not declare, how many tests were left out."""
    not_declared_late: Counter[str] = field(default_factory=Counter)
    """The same, of tests that found it out while they ran."""
    unmatched: list[str] = field(default_factory=list)
    """Deviations that name no test."""
    lost: list[str] = field(default_factory=list)
    """Processes that ended without a word of what they had tested."""

    def said(self) -> dict[str, Any]:
        """What a process that tests a part tells the one that started it."""
        return {
            "partial": self.partial,
            "features": self.features,
            "outcomes": self.outcomes,
            "reasons": self.reasons,
            "not_declared": dict(self.not_declared),
            "not_declared_late": dict(self.not_declared_late),
            "unmatched": self.unmatched,
        }

    def add(self, said: dict[str, Any]) -> None:
        """Take in what another process said: all collect the same tests, each runs some."""
        self.partial = said["partial"]
        self.features = said["features"]
        self.not_declared = Counter(said["not_declared"])
        self.not_declared_late.update(said["not_declared_late"])
        self.unmatched = said["unmatched"]
        self.outcomes |= said["outcomes"]
        self.reasons |= said["reasons"]

    def left_out(self) -> Counter[str]:
        """Per feature that is not declared, how many tests were left out for it."""
        return self.not_declared + self.not_declared_late

    def tested(self) -> list[str]:
        """The features that tests ran for; what every backend has comes first."""
        names = {name for test in self.outcomes for name in self.features[test]}
        return sorted(names, key=lambda name: (name != features.EVERY, name))

    def counts(self, feature: str) -> Counter[str]:
        """How the tests of one feature ended."""
        return Counter(
            outcome for test, outcome in self.outcomes.items() if feature in self.features[test]
        )


KEY = pytest.StashKey[Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's options."""
    group = parser.getgroup("beamsieve", "beamsieve conformance suite")
    group.addoption("--backend", metavar="NAME", help="backend, or config string, to test")
    group.addoption("--device", metavar="DEVICE", help='device to test it on, such as "cuda:0"')
    group.addoption("--quick", action="store_true", help="fewer examples, and no slow tests")
    group.addoption("--examples", type=int, metavar="N", help="random cases per property")
    group.addoption("--record", type=Path, metavar="FILE", help="write the outcome to FILE")
    group.addoption("--deviations", type=Path, metavar="FILE", help="known deviations (TOML)")


def pytest_configure(config: pytest.Config) -> None:
    """Open the backend, or stop with one line."""
    for line in (
        "needs(*features): what a backend must declare for this test to apply",
        "refusal: about being refused the feature that the parameter names; only if undeclared",
        "slow: left out by --quick",
    ):
        config.addinivalue_line("markers", line)
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
    config.stash[KEY] = Run(subject, quick, examples, known)
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
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("beamsieve")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave hypothesis as it was."""
    settings.load_profile("default")


@pytest.fixture(scope="session")
def subject(pytestconfig: pytest.Config) -> Subject:
    """The backend under test."""
    return pytestconfig.stash[KEY].subject


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is tested, on what, with which versions and settings."""
    run = config.stash[KEY]
    facts = records.facts(run.subject)
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    capabilities = run.subject.capabilities
    limits = [
        f"{name} up to {limit}"
        for name, limit in (
            ("width", capabilities.largest_width),
            ("codebook", capabilities.largest_codebook),
        )
        if limit is not None
    ]
    tolerance = ", ".join(f"{dtype} {value:g}" for dtype, value in capabilities.tolerance.items())
    declares = sorted(features.declared(capabilities) - {features.EVERY})
    return [
        f"backend: {run.subject.name} ({run.subject.config})",
        f"device: {run.subject.device} ({facts['hardware']})",
        f"versions: {versions}",
        f"settings: {'quick' if run.quick else 'full'}, {run.examples} examples per property",
        f"declares: {', '.join([*declares, *limits])}",
        f"tolerance: {tolerance}",
        f"deviations: {len(run.known)} known",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of what the backend declares; mark its deviations."""
    run = config.stash[KEY]
    declared = features.declared(run.subject.capabilities)
    matched: set[str] = set()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        name = test_name(item)
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


def test_name(item: pytest.Item) -> str:
    """A test's name as deviations write it: "module.py::function[parameters]"."""
    return f"{item.path.name}::{item.name}"


# pytest collects functions of this name only from test modules; here it is a helper.
test_name.__test__ = False  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how each test ended."""
    report = yield
    run = item.config.stash[KEY]
    outcome = _outcome(report)
    if call.excinfo is not None and isinstance(call.excinfo.value, NotDeclared):
        run.not_declared_late[str(call.excinfo.value)] += 1
    elif outcome is not None and run.outcomes.get(item.nodeid) != "failed":
        run.outcomes[item.nodeid] = outcome
        if outcome in ("deviates", "not run"):
            run.reasons[item.nodeid] = _reason(report)
    return report


def _outcome(report: pytest.TestReport) -> str | None:
    if report.failed:
        return "failed"
    if report.skipped:
        return "deviates" if hasattr(report, "wasxfail") else "not run"
    return "passed" if report.when == "call" else None


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


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
    if path is not None and run.outcomes:
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


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The outcome by capability, and the reason of whatever is not plainly passed."""
    run = config.stash[KEY]
    if not run.outcomes:
        return
    write = terminalreporter.write_line
    terminalreporter.section("by capability")
    rows = run.tested()
    longest = max(len(name) for name in [*rows, *run.left_out()])
    write(" ".join([" " * longest, *(f"{outcome:>9}" for outcome in OUTCOMES)]))
    for name in rows:
        counts = run.counts(name)
        cells = (f"{counts[outcome] or '-':>9}" for outcome in OUTCOMES)
        write(" ".join([name.ljust(longest), *cells]))
    for name, tests in sorted(run.left_out().items()):
        write(f"{name.ljust(longest)} not declared ({tests} tests left out)")
    for outcome in ("deviates", "not run"):
        for test, how in run.outcomes.items():
            if how == outcome:
                write(f"{outcome}: {test.rpartition('/')[2]}: {run.reasons[test]}")
    for test in run.unmatched:
        write(f"FAILED: the deviation {test!r} matches no test", red=True)
    for process in run.lost:
        write(f"FAILED: a process of the suite was lost, {process}", red=True)
