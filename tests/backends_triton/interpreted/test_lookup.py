"""Row starts, tokens and ranks as the kernels read them, against the index's own."""

# pyright: reportIndexIssue=false
# Kernels are launched by subscripts, which pyright does not know of.

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from beamsieve.index.encode import encode_starts
from beamsieve.index.layouts import make_table
from beamsieve.index.tables import StepTable
from beamsieve.index.tokens import token_dtype
from beamsieve_backends.triton_slots import tables
from beamsieve_backends.triton_slots.lookup import (
    rank_in_row,
    row_bounds,
    row_start,
    token_at,
)
from beamsieve_backends.triton_slots.tables import load_table

CPU = torch.device("cpu")


@triton.jit
def _starts(array, bits, exceptions, kind, shift, gap, rows, out, n, BLOCK: tl.constexpr):
    """All starts, and both bounds of all rows but the last, behind which nothing begins."""
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i, mask=i < n, other=0)
    tl.store(out + i, row_start(array, bits, exceptions, kind, shift, gap, row, i < n), mask=i < n)
    real = i < n - 1
    first, behind = row_bounds(array, bits, exceptions, kind, shift, gap, row, real)
    tl.store(out + n + i, first, mask=real)
    tl.store(out + 2 * n + i, behind, mask=real)


@triton.jit
def _tokens(tokens, token_bits, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK).to(tl.int64)
    tl.store(out + i, token_at(tokens, token_bits, i, i < n), mask=i < n)


@triton.jit
def _ranks(bitmaps, ranks, mask, words, rank_words, rows, tokens, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i, mask=i < n, other=0)
    token = tl.load(tokens + i, mask=i < n, other=0)
    found = rank_in_row(bitmaps, ranks, mask, words, rank_words, row, token, i < n)
    tl.store(out + i, found, mask=i < n)


def block(n):
    return 1 << max(4, (n - 1).bit_length())


def degrees_like(shape, draw):
    return {
        "single": np.ones(150, np.int64),
        "short": draw.integers(1, 4, 150),
        "with empty rows": draw.integers(0, 4, 150),
        "with hubs": np.where(draw.random(150) < 0.02, 200, draw.integers(0, 3, 150)),
    }[shape]


@pytest.mark.parametrize("kind", ["plain", "sampled/8", "sampled/16", "sampled/32", "sampled/64"])
@pytest.mark.parametrize("shape", ["single", "short", "with empty rows", "with hubs"])
def test_rows_begin_where_the_index_says(kind, shape):
    degrees = degrees_like(shape, np.random.default_rng(1))
    starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    tokens = np.concatenate([np.arange(n) for n in degrees]).astype(token_dtype(512))
    table = load_table(
        StepTable(1, 512, encode_starts(starts, kind), tokens=tokens, widest=200), None, CPU
    )
    if table.dense:
        pytest.skip("so many tokens of so few rows go to the device as bitmaps")
    rows = torch.arange(len(starts))
    out = torch.full((3, len(starts)), -7)
    _starts[(1,)](*table.starts, rows, out, len(starts), BLOCK=block(len(starts)))
    np.testing.assert_array_equal(out[0].numpy(), starts)
    np.testing.assert_array_equal(out[1, :-1].numpy(), starts[:-1])
    np.testing.assert_array_equal(out[2, :-1].numpy(), starts[1:])


@pytest.mark.parametrize(
    ("widest", "most_rows", "kind"), [(600, 150, 0), (600, 149, 2), (400, 150, 2)]
)
def test_a_small_table_with_a_wide_row_has_plain_starts(monkeypatch, widest, most_rows, kind):
    monkeypatch.setattr(tables, "PLAIN_ROWS", most_rows)
    degrees = np.ones(150, np.int64)
    degrees[70] = widest
    starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    tokens = np.concatenate([np.arange(n) for n in degrees]).astype(token_dtype(8192))
    made = StepTable(1, 8192, encode_starts(starts, "sampled/8"), tokens=tokens, widest=widest)
    table = load_table(made, None, CPU)
    assert table.start_kind == kind
    out = torch.full((3, 151), -7)
    _starts[(1,)](*table.starts, torch.arange(151), out, 151, BLOCK=256)
    np.testing.assert_array_equal(out[0].numpy(), starts)
    np.testing.assert_array_equal(out[2, :-1].numpy(), starts[1:])


def test_identity_starts_need_no_array():
    starts = np.arange(301, dtype=np.int32)
    tokens = np.zeros(300, np.uint16)
    table = load_table(make_table(1, 4096, starts, tokens, "sparse"), None, CPU)
    assert table.start_kind == 1
    out = torch.full((3, 301), -7)
    _starts[(1,)](*table.starts, torch.arange(301), out, 301, BLOCK=512)
    np.testing.assert_array_equal(out[0].numpy(), starts)
    np.testing.assert_array_equal(out[2, :-1].numpy(), starts[1:])


@pytest.mark.parametrize("vocabulary", [2, 100, 256, 512, 2048, 8192, 65536, 70000, 200000])
@pytest.mark.parametrize("compress", [True, False])
def test_tokens_are_the_tables_own(vocabulary, compress):
    draw = np.random.default_rng(2)
    tokens = draw.integers(0, vocabulary, 333).astype(token_dtype(vocabulary))
    starts = np.arange(334, dtype=np.int32)
    made = make_table(1, vocabulary, starts, tokens, "sparse", compress)
    table = load_table(made, None, CPU)
    if table.dense:
        pytest.skip("so small a codebook goes to the device as bitmaps")
    out = torch.full((333,), -7, dtype=torch.int32)
    _tokens[(1,)](table.tokens, table.token_bits, out, 333, BLOCK=512)
    np.testing.assert_array_equal(out.numpy(), tokens)


@pytest.mark.parametrize("vocabulary", [3, 64, 65, 255, 257, 1000, 2049])
def test_ranks_count_the_tokens_before(vocabulary):
    draw = np.random.default_rng(3)
    rows = [np.sort(draw.permutation(vocabulary)[: draw.integers(1, vocabulary)]) for _ in range(9)]
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    tokens = np.concatenate(rows).astype(token_dtype(vocabulary))
    table = load_table(make_table(1, vocabulary, starts, tokens, "dense"), None, CPU)
    owner = np.repeat(np.arange(9), [len(row) for row in rows])
    out = torch.full((len(tokens),), -7)
    _ranks[(1,)](
        table.bitmap, table.ranks, table.rank_mask, table.words, table.rank_words,
        torch.from_numpy(owner), torch.from_numpy(tokens.astype(np.int32)), out, len(tokens),
        BLOCK=block(len(tokens)),
    )  # fmt: skip
    np.testing.assert_array_equal(out.numpy(), np.arange(len(tokens)) - starts[owner])
