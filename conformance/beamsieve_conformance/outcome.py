"""How a run of the suite went: what was tested of which backend, and how each test ended."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from beamsieve_conformance import deviations, features
from beamsieve_conformance.subject import Subject

OUTCOMES = ("passed", "failed", "deviates", "not run")


@dataclass
class Run:
    """One run of the suite against one backend."""

    subject: Subject
    quick: bool
    examples: int
    known: list[deviations.Deviation]
    options: Sequence[str] = ()
    """The options of ``beamsieve conformance`` that a test needs to be repeated as it was."""
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
    compared: tuple[Any, Any] | None = None
    """The sides of the last comparison that failed in a test of the suite: found and wanted."""

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

    def names(self) -> list[str]:
        """The collected tests, as :func:`short_name` has them."""
        return [short_name(test) for test in self.features]

    def command(self, keyword: str) -> str:
        """The command that runs the tests of ``keyword`` alone, as they ran here."""
        words = ["beamsieve", "conformance", *self.options, "-k", keyword, "--verbose"]
        return shlex.join(words)


def short_name(test: str) -> str:
    """A test as deviations and the report write it: "module.py::function[parameters]".

    >>> short_name("../suite/test_order.py::test_ties[a/b]")
    'test_order.py::test_ties[a/b]'
    """
    file, _, function = test.partition("::")
    return f"{file.rpartition('/')[2]}::{function}"
