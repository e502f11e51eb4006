"""A wrong answer, told apart from others of its kind: what the suite raises, and what it saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class DifferenceError(AssertionError):
    """A backend's answer is not the specification's.

    Attributes:
        rule: which rule was broken, a key of :data:`beamsieve_conformance.rules.RULES`; empty where
            only the test knows.
        expected, got: what the specification says there, and what the backend did, in short.
        request: b, the request in which it showed; None where it is no request's.
    """

    def __init__(
        self, rule: str, message: str, expected: str = "", got: str = "", request: int | None = None
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.expected = expected
        self.got = got
        self.request = request


@dataclass(frozen=True)
class Example:
    """The step that an error came from.

    Attributes:
        size: how large it is; among failures of one cause the least is shown.
        lines: the step in words.
        hint: what the wrong answer looks like; empty if like nothing that is known.
    """

    size: tuple[int, ...]
    lines: list[str]
    hint: str = ""


def attach(error: BaseException, example: Callable[[], Example]) -> None:
    """Tell an error which step it came from.

    The step is put into words only once it is asked for: many an error is raised while hypothesis
    looks for the smallest case, and few are shown.
    """
    setattr(error, _NAME, example)


def example_of(error: BaseException) -> Example | None:
    """The step that an error came from, in words, where it was told."""
    example: Callable[[], Example] | None = getattr(error, _NAME, None)
    return None if example is None else example()


_NAME = "beamsieve_example"
