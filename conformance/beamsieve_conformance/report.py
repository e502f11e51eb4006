"""What a run prints beside pytest's own lines: what is tested, by capability, and each cause."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from beamsieve_conformance import features, records
from beamsieve_conformance.failures import Group, keyword
from beamsieve_conformance.outcome import OUTCOMES, Run

WIDTH = 100
LINES = 50
"""Lines after which further causes are named with some of their tests, and no more."""
BRIEF = 8
"""How many of those there may be."""
NAMES = 7
"""How many lines the names of a cause's tests may take."""
INDENT = 12


def header(run: Run) -> list[str]:
    """What is tested, on what, with which versions and settings."""
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


def by_capability(run: Run) -> Iterator[str]:
    """The outcome by capability, and the reason of whatever did not plainly pass or fail."""
    rows = run.tested()
    longest = max(len(name) for name in [*rows, *run.left_out()])
    yield " ".join([" " * longest, *(f"{outcome:>9}" for outcome in OUTCOMES)])
    for name in rows:
        counts = run.counts(name)
        cells = (f"{counts[outcome] or '-':>9}" for outcome in OUTCOMES)
        yield " ".join([name.ljust(longest), *cells])
    for name, tests in sorted(run.left_out().items()):
        yield f"{name.ljust(longest)} not declared ({tests} tests left out)"
    for outcome in ("deviates", "not run"):
        for test, how in run.outcomes.items():
            if how == outcome:
                yield f"{outcome}: {test.rpartition('/')[2]}: {run.reasons[test]}"


def by_cause(run: Run, groups: Sequence[Group], full: bool) -> Iterator[str]:
    """Each cause with its smallest example; only the first ones, unless ``full``."""
    lines = brief = 0
    for number, group in enumerate(groups, start=1):
        tests = group.tests()
        many = f"{len(tests)} test{'s' if len(tests) > 1 else ''}"
        heading = f"FAILED, cause {number} of {len(groups)}, {many}: {group.title}"
        if full or lines < LINES:
            block = [heading, *_block(run, group, full), ""]
            lines += len(block)
            yield from block
        elif brief < BRIEF:
            brief += 1
            yield heading
            yield from _field("tests", _folded(tests), 1, f"({many})")
        else:
            rest = sum(len(group.tests()) for group in groups[number - 1 :])
            yield f"FAILED, {len(groups) - number + 1} more causes, {rest} tests"
            break
    if groups and not full:
        yield "--verbose shows every test and every traceback; --json gives all of it to a program."


def _block(run: Run, group: Group, full: bool) -> Iterator[str]:
    """What there is to know of one cause."""
    failure, rule = group.shown, group.rule
    most = None if full else 2
    for label, text in (
        ("spec", f"{rule.says!r} ({rule.file}, {rule.section!r})"),
        ("checks", failure.check),
        ("expected", failure.expected),
        ("got", failure.got),
        ("hint", failure.hint),
        ("said", failure.message if failure.check or not failure.got else ""),
        ("example", failure.test),
        *(("", line) for line in failure.example),
        ("where", failure.place),
    ):
        yield from _field(label, text, most)
    yield f"  {'repeat':<{INDENT - 2}}{run.command(keyword(failure.test, run.names()))}"
    tests = group.tests()
    if full:
        yield from _field("tests", "; ".join(tests), None)
    else:
        yield from _field("tests", _folded(tests), NAMES, f"({len(tests)} in all)")


def _field(label: str, text: str, most: int | None, cut: str = "") -> list[str]:
    """Lines of a label and its text, ``most`` of them at most; ``cut`` ends what is cut short."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<{INDENT - 2}}",
        subsequent_indent=" " * INDENT,
        max_lines=most,
        placeholder=f" … {cut}".rstrip(),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _folded(tests: Sequence[str]) -> str:
    """Names in fewer words: without parameters, with how often; a module's name stands once.

    >>> _folded(["test_a.py::test_x[1]", "test_a.py::test_x[2]", "test_a.py::test_y"])
    'test_a.py: x (2), y'
    """
    counts: dict[str, int] = {}
    for test in tests:
        name = test.partition("[")[0]
        counts[name] = counts.get(name, 0) + 1
    modules: dict[str, list[str]] = {}
    for name, count in counts.items():
        module, _, function = name.partition("::test_")
        modules.setdefault(module, []).append(f"{function} ({count})" if count > 1 else function)
    return "; ".join(f"{module}: {', '.join(names)}" for module, names in modules.items())


def as_json(run: Run, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """All that is known of every failure, by cause."""
    return [
        {
            "cause": group.title,
            "spec": asdict(group.rule),
            "shown": group.shown.test,
            "repeat": run.command(keyword(group.shown.test, run.names())),
            "failures": [asdict(failure) for failure in group.members],
        }
        for group in groups
    ]
