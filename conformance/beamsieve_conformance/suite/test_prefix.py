"""Prefixes: a search that begins below the root, each request at its own place."""

from __future__ import annotations

import numpy as np
import pytest

from beamsieve_conformance import model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

SIDS = [(a, b, c) for a in (1, 3, 4) for b in (0, 2) for c in (a, 5)]


@pytest.mark.parametrize("length", [1, 2])
def test_a_prefix_begins_at_its_own_row(subject: Subject, length: int) -> None:
    trial = Trial(subject, World.of(SIDS, 6))
    prefixes = sorted({sid[:length] for sid in SIDS})
    beams = trial.begin(len(prefixes), prefix=prefixes)
    held = trial.host(beams)
    assert held.step == length
    assert held.tokens[:, 0].tolist() == [list(prefix) for prefix in prefixes]
    assert held.rows[:, 0].tolist() == list(range(len(prefixes)))
    assert held.scores.tolist() == [[0.0]] * len(prefixes)
    rng = np.random.default_rng(length)
    for _ in range(3 - length):
        beams = trial.step(beams, 5, model.given_logits(rng, trial.shape(beams)))
    found = trial.host(beams)
    for b, prefix in enumerate(prefixes):
        below = sorted(sid for sid in SIDS if sid[:length] == prefix)
        real = int(found.count[b])
        assert sorted(map(tuple, found.tokens[b, :real].tolist())) == below


@pytest.mark.parametrize("unknown", [(2, 0), (1, 1), (0, 0), (5, 5)])
def test_an_unknown_prefix_gives_an_empty_result(
    subject: Subject, unknown: tuple[int, int]
) -> None:
    trial = Trial(subject, World.of(SIDS, 6))
    beams = trial.begin(3, prefix=[(1, 2), unknown, (4, 0)])
    held = trial.host(beams)
    assert held.count.tolist() == [1, 0, 1]
    assert held.rows[1].tolist() == [-1]
    assert held.scores[1].tolist() == held.keys[1].tolist() == [-np.inf]
    found = trial.host(trial.step(beams, 4, trial.logits(beams, 0.0)))
    assert found.count.tolist() == [2, 0, 2]


def test_an_unknown_prefix_stays_empty_to_the_end(subject: Subject) -> None:
    trial = Trial(subject, World.of(SIDS, 6))
    beams = trial.begin(2, prefix=[(0,), (3,)])
    for _ in range(2):
        beams = trial.step(beams, 4, trial.logits(beams, 0.0))
    assert trial.host(beams).count.tolist() == [0, 4]
    hits = trial.engine.results(beams, k=4)
    assert len(hits[0]) == 0
    assert hits[0].reason
    assert len(hits[1]) == 4


def test_all_prefixes_may_be_unknown(subject: Subject) -> None:
    trial = Trial(subject, World.of(SIDS, 6))
    beams = trial.begin(2, prefix=[(0,), (2,)])
    for _ in range(2):
        beams = trial.step(beams, 3, trial.logits(beams, 0.0))
    assert trial.host(beams).count.tolist() == [0, 0]


def test_a_whole_semantic_id_as_prefix_is_finished(subject: Subject) -> None:
    trial = Trial(subject, World.of(SIDS, 6))
    found = trial.host(trial.begin(2, prefix=[(3, 2, 5), (3, 2, 4)]))
    assert found.finished[:, 0].tolist() == [True, False]
    assert found.rows[:, 0].tolist() == [sorted(SIDS).index((3, 2, 5)), -1]
    assert found.count.tolist() == [1, 0]


@pytest.mark.needs("variable length")
def test_a_short_semantic_id_as_prefix_is_finished_and_competes(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0,), (1, 0, 0), (1, 1, 0), (2,)], 3))
    beams = trial.begin(3, prefix=[(0,), (1,), (2,)])
    held = trial.host(beams)
    assert held.finished[:, 0].tolist() == [True, False, True]
    assert held.rows[:, 0].tolist() == [0, 1, 3]
    for real in (2, 2):
        beams = trial.step(beams, 2, trial.logits(beams, 0.0))
        assert trial.host(beams).count.tolist() == [1, real, 1]


@pytest.mark.needs("variable length")
def test_without_its_end_token_a_semantic_id_is_a_prefix_that_goes_on(subject: Subject) -> None:
    # Behind two tokens the end token is 5, one past the third level's codebook.
    trial = Trial(subject, World.of([(1, 2), (1, 2, 3), (4,)], 5, end_token=True))
    beams = trial.begin(2, prefix=[(1, 2), (4, 5)])
    assert trial.host(beams).finished[:, 0].tolist() == [False, True]
    beams = trial.step(beams, 3, trial.logits(beams, 0.0))
    held = trial.host(beams)
    assert held.count.tolist() == [2, 1]
    assert held.tokens[0, :2].tolist() == [[1, 2, 3], [1, 2, 5]]
    assert held.finished[:, :2].tolist() == [[False, True], [True, False]]
