"""The order: higher key, then lower parent, then lower token, whatever the batch or its packing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beamsieve_conformance import model
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Layout, Trial, World

LAYOUTS = ("dense", "sparse")


def complete(*sizes: int) -> list[tuple[int, ...]]:
    """Every semantic ID that these codebooks can spell."""
    return [tuple(int(t) for t in sid) for sid in np.ndindex(*sizes)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_keys_go_by_parent_then_token(subject: Subject, layout: Layout) -> None:
    trial = Trial(subject, World.of(complete(4, 5, 3), layout=layout))
    found = trial.host(trial.walk([4, 20, 60]))
    assert found.tokens[0].tolist() == [list(sid) for sid in complete(4, 5, 3)]
    assert found.parents[0].tolist() == [place // 3 for place in range(60)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [1, 63, 64, 65, 130, 199, 200])
def test_equal_keys_across_words_go_by_token(subject: Subject, width: int, layout: Layout) -> None:
    trial = Trial(subject, World.of(complete(200), layout=layout))
    found = trial.host(trial.walk([width]))
    assert found.tokens[0, :, 0].tolist() == list(range(width))


@pytest.mark.parametrize("width", [1, 2, 37, 39, 40, 41, 81, 319])
def test_equal_keys_at_the_cut_keep_the_lower_parents(subject: Subject, width: int) -> None:
    trial = Trial(subject, World.of(complete(8, 40)))
    found = trial.host(trial.walk([8, width]))
    assert found.parents[0].tolist() == [place // 40 for place in range(width)]
    assert found.tokens[0, :, 1].tolist() == [place % 40 for place in range(width)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_wide_row_of_equal_keys_is_in_order(subject: Subject, layout: Layout) -> None:
    # More ties at the cut than a tile, a block or a threshold pass would hold.
    trial = Trial(subject, World.of([(v,) for v in range(0, 4096, 2)], [4096], layout=layout))
    found = trial.host(trial.walk([1500]))
    assert found.tokens[0, :, 0].tolist() == list(range(0, 3000, 2))


@pytest.mark.parametrize("levels", [2, 3, 7])
def test_many_ties_on_a_few_levels_are_in_order(subject: Subject, levels: int) -> None:
    # A sort that is not stable may keep equal keys in order alone, and not among others.
    trial = Trial(subject, World.of([(v,) for v in range(3000)], [3000]))
    first = trial.begin()
    found = trial.host(trial.step(first, 2900, trial.logits(first, np.arange(3000) % levels)))
    wanted = sorted(range(3000), key=lambda v: (-(v % levels), v))[:2900]
    assert found.tokens[0, :, 0].tolist() == wanted


def test_equal_rows_and_equal_hidden_states_tie(subject: Subject) -> None:
    # Whole numbers make every product exact, so equal inputs must give equal scores.
    trial = Trial(subject, World.of(complete(6, 6), 6))
    beams = trial.begin()
    for width in (6, 20):
        _, places, _ = trial.shape(beams)
        hidden = np.ones((1, places, model.HIDDEN), np.float32)
        head = np.full((6, model.HIDDEN), 2.0, np.float32)
        beams = trial.step(beams, width, Inputs(hidden=hidden, head=head))
    found = trial.host(beams)
    assert len(set(found.scores[0].tolist())) == 1
    assert found.parents[0].tolist() == [place // 6 for place in range(20)]


def test_lower_parent_wins_though_its_token_is_higher(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 9), (1, 0), (2, 5)], 10))
    found = trial.host(trial.walk([3, 3]))
    assert found.parents[0].tolist() == [0, 1, 2]
    assert found.tokens[0, :, 1].tolist() == [9, 0, 5]


@pytest.mark.needs("guidance: nudge")
def test_the_order_is_that_of_places_not_of_rows(subject: Subject) -> None:
    # A nudge turns the places against the rows, the scores stay equal: places decide.
    trial = Trial(subject, World.of(complete(4, 2, 2)))
    first = trial.begin()
    beams = trial.step(first, 4, trial.logits(first, 0.0, nudge=[0, 1, 2, 3]))
    found = trial.host(trial.step(beams, 8, trial.logits(beams, 0.0)))
    assert found.tokens[0, :, 0].tolist() == [3, 3, 2, 2, 1, 1, 0, 0]
    assert found.tokens[0, :, 1].tolist() == [0, 1] * 4


@pytest.mark.needs("variable length")
def test_a_finished_beam_ties_by_its_place(subject: Subject) -> None:
    # (0,) and (2,) end; every beam has one candidate, all with the same key.
    trial = Trial(subject, World.of([(0,), (1, 3), (2,), (3, 0)], 4))
    found = trial.host(trial.walk([4, 4]))
    assert found.parents[0].tolist() == [0, 1, 2, 3]
    assert found.finished[0].all()
    assert found.tokens[0, :, 1].tolist() == [-1, 3, -1, 0]


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_every_request_of_a_batch_is_in_order(subject: Subject, batch: int) -> None:
    trial = Trial(subject, World.of(complete(9, 9), 9))
    rng = np.random.default_rng(batch)
    beams = trial.begin(batch)
    for width in (7, 40):
        beams = trial.step(beams, width, model.given_logits(rng, trial.shape(beams), "tied"))


def select(trial: Trial, keys: NDArray[np.float32], width: int) -> None:
    """Rank the candidates of a complete tree by ``keys`` [1, M, S], and expect the exact order."""
    first = trial.begin()
    beams = trial.take(first, keys.shape[1], trial.logits(first, 0.0))
    arguments = trial.subject.arguments(trial.logits(beams, 0.0))
    found = trial.engine.candidates(beams, **arguments)
    tokens = np.array(trial.subject.backend.to_host(found.tokens))
    slots = np.full(tokens.shape, np.nan, np.float32)
    for _, m, slot in np.argwhere(tokens >= 0).tolist():
        slots[0, m, slot] = keys[0, m, tokens[0, m, slot]]
    after = trial.select(beams, found, width, key=trial.subject.put(slots))
    wanted = sorted(
        (-float(keys[0, m, v]), m, v)
        for m in range(keys.shape[1])
        for v in range(keys.shape[2])
        if np.isfinite(keys[0, m, v])
    )[:width]
    outcome = trial.host(after)
    assert int(outcome.count[0]) == len(wanted)
    for place, (negative, m, v) in enumerate(wanted):
        assert (int(outcome.parents[0, place]), int(outcome.tokens[0, place, -1])) == (m, v), (
            f"place {place} belongs to parent {m}, token {v}, with key {-negative!r}"
        )
        assert float(outcome.keys[0, place]) == -negative


@pytest.mark.needs("guidance: candidates")
def test_zero_and_minus_zero_are_equal_keys(subject: Subject) -> None:
    trial = Trial(subject, World.of(complete(4, 4), 4))
    keys = np.zeros((1, 4, 4), np.float32)
    keys[0, ::2, :] = -0.0
    keys[0, 1, 1::2] = -0.0
    for width in (1, 7, 16):
        select(trial, keys, width)


@pytest.mark.needs("guidance: candidates")
@pytest.mark.parametrize("around", [1.0, -1.0, 1e-30, -1e30, -87.5])
def test_keys_one_rounding_apart_are_in_order(subject: Subject, around: float) -> None:
    trial = Trial(subject, World.of(complete(5, 5), 5))
    keys = np.empty(25, np.float32)
    keys[0] = around
    for place in range(1, 25):
        keys[place] = np.nextafter(keys[place - 1], np.float32(np.inf))
    select(trial, keys.reshape(1, 5, 5), 25)
    select(trial, np.random.default_rng(0).permutation(keys).reshape(1, 5, 5), 12)


KEYS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf")]),
    st.integers(-3, 3).map(float),
    st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False),
)


@pytest.mark.needs("guidance: candidates")
@given(data=st.data())
def test_any_keys_are_ranked_exactly(subject: Subject, data: st.DataObject) -> None:
    places, slots = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 9))
    trial = Trial(subject, World.of(complete(places, slots)))
    keys = data.draw(st.lists(KEYS, min_size=places * slots, max_size=places * slots))
    width = data.draw(st.integers(1, places * slots + 2))
    select(trial, np.array(keys, np.float32).reshape(1, places, slots), width)
