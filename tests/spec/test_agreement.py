"""What a backend may differ in: the law, and the suite's comparison, which must be the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve_conformance import compare
from beamsieve_conformance.agreement import ARRAYS, agrees, alone
from beamsieve_conformance.compare import HostBeams
from beamsieve_conformance.oracle import alive
from beamsieve_spec import (
    Beams,
    Candidates,
    Trie,
    add_nudge,
    begin,
    candidates,
    project,
    search,
    select,
    step,
)

from .models import from_table, random_sids, random_table

TOLERANCE = 1e-3
CATALOG = Trie([(0,), (1, 0), (1, 1), (1, 2), (2, 0), (2, 2), (3, 1)], codebooks=[4, 3])


def host(beams: Beams) -> HostBeams:
    """The beams as a backend holds them."""
    arrays = {name: getattr(beams, name).astype(compare.DTYPES[name]) for name in ARRAYS}
    return HostBeams(step=beams.step, **arrays)


def suite_agrees(found: Candidates, keys: Any, after: Beams) -> bool:
    """What the comparison of the conformance suite says of the same step."""
    held = host(found.beams)
    truth = alive(CATALOG, held, found, keys)
    try:
        compare.check_step(
            held, host(after), truth, width=after.scores.shape[1], tolerance=TOLERANCE
        )
    except AssertionError:
        return False
    return True


def both_say(found: Candidates, keys: Any, after: Beams) -> bool:
    """The law's verdict, which is the suite's."""
    said = agrees(CATALOG, found, keys, after, TOLERANCE)
    assert suite_agrees(found, keys, after) == said
    return said


def second_step(seed: int, width: int = 4) -> tuple[Candidates, Any, Beams]:
    """The candidates of a second step, one of whose beams is finished, their keys, and the beams
    that are kept."""
    rng = np.random.default_rng(seed)
    beams = step(CATALOG, begin(CATALOG, 2), 3, rng.normal([2, 1, 1, 0], size=(2, 1, 4)))
    found = candidates(CATALOG, beams, rng.normal(size=(2, 3, 3)))
    keys = add_nudge(found, rng.normal(size=(2, 3, 3)))
    return found, keys, select(CATALOG, beams, found, width, keys)


def with_values(beams: Beams, name: str, change: Callable[[Any], None]) -> Beams:
    """The same beams, with one array changed in place."""
    values = getattr(beams, name).copy()
    change(values)
    return replace(beams, **{name: values})


@pytest.mark.parametrize("width", [1, 3, 5, 9])
@pytest.mark.parametrize("seed", range(5))
def test_the_specifications_own_step_agrees(seed: int, width: int) -> None:
    assert both_say(*second_step(seed, width))


WRONG: dict[str, tuple[str, Callable[[Any], None]]] = {
    "another token": ("tokens", lambda tokens: tokens.__setitem__((0, 0, 1), 3)),
    "another history": ("tokens", lambda tokens: tokens.__setitem__((0, 0, 0), 3)),
    "another row": ("rows", lambda rows: rows.__setitem__((0, 0), rows[0, 0] ^ 1)),
    "another parent": ("parents", lambda parents: parents.__iadd__(parents == 0)),
    "not finished": ("finished", lambda finished: finished.__setitem__((0, 0), False)),
    "a score too low": ("scores", lambda scores: scores.__isub__(0.1)),
    "a key too high": ("keys", lambda keys: keys.__setitem__((0, 0), keys[0, 0] + 0.1)),
    "a count too low": ("count", lambda count: count.__isub__(1)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_does_not_agree(what: str) -> None:
    found, keys, after = second_step(1)
    assert not both_say(found, keys, with_values(after, *WRONG[what]))


def test_a_beam_too_few_or_a_worse_one_does_not_agree() -> None:
    found, keys, _ = second_step(2)
    best = keys[0] == keys[0].max()
    without = np.where(best[None], -np.inf, keys)
    for width in (4, 9):  # at the cut, and where there is room for all
        assert not both_say(found, keys, select(CATALOG, found.beams, found, width, without))


@pytest.mark.parametrize(("apart", "same"), [(0.5, True), (3.0, False)])
def test_at_the_cut_the_tolerance_decides(apart: float, same: bool) -> None:
    root = begin(CATALOG, 1)
    gap = apart * TOLERANCE
    found = candidates(CATALOG, root, [[[0.0, gap, 1.0, -9.0]]], "all")
    left_out = replace(found, scores=np.where(found.tokens == 1, -np.inf, found.scores))
    after = select(CATALOG, root, left_out, 2)
    assert after.tokens[0].tolist() == [[2], [0]]
    assert both_say(found, found.scores, after) == same


def test_the_order_is_that_of_the_backends_own_keys() -> None:
    root = begin(CATALOG, 1)
    found = candidates(CATALOG, root, [[[0.0, 1e-5, 5.0, -9.0]]])
    said = found.scores.copy()
    said[0, 0, 0] += 2e-5
    after = select(CATALOG, root, replace(found, scores=said), 4)
    assert after.tokens[0].tolist() == [[2], [0], [1], [3]]
    assert both_say(found, found.scores, after)
    swapped = replace(after, keys=np.take(after.keys, [0, 2, 1, 3], axis=1))
    assert not both_say(found, found.scores, swapped)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 50), st.integers(1, 9), st.data())
def test_the_suite_compares_as_the_law_says(seed: int, width: int, data: st.DataObject) -> None:
    """Scores and keys off by a part of the tolerance, or by more; now and then another value."""
    found, keys, _ = second_step(seed, width)
    errors = st.lists(
        st.sampled_from([0.0, 0.3, -0.3, 0.9, -0.9, 1.2, -30.0]), min_size=18, max_size=18
    )
    off = np.array(data.draw(errors)).reshape(2, 3, 3) * TOLERANCE
    off = off[:, :, : found.scores.shape[2]]
    said = replace(found, scores=found.scores + off)
    after = select(CATALOG, found.beams, said, width, keys + off)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(["rows", "parents", "count"]))
        place = (0,) if name == "count" else (0, data.draw(st.integers(0, width - 1)))
        value = data.draw(st.integers(-1, 2))
        after = with_values(after, name, lambda values: values.__setitem__(place, value))
    both_say(found, keys, after)


@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
@pytest.mark.parametrize("seed", range(6))
def test_a_request_is_alone_in_its_batch(seed: int, normalize: Any) -> None:
    source = random.Random(seed)
    trie = Trie(random_sids(source, levels=3, vocabulary=5, count=40), codebooks=[5] * 3)
    tables = [random_table(trie, 10 * seed + b) for b in range(4)]
    tables[2] = {prefix: [np.nan] * 5 for prefix in tables[2]}  # one whose beams all die

    def permits(b: int, prefix: tuple[int, ...]) -> bool:
        return (sum(prefix) + b) % 3 != 0 or len(prefix) < 2

    batch = search(
        trie, from_table(trie, *tables), [3, 7, 4], 4, normalize=normalize, permits=permits
    )
    for b, table in enumerate(tables):
        single = search(
            trie,
            from_table(trie, table),
            [3, 7, 4],
            normalize=normalize,
            permits=lambda _, prefix, b=b: permits(b, prefix),  # type: ignore[misc]
        )
        for name in ARRAYS:
            left, right = getattr(alone(batch, b), name), getattr(single, name)
            assert left.tobytes() == right.tobytes(), f"{name} of request {b}"


def test_a_product_is_its_own_beams_alone() -> None:
    rng = np.random.default_rng(0)
    hidden, head = rng.normal(size=(9, 11, 37)), rng.normal(size=(23, 37))
    batch = project(hidden, head)
    for b in range(9):
        assert project(hidden[b : b + 1], head).tobytes() == batch[b : b + 1].tobytes()
