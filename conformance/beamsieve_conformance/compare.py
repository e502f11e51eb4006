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
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class HostBeams:
    """``beamsieve.interface.Beams`` as NumPy arrays, with the same names, shapes and dtypes."""

    step: int
    tokens: NDArray[np.int32]
    scores: NDArray[np.float32]
    keys: NDArray[np.float32]
    rows: NDArray[np.int64]
    parents: NDArray[np.int64]
    finished: NDArray[np.bool_]
    count: NDArray[np.int64]

    @property
    def batch(self) -> int:
        """B, the number of requests."""
        return len(self.count)

    @property
    def width(self) -> int:
        """M, the number of places per request."""
        return int(self.scores.shape[1])

    def bits(self, request: int | None = None) -> tuple[bytes, ...]:
        """Every output's bytes, of one request or of all: equal exactly when all bits are."""
        pick = slice(None) if request is None else slice(request, request + 1)
        names = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")
        return tuple(np.ascontiguousarray(getattr(self, name)[pick]).tobytes() for name in names)


@dataclass(frozen=True)
class Truth:
    """One candidate as the specification has it."""

    score: float
    key: float
    row: int
    finished: bool


Candidates = Mapping[tuple[int, int], Truth]
"""A request's candidates that are alive, by (parent, token); a finished beam's token is -1."""

DTYPES: Mapping[str, Any] = {
    "tokens": np.int32,
    "scores": np.float32,
    "keys": np.float32,
    "rows": np.int64,
    "parents": np.int64,
    "finished": np.bool_,
    "count": np.int64,
}


def allowed(tolerance: float, *values: float) -> float:
    """How far a result may lie from ``values[0]``: the tolerance, times the size if above 1."""
    return tolerance * max(1.0, *(abs(value) for value in values))


def check_form(beams: HostBeams, *, step: int, batch: int, width: int) -> None:
    """Shapes and dtypes, and the sentinels of every place without a beam."""
    assert beams.step == step, f"beams.step is {beams.step} after {step} tokens"
    shapes = {
        "tokens": (batch, width, step),
        "count": (batch,),
        **dict.fromkeys(("scores", "keys", "rows", "parents", "finished"), (batch, width)),
    }
    for name, shape in shapes.items():
        array = getattr(beams, name)
        assert array.shape == shape, f"beams.{name} has shape {array.shape}, not {shape}"
        assert array.dtype == DTYPES[name], (
            f"beams.{name} is {array.dtype}, not {np.dtype(DTYPES[name])}"
        )
    for b in range(batch):
        real = int(beams.count[b])
        assert 0 <= real <= width, f"request {b}: count {real} in {width} places"
        empty = slice(real, None)
        for name, wanted in (
            ("scores", -np.inf),
            ("keys", -np.inf),
            ("rows", -1),
            ("parents", -1),
            ("tokens", -1),
            ("finished", False),
        ):
            found = getattr(beams, name)[b, empty]
            assert (found == wanted).all(), (
                f"request {b}: places {real} and after hold no beam, so {name} must be {wanted} "
                f"there, not {found.tolist()}"
            )
        for name in ("scores", "keys"):
            values = getattr(beams, name)[b, :real]
            assert np.isfinite(values).all(), (
                f"request {b}: a kept beam's {name} must be finite: {values.tolist()}"
            )
        assert (beams.rows[b, :real] >= 0).all(), f"request {b}: a kept beam without a row"


def check_order(beams: HostBeams) -> None:
    """Kept beams come by higher key, then lower parent, then lower token, and none comes twice."""
    for b in range(beams.batch):
        real = int(beams.count[b])
        order = [
            (-float(beams.keys[b, m]), int(beams.parents[b, m]), int(beams.tokens[b, m, -1]))
            for m in range(real)
        ]
        for m, (before, after) in enumerate(pairwise(order)):
            assert before < after, (
                f"request {b}: place {m} (key {-before[0]!r}, parent {before[1]}, token "
                f"{before[2]}) may not stand before place {m + 1} (key {-after[0]!r}, parent "
                f"{after[1]}, token {after[2]})"
            )


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
    assert real == wanted, (
        f"request {b}, step {after.step}: {real} beams kept; {len(candidates)} candidates are "
        f"alive and the width is {width}, so {wanted} belong there"
    )
    kept: set[tuple[int, int]] = set()
    for m in range(real):
        parent, token = int(after.parents[b, m]), int(after.tokens[b, m, -1])
        where = f"request {b}, step {after.step}, place {m} (parent {parent}, token {token})"
        true = candidates.get((parent, token))
        assert true is not None, f"{where}: no such candidate; it is not valid or it is dead"
        assert (parent, token) not in kept, f"{where}: kept twice"
        kept.add((parent, token))
        history, parents = after.tokens[b, m, :-1].tolist(), before.tokens[b, parent].tolist()
        assert history == parents, f"{where}: earlier tokens {history}, not the parent's {parents}"
        assert int(after.rows[b, m]) == true.row, (
            f"{where}: row {int(after.rows[b, m])}, not {true.row}"
        )
        assert bool(after.finished[b, m]) == true.finished, (
            f"{where}: finished must be {true.finished}"
        )
        for name, found, exact in (
            ("score", float(after.scores[b, m]), true.score),
            ("key", float(after.keys[b, m]), true.key),
        ):
            bound = allowed(tolerance, exact, true.score)
            assert abs(found - exact) <= bound, (
                f"{where}: {name} {found!r} lies {abs(found - exact):.3g} from {exact!r}; "
                f"{bound:.3g} is allowed"
            )
    _check_cut(after, b, candidates, kept, tolerance)


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
    assert best <= lowest + bound, (
        f"request {b}, step {after.step}: the candidate of parent {place[0]} with token {place[1]} "
        f"has key {best!r} and was left out, though one with key {lowest!r} was kept"
    )


def check_same_bits(found: HostBeams, expected: HostBeams, what: str) -> None:
    """Two outcomes that must not differ in one bit."""
    for name in DTYPES:
        left, right = getattr(found, name), getattr(expected, name)
        assert left.shape == right.shape, (
            f"{what}: {name} has shape {left.shape}, not {right.shape}"
        )
        if left.tobytes() != right.tobytes():
            places = np.argwhere(left != right)
            first = tuple(int(i) for i in places[0]) if len(places) else ()
            raise AssertionError(
                f"{what}: {name} differs, first at {list(first)}: "
                f"{left[first].tolist()!r}, not {right[first].tolist()!r}"
            )
