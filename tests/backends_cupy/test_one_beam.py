"""A step of one beam over a table of one row, whatever the batch and the numbers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_cases import launches_of

from beamsieve.index.build import make_table
from beamsieve.interface import Search, StepInputs
from beamsieve_backends.cupy_raw import one_beam


def begin(backend, tokens, V, batch):
    """Beams at the root of a table of one row, complete with these tokens."""
    table = make_table(
        1, V, np.array([0, len(tokens)], np.int32), tokens.astype(np.uint16), "sparse"
    )
    index: Any = SimpleNamespace(tables=(table,))
    return backend.begin(
        Search(index, backend.load(index), batch, None),
        *(np.empty((batch, 0), np.int32), np.zeros(batch, np.int64), np.zeros(batch, bool)),
    )


def numbers(rng, shape, dtype):
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return rng.standard_normal(shape).astype(kind)


def arrays_of(after, b):
    """Everything that a step says of request b."""
    names = ("tokens", "scores", "keys", "rows", "parents", "finished")
    return [getattr(after, name)[b].tobytes() for name in names] + [int(after.count[b])]


def check(after, b, tokens, keys, width, within=3e-6):
    """Against keys of float64, in the order of ``tokens``."""
    n = int(after.count[b])
    assert n == min(width, np.isfinite(keys).sum())
    chosen = np.searchsorted(tokens, after.tokens[b, :n, 0])
    assert tokens[chosen].tolist() == after.tokens[b, :n, 0].tolist()
    assert after.rows[b, :n].tolist() == chosen.tolist()
    np.testing.assert_allclose(after.keys[b, :n], np.sort(keys)[::-1][:n], rtol=0, atol=within)
    np.testing.assert_allclose(after.keys[b, :n], keys[chosen], rtol=0, atol=within)
    assert (after.tokens[b, n:] == -1).all()
    assert not np.isfinite(after.keys[b, n:]).any()


@pytest.mark.parametrize(
    ("dtype", "V", "share", "size", "width"),
    [
        ("float32", 512, 1.0, 256, 128),
        ("float32", 700, 0.6, 264, 300),  # rows longer than a warp takes at once
        ("bfloat16", 2048, 1.0, 64, 40),
        ("bfloat16", 300, 0.7, 13, 512),  # no whole vectors, more places than candidates
        ("float16", 2600, 0.9, 40, 600),
    ],
)
def test_alone_and_among_others(backend, monkeypatch, dtype, V, share, size, width):
    rng = np.random.default_rng(V)
    tokens = np.flatnonzero(rng.random(V) < share)
    hidden, head = numbers(rng, (11, 1, size), dtype), numbers(rng, (V, size), dtype)
    names = launches_of(backend, monkeypatch)
    inputs = StepInputs(width, hidden=hidden, head=head)
    monkeypatch.setattr(one_beam, "FETCHED_BYTES", 1 << 30)
    after = backend.step(begin(backend, tokens, V, 11), inputs, "catalog")
    monkeypatch.setattr(one_beam, "FETCHED_BYTES", 0)
    others = backend.step(begin(backend, tokens, V, 11), inputs, "catalog")
    two = ["multiply_row", "choose_row"]
    assert names == (["whole_row"] if len(tokens) <= one_beam.SHORT else two) + two
    for b in (0, 7, 10):
        logits = hidden[b, 0].astype(np.float64) @ head[tokens].astype(np.float64).T
        keys = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        check(after, b, tokens, keys, width, 1e-4)
        one = replace(inputs, hidden=hidden[b : b + 1].copy())
        names.clear()
        alone = backend.step(begin(backend, tokens, V, 1), one, "catalog")
        assert names == ["whole_row"]
        assert arrays_of(alone, 0) == arrays_of(after, b) == arrays_of(others, b)


@pytest.mark.parametrize("kind", ["far", "banned", "coarse", "overflowing"])
@pytest.mark.parametrize(("V", "width"), [(400, 150), (3000, 300), (6000, 4096)])
def test_keys_that_crowd_or_lie_far_apart(backend, kind, V, width):
    rng = np.random.default_rng(V)
    logits = rng.standard_normal((1, 1, V)).astype(np.float32)
    if kind == "far":
        logits *= 1000
    if kind == "banned":
        logits[0, 0, rng.random(V) < 0.7] = -1e9
    if kind == "coarse":
        logits = np.round(2 * logits)
    if kind == "overflowing":
        logits[0, 0, ::3] = -3e38
        logits[0, 0, 1] = 3e38
        logits[0, 0, 2::3] = np.inf
    tokens = np.arange(V)
    after = backend.step(begin(backend, tokens, V, 1), StepInputs(width, logits=logits), "catalog")
    given = logits[0, 0].astype(np.float64)
    given[~np.isfinite(logits[0, 0])] = -np.inf
    keys = given - given.max()
    keys = keys - np.log(np.exp(keys).sum())
    with np.errstate(over="ignore"):
        keys = np.where(np.isfinite(keys.astype(np.float32)), keys, -np.inf)
    n = int(after.count[0])
    assert n == min(width, np.isfinite(keys).sum())
    found = list(zip(-after.keys[0, :n], after.tokens[0, :n, 0], strict=True))
    assert found == sorted(found)
    np.testing.assert_allclose(after.keys[0, :n], np.sort(keys)[::-1][:n], rtol=1e-6, atol=3e-6)
    # The last key may be shared by more than fit: the lowest tokens have it.
    own = after.keys[0, :n]
    ties = np.flatnonzero(keys.astype(np.float32) == own[-1])
    if kind == "coarse" and len(ties) > 1:
        taken = after.tokens[0, :n, 0][own == own[-1]]
        assert taken.tolist() == ties[: len(taken)].tolist()


@pytest.mark.parametrize("normalize", ["catalog", "all"])
def test_bias_bonus_and_nudge(backend, normalize):
    V, width = 900, 70
    rng = np.random.default_rng(4)
    tokens = np.flatnonzero(rng.random(V) < 0.8)
    logits, bonus, nudge = (rng.standard_normal((2, 1, V)).astype(np.float32) for _ in range(3))
    bias = rng.standard_normal(V).astype(np.float32)
    head = np.eye(V, dtype=np.float32)
    inputs = StepInputs(width, hidden=logits, head=head, bias=bias, bonus=bonus, nudge=nudge)
    after = backend.step(begin(backend, tokens, V, 2), inputs, normalize)
    for b in range(2):
        given = logits[b, 0].astype(np.float64) + bias
        counted = given if normalize == "all" else given[tokens]
        scores = (given - np.log(np.exp(counted).sum()) + bonus[b, 0])[tokens]
        check(after, b, tokens, scores + nudge[b, 0, tokens], width)
        chosen = np.searchsorted(tokens, after.tokens[b, :, 0])
        np.testing.assert_allclose(after.scores[b], scores[chosen], rtol=0, atol=3e-6)


@pytest.mark.parametrize("normalize", ["catalog", "eligible", "all"])
@pytest.mark.parametrize(("V", "width"), [(700, 90), (3000, 90), (3000, 600)])
def test_candidates_that_targeting_allows(backend, normalize, V, width):
    rng = np.random.default_rng(6)
    tokens = np.flatnonzero(rng.random(V) < 0.9)
    hidden = rng.standard_normal((1, 1, V)).astype(np.float32)
    inputs = StepInputs(width, hidden=hidden, head=np.eye(V, dtype=np.float32))
    allowed = (hidden[0, 0, tokens] < -0.5) & (rng.random(len(tokens)) < 0.7)  # none of the best
    bits = np.packbits(allowed, bitorder="little")
    words = np.zeros(-(-len(tokens) // 32), np.uint32)
    words.view(np.uint8)[: len(bits)] = bits
    call = backend._call(begin(backend, tokens, V, 1), inputs, normalize)
    call.fields.update(eligible=backend._device.address(words), eligible_words=len(words))
    after = call.run()
    given = hidden[0, 0].astype(np.float64)
    counted = {"all": given, "catalog": given[tokens], "eligible": given[tokens][allowed]}
    mass = np.log(np.exp(counted[normalize]).sum())
    check(after, 0, tokens, np.where(allowed, given[tokens] - mass, -np.inf), width)


def test_beams_that_have_finished_or_are_not_there(backend):
    V, batch = 300, 3
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((batch, 1, V)).astype(np.float32)
    before = replace(
        begin(backend, np.arange(V), V, batch),
        rows=np.array([[0], [77], [0]]),
        scores=np.array([[0], [-3], [-1]], np.float32),
        finished=np.array([[False], [True], [False]]),
        count=np.array([1, 1, 0]),
    )
    after = backend.step(before, StepInputs(20, logits=logits), "catalog")
    assert after.count.tolist() == [20, 1, 0]
    assert after.tokens[1, :2, 0].tolist() == [-1, -1]
    assert after.scores[1, 0] == after.keys[1, 0] == -3
    assert after.rows[1, :2].tolist() == [77, -1]
    assert after.finished[1, :2].tolist() == [True, False]
    assert after.parents[
        :,
        :2,
    ].tolist() == [[0, 0], [0, -1], [-1, -1]]


def test_a_row_that_no_block_holds_goes_by_another_way(backend, monkeypatch):
    V = 8200
    names = launches_of(backend, monkeypatch)
    hidden, head = np.ones((1, 1, 8), np.float32), np.ones((V, 8), np.float32)
    after = backend.step(
        begin(backend, np.arange(V), V, 1), StepInputs(5, hidden=hidden, head=head), "catalog"
    )
    assert names == ["score_rows"]
    assert after.tokens[0, :, 0].tolist() == [0, 1, 2, 3, 4]
