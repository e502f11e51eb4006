"""Failures of a run, and their grouping by cause.

Of each failed test a few facts are noted where it ran (:func:`facts_of`); they travel with pytest's
report, also from another process. Two failures have one cause when they break the same rule, or
when they are the same error from the same place of the backend.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis.errors import Flaky

import beamsieve
from beamsieve_conformance.difference import DifferenceError, example_of
from beamsieve_conformance.outcome import short_name
from beamsieve_conformance.rules import OF_WHOLE_SEARCHES, RULES, Rule

HERE = Path(__file__).parent
ENGINE = Path(beamsieve.__file__).parent
PYTEST = Path(pytest.__file__).parents[1] / "_pytest"
FACTS = "beamsieve"
"""The attribute of a test's report that carries what :func:`facts_of` found."""
VARIES = "a case fails, and passes when it is tried again"
LONGEST, MOST_DETAILS = 4_000, 40_000
"""Characters that are kept of an error's text, and of all that pytest says of it."""
KEYWORD = re.compile(r"[\w:+\-.\[\]\\/]+")
"""What pytest's ``-k`` takes for one word."""


class Call(NamedTuple):
    """A place in a traceback; its statement is read from the file once it is asked for."""

    path: str
    line: int
    function: str
    statement: Callable[[], object] = str

    def name(self) -> str:
        """The place, short enough for a line.

        >>> Call("/site-packages/mine/__init__.py", 9, "select").name()
        'mine/__init__.py:9 (select)'
        """
        return f"{'/'.join(Path(self.path).parts[-2:])}:{self.line} ({self.function})"


@dataclass(frozen=True)
class Failure:
    """One failed test.

    Attributes:
        test: its name, "module.py::function[parameters]".
        rule: the broken rule, a key of RULES.
        error: the error and its place, where it came from no check of the suite; else empty.
        message: what was said.
        check: the line of the test that did not hold, where it is a check of its own.
        expected, got: what should have been, and what was; empty where the message says it all.
        place: where in the suite and in the backend.
        size: of the step that failed; empty where none is known.
        example: that step in words.
        hint: what the wrong answer looks like.
        details: everything that pytest says.
    """

    test: str
    rule: str
    error: str = ""
    message: str = ""
    check: str = ""
    expected: str = ""
    got: str = ""
    place: str = ""
    size: tuple[int, ...] = ()
    example: list[str] = field(default_factory=list)
    hint: str = ""
    details: str = ""


@dataclass(frozen=True)
class Group:
    """Failures of one cause; ``shown`` is the one whose step is the smallest."""

    shown: Failure
    members: list[Failure]

    @property
    def rule(self) -> Rule:
        """The rule that they break."""
        return RULES[self.shown.rule]

    @property
    def title(self) -> str:
        """What is wrong, as a heading."""
        return self.shown.error or self.rule.broken

    @property
    def says_no_reason(self) -> bool:
        """Whether it is known of whole searches alone that something on their way is wrong."""
        return not self.shown.error and self.shown.rule in OF_WHOLE_SEARCHES

    def tests(self) -> list[str]:
        """The names of the tests, each once, in order."""
        return sorted({failure.test for failure in self.members})


def grouped(failures: Sequence[Failure]) -> list[Group]:
    """The failures by cause, the cause of most of them first.

    A whole search that is wrong says nothing of why, so what says it stands before it.
    """
    causes: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        # The same error is one cause, whatever the tests that met it are about.
        key = ("", failure.error) if failure.error else (failure.rule, "")
        causes.setdefault(key, []).append(failure)
    groups = [Group(min(members, key=_smallness), members) for members in causes.values()]
    return sorted(groups, key=lambda g: (g.says_no_reason, -len(g.members), g.shown.test))


def _smallness(failure: Failure) -> tuple[bool, tuple[int, ...], int, str]:
    return not failure.size, failure.size, len(failure.message), failure.test


def of_report(report: pytest.TestReport) -> Failure:
    """What is known of a failed test, from what pytest reported of it."""
    known: dict[str, Any] | None = vars(report).get(FACTS)
    if known is not None:
        details = cut_short(report.longreprtext, MOST_DETAILS)
        return Failure(**known | {"size": tuple(known["size"]), "details": details})
    test, text = short_name(report.nodeid), cut_short(report.longreprtext, MOST_DETAILS)
    is_known = text.startswith("[XPASS(strict)]")
    error = "a test passes that is a known deviation" if is_known else "its process died"
    return Failure(test, test.partition(".py")[0], error, message=text, details=text)


def facts_of(
    error: BaseException,
    trace: Sequence[Call],
    test: str,
    package: str,
    compared: tuple[Any, Any] | None,
) -> Failure:
    """What is worth knowing of one failure.

    Args:
        error: what was raised.
        trace: the calls on the way to it, the test's first.
        test: its name.
        package: the backend's module, whose own code the place is looked for in.
        compared: the two sides of the test's own last comparison, found and wanted.
    """
    if isinstance(error, Flaky):
        causes: Sequence[BaseException] = getattr(error, "exceptions", ())
        if not causes:
            return Failure(test, "test_batch", VARIES, message=text_of(error))
        facts = facts_of(causes[0], trace, test, package, compared)
        return replace(facts, rule="test_batch", error=VARIES)
    module = test.partition(".py")[0]
    example = example_of(error)
    known: dict[str, Any] = {}
    if example is not None:
        known = {"size": example.size, "example": example.lines, "hint": example.hint}
    own = [call for call in trace if _is_below(call.path, _home(package))]
    asked = [call for call in trace if _is_below(call.path, HERE / "suite")]
    known["place"] = "; ".join(call.name() for call in (*asked[-1:], *own[-1:]))
    if isinstance(error, DifferenceError):
        rule = error.rule or module
        return Failure(
            test, rule, message=text_of(error), expected=error.expected, got=error.got, **known
        )
    if isinstance(error, AssertionError | pytest.fail.Exception) and trace[-1:] != own[-1:]:
        if compared is not None and "==" in text_of(error):
            left, right = compared
            known |= {"expected": shown(right, left), "got": shown(left, right)}
        known["check"] = " ".join(_condition(str(call.statement())) for call in asked[-1:])
        said = text_of(error).removeprefix("assert ").partition("\nassert ")[0]
        is_bare = text_of(error).startswith("assert ") and compared is not None
        return Failure(test, module, message="" if is_bare else " ".join(said.split()), **known)
    engine = [call for call in trace if _is_below(call.path, ENGINE)]
    where = (
        own
        or engine
        or [
            call for call in trace if not any(_is_below(call.path, each) for each in (HERE, PYTEST))
        ]
        or trace
    )
    heading = type(error).__name__ + "".join(f" in {call.name()}" for call in where[-1:])
    text = f"{type(error).__name__}: {' '.join(text_of(error).split())}".rstrip(": ")
    return Failure(
        test, module, error=heading, message=text, expected="no error", got=text, **known
    )


def text_of(error: BaseException) -> str:
    """What an error says, fit for a terminal; also of one that cannot say it.

    >>> text_of(ValueError("red \\x1b[31m"))
    'red \\\\x1b[31m'
    """
    try:
        text = str(error)
    except (Exception, SystemExit):
        return "(an error whose text cannot be made)"
    return "".join(
        c if c.isprintable() or c.isspace() else repr(c)[1:-1] for c in cut_short(text, LONGEST)
    )


def cut_short(text: str, most: int) -> str:
    """A text of at most ``most`` characters of the original: its beginning and its end.

    >>> cut_short("0123456789", 4)
    '01 … (10 characters) … 89'
    """
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … ({len(text)} characters) … {text[-(most // 2) :]}"


def _condition(statement: str) -> str:
    """What an assertion asks, in a line, without what it says when that does not hold.

    >>> _condition("assert x == 3, (\\n    f'{x}'\\n)")
    'assert x == 3'
    """
    return re.split(r", (?:f?['\"]|\( ?f?['\"])", " ".join(statement.split()))[0]


def _home(package: str) -> Path | None:
    """The folder of a backend's code, or its file."""
    module = sys.modules.get(package.partition(".")[0])
    if module is None or getattr(module, "__file__", None) is None:
        return None
    file = Path(str(module.__file__))
    return file.parent if file.name == "__init__.py" else file


def _is_below(path: str, folder: Path | None) -> bool:
    return folder is not None and Path(path).is_relative_to(folder)


def shown(value: Any, other: Any, most: int = 150) -> str:
    """A value in a line; a long list from where it differs from ``other``.

    >>> shown([[1, 2], [3, 4]], [[1, 2], [3, 5]], most=9)
    '[1][1]: 4'
    >>> shown([1, 2, 3, 4], [1, 2], most=9)
    '[2:]: [3, 4]'
    """
    text = " ".join(repr(value).split())
    if len(text) <= most:
        return text
    if isinstance(value, list) and isinstance(other, list):
        for place, (mine, theirs) in enumerate(zip(value, other, strict=False)):
            if mine != theirs:
                nested = shown(mine, theirs, 0 if isinstance(mine, list) else most)
                return f"[{place}]{nested if nested.startswith('[') else f': {nested}'}"
        first = min(len(value), len(other))
        text = f"[{first}:]: {value[first:]!r}"
    return text if len(text) <= max(most, 60) else f"{text[: max(most, 60)]} …"


def keyword(test: str, names: Collection[str]) -> str:
    """What to give to ``-k`` so that of all tests ``names`` this one runs alone.

    >>> keyword("a.py::test_x[1-a b]", ["a.py::test_x[1-a b]", "a.py::test_x[2-a b]"])
    'test_x[1-a and b]'
    >>> keyword("a.py::test_x", ["a.py::test_x", "a.py::test_x_too"])
    'test_x and not test_x_too'
    """
    words = _words(test)
    others = [name for name in names if name != test and set(words) <= _matched(words, name)]
    return " and ".join([*words, *(f"not {word}" for name in others for word in _new(name, words))])


def _words(test: str) -> list[str]:
    found = KEYWORD.findall(test.partition("::")[2])
    return [word for word in found if word.lower() not in ("and", "or", "not")]


def _matched(words: Sequence[str], test: str) -> set[str]:
    return {word for word in words if word.lower() in test.lower()}


def _new(test: str, words: Sequence[str]) -> list[str]:
    """The first word of another test that tells it from the one of ``words``."""
    return [word for word in _words(test) if not any(word in mine for mine in words)][:1]
