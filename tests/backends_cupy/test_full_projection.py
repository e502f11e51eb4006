"""The full projection and its two passes over tiles, against float64 arithmetic in NumPy."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from beamsieve.index.build import make_table
from beamsieve.interface import Beams, Search, StepInputs
from beamsieve_backends.cupy_raw import steps

ROWS = 30


def make_case(V, M, d, seed=0):
    """A dense last table, with beams on its rows, one finished and the last two not there."""
    rng = np.random.default_rng(seed)
    valid = rng.random((ROWS, V)) < rng.random((ROWS, 1))
    valid[:, 0] |= ~valid.any(axis=1)
    row, token = np.nonzero(valid)
    starts = np.searchsorted(row, np.arange(ROWS + 1)).astype(np.int32)
    table = make_table(1, V, starts, token.astype(np.uint16), "dense")
    rows = rng.integers(0, ROWS, (1, M))
    scores = np.sort(-4 * rng.random((1, M)).astype(np.float32), axis=1)[:, ::-1].copy()
    finished = np.zeros((1, M), np.bool_)
    finished[0, 1] = True
    hidden = rng.standard_normal((1, M, d)).astype(np.float32)
    head = (rng.standard_normal((V, d)) / d**0.5).astype(np.float32)
    return (
        table,
        valid,
        Beams(
            step=0,
            tokens=np.empty((1, M, 0), np.int32),
            scores=scores,
            keys=scores,
            rows=rows,
            parents=np.full((1, M), -1),
            finished=finished,
            count=np.array([M - 2]),
            search=None,  # type: ignore[arg-type]
        ),
        hidden,
        head,
    )


def run(backend, table, beams, inputs, normalize="catalog"):
    index: Any = SimpleNamespace(tables=(table,))
    begun = backend.begin(
        Search(index, backend.load(index), 1, None),
        np.empty((1, 0), np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, bool),
    )
    return backend.step(replace(beams, search=begun.search), inputs, normalize)


def expected(valid, beams, logits, width, normalize):
    """(keys, parents, tokens) of the best, in float64; a finished beam's token is -1."""
    own = valid[beams.rows[0]]
    logits = np.where(np.isfinite(logits), logits, -np.inf)
    counted = np.where(own if normalize == "catalog" else True, logits, -np.inf)
    mass = np.log(np.exp(counted - counted.max(1, keepdims=True)).sum(1)) + counted.max(1)
    keys = np.where(own, beams.scores[0][:, None] + logits - mass[:, None], -np.inf)
    keys[1] = -np.inf
    keys[1, 0] = beams.scores[0, 1]
    keys[int(beams.count[0]) :] = -np.inf
    order = np.argsort(-keys.ravel(), kind="stable")[:width]
    order = order[np.isfinite(keys.ravel()[order])]
    parents, tokens = np.divmod(order, keys.shape[1])
    return keys.ravel()[order], parents, np.where(parents == 1, -1, tokens)


def check(backend, case, width, dtype="float32", normalize="catalog", bias=None):
    table, valid, beams, hidden, head = case
    brain = dtype == "bfloat16"
    kind = pytest.importorskip("ml_dtypes").bfloat16 if brain else np.dtype(dtype)
    hidden, head = hidden.astype(kind), head.astype(kind)
    inputs = StepInputs(width, hidden=hidden, head=head, bias=bias, projection="full")
    after = run(backend, table, beams, inputs, normalize)
    logits = hidden[0].astype(np.float64) @ head.astype(np.float64).T
    if bias is not None:
        logits = logits + bias
    keys, parents, tokens = expected(valid, beams, logits, width, normalize)
    n = int(after.count[0])
    assert n == len(keys)
    np.testing.assert_allclose(after.keys[0, :n], keys, rtol=1e-6, atol=3e-6)
    differs = (after.parents[0, :n] != parents) | (after.tokens[0, :n, 0] != tokens)
    assert differs.sum() <= 4  # neighbours of nearly equal keys may change places
    return after


@pytest.fixture(autouse=True)
def tiles_always(monkeypatch):
    """Even few candidates go through tiles."""
    monkeypatch.setattr(steps, "FEW_CANDIDATES", 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("vocabulary", [300, 302, 1500])
def test_every_dtype(backend, dtype, vocabulary):
    check(backend, make_case(vocabulary, 70, 40), 60, dtype)


@pytest.mark.parametrize("normalize", ["catalog", "all"])
def test_a_bias_and_both_denominators(backend, normalize):
    bias = np.random.default_rng(1).standard_normal(130).astype(np.float32)
    check(backend, make_case(130, 40, 16), 50, normalize=normalize, bias=bias)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_warp_for_each_part_or_one_for_all_changes_no_bit(backend, monkeypatch, dtype):
    case = make_case(1500, 70, 24)
    found = []
    for processors in (1, 40):
        monkeypatch.setattr(backend._device, "multiprocessors", processors)
        after = check(backend, case, 60, dtype)
        found.append((after.keys.tobytes(), after.tokens.tobytes(), after.parents.tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [13, 260])  # no whole vectors; more of them than a lane each
def test_rows_of_any_length(backend, size):
    check(backend, make_case(130, 21, size), 40)


def test_a_tile_to_a_thread_or_several_changes_no_bit(backend, monkeypatch):
    case = make_case(1500, 70, 24)
    found = []
    for tiles in (steps.TILES_TO_OPEN, 1 << 20):  # 1680 tiles: several blocks, and one
        monkeypatch.setattr(steps, "TILES_TO_OPEN", tiles)
        after = check(backend, case, 60, "float16")
        found.append((after.keys.tobytes(), after.tokens.tobytes(), after.parents.tobytes()))
    assert found[0] == found[1]


def test_numbers_of_any_size(backend):
    table, valid, beams, hidden, head = make_case(130, 40, 16)
    hidden[0, ::3] *= np.float32(2.0**100)
    hidden[0, 1::3] *= np.float32(2.0**-100)
    head[::2] *= np.float32(2.0**-100)
    head[1::2] *= np.float32(2.0**-120)
    check(backend, (table, valid, beams, hidden, head), 50)


def test_logits_that_are_not_finite_die_alone(backend):
    table, valid, beams, hidden, head = make_case(130, 40, 16)
    head[5, 3] = np.nan
    head[70, 0] = np.inf
    check(backend, (table, valid, beams, hidden, head), 50)


def test_more_equal_keys_than_fit_are_taken_in_order(backend):
    table, valid, beams, hidden, head = make_case(300, 70, 16)
    hidden[:] = 0
    beams.scores[:] = -1
    beams.rows[:] = int(valid.sum(axis=1).argmax())
    after = check(backend, (table, valid, beams, hidden, head), 300)
    chosen = np.flatnonzero(valid[beams.rows[0, 0]])
    assert after.tokens[0, : len(chosen) + 1, 0].tolist()[-1] != -1
    wanted = [(-1, 1)] + [(v, m) for m in (0, *range(2, 70)) for v in chosen.tolist()]
    found = list(zip(after.tokens[0, :, 0].tolist(), after.parents[0].tolist(), strict=True))
    assert found == wanted[:300]
