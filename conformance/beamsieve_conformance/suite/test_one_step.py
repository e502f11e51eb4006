"""One step, exactly: candidates, logits, log-probabilities, scores, keys, and the best of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from beamsieve.interface import Normalize
from beamsieve_conformance import features, model
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

DTYPES = features.KNOWN["dtype"]
NORMALIZERS = ("all", "catalog", "eligible")
PROJECTIONS = features.KNOWN["projection"]
SQUARE = [(a, b) for a in range(5) for b in range(7)]


def test_candidates_are_the_tokens_that_may_follow_the_whole_prefix(subject: Subject) -> None:
    # The same last token, reached through two prefixes, is followed by different tokens.
    trial = Trial(subject, World.of([(1, 2, 3), (8, 2, 9)], 10))
    beams = trial.host(trial.walk([4, 4, 4]))
    assert beams.count.tolist() == [2]
    assert beams.tokens[0, :2].tolist() == [[1, 2, 3], [8, 2, 9]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_logits_may_be_given(subject: Subject, normalize: Normalize, dtype: str) -> None:
    trial = Trial(subject, World.of(SQUARE, [6, 9]), normalize)
    rng = np.random.default_rng(1)
    beams = trial.begin(3)
    for width in (4, 11):
        inputs = model.given_logits(rng, trial.shape(beams), dtype=dtype)
        beams = trial.step(beams, width, inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_logits_are_hidden_times_head(
    subject: Subject, projection: str, normalize: Normalize, dtype: str
) -> None:
    trial = Trial(subject, World.of(SQUARE, [6, 9]), normalize)
    rng = np.random.default_rng(2)
    beams = trial.begin(3)
    for width in (4, 11):
        inputs = model.given_hidden(rng, trial.shape(beams), dtype=dtype)
        beams = trial.step(beams, width, inputs, projection)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_step_of_many_candidates(subject: Subject, projection: str, dtype: str) -> None:
    # Some 10 000 for each request: a backend may take a way of its own for so many.
    rng = np.random.default_rng(11)
    rows = [(a, b) for a in range(40) for b in rng.permutation(320)[: 200 + a].tolist()]
    trial = Trial(subject, World.of(rows, [40, 320]))
    beams = trial.begin(2)
    for width in (40, 60):
        inputs = model.given_hidden(rng, trial.shape(beams), dtype=dtype)
        beams = trial.step(beams, width, inputs, projection)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_bias_is_added_to_the_product(subject: Subject, projection: str, dtype: str) -> None:
    trial = Trial(subject, World.of(SQUARE, [6, 9]))
    rng = np.random.default_rng(3)
    beams = trial.begin(3)
    for width in (4, 11):
        inputs = model.given_hidden(rng, trial.shape(beams), dtype=dtype, bias=True)
        beams = trial.step(beams, width, inputs, projection)  # type: ignore[arg-type]


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_product_and_given_logits_agree(subject: Subject, normalize: Normalize) -> None:
    # Small whole numbers: every product and sum is exact, so the two ways may not differ at all.
    trial = Trial(subject, World.of(SQUARE, [6, 9]), normalize)
    rng = np.random.default_rng(4)
    given, multiplied = trial.begin(2), trial.begin(2)
    for width in (3, 10):
        inputs = model.given_hidden(rng, trial.shape(given), "tied")
        given = trial.step(given, width, Inputs(logits=inputs.all_logits().astype(np.float32)))
        multiplied = trial.step(multiplied, width, inputs)
        left, right = trial.host(given), trial.host(multiplied)
        assert left.tokens.tolist() == right.tokens.tolist()
        assert left.parents.tolist() == right.parents.tolist()


@pytest.mark.parametrize(
    ("normalize", "best"),
    [
        ("catalog", [((0, 0), -0.598139), ((1, 1), -1.111401)]),
        ("eligible", [((0, 0), -0.598139), ((1, 1), -1.111401)]),
        ("all", [((1, 1), -1.111603), ((1, 0), -2.111603)]),
    ],
)
def test_the_normalizer_decides_the_ranking(
    subject: Subject, normalize: Normalize, best: list[tuple[tuple[int, int], float]]
) -> None:
    # (0, 0) is 0's only child: it costs nothing over the catalog's tokens, much over all.
    trial = Trial(subject, World.of([(0, 0), (1, 0), (1, 1)], 4), normalize)
    first = trial.begin()
    beams = trial.step(first, 2, trial.logits(first, [0, -0.2, -9, -9]))
    beams = trial.step(beams, 2, trial.logits(beams, [[1, 0, 3, -9], [0, 1, -9, -9]]))
    found = trial.host(beams)
    assert found.tokens[0].tolist() == [list(sid) for sid, _ in best]
    np.testing.assert_allclose(found.scores[0], [score for _, score in best], atol=1e-4)


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_scores_add_up_along_the_way(subject: Subject, normalize: Normalize) -> None:
    world = World.of(
        [(a, b, c, d) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)], 3
    )
    trial = Trial(subject, world, normalize)
    rng = np.random.default_rng(5)
    beams, total = trial.begin(), {(): 0.0}
    for _ in range(4):
        held = trial.host(beams)
        inputs = model.given_logits(rng, trial.shape(beams))
        beams = trial.step(beams, 16, inputs)
        logits = inputs.all_logits()[0]
        over = [0, 1, 2] if normalize == "all" else [0, 1]
        total = {
            (*held.tokens[0, m].tolist(), v): total[tuple(held.tokens[0, m].tolist())]
            + logits[m, v]
            - np.log(np.exp(logits[m, over]).sum())
            for m in range(int(held.count[0]))
            for v in (0, 1)
        }
    found = trial.host(beams)
    assert int(found.count[0]) == 16
    tolerance = 4 * subject.capabilities.tolerance["float32"]
    for tokens, score in zip(found.tokens[0].tolist(), found.scores[0].tolist(), strict=True):
        assert abs(score - total[tuple(tokens)]) <= tolerance * max(1.0, abs(score))


def test_the_best_are_kept_over_all_beams_of_the_request(subject: Subject) -> None:
    # All of the best candidates come from one beam, and it is not the first.
    trial = Trial(subject, World.of([(a, b) for a in range(3) for b in range(8)], 8))
    first = trial.begin()
    beams = trial.step(first, 3, trial.logits(first, [0.2, 0.1, 0, 0, 0, 0, 0, 0]))
    sharp = np.zeros((1, 3, 8), np.float32)
    sharp[0, :, 0] = [-3, 9, -3]  # after beam 1, token 0 has nearly all the mass
    sharp[0, 1, 1] = 8.5
    found = trial.host(trial.step(beams, 2, trial.logits(beams, sharp)))
    assert found.parents[0].tolist() == [1, 1]
    assert found.tokens[0].tolist() == [[1, 0], [1, 1]]


def test_requests_do_not_share_candidates(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 1), (0, 2), (5, 3)], 6))
    beams = trial.begin(2, prefix=[(0,), (5,)])
    found = trial.host(trial.step(beams, 3, trial.logits(beams, 0.0)))
    assert found.count.tolist() == [2, 1]
    assert found.tokens[1, 0].tolist() == [5, 3]


@pytest.mark.needs("guidance: bonus")
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_a_bonus_joins_the_score_and_is_carried_on(subject: Subject, normalize: Normalize) -> None:
    trial = Trial(subject, World.of(SQUARE, [6, 9]), normalize)
    rng = np.random.default_rng(6)
    beams = trial.begin(2)
    for width in (4, 11):
        shape = trial.shape(beams)
        bonus = model.given_guidance(rng, shape)
        beams = trial.step(beams, width, model.given_logits(rng, shape, bonus=bonus))
    found = trial.host(beams)
    assert found.keys.tolist() == found.scores.tolist()


@pytest.mark.needs("guidance: bonus")
def test_a_bonus_stays_out_of_the_normalizer(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0,), (1,)], 2), "catalog")
    beams = trial.begin()
    inputs = replace(trial.logits(beams, 0.0), bonus=np.array([[[0, 3]]], np.float32))
    found = trial.host(trial.step(beams, 2, inputs))
    assert found.tokens[0, :, 0].tolist() == [1, 0]
    np.testing.assert_allclose(found.scores[0], [3 - np.log(2), -np.log(2)], atol=1e-3)


@pytest.mark.needs("guidance: nudge")
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_a_nudge_counts_in_one_choice_alone(subject: Subject, normalize: Normalize) -> None:
    trial = Trial(subject, World.of(SQUARE, [6, 9]), normalize)
    rng = np.random.default_rng(7)
    first = trial.begin(2)
    shape = trial.shape(first)
    nudge = model.given_guidance(rng, shape)
    beams = trial.step(first, 4, model.given_logits(rng, shape, nudge=nudge))
    nudged = trial.host(beams)
    assert (nudged.keys != nudged.scores).any()
    after = trial.host(trial.step(beams, 11, model.given_logits(rng, trial.shape(beams))))
    assert after.keys.tolist() == after.scores.tolist()


@pytest.mark.needs("guidance: nudge", "guidance: bonus")
def test_bonus_and_nudge_may_come_together(subject: Subject) -> None:
    trial = Trial(subject, World.of(SQUARE, [6, 9]))
    rng = np.random.default_rng(8)
    beams = trial.begin(2)
    for width in (4, 11):
        shape = trial.shape(beams)
        bonus, nudge = (model.given_guidance(rng, shape) for _ in range(2))
        inputs = model.given_hidden(rng, shape, bonus=bonus, nudge=nudge)
        beams = trial.step(beams, width, inputs)


@pytest.mark.needs("guidance: nudge", "guidance: candidates", "variable length")
def test_keys_of_candidates_are_their_scores_and_the_nudge(subject: Subject) -> None:
    # The half that a backend with a step of its own does not need for its steps.
    trial = Trial(subject, World.of([(0,), (1, 0), (1, 2), (2, 1)], 3))
    beams = trial.walk([4], [2.0, 1.0, 0.0])  # (0,) is finished, the fourth place is empty
    inputs = trial.logits(beams, 0.0)
    found = trial.engine.candidates(beams, **subject.arguments(inputs))
    nudge = np.arange(1, 13, dtype=np.float32).reshape(1, 4, 3)
    backend = subject.backend
    given = backend.asarray(subject.put(nudge), what="nudge")
    keys = np.array(backend.to_host(backend.add_nudge(found, given)))
    tokens, scores = (np.array(backend.to_host(x)) for x in (found.tokens, found.scores))
    for at in np.argwhere(np.isfinite(scores)).tolist():
        _, m, slot = at
        token = int(tokens[0, m, slot])
        assert keys[0, m, slot] == scores[0, m, slot] + (nudge[0, m, token] if token >= 0 else 0)
    assert np.isfinite(scores).sum() == 4
    assert not np.isfinite(keys[~np.isfinite(scores)]).any()
