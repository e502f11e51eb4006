"""The comparison itself: what it lets pass, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beamsieve_conformance.compare import (
    HostBeams,
    Truth,
    check_form,
    check_order,
    check_same_bits,
    check_step,
)
from beamsieve_conformance.difference import DifferenceError

TOLERANCE = 1e-3


def beams(step: int, *places: tuple[int, list[int], float, int], width: int) -> HostBeams:
    """One request's beams: (parent, tokens, score, row) for each place."""
    empty = width - len(places)
    scores = np.array([[*(p[2] for p in places), *[-np.inf] * empty]], np.float32)
    return HostBeams(
        step=step,
        tokens=np.array([[*(p[1] for p in places), *[[-1] * step] * empty]], np.int32).reshape(
            1, width, step
        ),
        scores=scores,
        keys=scores.copy(),
        rows=np.array([[*(p[3] for p in places), *[-1] * empty]], np.int64),
        parents=np.array([[*(p[0] for p in places), *[-1] * empty]], np.int64),
        finished=np.zeros((1, width), np.bool_),
        count=np.array([len(places)], np.int64),
    )


BEFORE = beams(0, (-1, [], 0.0, 0), width=1)
TRUE = {
    (0, 3): Truth(-1.0, -1.0, 0, False),
    (0, 5): Truth(-2.0, -2.0, 1, False),
    (0, 7): Truth(-2.0005, -2.0005, 2, False),
    (0, 9): Truth(-2.01, -2.01, 3, False),
}
RIGHT = beams(1, (0, [3], -1.0, 0), (0, [5], -2.0, 1), width=2)


def judge(after: HostBeams, width: int = 2) -> None:
    check_step(BEFORE, after, [TRUE], width=width, tolerance=TOLERANCE)


def test_the_best_in_order_pass() -> None:
    judge(RIGHT)


def test_at_the_cut_a_candidate_within_tolerance_will_do() -> None:
    judge(beams(1, (0, [3], -1.0, 0), (0, [7], -2.0005, 2), width=2))


def test_at_the_cut_a_candidate_beyond_tolerance_will_not() -> None:
    with pytest.raises(AssertionError, match="left out"):
        judge(beams(1, (0, [3], -1.0, 0), (0, [9], -2.01, 3), width=2))


def test_scores_may_lie_within_tolerance() -> None:
    judge(beams(1, (0, [3], -1.0009, 0), (0, [5], -1.999, 1), width=2))


@pytest.mark.parametrize(
    ("places", "said", "rule"),
    [
        ([(0, [3], -1.0, 0)], "1 beams kept", "count"),
        ([(0, [3], -1.0, 0), (0, [3], -1.0, 0)], "may not stand before", "ties"),
        ([(0, [5], -2.0, 1), (0, [3], -1.0, 0)], "may not stand before", "order"),
        ([(0, [3], -1.0, 0), (0, [4], -2.0, 1)], "no such candidate", "candidates"),
        ([(0, [3], -1.0, 0), (0, [9], -2.01, 3)], "was left out", "best"),
        ([(0, [3], -1.0, 0), (0, [5], -2.0, 2)], "row 2, not 1", "rows"),
        ([(0, [3], -1.0, 0), (0, [5], -2.1, 1)], "score -2.0999", "scores"),
    ],
)
def test_what_is_wrong_is_named(places: list[Any], said: str, rule: str) -> None:
    with pytest.raises(DifferenceError, match=said) as caught:
        judge(beams(1, *places, width=2))
    assert caught.value.rule == rule
    assert caught.value.request == 0


@pytest.mark.parametrize(
    ("changes", "said", "rule"),
    [
        ({"finished": np.array([[True, False]])}, "finished must be False", "finished"),
        ({"keys": np.array([[-1.0, -2.5]], np.float32)}, "key -2.5", "keys"),
        ({"rows": RIGHT.rows.astype(np.int32)}, "beams.rows is int32", "form"),
        ({"rows": np.array([[0, -1]])}, "without a row", "rows"),
        ({"count": np.array([3])}, "count 3 in 2 places", "count"),
        ({"step": 2}, "beams.step is 2", "form"),
        ({"scores": RIGHT.scores[:, :1]}, "beams.scores has shape", "form"),
        ({"scores": np.array([[-1.0, np.nan]], np.float32)}, "must be finite", "finite"),
    ],
)
def test_every_field_is_compared(changes: dict[str, Any], said: str, rule: str) -> None:
    with pytest.raises(DifferenceError, match=said) as caught:
        judge(replace(RIGHT, **changes))
    assert caught.value.rule == rule


def test_earlier_tokens_are_the_parents() -> None:
    after = beams(2, (0, [3, 1], -1.0, 0), width=1)
    before = beams(1, (0, [4], 0.0, 0), width=1)
    with pytest.raises(DifferenceError, match="not the parent's") as caught:
        check_step(
            before, after, [{(0, 1): Truth(-1.0, -1.0, 0, False)}], width=1, tolerance=TOLERANCE
        )
    assert caught.value.rule == "history"


@pytest.mark.parametrize("name", ["tokens", "scores", "keys", "rows", "parents", "finished"])
def test_padding_has_its_sentinels(name: str) -> None:
    padded = beams(1, (0, [3], -1.0, 0), width=3)
    check_form(padded, step=1, batch=1, width=3)
    array = getattr(padded, name).copy()
    array[0, 2] = 1
    with pytest.raises(DifferenceError, match=name) as caught:
        check_form(replace(padded, **{name: array}), step=1, batch=1, width=3)
    assert caught.value.rule == "padding"


def test_equal_keys_need_the_lower_parent_first() -> None:
    check_order(beams(1, (0, [9], -1.0, 0), (1, [2], -1.0, 1), width=2))
    with pytest.raises(AssertionError, match="parent 1"):
        check_order(beams(1, (1, [2], -1.0, 1), (0, [9], -1.0, 0), width=2))


def test_one_bit_is_a_difference() -> None:
    check_same_bits(RIGHT, RIGHT, "itself")
    other = RIGHT.scores.copy()
    other[0, 1] = np.nextafter(other[0, 1], np.float32(0))
    with pytest.raises(AssertionError, match=r"again: scores differs, first at \[0, 1\]"):
        check_same_bits(replace(RIGHT, scores=other), RIGHT, "again")
