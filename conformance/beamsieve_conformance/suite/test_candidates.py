"""The step in its two halves: candidates in padded slots, and the selection of the best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beamsieve.interface import Beams, Candidates, Normalize
from beamsieve_conformance import compare, model, oracle
from beamsieve_conformance.compare import allowed
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.targeted import COUNTRY, Request, accepts
from beamsieve_conformance.trial import Trial, World

pytestmark = pytest.mark.needs("guidance: candidates")

NORMALIZERS = ("all", "catalog", "eligible")
TREE = [(a, b, c) for a in range(4) for b in range(0, 70, 9 + a) for c in (b % 4, 4)]
MIXED = [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0)]


def slots(trial: Trial, found: Candidates) -> tuple[Any, Any, Any]:
    """The candidates' tokens, scores and rows as NumPy arrays, their form checked."""
    tokens, scores, rows = (
        np.array(trial.subject.backend.to_host(getattr(found, name)))
        for name in ("tokens", "scores", "rows")
    )
    assert tokens.dtype == np.int32
    assert scores.dtype == np.float32
    assert rows.dtype == np.int64
    assert tokens.shape == scores.shape == rows.shape
    empty = rows == -1
    assert (tokens[empty] == -1).all(), "an empty slot has a token"
    assert (scores[empty] == -np.inf).all(), "an empty slot has a score"
    assert not np.isnan(scores).any()
    for beam in tokens.reshape(-1, tokens.shape[-1]):
        real = beam[beam >= 0]
        assert (np.diff(real) > 0).all(), f"tokens must ascend within a beam: {real.tolist()}"
    return tokens, scores, rows


def check_candidates(trial: Trial, beams: Beams, inputs: Inputs) -> Candidates:
    """The first half, which must list exactly the living candidates of the specification, and no
    token that is none of its candidates: a score of the caller's own could raise it."""
    held = trial.host(beams)
    found = trial.engine.candidates(beams, **trial.subject.arguments(inputs))
    tokens, scores, rows = slots(trial, found)
    assert tokens.shape[:2] == (held.batch, held.width)
    expected = oracle.slots(trial.trie, held, inputs, trial.normalize, trial.permits)
    tolerance = trial.subject.capabilities.tolerance[inputs.dtype]
    for b in range(held.batch):
        for m in range(held.width):
            wanted = {
                int(expected.tokens[b, m, s]): (
                    int(expected.rows[b, m, s]),
                    expected.scores[b, m, s],
                )
                for s in np.flatnonzero(np.isfinite(expected.scores[b, m]))
            }
            living = np.flatnonzero(np.isfinite(scores[b, m]))
            listed = {
                int(tokens[b, m, s]): (int(rows[b, m, s]), float(scores[b, m, s])) for s in living
            }
            where = f"request {b}, beam {m}"
            compare.hold(
                set(listed) == set(wanted),
                "candidates",
                f"{where}: candidates {set(listed)}, not {set(wanted)}",
                f"the tokens {sorted(wanted)} of beam {m}",
                sorted(listed),
                b,
            )
            known = set(expected.tokens[b, m][expected.rows[b, m] != -1].tolist())
            others = set(tokens[b, m][rows[b, m] != -1].tolist()) - known
            compare.hold(
                not others,
                "candidates",
                f"{where}: the slots of {sorted(others)} are no candidates, and have a row",
                f"row -1 in every slot of beam {m} but those of {sorted(known)}",
                sorted(others),
                b,
            )
            for token, (row, score) in wanted.items():
                at = f"{where}, token {token}"
                has_row, has_score = listed[token]
                for rule, right, true, has in (
                    ("rows", has_row == row, row, has_row),
                    (
                        "scores",
                        abs(has_score - score) <= allowed(tolerance, score),
                        score,
                        has_score,
                    ),
                ):
                    said = f"{at}: {rule[:-1]} {has}, not {true}"
                    compare.hold(right, rule, said, f"{rule[:-1]} {true}, {at}", has, b)
    return found


def check_search(trial: Trial, beams: Beams, seed: int, kind: model.Kind = "smooth") -> None:
    """The first halves of a search's steps over random logits."""
    rng = np.random.default_rng(seed)
    for width in (3, 12, 30):
        inputs = model.given_logits(rng, trial.shape(beams), kind)
        check_candidates(trial, beams, inputs)
        beams = trial.step(beams, width, inputs)


@pytest.mark.parametrize("kind", model.KINDS)
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_candidates_list_every_valid_token_with_its_score(
    subject: Subject, normalize: Normalize, kind: model.Kind
) -> None:
    trial = Trial(subject, World.of(TREE, [4, 70, 5]), normalize)
    check_search(trial, trial.begin(2), 1, kind)


@pytest.mark.needs("guidance: bonus")
def test_candidates_contain_the_bonus(subject: Subject) -> None:
    trial = Trial(subject, World.of(TREE, [4, 70, 5]))
    rng = np.random.default_rng(2)
    beams = trial.begin(2)
    for width in (3, 12, 30):
        shape = trial.shape(beams)
        bonus = model.given_guidance(rng, shape)
        inputs = model.given_hidden(rng, shape, bonus=bonus)
        check_candidates(trial, beams, inputs)
        beams = trial.step(beams, width, inputs)


@pytest.mark.needs("targeting: bits")
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_candidates_are_those_that_targeting_keeps(subject: Subject, normalize: Normalize) -> None:
    rules = [
        accepts(country=[("US", "CA", "UK")[n % 3]]) if n % 4 else {} for n in range(len(TREE))
    ]
    world = World.of(TREE, [4, 70, 5], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world, normalize)
    requests: list[Request] = [{"country": "US"}, None, {"country": ["US", "CA"]}, {}]
    check_search(trial, trial.begin(requests=requests), 5)


@pytest.mark.needs("targeting: exclude")
def test_candidates_lead_to_no_dead_end(subject: Subject) -> None:
    trial = Trial(subject, World.of(TREE, [4, 70, 5]))
    requests: list[Request] = [{"exclude": list(range(10, 33))}, {"exclude": []}, None]
    check_search(trial, trial.begin(requests=requests), 6)


@pytest.mark.needs("variable length")
def test_a_finished_beam_is_its_own_only_candidate(subject: Subject) -> None:
    trial = Trial(subject, World.of(MIXED, 3))
    beams = trial.walk([3])
    held = trial.host(beams)
    found = check_candidates(trial, beams, trial.logits(beams, 0.0))
    tokens, scores, rows = slots(trial, found)
    place = held.finished[0].tolist().index(True)
    assert tokens[0, place, 0] == -1
    assert scores[0, place, 0] == held.scores[0, place]
    assert rows[0, place, 0] == held.rows[0, place]
    assert (rows[0, place, 1:] == -1).all()


def test_a_place_without_a_beam_has_no_candidates(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 1), (2, 0)], 3))
    beams = trial.walk([5], batch=2)
    found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, 0.0)))
    _, scores, rows = slots(trial, found)
    assert (rows[:, 2:] == -1).all()
    assert (scores[:, 2:] == -np.inf).all()


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("hidden", [False, True])
def test_both_halves_make_a_step(subject: Subject, hidden: bool, normalize: Normalize) -> None:
    sids = MIXED if subject.capabilities.variable_length else TREE
    trial = Trial(subject, World.of(sids), normalize)
    rng = np.random.default_rng(3)
    beams = trial.begin(2)
    for width in (3, 5, 9):
        shape = trial.shape(beams)
        inputs = model.given_hidden(rng, shape) if hidden else model.given_logits(rng, shape)
        before = trial.host(beams)
        found = trial.engine.candidates(beams, **subject.arguments(inputs))
        halves = trial.select(beams, found, width)
        trial.judge(before, halves, width, inputs)
        whole = trial.host(trial.step(beams, width, inputs))
        other = trial.host(halves)
        assert other.tokens.tolist() == whole.tokens.tolist()
        assert other.rows.tolist() == whole.rows.tolist()
        beams = halves


def test_a_key_ranks_and_the_score_is_carried_on(subject: Subject) -> None:
    # Ranked from worst to best: the key decides, and the next step adds to the score.
    trial = Trial(subject, World.of(TREE, [4, 70, 5]))
    rng = np.random.default_rng(4)
    beams = trial.begin(2)
    for width in (2, 7, 7):
        inputs = model.given_logits(rng, trial.shape(beams))
        held = trial.host(beams)
        found = trial.engine.candidates(beams, **subject.arguments(inputs))
        _, scores, rows = slots(trial, found)
        keys = np.where(rows >= 0, -scores, 0.0).astype(np.float32)
        after = trial.select(beams, found, width, key=subject.put(keys))
        expected = oracle.slots(trial.trie, held, inputs, trial.normalize)
        compare.check_step(
            held,
            trial.host(after),
            oracle.alive(trial.trie, held, expected, -expected.scores),
            width=width,
            tolerance=subject.capabilities.tolerance["float32"],
        )
        beams = after


def test_replaced_scores_rank_and_are_carried_on(subject: Subject) -> None:
    # The hub row leaves empty slots in every other row: no score makes a candidate of them.
    sids = [(0, v) for v in range(40)] + [(1, 3)]
    trial = Trial(subject, World.of(sids, 40))
    beams = trial.walk([2], np.linspace(1, 0, 40))
    found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, 0.0)))
    tokens, _, rows = slots(trial, found)
    own = (tokens % 8 * 5 + tokens // 8 - 50 * np.arange(2)[:, None]).astype(np.float32)
    scores = np.where(rows >= 0, own, 100.0).astype(np.float32)
    given = replace(found, scores=subject.put(scores))
    after = trial.host(trial.select(beams, given, 60))
    ranked = sorted((v % 8 * 5 + v // 8 for v in range(40)), reverse=True)
    assert after.count.tolist() == [41]
    assert after.scores[0, :41].tolist() == after.keys[0, :41].tolist() == [*ranked, 15 - 50]
    assert after.parents[0, :41].tolist() == [0] * 40 + [1]


@pytest.mark.parametrize("accident", [np.nan, -np.inf, np.inf])
def test_a_key_that_is_no_number_kills_its_candidate(subject: Subject, accident: float) -> None:
    trial = Trial(subject, World.of([(v,) for v in range(9)], [9]))
    beams = trial.begin()
    found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, 0.0)))
    tokens, _, rows = slots(trial, found)
    keys = np.where(rows >= 0, 1.0, -np.inf).astype(np.float32)
    keys[tokens == 4] = accident
    after = trial.host(trial.select(beams, found, 9, key=subject.put(keys)))
    assert after.tokens[0, :8, 0].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert after.count.tolist() == [8]


def test_a_key_raises_no_dead_candidate(subject: Subject) -> None:
    trial = Trial(subject, World.of([(v,) for v in range(9)], [9]))
    beams = trial.begin()
    logits = [0, 0, np.nan, 0, -np.inf, 0, 0, np.inf, 0]
    found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, logits)))
    tokens, scores, _ = slots(trial, found)
    keys = subject.put(np.full(tokens.shape, 7.0, np.float32))
    after = trial.host(trial.select(beams, found, 9, key=keys))
    assert after.count.tolist() == [6]
    assert np.isfinite(scores).sum() == 6


@pytest.mark.parametrize("width", [1, 10, 50])
def test_a_few_living_keys_among_many_dead_are_all_that_is_kept(
    subject: Subject, width: int
) -> None:
    trial = Trial(subject, World.of([(v,) for v in range(300)], [300]))
    beams = trial.begin()
    found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, 0.0)))
    tokens, _, _ = slots(trial, found)
    alive = np.isin(tokens, (7, 64, 299))
    keys = np.where(alive, tokens, np.where(tokens % 2, np.nan, -np.inf)).astype(np.float32)
    after = trial.host(trial.select(beams, found, width, key=subject.put(keys)))
    assert after.count.tolist() == [min(width, 3)]
    assert after.tokens[0, : min(width, 3), 0].tolist() == [299, 64, 7][:width]


def test_a_key_of_an_empty_slot_counts_for_nothing(subject: Subject) -> None:
    # The hub row leaves empty slots in every other row.
    sids = [(0, v) for v in range(40)] + [(1, 3)]
    trial = Trial(subject, World.of(sids, 40))
    beams = trial.walk([4])
    found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, 0.0)))
    _, scores, _ = slots(trial, found)
    keys = np.where(np.isfinite(scores), scores, 100.0).astype(np.float32)
    after = trial.host(trial.select(beams, found, 60, key=subject.put(keys)))
    assert after.count.tolist() == [41]
