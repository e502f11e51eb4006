"""NaN and infinities, large and small numbers, and what accumulates in which dtype."""

from __future__ import annotations

import numpy as np
import pytest

from beamsieve.interface import Normalize
from beamsieve_conformance import features
from beamsieve_conformance.arrays import round_to
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

DTYPES = features.KNOWN["dtype"]
PROJECTIONS = features.KNOWN["projection"]
NORMALIZERS = ("all", "catalog", "eligible")
GRID = [(a, b) for a in range(4) for b in (0, 2, 3, 5)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("accident", [np.nan, np.inf, -np.inf])
def test_a_dead_candidate_takes_no_other_along(
    subject: Subject, accident: float, normalize: Normalize, dtype: str
) -> None:
    # Among valid tokens, and among tokens that no semantic ID has here (1 and 4).
    trial = Trial(subject, World.of(GRID, 6), normalize)
    beams = trial.walk([4], [0.1, 0.2, 0.3, 0.4, 0, 0], batch=2)
    logits = np.tile(np.linspace(-1, 1, 6, dtype=np.float32), (2, 4, 1))
    logits[0, 1, 2] = logits[0, 2, 5] = logits[1, 3, 0] = accident
    logits[:, 0, 1] = logits[1, :, 4] = accident
    found = trial.host(trial.step(beams, 20, trial.logits(beams, logits, dtype)))
    assert found.count.tolist() == [14, 15]


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_nan_never_wins(subject: Subject, normalize: Normalize) -> None:
    trial = Trial(subject, World.of(GRID, 6), normalize)
    beams = trial.begin()
    found = trial.host(trial.step(beams, 1, trial.logits(beams, [0, np.nan, 1, np.nan, 0, 0])))
    assert found.tokens[0].tolist() == [[2]]


def test_dead_candidates_do_not_fill_up_the_width(subject: Subject) -> None:
    # With more places than living candidates, dead ones must not fill up.
    trial = Trial(subject, World.of([(v,) for v in range(70)], 70))
    beams = trial.begin()
    logits = np.zeros(70, np.float32)
    logits[::2], logits[1::4] = np.nan, np.inf
    found = trial.host(trial.step(beams, 70, trial.logits(beams, logits)))
    assert found.count.tolist() == [17]


@pytest.mark.parametrize("width", [1, 10, 50])
def test_a_few_living_candidates_among_many_dead_are_all_that_is_kept(
    subject: Subject, width: int
) -> None:
    # The width-th best of so many slots is a dead one, which no threshold may let in.
    trial = Trial(subject, World.of([(a, b) for a in range(8) for b in range(300)], [8, 300]))
    beams = trial.walk([8], np.linspace(1, 0, 8), batch=2)
    logits = np.full((2, 8, 300), -np.inf, np.float32)
    logits[:, ::2, ::3] = np.nan
    logits[0, 5, [7, 250]], logits[0, 2, 64] = (0.0, 1.0), 0.0
    found = trial.host(trial.step(beams, width, trial.logits(beams, logits)))
    assert found.count.tolist() == [min(width, 3), 0]


@pytest.mark.needs("guidance: bonus")
@pytest.mark.parametrize("accident", [np.nan, -np.inf, np.inf])
def test_a_bonus_that_is_no_number_kills_its_candidate(subject: Subject, accident: float) -> None:
    trial = Trial(subject, World.of(GRID, 6))
    beams = trial.walk([4])
    bonus = np.zeros((1, 4, 6), np.float32)
    bonus[0, 2, 3] = accident
    found = trial.host(trial.step(beams, 16, trial.logits(beams, 0.0, bonus=bonus)))
    assert found.count.tolist() == [15]


@pytest.mark.needs("guidance: nudge")
@pytest.mark.parametrize("accident", [np.nan, -np.inf, np.inf])
def test_a_nudge_that_is_no_number_kills_its_candidate(subject: Subject, accident: float) -> None:
    trial = Trial(subject, World.of(GRID, 6))
    beams = trial.walk([4])
    nudge = np.zeros((1, 4, 6), np.float32)
    nudge[0, 2, 3] = accident
    found = trial.host(trial.step(beams, 16, trial.logits(beams, 0.0, nudge=nudge)))
    assert found.count.tolist() == [15]


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("accident", [np.nan, np.inf, -np.inf])
def test_an_accident_in_the_bias_kills_its_token_alone(
    subject: Subject, accident: float, projection: str
) -> None:
    trial = Trial(subject, World.of(GRID, 6))
    beams = trial.walk([4])
    bias = np.zeros(6, np.float32)
    bias[[1, 3]] = accident
    inputs = Inputs(
        hidden=np.ones((1, 4, 2), np.float32), head=np.ones((6, 2), np.float32), bias=bias
    )
    found = trial.host(trial.step(beams, 16, inputs, projection))  # type: ignore[arg-type]
    assert found.count.tolist() == [12]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("accident", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("hidden_at", "head_at", "counts"),
    [
        ([(0, 2, 5), (1, 0, 63), (1, 3, 0)], [], [12, 8]),
        ([], [(1, 0), (3, 40)], [12, 12]),  # 3 is a token of every row, 1 of none
    ],
    ids=["hidden states", "head"],
)
def test_an_accident_in_a_factor_kills_what_it_is_a_factor_of(
    subject: Subject,
    hidden_at: list[tuple[int, int, int]],
    head_at: list[tuple[int, int]],
    counts: list[int],
    accident: float,
    projection: str,
    dtype: str,
) -> None:
    trial = Trial(subject, World.of(GRID, 6))
    beams = trial.walk([4], batch=2)
    rng = np.random.default_rng(7)
    hidden, head = (round_to(rng.standard_normal(shape), dtype) for shape in ((2, 4, 64), (6, 64)))
    for where in hidden_at:
        hidden[where] = accident
    for place in head_at:
        head[place] = accident
    inputs = Inputs(hidden=hidden, head=head, dtype=dtype)
    found = trial.host(trial.step(beams, 20, inputs, projection))  # type: ignore[arg-type]
    assert found.count.tolist() == counts


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("height", [0.0, 300.0, -300.0, 3e4])
def test_large_logits_keep_their_differences(
    subject: Subject, height: float, normalize: Normalize
) -> None:
    # exp of the logits themselves would overflow, or vanish; their differences are exact.
    trial = Trial(subject, World.of(GRID, 6), normalize)
    beams = trial.begin(2)
    for width in (4, 9):
        values = height + np.array([0, 0.5, -0.25, 1.0, 0.75, -1.0])
        beams = trial.step(beams, width, trial.logits(beams, values))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_an_unlikely_token_keeps_a_finite_score(
    subject: Subject, normalize: Normalize, dtype: str
) -> None:
    # The logarithm of a softmax would be that of zero.
    trial = Trial(subject, World.of(GRID, 6), normalize)
    beams = trial.begin()
    for width in (4, 16):
        beams = trial.step(beams, width, trial.logits(beams, [0, 200, -200, 400, 50, -400], dtype))
    found = trial.host(beams)
    assert found.count.tolist() == [16]
    assert found.scores[0].min() < -700


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_low_scores_add_up_over_many_levels(subject: Subject, normalize: Normalize) -> None:
    sids = [tuple((n >> level) & 1 for level in range(8)) for n in range(0, 256, 5)]
    trial = Trial(subject, World.of(sids, 2), normalize)
    beams = trial.begin()
    for _ in range(8):
        beams = trial.step(beams, 60, trial.logits(beams, [0.0, -1000.0]))
    assert trial.host(beams).count.tolist() == [len(sids)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_the_mass_of_many_tokens_adds_up(
    subject: Subject, normalize: Normalize, dtype: str
) -> None:
    # A sum of 4097 equal terms stands still at 256 in bfloat16, and at 2048 in float16.
    trial = Trial(subject, World.of([(v,) for v in range(4097)], [4097]), normalize)
    beams = trial.begin()
    found = trial.host(trial.step(beams, 3, trial.logits(beams, 0.0, dtype)))
    np.testing.assert_allclose(found.scores[0], [-np.log(4097)] * 3, atol=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_products_accumulate_in_float32(subject: Subject, projection: str, dtype: str) -> None:
    # 4096 terms of 2**-10 each: a sum in half precision would stop growing long before 4.
    trial = Trial(subject, World.of([(v,) for v in range(5)], [5]))
    beams = trial.begin()
    head = np.zeros((5, 4096), np.float32)
    head[1], head[2], head[3] = 2.0**-10, 2.0**-11, -(2.0**-10)
    head[4, ::2] = 2.0**-10
    inputs = Inputs(
        hidden=np.ones((1, 1, 4096), np.float32), head=round_to(head, dtype), dtype=dtype
    )
    found = trial.host(trial.step(beams, 5, inputs, projection))  # type: ignore[arg-type]
    assert found.tokens[0, :, 0].tolist() == [1, 2, 4, 0, 3]


@pytest.mark.needs("dtype: float16")
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_large_half_precision_terms_may_cancel(subject: Subject, projection: str) -> None:
    # Each product is 40 000 and the first two already pass float16's 65 504; the sum is small.
    trial = Trial(subject, World.of([(v,) for v in range(3)], [3]))
    beams = trial.begin()
    hidden = np.full((1, 1, 4), 200.0, np.float32)
    head = np.array([[200, 200, -200, -200], [1, 0, 0, 0], [0, 0.01, 0, 0]], np.float32)
    inputs = Inputs(hidden=hidden, head=round_to(head, "float16"), dtype="float16")
    found = trial.host(trial.step(beams, 3, inputs, projection))  # type: ignore[arg-type]
    assert found.count.tolist() == [3]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_extremes_of_half_precision_are_numbers(subject: Subject, dtype: str) -> None:
    trial = Trial(subject, World.of(GRID, 6))
    beams = trial.begin()
    for width in (4, 16):
        inputs = trial.logits(beams, [65504, -65504, 0, 6e-8, 60000, -1], dtype)
        beams = trial.step(beams, width, inputs)
    assert trial.host(beams).count.tolist() == [16]
