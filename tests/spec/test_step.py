"""Single steps, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beamsieve_spec import (
    Beams,
    Candidates,
    InputError,
    Trie,
    add_nudge,
    begin,
    candidates,
    project,
    results,
    search,
    select,
    step,
)

from .models import from_table

INF, NAN = np.inf, np.nan
FLAT = Trie([(v,) for v in range(4)])
PAIRS = Trie([(a, b) for a in range(3) for b in range(3)])
SHORT = Trie([(0,), (1, 0)])


def root_step(logits: list[float], width: int = 4, **options: object) -> Beams:
    """One step of one request over a catalog of four single tokens."""
    return step(FLAT, begin(FLAT, 1), width, [[logits]], **options)  # type: ignore[arg-type]


def test_equal_keys_rank_by_parent_then_token() -> None:
    beams = step(PAIRS, begin(PAIRS, 1), 3, np.zeros((1, 1, 3)))
    assert beams.tokens[0].tolist() == [[0], [1], [2]]
    beams = step(PAIRS, beams, 5, np.zeros((1, 3, 3)))
    assert beams.tokens[0].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    assert beams.parents[0].tolist() == [0, 0, 0, 1, 1]


def test_a_parents_place_outranks_its_tokens() -> None:
    """The better beam at step 1 has the higher token, so place and token disagree."""
    beams = step(PAIRS, begin(PAIRS, 1), 2, [[[0.0, -INF, 1.0]]])
    assert beams.tokens[0].tolist() == [[2], [0]]
    level = select(
        PAIRS,
        beams,
        Candidates(
            tokens=np.array([[[1, 2], [0, 1]]], np.int32),
            scores=np.full((1, 2, 2), -1.0),
            rows=np.array([[[7, 8], [0, 1]]]),
            beams=beams,
        ),
        width=3,
    )
    assert level.tokens[0].tolist() == [[2, 1], [2, 2], [0, 0]]
    assert level.parents[0].tolist() == [0, 0, 1]


def test_all_survivors_may_come_from_one_beam() -> None:
    beams = step(PAIRS, begin(PAIRS, 1), 2, [[[9.0, 0.0, -INF]]])
    beams = step(PAIRS, beams, 2, [[[0.0, 0.0, -INF], [0.0, 0.0, 0.0]]])
    assert beams.tokens[0].tolist() == [[0, 0], [0, 1]]
    assert beams.parents[0].tolist() == [0, 0]
    assert beams.rows[0].tolist() == [0, 1]


@pytest.mark.parametrize("accident", [NAN, INF, -INF])
@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
def test_an_unusable_logit_kills_its_own_candidate_alone(accident: float, normalize: str) -> None:
    beams = root_step([0.0, accident, 0.0, -INF], normalize=normalize)
    assert beams.tokens[0, :2].tolist() == [[0], [2]]
    np.testing.assert_allclose(beams.scores[0, :2], np.log(0.5))
    assert beams.count.tolist() == [2]


def test_a_beam_without_usable_logits_ends_and_leaves_the_others_alone() -> None:
    two = step(PAIRS, begin(PAIRS, 1), 2, [[[0.0, 0.0, -INF]]])
    beams = step(PAIRS, two, 4, [[[-INF, NAN, INF], [0.0, 0.0, 0.0]]])
    assert beams.tokens[0].tolist() == [[1, 0], [1, 1], [1, 2], [-1, -1]]
    assert beams.count.tolist() == [3]


def test_padding_has_its_values() -> None:
    beams = root_step([0.0, -INF, -INF, -INF], width=3)
    assert beams.count.tolist() == [1]
    assert beams.tokens[0, 1:].tolist() == [[-1], [-1]]
    assert beams.scores[0, 1:].tolist() == beams.keys[0, 1:].tolist() == [-INF, -INF]
    assert beams.rows[0, 1:].tolist() == beams.parents[0, 1:].tolist() == [-1, -1]
    assert beams.finished[0].tolist() == [True, False, False]


def test_nothing_in_padding_is_looked_at() -> None:
    beams = step(PAIRS, begin(PAIRS, 1), 3, [[[0.0, -INF, -INF]]])
    logits = np.array([[[0.0, 1.0, 2.0], [NAN] * 3, [1e9] * 3]])
    after = step(PAIRS, beams, 5, logits, bonus=logits, nudge=logits)
    assert after.count.tolist() == [3]
    assert after.parents[0].tolist() == [0, 0, 0, -1, -1]


def test_a_bonus_is_carried_on_and_a_nudge_is_not() -> None:
    beams = root_step([0.0] * 4, bonus=[[[0.0, 3.0, 0.0, 0.0]]], nudge=[[[0.0, 0.0, 4.0, 0.0]]])
    assert beams.tokens[0].tolist() == [[2], [1], [0], [3]]
    base = np.log(0.25)
    np.testing.assert_allclose(beams.scores[0], [base, base + 3, base, base])
    np.testing.assert_allclose(beams.keys[0], [base + 4, base + 3, base, base])


@pytest.mark.parametrize("name", ["bonus", "nudge"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_unusable_guidance_kills_its_candidate(name: str, value: float) -> None:
    guidance: dict[str, Any] = {name: [[[0.0, value, 0.0, 0.0]]]}
    beams = root_step([0.0] * 4, **guidance)
    assert beams.tokens[0, :3].tolist() == [[0], [2], [3]]
    assert beams.count.tolist() == [3]


def test_a_dead_candidate_stays_dead_whatever_its_key() -> None:
    beams = begin(FLAT, 1)
    found = candidates(FLAT, beams, [[[0.0, -INF, 0.0, 0.0]]])
    assert found.tokens[0, 0].tolist() == [0, 1, 2, 3]
    kept = select(FLAT, beams, found, 4, keys=[[[1.0, 99.0, 2.0, 3.0]]])
    assert kept.tokens[0].tolist() == [[3], [2], [0], [-1]]
    assert kept.keys[0].tolist() == [3.0, 2.0, 1.0, -INF]


def test_no_score_makes_a_candidate_of_an_empty_slot() -> None:
    trie = Trie([(0, 0), (0, 1), (1, 1)])
    beams = step(trie, begin(trie, 1), 2, [[[1.0, 0.0]]])
    found = candidates(trie, beams, np.zeros((1, 2, 2)))
    raised = replace(found, scores=np.array([[[1.0, 2.0], [3.0, 9.0]]]))
    kept = select(trie, beams, raised, 4)
    assert kept.tokens[0, :3].tolist() == [[1, 1], [0, 1], [0, 0]]
    assert kept.scores[0].tolist() == [3.0, 2.0, 1.0, -INF]


def test_a_nudge_raises_no_dead_candidate() -> None:
    found = candidates(FLAT, begin(FLAT, 1), [[[0.0, NAN, 0.0, 0.0]]])
    assert add_nudge(found, np.ones((1, 1, 4)))[0, 0, 1] == -INF


def test_a_dead_candidate_shows_its_token_and_a_score_of_minus_infinity() -> None:
    logits, bonus = [[[0.0, NAN, 0.0, 0.0]]], [[[0.0, 0.0, NAN, INF]]]
    found = candidates(FLAT, begin(FLAT, 1), logits, bonus=bonus)
    assert found.tokens[0, 0].tolist() == [0, 1, 2, 3]
    assert found.scores[0, 0, 1:].tolist() == [-INF, -INF, -INF]


def test_a_finished_beam_competes_unchanged() -> None:
    trie = Trie([(0,), (1, 0), (1, 1)])
    beams = step(trie, begin(trie, 1), 2, [[[0.0, np.log(3.0)]]])
    assert beams.tokens[0].tolist() == [[1], [0]]
    assert beams.finished[0].tolist() == [False, True]
    assert beams.rows[0].tolist() == [1, 0], "a live beam's row, a finished beam's leaf"

    guidance = np.array([[[0.0, 0.0], [50.0, 50.0]]])
    after = step(trie, beams, 3, [[[0.0, 0.0], [9.0, NAN]]], bonus=guidance, nudge=guidance)
    assert after.tokens[0].tolist() == [[1, 0], [1, 1], [0, -1]]
    np.testing.assert_allclose(after.scores[0], np.log([0.375, 0.375, 0.25]))
    np.testing.assert_array_equal(after.keys, after.scores)
    assert after.parents[0].tolist() == [0, 0, 1]
    assert after.rows[0].tolist() == [1, 2, 0]
    assert after.finished.all()


def test_a_finished_beams_slot_says_what_it_is() -> None:
    trie = Trie([(0,), (1, 0), (1, 1)])
    beams = step(trie, begin(trie, 1), 2, [[[0.0, 0.0]]])
    found = candidates(trie, beams, np.zeros((1, 2, 2)))
    assert found.tokens[0].tolist() == [[-1, -1], [0, 1]]
    assert found.rows[0].tolist() == [[0, -1], [0, 1]]
    assert found.scores[0, 0].tolist() == [np.log(0.5), -INF]


def test_the_two_halves_make_the_step() -> None:
    source = np.random.default_rng(5)
    beams = step(PAIRS, begin(PAIRS, 2), 3, source.normal(size=(2, 1, 3)))
    logits, bonus, nudge = source.normal(size=(3, 2, 3, 3))
    found = candidates(PAIRS, beams, logits, bonus=bonus)
    halves = select(PAIRS, beams, found, 4, add_nudge(found, nudge))
    whole = step(PAIRS, beams, 4, logits, bonus=bonus, nudge=nudge)
    for name in ("tokens", "scores", "keys", "rows", "parents", "finished", "count"):
        np.testing.assert_array_equal(getattr(halves, name), getattr(whole, name))


def test_normalizers_differ_in_their_denominator_alone() -> None:
    trie = Trie([(0,), (1,), (2,)], codebooks=[4])
    logits = np.log([[[1.0, 2.0, 3.0, 4.0]]])

    def keeps(b: int, prefix: tuple[int, ...]) -> bool:
        return prefix != (2,)

    for normalize, mass in (("all", 10.0), ("catalog", 6.0), ("eligible", 3.0)):
        beams = step(trie, begin(trie, 1), 3, logits, normalize, permits=keeps)  # type: ignore[arg-type]
        assert beams.tokens[0].tolist() == [[1], [0], [-1]]
        np.testing.assert_allclose(beams.scores[0, :2], np.log([2 / mass, 1 / mass]))


def test_hidden_states_and_heads_multiply_in_float64() -> None:
    hidden = np.array([[[1.0, 1e-9]]], np.float32)
    head = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
    assert project(hidden, head)[0, 0, 1] == 1.0 + float(np.float32(1e-9))


def test_a_search_begins_with_score_and_key_zero() -> None:
    beams = begin(PAIRS, 2, prefixes=[(2,), (7,)])
    assert beams.scores.tolist() == beams.keys.tolist() == [[0.0], [-INF]]
    assert beams.parents.tolist() == [[-1], [-1]]


def test_select_takes_candidates_of_its_own_beams_alone() -> None:
    beams = step(PAIRS, begin(PAIRS, 1), 2, [[[0.0, 1.0, 2.0]]])
    others = step(PAIRS, begin(PAIRS, 1), 2, [[[0.0, 1.0, 2.0]]])
    found = candidates(PAIRS, beams, np.zeros((1, 2, 3)))
    assert select(PAIRS, beams, found, 2).tokens.tolist() == [[[2, 0], [2, 1]]]
    with pytest.raises(InputError, match="of other beams"):
        select(PAIRS, others, found, 2)


def test_what_cannot_be_answered_is_refused() -> None:
    for call in (
        lambda: begin(FLAT, 0),
        lambda: begin(FLAT, 2, prefixes=[(0,)]),
        lambda: begin(PAIRS, 2, prefixes=[(0,), (0, 1)]),
        lambda: begin(FLAT, 1, prefixes=[(0, 0)]),
        lambda: root_step([0.0] * 4, width=0),
        lambda: root_step([0.0] * 3),
        lambda: step(FLAT, root_step([0.0] * 4), 1, np.zeros((1, 4, 4))),
        lambda: search(FLAT, from_table(FLAT, {(): [0.0] * 4}), [1, 1]),
        lambda: results(FLAT, begin(FLAT, 1)),
        lambda: results(SHORT, begin(SHORT, 2, prefixes=[(0,), (1,)])),
        lambda: results(FLAT, root_step([0.0] * 4), k=0),
    ):
        with pytest.raises(InputError):
            call()


def test_results_need_no_further_level_where_every_beam_is_finished() -> None:
    beams = begin(SHORT, 2, prefixes=[(0,), (7,)])
    assert [[hit.sid for hit in hits] for hits in results(SHORT, beams)] == [[(0,)], []]
