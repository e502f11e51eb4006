"""What failed is told by cause: grouped, named by the rule that is broken, in few lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import beamsieve.engine
import beamsieve_backends.reference
from beamsieve_conformance import report
from beamsieve_conformance.difference import DifferenceError
from beamsieve_conformance.failures import (
    Call,
    Failure,
    facts_of,
    grouped,
    keyword,
    of_report,
    shown,
)
from beamsieve_conformance.outcome import Run
from beamsieve_conformance.rules import RULES
from beamsieve_conformance.subject import Subject

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "conformance/beamsieve_conformance/suite"
MODULES = sorted(file.stem for file in SUITE.glob("test_*.py"))


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


def test_what_says_why_stands_before_whole_searches_that_are_wrong() -> None:
    groups = grouped([
        Failure("test_search.py::test_x", "test_search"),
        Failure("test_search.py::test_y", "test_search"),
        Failure("test_order.py::test_z", "ties"),
        Failure("test_search.py::test_e", "test_search", error="KeyError in mine.py"),
    ])  # fmt: skip
    assert [group.title for group in groups] == [
        "equal keys stand in the wrong order",
        "KeyError in mine.py",
        "a whole search is wrong",
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


def test_an_error_is_placed_in_the_backend_else_in_the_engine_that_asked_it() -> None:
    suite, engine, backend, library = (
        Call(str(SUITE / "test_order.py"), 1, "test_x"),
        Call(beamsieve.engine.__file__, 2, "step"),
        Call(beamsieve_backends.reference.__file__, 3, "select"),
        Call(pytest.__file__, 4, "f"),
    )
    for trace, place in (
        ([suite, engine, backend, library], f"{backend.name()}"),
        ([suite, engine, library], f"{engine.name()}"),
        ([suite, library], f"{library.name()}"),
    ):
        found = facts_of(KeyError(), trace, "test_order.py::test_x", "beamsieve_backends", None)
        assert found.error == f"KeyError in {place}"
        assert found.expected == "no error"


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


def test_a_test_whose_process_died_has_no_facts_and_is_told_all_the_same() -> None:
    name = "suite/test_order.py::test_x[1]"
    said = "worker 'gw0' crashed while running"
    ended = pytest.TestReport(name, (name, None, name), {}, "failed", said, "call")
    found = of_report(ended)
    assert (found.test, found.rule) == ("test_order.py::test_x[1]", "test_order")
    assert (found.error, found.message) == ("its process died", said)


# The report


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
