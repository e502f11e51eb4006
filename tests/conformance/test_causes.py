"""What failed is told by cause: each once, with its smallest example and the way to repeat it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamsieve_conformance import report, run
from beamsieve_conformance.difference import DifferenceError
from beamsieve_conformance.failures import Call, Failure, facts_of, grouped, keyword, shown
from beamsieve_conformance.outcome import Run
from beamsieve_conformance.rules import RULES
from beamsieve_conformance.subject import Subject

from .broken import BROKEN
from .out_of_tree import SOURCE, install, package_of

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
SUITE = ROOT / "conformance/beamsieve_conformance/suite"
MODULES = sorted(file.stem for file in SUITE.glob("test_*.py"))
RAISES = SOURCE.replace(
    "table: Table = beams.search.tables[beams.step]\n\n",
    "table: Table = beams.search.tables[beams.step]\n"
    "        if beams.step == 1:\n"
    "            raise IndexError(f'{beams.width} is out of bounds')\n\n",
)
DIES = RAISES.replace(
    "raise IndexError(f'{beams.width} is out of bounds')", "__import__('os').abort()"
)


def broken(name: str) -> str:
    """The source of a backend that is wrong in one line."""
    (found,) = [one for one in BROKEN if one.name == name]
    return SOURCE.replace(found.right, found.wrong)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; what is imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(package_of(""))]:
        del sys.modules[name]


# Grouping


def test_failures_of_one_rule_are_one_cause_whatever_they_test() -> None:
    groups = grouped([
        Failure("test_a.py::test_x", "rows"),
        Failure("test_a.py::test_y", "scores"),
        Failure("test_b.py::test_z", "scores"),
    ])  # fmt: skip
    assert [(group.shown.rule, group.tests()) for group in groups] == [
        ("scores", ["test_a.py::test_y", "test_b.py::test_z"]),
        ("rows", ["test_a.py::test_x"]),
    ]


def test_an_error_is_one_cause_for_each_place_and_kind() -> None:
    def raised(error: Exception, line: int) -> Failure:
        return facts_of(error, [Call(report.__file__, line, "f")], "test_a.py::test_x", "", None)

    groups = grouped([
        raised(IndexError("7"), 3),
        raised(IndexError("9"), 3),
        raised(IndexError("7"), 4),
        raised(KeyError("7"), 3),
    ])  # fmt: skip
    assert sorted(len(group.members) for group in groups) == [1, 1, 2]
    assert groups[0].title.startswith("IndexError in ")


def test_the_smallest_step_is_shown_and_a_known_one_before_an_unknown() -> None:
    sizes: list[tuple[int, ...]] = [(), (9, 1), (2, 7), (2, 3)]
    (group,) = grouped(
        [Failure(f"test_a.py::test_{n}", "rows", size=size) for n, size in enumerate(sizes)]
    )
    assert group.shown.size == (2, 3)


def test_a_check_of_the_tests_own_belongs_to_the_rule_of_its_module() -> None:
    trace = [Call(str(SUITE / "test_order.py"), 3, "test_x", lambda: "assert a == b, f'no'")]
    error = AssertionError("no\nassert [1, 3] == [1, 2]")
    found = facts_of(error, trace, "test_order.py::test_x", "", ([1, 3], [1, 2]))
    assert (found.rule, found.error, found.check) == ("test_order", "", "assert a == b")
    assert (found.expected, found.got, found.message) == ("[1, 2]", "[1, 3]", "no")
    same = facts_of(DifferenceError("", "m", "1", "2"), trace, "test_order.py::test_x", "", None)
    assert (same.rule, same.expected, same.got) == ("test_order", "1", "2")


def test_an_assertion_of_the_backend_is_an_error_of_its_own() -> None:
    trace = [Call(str(SUITE / "test_order.py"), 3, "test_x"), Call(report.__file__, 9, "select")]
    found = facts_of(AssertionError("odd"), trace, "test_order.py::test_x", "numpy", None)
    assert found.error == ""  # not the backend's: NumPy did not raise it
    found = facts_of(
        AssertionError("odd"), trace, "test_order.py::test_x", "beamsieve_conformance", None
    )
    assert found.error == "AssertionError in beamsieve_conformance/report.py:9 (select)"


def test_long_values_are_shown_from_where_they_differ() -> None:
    left, right = [[n] for n in range(200)], [[n] for n in range(200)]
    right[150] = [7]
    assert shown(left, right) == "[150][0]: 150"
    assert shown(right, left) == "[150][0]: 7"
    assert len(shown("x" * 999, "")) < 170


# Rules


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_in_the_words_of_its_file(name: str) -> None:
    rule = RULES[name]
    text = (ROOT / rule.file).read_text(encoding="utf-8")
    assert " ".join(rule.says.split()) in " ".join(text.split())
    assert rule.section in text


def test_every_module_of_the_suite_has_a_rule() -> None:
    assert set(MODULES) <= set(RULES)


# The report


def test_a_wrong_normalizer_is_one_cause_and_named(site: Path, capfd: Capture) -> None:
    install(site, "subject", broken("softmax-over-everything"))
    assert run("subject", tests=["test_one_step.py", "test_tables.py"], quick=True) == 1
    said = capfd.readouterr().out
    assert len(said.splitlines()) < 100
    assert re.search(r"^FAILED, cause 1 of \d, \d\d tests: scores are wrong$", said, re.M)
    assert "spec/beamsieve_spec/step.py" in said
    assert "these scores are right for normalize='all'" in said
    assert "Traceback" not in said
    assert "test_one_step.py: " in said


@pytest.mark.parametrize(
    ("name", "test", "hint"),
    [
        (
            "bias-forgotten",
            "test_one_step.py::test_bias_is_added_to_the_product",
            "without the bias",
        ),
        (
            "score-of-the-first-beam",
            "test_beams.py::test_scores_follow_the_parent",
            "with the score of the first beam for the parent's",
        ),
    ],
)
def test_a_score_that_is_right_for_something_else_is_told(
    site: Path, capfd: Capture, name: str, test: str, hint: str
) -> None:
    install(site, "subject", broken(name))
    assert run("subject", tests=[test]) == 1
    assert f"these scores are right {hint}" in capfd.readouterr().out


def test_the_command_repeats_the_test_that_is_shown(site: Path, capfd: Capture) -> None:
    install(site, "subject", broken("softmax-over-everything"))
    assert run("subject", keyword="test_vectors or test_tables", quick=True) == 1
    said = capfd.readouterr().out
    commands = re.findall(r"^  repeat +(.*)$", said, re.M)
    shown_tests = re.findall(r"^  example +(.*)$", said, re.M)
    assert len(commands) == len(shown_tests) == 2
    for command, test in zip(commands, shown_tests, strict=True):
        words = shlex.split(command)
        assert words[:4] == ["beamsieve", "conformance", "subject", "--quick"]
        assert words[-1] == "--verbose"
        assert run("subject", quick=True, keyword=words[words.index("-k") + 1], verbose=True) == 1
        again = capfd.readouterr().out
        assert "= 1 failed, " in again
        assert " passed" not in again.splitlines()[-1]
        assert test.partition("[")[0] in again
        assert "DifferenceError" in again or "AssertionError" in again  # the traceback is there


def test_a_backend_that_raises_is_one_cause_with_its_place(site: Path, capfd: Capture) -> None:
    package = install(site, "subject", RAISES)
    line = RAISES[: RAISES.index("raise IndexError")].count("\n") + 1
    assert run("subject", tests=["test_one_step.py", "test_beams.py"], quick=True) == 1
    said = capfd.readouterr().out
    where = f"{package.name}/__init__.py:{line} (candidates)"
    assert f"IndexError in {where}\n" in said
    assert "cause 1 of 1" in said
    assert re.search(r"got +IndexError: \d+ is out of bounds", said)


def command_line(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``beamsieve conformance subject --quick`` in a process of its own: only what is on the path
    as an interpreter starts is there for the processes that it starts."""
    call = "import sys; from beamsieve.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", call, "conformance", "subject", "--quick", *words]
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=site,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_two_processes_tell_the_same_causes_and_json_holds_all(site: Path) -> None:
    install(site, "subject", broken("ties-from-the-back"))
    told = []
    for processes in ("1", "2"):
        words = ["-k", "test_order or test_prefix", "--json", "--processes", processes]
        done = command_line(site, *words)
        assert done.returncode == 1, done.stderr
        told.append(json.loads(done.stdout))
        assert "FAILED, cause 1 of " in done.stderr
    one, two = told
    names = [
        [sorted(f["test"] for f in one["failures"]) for one in said["causes"]] for said in told
    ]
    assert names[0] == names[1]
    assert sum(map(len, names[0])) == one["counts"]["failed"] == two["counts"]["failed"] > 20
    assert one["conforms"] is two["conforms"] is False
    assert [cause["cause"] for cause in one["causes"]] == [
        cause["cause"] for cause in two["causes"]
    ]
    for failure in two["causes"][0]["failures"]:
        assert "may not stand before" in failure["details"]
        assert failure["test"].partition("::")[0] in failure["details"]


def test_a_process_that_dies_is_a_cause_that_names_its_test(site: Path) -> None:
    install(site, "subject", DIES)
    test = "test_candidates_are_the_tokens_that_may_follow_the_whole_prefix"
    done = command_line(site, "-k", f"{test} or test_begin_holds_one_beam", "--processes", "2")
    assert done.returncode == 1, done.stderr
    assert "cause 1 of 1, 1 test: its process died" in done.stdout
    assert "crashed while running" in " ".join(done.stdout.split())
    assert f"  example   test_one_step.py::{test}" in done.stdout


def test_a_run_that_passes_tells_no_cause(site: Path, capfd: Capture) -> None:
    path = site / "causes.json"
    assert run("reference", tests=["test_prefix.py"], quick=True, causes=path) == 0
    assert "by cause" not in capfd.readouterr().out
    assert json.loads(path.read_text()) == []


def test_many_causes_still_make_a_short_report() -> None:
    failures = [
        Failure(
            f"test_order.py::test_number_{n}[{m}]",
            "test_order",
            error=f"Error{n} in mine.py",
            got="x" * 400,
            example=["y " * 300] * 4,
        )
        for n in range(60)
        for m in range(60 - n)
    ]
    outcome = Run(Subject.open("reference"), True, 12, [], ["reference"])
    groups = grouped(failures)
    lines = list(report.by_cause(outcome, groups, full=False))
    assert len(lines) < 90
    assert lines[0] == "FAILED, cause 1 of 60, 60 tests: Error0 in mine.py"
    told = sum(int(n) for line in lines for n in re.findall(r"^FAILED.*, (\d+) tests?", line))
    assert told == len(failures)
    everything = "\n".join(report.by_cause(outcome, groups, full=True))
    assert all(failure.test in everything for failure in failures)


def test_a_keyword_chooses_one_test_of_all() -> None:
    names = [
        "test_a.py::test_x[every logit equal]",
        "test_a.py::test_x[every logit equal, several lengths]",
        "test_a.py::test_x[a bonus and a nudge]",
        "test_a.py::test_x_too",
    ]
    assert keyword(names[0], names) == "test_x[every and logit and equal]"
    assert keyword(names[2], names) == "test_x[a and bonus and a and nudge]"
    assert keyword("test_a.py::test_x", ["test_a.py::test_x", *names[3:]]) == (
        "test_x and not test_x_too"
    )
