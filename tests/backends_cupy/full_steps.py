"""Cases of a full projection, and what comes of them in float64 arithmetic."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from beamsieve.index.build import make_table
from beamsieve.interface import Beams, Search, StepInputs

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


def numbers_of_any_size(V):
    """A case whose hidden states and head are as large and as small as float32 can be."""
    table, valid, beams, hidden, head = make_case(V, 40, 16)
    hidden[0, ::3] *= np.float32(2.0**100)
    hidden[0, 1::3] *= np.float32(2.0**-100)
    head[::2] *= np.float32(2.0**-100)
    head[1::2] *= np.float32(2.0**-120)
    return table, valid, beams, hidden, head


def not_finite(V):
    """A case with logits that are NaN or infinite."""
    table, valid, beams, hidden, head = make_case(V, 40, 16)
    head[5, 3] = np.nan
    head[70, 0] = np.inf
    return table, valid, beams, hidden, head


def all_keys_equal():
    """A case of one key, and (token, parent) of its candidates in the order of their choice."""
    table, valid, beams, hidden, head = make_case(300, 70, 16)
    hidden[:] = 0
    beams.scores[:] = -1
    beams.rows[:] = int(valid.sum(axis=1).argmax())
    chosen = np.flatnonzero(valid[beams.rows[0, 0]])
    wanted = [(-1, 1)] + [(v, m) for m in (0, *range(2, 70)) for v in chosen.tolist()]
    return (table, valid, beams, hidden, head), wanted
