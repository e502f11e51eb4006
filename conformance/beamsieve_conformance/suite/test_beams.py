"""Beams: the first step, counts and padding, parents, dead beams, finished beams, widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from beamsieve_conformance import model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

FEW = [(1, 2, 3), (1, 2, 4), (5, 6, 7)]
MIXED = [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0)]
"""Semantic IDs of one, two and three tokens."""


def test_begin_holds_one_beam_per_request(subject: Subject) -> None:
    trial = Trial(subject, World.of(FEW, 10))
    beams = trial.host(trial.begin(3))
    assert beams.step == 0
    assert beams.tokens.shape == (3, 1, 0)
    assert beams.scores.tolist() == beams.keys.tolist() == [[0.0]] * 3
    assert beams.rows.tolist() == [[0]] * 3
    assert beams.parents.tolist() == [[-1]] * 3
    assert beams.finished.tolist() == [[False]] * 3
    assert beams.count.tolist() == [1] * 3


@pytest.mark.parametrize("width", [1, 3, 8])
def test_the_first_step_expands_one_beam(subject: Subject, width: int) -> None:
    trial = Trial(subject, World.of([(v, 0) for v in range(8)], 8))
    found = trial.host(trial.walk([width], np.linspace(1, 0, 8)))
    assert found.parents[0].tolist() == [0] * width
    assert found.tokens[0, :, 0].tolist() == list(range(width))


@pytest.mark.parametrize("width", [4, 5, 64, 1000])
def test_fewer_candidates_than_width_leave_padding(subject: Subject, width: int) -> None:
    trial = Trial(subject, World.of(FEW, 10))
    rng = np.random.default_rng(width)
    beams = trial.begin(2)
    for real in (2, 2, 3):
        beams = trial.step(beams, width, model.given_logits(rng, trial.shape(beams)))
        assert trial.host(beams).count.tolist() == [real, real]


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30, 0.0])
def test_a_padded_place_is_never_expanded(subject: Subject, poison: float) -> None:
    # The model speaks for padded places too; what it says there counts for nothing.
    trial = Trial(subject, World.of([(0, 1, 1), (2, 0, 2), (2, 2, 2)], 3))
    first = trial.begin()
    beams = trial.step(first, 6, trial.logits(first, [0, 5, 1]))
    for width, real in ((6, 2), (9, 3)):
        logits = np.zeros(trial.shape(beams), np.float32)
        logits[:, real:] = poison
        beams = trial.step(beams, width, trial.logits(beams, logits))
    assert trial.host(beams).count.tolist() == [3]


@pytest.mark.needs("guidance: bonus", "guidance: nudge")
def test_guidance_of_a_padded_place_counts_for_nothing(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 1), (2, 0)], 3))
    first = trial.begin()
    beams = trial.step(first, 5, trial.logits(first, 0.0))
    lift = np.zeros(trial.shape(beams), np.float32)
    lift[:, 2:] = 100.0
    found = trial.host(trial.step(beams, 5, trial.logits(beams, 0.0, bonus=lift, nudge=lift)))
    assert found.count.tolist() == [2]


@pytest.mark.parametrize("places", [3, 7, 33])
@pytest.mark.parametrize("codebook", [5, 31, 65])
def test_parents_are_the_places_candidates_came_from(
    subject: Subject, codebook: int, places: int
) -> None:
    trial = Trial(subject, World.of([(a, b) for a in range(places) for b in range(codebook)]))
    rng = np.random.default_rng(codebook)
    beams = trial.begin(2)
    for width in (places, places * codebook):
        beams = trial.step(beams, width, model.given_logits(rng, trial.shape(beams)))


@pytest.mark.slow
def test_parents_are_exact_beyond_24_bits(subject: Subject) -> None:
    # 260 beams times 70 000 slots pass 2**24, where float32 stops counting. The hub's last slot is
    # the one whose place rounds up to the next beam's.
    sids = [(a, 69_999) for a in range(260)] + [(258, b) for b in range(69_999)]
    trial = Trial(subject, World.of(sids, [260, 70_000]))
    first = trial.begin()
    beams = trial.take(first, 260, trial.logits(first, np.linspace(1, 0, 260)))
    logits = np.zeros((1, 260, 70_000), np.float32)
    logits[0, 258, 69_990:] = np.arange(10) + 20.0
    found = trial.host(trial.take(beams, 269, trial.logits(beams, logits)))
    kept = zip(found.parents[0].tolist(), found.tokens[0, :, 1].tolist(), strict=True)
    assert set(kept) == {(m, 69_999) for m in range(260)} | {
        (258, v) for v in range(69_990, 69_999)
    }


def test_tokens_and_rows_follow_the_parent(subject: Subject) -> None:
    # Both survivors of the second step come from the second beam: the first one's state must go.
    trial = Trial(subject, World.of([(a, b, c) for a in (0, 1) for b in (2, 3) for c in (4, 5)], 6))
    first = trial.begin()
    beams = trial.step(first, 2, trial.logits(first, [0.1, 0, 0, 0, 0, 0]))
    sharp = np.zeros((1, 2, 6), np.float32)
    sharp[0, 0] = [0, 0, np.nan, np.nan, 0, 0]
    beams = trial.step(beams, 2, trial.logits(beams, sharp))
    assert trial.host(beams).parents[0].tolist() == [1, 1]
    found = trial.host(trial.step(beams, 4, trial.logits(beams, 0.0)))
    assert found.tokens[0].tolist() == [[1, 2, 4], [1, 2, 5], [1, 3, 4], [1, 3, 5]]


def test_scores_follow_the_parent(subject: Subject) -> None:
    trial = Trial(subject, World.of([(a, b) for a in range(6) for b in range(3)], 6))
    rng = np.random.default_rng(11)
    beams = trial.begin(3)
    beams = trial.step(beams, 6, model.given_logits(rng, trial.shape(beams)))
    found = trial.host(trial.step(beams, 18, trial.logits(beams, 0.0)))
    held = trial.host(beams)
    for b in range(3):
        expected = held.scores[b, found.parents[b]] - np.log(3)
        np.testing.assert_allclose(found.scores[b], expected, atol=1e-3)


def test_widths_may_grow_and_shrink(subject: Subject) -> None:
    trial = Trial(subject, World.of([tuple(sid) for sid in np.ndindex(3, 4, 3, 4)]))
    rng = np.random.default_rng(12)
    for widths in ([3, 12, 2, 5], [1, 2, 30, 1], [2, 1, 1, 4], [64, 3, 64, 64]):
        beams = trial.begin(2)
        for width in widths:
            beams = trial.step(beams, width, model.given_logits(rng, trial.shape(beams)))


# A beam that dies


@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
@pytest.mark.parametrize("dead", [-np.inf, np.nan, np.inf])
def test_a_beam_whose_candidates_all_die_ends(
    subject: Subject, dead: float, normalize: str
) -> None:
    world = World.of([(a, b, c) for a in range(3) for b in range(3) for c in (0, 1)], 4)
    trial = Trial(subject, world, normalize)  # type: ignore[arg-type]
    beams = trial.walk([3], batch=2)
    logits = np.zeros((2, 3, 4), np.float32)
    logits[0, 1] = dead
    beams = trial.step(beams, 9, trial.logits(beams, logits))
    found = trial.host(beams)
    assert found.count.tolist() == [6, 9]
    assert 1 not in found.parents[0].tolist()
    found = trial.host(trial.step(beams, 18, trial.logits(beams, 0.0)))
    assert found.count.tolist() == [12, 18]


def test_a_request_without_live_beams_stays_empty(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 0, 0), (1, 1, 1)], 2))
    beams = trial.walk([2], batch=2)
    logits = np.zeros((2, 2, 2), np.float32)
    logits[1] = -np.inf
    beams = trial.step(beams, 2, trial.logits(beams, logits))
    assert trial.host(beams).count.tolist() == [2, 0]
    found = trial.host(trial.step(beams, 2, trial.logits(beams, 1.0)))
    assert found.count.tolist() == [2, 0]
    assert found.scores[1].tolist() == [-np.inf, -np.inf]


def test_every_request_may_die_at_once(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 0, 0), (1, 1, 1)], 2))
    beams = trial.begin(3)
    beams = trial.step(beams, 2, trial.logits(beams, -np.inf))
    for _ in range(2):
        beams = trial.step(beams, 2, trial.logits(beams, 0.0))
    assert trial.host(beams).count.tolist() == [0, 0, 0]


# A beam that is finished


@pytest.mark.needs("variable length")
def test_a_complete_semantic_id_is_finished_at_once(subject: Subject) -> None:
    trial = Trial(subject, World.of(MIXED, 3))
    beams = trial.walk([3])
    assert trial.host(beams).finished[0].tolist() == [True, False, False]
    beams = trial.step(beams, 5, trial.logits(beams, 0.0))
    assert sorted(trial.host(beams).finished[0].tolist()) == [False] * 2 + [True] * 3
    found = trial.host(trial.step(beams, 6, trial.logits(beams, 0.0)))
    assert found.finished[0].tolist() == [True] * 6
    assert sorted(found.rows[0].tolist()) == list(range(6))


@pytest.mark.needs("variable length")
@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
def test_a_finished_beam_competes_unchanged(subject: Subject, normalize: str) -> None:
    trial = Trial(subject, World.of(MIXED, 3), normalize)  # type: ignore[arg-type]
    first = trial.begin()
    beams = trial.step(first, 3, trial.logits(first, [0.5, 0.4, 0.3]))
    score = float(trial.host(beams).scores[0, 0])
    for _ in range(2):
        beams = trial.step(beams, 6, trial.logits(beams, 0.3))
        found = trial.host(beams)
        place = found.tokens[0, :, 0].tolist().index(0)
        assert place == 0
        assert found.parents[0, 0] == 0
        assert found.tokens[0, 0, -1] == -1
        assert float(found.scores[0, 0]) == float(found.keys[0, 0]) == score


@pytest.mark.needs("variable length")
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
def test_logits_at_a_finished_beam_count_for_nothing(subject: Subject, poison: float) -> None:
    trial = Trial(subject, World.of(MIXED, 3))
    beams = trial.walk([3])
    logits = np.zeros((1, 3, 3), np.float32)
    logits[0, 0] = poison  # (0,) is complete
    beams = trial.step(beams, 6, trial.logits(beams, logits))
    assert trial.host(beams).count.tolist() == [5]


@pytest.mark.needs("variable length", "guidance: bonus", "guidance: nudge")
@pytest.mark.parametrize("value", [5.0, -5.0, np.nan, -np.inf])
def test_guidance_at_a_finished_beam_counts_for_nothing(subject: Subject, value: float) -> None:
    trial = Trial(subject, World.of(MIXED, 3))
    beams = trial.walk([3])
    guidance = np.zeros((1, 3, 3), np.float32)
    guidance[0, 0] = value
    inputs = trial.logits(beams, 0.0, bonus=guidance, nudge=guidance)
    found = trial.host(trial.step(beams, 6, inputs))
    place = found.parents[0].tolist().index(0)
    assert found.scores[0, place] == found.keys[0, place] == trial.host(beams).scores[0, 0]


@pytest.mark.needs("variable length", "guidance: nudge")
def test_a_finished_beam_forgets_the_nudge_that_it_got(subject: Subject) -> None:
    trial = Trial(subject, World.of(MIXED, 3))
    first = trial.begin()
    beams = trial.step(first, 3, trial.logits(first, 0.0, nudge=[4.0, 0.0, 0.0]))
    assert trial.host(beams).keys[0, 0] > trial.host(beams).scores[0, 0]
    found = trial.host(trial.step(beams, 6, trial.logits(beams, 0.0)))
    place = found.parents[0].tolist().index(0)
    assert found.keys[0, place] == found.scores[0, place]


@pytest.mark.needs("variable length")
def test_a_finished_beam_can_lose_its_place(subject: Subject) -> None:
    trial = Trial(subject, World.of(MIXED, 3))
    first = trial.begin()
    beams = trial.step(first, 2, trial.logits(first, [0.0, 3.0, -9.0]))
    found = trial.host(trial.step(beams, 2, trial.logits(beams, 0.0)))
    assert found.tokens[0].tolist() == [[1, 0], [1, 1]]


@pytest.mark.needs("variable length")
def test_a_search_of_finished_beams_alone_goes_on(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0,), (1,), (2, 0, 0)], 3))
    first = trial.begin()
    beams = trial.step(first, 2, trial.logits(first, [2.0, 1.0, -5.0]))
    held = trial.host(beams)
    for _ in range(2):
        beams = trial.step(beams, 2, trial.logits(beams, np.nan))
    found = trial.host(beams)
    assert found.scores.tolist() == held.scores.tolist()
    assert found.tokens[0].tolist() == [[0, -1, -1], [1, -1, -1]]


@pytest.mark.needs("variable length")
def test_nothing_follows_a_finished_beam(subject: Subject) -> None:
    # (1,) has no children, yet its neighbours' entries lie right behind where its own would be.
    trial = Trial(subject, World.of([(0, 0), (1,), (2, 1), (2, 2)], 3))
    found = trial.host(trial.walk([3, 8]))
    assert found.count.tolist() == [4]
    assert sorted(map(tuple, found.tokens[0, :4].tolist())) == [(0, 0), (1, -1), (2, 1), (2, 2)]


@pytest.mark.needs("variable length")
def test_an_end_token_tells_a_semantic_id_from_its_prefix(subject: Subject) -> None:
    # (1, 2) is a proper prefix of (1, 2, 3); both are found.
    trial = Trial(subject, World.of([(1, 2), (1, 2, 3), (4, 5, 6)], 7, end_token=True))
    beams = trial.walk([3, 3, 3, 3])
    found = trial.host(beams)
    assert found.count.tolist() == [3]
    assert found.finished[0].tolist() == [True] * 3
    assert sorted(map(tuple, found.tokens[0].tolist())) == [
        (1, 2, 3, 0),
        (1, 2, 7, -1),
        (4, 5, 6, 0),
    ]


@pytest.mark.needs("variable length", "guidance: bonus")
def test_a_bonus_lifts_live_beams_over_finished_ones(subject: Subject) -> None:
    # Log-probabilities alone never rise; with a bonus a live beam may overtake.
    trial = Trial(subject, World.of(MIXED, 3))
    first = trial.begin()
    beams = trial.step(first, 3, trial.logits(first, [3.0, 0.0, 0.0]))
    inputs = replace(trial.logits(beams, 0.0), bonus=np.full((1, 3, 3), 8.0, np.float32))
    found = trial.host(trial.step(beams, 5, inputs))
    assert found.parents[0, -1] == 0
    assert found.finished[0, -1]
