"""A step from one beam with more candidates than a block keeps, against NumPy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from beamsieve.index.build import make_table
from beamsieve.interface import Search, StepInputs

B, V, WIDTH = 2, 6000, 300


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize("kind", ["smooth", "tied", "equal", "dead", "every token"])
def test_the_best_of_one_row_are_taken_in_order(backend, kind, guided):
    rng = np.random.default_rng(1)
    tokens = np.flatnonzero(rng.random(V) < (1 if kind == "every token" else 0.9))
    assert len(tokens) > 2048, "else all of them fit"
    starts = np.array([0, len(tokens)], np.int32)
    table = make_table(1, V, starts, tokens.astype(np.uint16), "sparse")
    index: Any = SimpleNamespace(tables=(table,))
    begun = backend.begin(
        Search(index, backend.load(index), B, None),
        *(np.empty((B, 0), np.int32), np.zeros(B, np.int64), np.zeros(B, bool)),
    )
    logits = rng.standard_normal((B, 1, V)).astype(np.float32)
    if kind == "tied":
        logits = np.round(logits)
    if kind == "equal":
        logits[:] = 3
    if kind == "dead":
        logits[:, :, 50:] = np.nan
    nudge = np.round(rng.standard_normal((B, 1, V))).astype(np.float32) if guided else None
    after = backend.step(begun, StepInputs(WIDTH, logits=logits, nudge=nudge), "catalog")
    given = np.where(np.isfinite(logits), logits, -np.inf)[:, 0, tokens]
    scores = given - np.log(np.exp(given.astype(np.float64)).sum(1, keepdims=True))
    keys = scores if nudge is None else scores + nudge[:, 0, tokens]
    for b in range(B):
        n = int(after.count[b])
        assert n == min(WIDTH, np.isfinite(given[b]).sum())
        chosen = np.searchsorted(tokens, after.tokens[b, :n, 0])
        assert len(set(chosen)) == n
        assert after.rows[b, :n].tolist() == chosen.tolist()
        np.testing.assert_allclose(after.scores[b, :n], scores[b, chosen], rtol=0, atol=3e-6)
        np.testing.assert_allclose(after.keys[b, :n], np.sort(keys[b])[::-1][:n], atol=3e-6)
        again = list(zip(-after.keys[b, :n], after.tokens[b, :n, 0], strict=True))
        assert again == sorted(again)
        if kind == "equal" and not guided:
            assert after.tokens[b, :, 0].tolist() == tokens[:WIDTH].tolist()
