"""Every way in which the index may hold a table gives the same candidates on the device."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from beamsieve.index.build import make_table
from beamsieve.index.encode import encode_starts
from beamsieve.index.tables import Layout
from beamsieve.index.tokens import pack_tokens, packed_words, token_bits
from beamsieve.interface import Beams, RequestFilters, Search, StepInputs
from beamsieve.targeting.matchers import StepMatchers
from beamsieve.targeting.row_table import RowTable

pytestmark = pytest.mark.usefixtures("lists_stay")  # so that both layouts are tested

V, ROWS, M = 1500, 90, 90


def make_rows(empty):
    """bool [ROWS, V]: mostly short rows, one of many tokens; some without any where ``empty``."""
    rng = np.random.default_rng(3)
    valid = rng.random((ROWS, V)) < 2 / V
    valid[40] = rng.random(V) < 0.6
    valid[~valid.any(axis=1), 700] = True
    if empty:
        valid[[0, 17, 18, ROWS - 1]] = False
    return valid


def make(valid, starts, tokens):
    """The table of these rows, its starts and tokens held as named."""
    row, token = np.nonzero(valid)
    begins = np.searchsorted(row, np.arange(ROWS + 1)).astype(np.int32)
    layout: Layout = "dense" if tokens == "dense" else "sparse"
    table = make_table(1, V, begins, token.astype(np.uint16), layout)
    table = replace(table, starts=encode_starts(begins, starts))
    if layout == "sparse":
        packed = np.zeros(packed_words(len(token), token_bits(V)), np.uint32)
        pack_tokens(token, token_bits(V), packed)
        plain = tokens == "plain"
        table = replace(
            table,
            tokens=token.astype(np.uint16) if plain else None,
            packed=None if plain else packed,
        )
    return table, begins


def beams_on_every_row(backend, table, finished, requests=None, matchers=None):
    index: Any = SimpleNamespace(tables=(table,), leaf_starts=lambda depth: np.arange(10**5))
    if matchers is not None:
        index.matchers = SimpleNamespace(steps=(matchers,))
    index.leaf_ends = lambda depth: np.arange(table.entries) + 1
    index.leaf_count, index.length = table.entries, 1
    begun = backend.begin(
        Search(index, backend.load(index), 1, requests),
        np.empty((1, 0), np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, bool),
    )
    return Beams(
        step=0,
        tokens=np.empty((1, M, 0), np.int32),
        scores=np.zeros((1, M), np.float32),
        keys=np.zeros((1, M), np.float32),
        rows=np.arange(ROWS)[None].copy(),
        parents=np.full((1, M), -1),
        finished=finished[None].copy(),
        count=np.array([M]),
        search=begun.search,
    )


def listed(found):
    """Per beam, the tokens and the entries that stand in its slots."""
    return [
        (tokens[rows >= 0].tolist(), rows[rows >= 0].tolist())
        for tokens, rows in zip(found.tokens[0], found.rows[0], strict=True)
    ]


@pytest.mark.parametrize("tokens", ["plain", "packed", "dense"])
@pytest.mark.parametrize("starts", ["plain", "sampled/8", "sampled/16", "sampled/32", "sampled/64"])
@pytest.mark.parametrize("empty", [False, True])
def test_candidates(backend, tokens, starts, empty):
    valid = make_rows(empty)
    table, begins = make(valid, starts, tokens)
    beams = beams_on_every_row(backend, table, ~valid.any(axis=1))
    logits = np.zeros((1, M, V), np.float32)
    found = listed(backend.candidates(beams, StepInputs(1, logits=logits), "catalog"))
    for r in np.flatnonzero(valid.any(axis=1)):
        own = np.flatnonzero(valid[r]).tolist()
        assert found[r] == (own, list(range(begins[r], begins[r] + len(own)))), r
    # The same through the paths of a whole step: kept entries are (row, token) pairs in order.
    hidden, head = np.zeros((1, M, 8), np.float32), np.zeros((V, 8), np.float32)
    for projection in ("selective", "full"):
        inputs = StepInputs(500, hidden=hidden, head=head, projection=projection)
        after = backend.step(beams, inputs, "catalog")
        parents, chosen, rows = after.parents[0], after.tokens[0, :, 0], after.rows[0]
        for m, v, row in zip(parents.tolist(), chosen.tolist(), rows.tolist(), strict=True):
            if v >= 0:
                assert valid[m, v]
                assert row == begins[m] + valid[m, :v].sum(), (m, v)


def test_identity_starts(backend):
    valid = np.zeros((ROWS, V), np.bool_)
    valid[np.arange(ROWS), np.arange(ROWS) * 11] = True
    table, _ = make(valid, "identity", "plain")
    beams = beams_on_every_row(backend, table, np.zeros(M, np.bool_))
    inputs = StepInputs(1, logits=np.zeros((1, M, V), np.float32))
    assert listed(backend.candidates(beams, inputs, "catalog")) == [
        ([11 * r], [r]) for r in range(M)
    ]


@pytest.mark.parametrize("tokens", ["packed", "dense"])
def test_exact_sets(backend, tokens):
    valid = make_rows(False)
    table, begins = make(valid, "sampled/16", tokens)
    allowed = np.sort(np.random.default_rng(4).permutation(table.entries)[: table.entries // 3])
    requests = RequestFilters(
        bits=np.zeros((1, 0), np.uint64),
        bloom=(),
        bloom_count=(),
        leaf_mode=np.ones(1, np.int8),
        leaf_starts=np.array([0, len(allowed)]),
        leaves=allowed,
    )
    beams = beams_on_every_row(backend, table, np.zeros(M, np.bool_), requests)
    inputs = StepInputs(1, logits=np.zeros((1, M, V), np.float32))
    found = listed(backend.candidates(beams, inputs, "catalog"))
    for r in range(ROWS):
        own = allowed[(allowed >= begins[r]) & (allowed < begins[r + 1])]
        tokens_of = np.flatnonzero(valid[r])[own - begins[r]]
        assert found[r] == (tokens_of.tolist(), own.tolist()), r


@pytest.mark.parametrize("tokens", ["packed", "dense"])
@pytest.mark.parametrize("kinds", [1, 3, 40])
def test_few_and_many_distinct_matchers(backend, tokens, kinds):
    valid = make_rows(False)
    table, begins = make(valid, "sampled/16", tokens)
    rng = np.random.default_rng(kinds)
    bits = rng.integers(0, 4, (kinds, 1)).astype(np.uint64)
    index = rng.integers(0, kinds, table.entries).astype(np.int32)
    requests = RequestFilters(
        bits=np.ones((1, 1), np.uint64),
        bloom=(),
        bloom_count=(),
        leaf_mode=np.zeros(1, np.int8),
        leaf_starts=np.zeros(2, np.int64),
        leaves=np.empty(0, np.int64),
    )
    matchers = StepMatchers(None, RowTable(bits, index), ())
    beams = beams_on_every_row(backend, table, np.zeros(M, np.bool_), requests, matchers)
    inputs = StepInputs(1, logits=np.zeros((1, M, V), np.float32))
    found = listed(backend.candidates(beams, inputs, "catalog"))
    passes = bits[index, 0] & np.uint64(1) == 1
    for r in range(ROWS):
        own = np.arange(begins[r], begins[r + 1])
        kept = own[passes[own]]
        assert found[r] == (np.flatnonzero(valid[r])[kept - begins[r]].tolist(), kept.tolist()), r
