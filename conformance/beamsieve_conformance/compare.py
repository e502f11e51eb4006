"""Is this step right? The comparison that every test of the suite ends in.

A step is judged from the backend's *own* beams before it: the specification lists every candidate
that those beams have, in float64, and the beams after the step must be the best of that list. So a
rounding in an early step can never make a later one look wrong, and each step is held to the
tolerance of one step. What compares exactly: counts, parents, tokens, rows, finished flags, the
sentinels of empty places, shapes, dtypes, and the order (higher key, lower parent, lower token, by
the backend's own keys). What compares within the declared tolerance: scores, keys, and, at the
cut, which of two candidates was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from beamsieve_conformance.difference import DifferenceError
from beamsieve_conformance.form import DTYPES, HostBeams, check_form, check_order, hold

__all__ = ["DTYPES", "Candidates", "HostBeams", "Truth", "allowed", "check_form", "check_order"]
__all__ += ["check_same_bits", "check_step", "hold", "shortened"]


@dataclass(frozen=True)
class Truth:
    """One candidate as the specification has it."""

    score: float
    key: float
    row: int
    finished: bool


Candidates = Mapping[tuple[int, int], Truth]
"""A request's candidates that are alive, by (parent, token); a finished beam's token is -1."""


def allowed(tolerance: float, *values: float) -> float:
    """How far a result may lie from ``values[0]``: the tolerance, times the size if above 1."""
    return tolerance * max(1.0, *(abs(value) for value in values))


def check_step(
    before: HostBeams,
    after: HostBeams,
    truth: Sequence[Candidates],
    *,
    width: int,
    tolerance: float,
) -> None:
    """``after`` is what one step makes of ``before``, given the specification's candidates.

    Args:
        before: the beams that the backend held.
        after: the beams that it returned.
        truth: per request, every candidate of ``before`` that is alive.
        width: the width that was asked for.
        tolerance: the declared tolerance for the dtype of this step's inputs.

    Raises:
        DifferenceError: it is not; says which rule was broken, and where.
    """
    check_form(after, step=before.step + 1, batch=before.batch, width=width)
    check_order(after)
    for b, candidates in enumerate(truth):
        _check_request(before, after, b, candidates, width, tolerance)


def _check_request(
    before: HostBeams,
    after: HostBeams,
    b: int,
    candidates: Candidates,
    width: int,
    tolerance: float,
) -> None:
    real = int(after.count[b])
    wanted = min(width, len(candidates))
    if real != wanted:
        raise DifferenceError(
            "count",
            f"request {b}, step {after.step}: {real} beams kept; {len(candidates)} candidates are "
            f"alive and the width is {width}, so {wanted} belong there",
            f"{wanted} kept: the width is {width}, candidates that are alive: {len(candidates)}",
            f"{real} kept{_odd_ones(after, b, candidates, real > wanted)}",
            b,
        )
    kept: set[tuple[int, int]] = set()
    for m in range(real):
        parent, token = int(after.parents[b, m]), int(after.tokens[b, m, -1])
        where = f"request {b}, step {after.step}, place {m} (parent {parent}, token {token})"
        true = candidates.get((parent, token))
        if true is None:
            alive = [v for m, v in candidates if m == parent]
            raise DifferenceError(
                "candidates",
                f"{where}: no such candidate; it is not valid or it is dead",
                f"of parent {parent} one of the tokens {shortened(alive)}",
                f"token {token} at place {m}",
                b,
            )
        kept.add((parent, token))
        history, parents = after.tokens[b, m, :-1].tolist(), before.tokens[b, parent].tolist()
        for rule, found, right, message in (
            ("history", history, parents, f"earlier tokens {history}, not the parent's {parents}"),
            ("rows", int(after.rows[b, m]), true.row, f"row {after.rows[b, m]}, not {true.row}"),
            (
                "finished",
                bool(after.finished[b, m]),
                true.finished,
                f"finished must be {true.finished}",
            ),
        ):
            if found != right:
                raise DifferenceError(
                    rule,
                    f"{where}: {message}",
                    f"{right} at place {m} (parent {parent}, token {token})",
                    str(found),
                    b,
                )
        for rule, number, exact in (
            ("scores", float(after.scores[b, m]), true.score),
            ("keys", float(after.keys[b, m]), true.key),
        ):
            bound = allowed(tolerance, exact, true.score)
            if not abs(number - exact) <= bound:
                raise DifferenceError(
                    rule,
                    f"{where}: {rule[:-1]} {number!r} lies {abs(number - exact):.3g} from "
                    f"{exact!r}; {bound:.3g} is allowed",
                    f"{rule[:-1]} {exact!r} at place {m} (parent {parent}, token {token})",
                    f"{number!r}, which lies {abs(number - exact):.3g} off; {bound:.3g} is allowed",
                    b,
                )
    _check_cut(after, b, candidates, kept, tolerance)


def _odd_ones(after: HostBeams, b: int, candidates: Candidates, too_many: bool) -> str:
    """In words, which beams are too many, or which candidates are missing."""
    real = int(after.count[b])
    pairs = zip(after.parents[b, :real].tolist(), after.tokens[b, :real, -1].tolist(), strict=True)
    kept = list(pairs)
    if too_many:
        extra = [pair for pair in kept if pair not in candidates]
        return f", among them no candidates: (parent, token) {shortened(extra)}" if extra else ""
    missing = sorted(set(candidates) - set(kept))
    return f"; not among them: (parent, token) {shortened(missing)}"


def shortened(values: Sequence[object], most: int = 8) -> str:
    """The first of ``values``, and how many there are where that is not all.

    >>> shortened([3, 4], most=2), shortened(range(5), most=2)
    ('3 4', '0 1 … (5 in all)')
    """
    shown = " ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} … ({len(values)} in all)"


def _check_cut(
    after: HostBeams, b: int, candidates: Candidates, kept: set[tuple[int, int]], tolerance: float
) -> None:
    """No candidate left out has a key above the last kept one's by more than the tolerance."""
    left = [(true.key, place, true) for place, true in candidates.items() if place not in kept]
    if not left or not kept:
        return
    lowest = min(candidates[place].key for place in kept)
    best, place, true = max(left, key=lambda entry: (entry[0], entry[1]))
    bound = allowed(tolerance, best, true.score)
    if not best <= lowest + bound:
        raise DifferenceError(
            "best",
            f"request {b}, step {after.step}: the candidate of parent {place[0]} with token "
            f"{place[1]} has key {best!r} and was left out, though one with key {lowest!r} was "
            "kept",
            f"parent {place[0]} with token {place[1]}, whose key is {best!r}",
            f"a beam whose key is {lowest!r} in its place",
            b,
        )


def check_same_bits(found: HostBeams, expected: HostBeams, what: str) -> None:
    """Two outcomes that must not differ in one bit."""
    for name in DTYPES:
        left, right = getattr(found, name), getattr(expected, name)
        hold(
            left.shape == right.shape,
            "",
            f"{what}: {name} has shape {left.shape}, not {right.shape}",
            f"{name} of shape {right.shape}",
            left.shape,
        )
        if left.tobytes() != right.tobytes():
            places = np.argwhere(left != right)
            first = tuple(int(i) for i in places[0]) if len(places) else ()
            here, there = left[first].tolist(), right[first].tolist()
            raise DifferenceError(
                "",
                f"{what}: {name} differs, first at {list(first)}: {here!r}, not {there!r}",
                f"{name}{list(first)} is {there!r} both times",
                f"{here!r}, {what}",
            )
