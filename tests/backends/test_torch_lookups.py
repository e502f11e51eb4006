"""The compressed row starts and tokens on the device against those of the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.index.encode import encode_starts
from beamsieve.index.layouts import make_table
from beamsieve.index.starts import BLOCKS, RowStarts
from beamsieve_backends.torch_dense.entry_tokens import load_tokens
from beamsieve_backends.torch_dense.row_starts import load_starts

CPU = torch.device("cpu")
KINDS = ["plain", *(f"sampled/{block}" for block in BLOCKS)]


def starts_of(seed: int, rows: int, least: int, hubs: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    counts = random.integers(least, 6, rows)
    counts[random.integers(0, rows, hubs)] = 1000
    return np.concatenate([[0], np.cumsum(counts)])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000), st.integers(1, 300), st.integers(0, 1), st.integers(0, 3),
    st.sampled_from(KINDS), st.booleans(),
)  # fmt: skip
def test_bounds_are_those_of_the_host(seed, rows, least, hubs, kind, by_numpy) -> None:
    starts = starts_of(seed, rows, least, hubs)
    held = load_starts(encode_starts(starts, kind), CPU, by_numpy)
    row = torch.from_numpy(np.random.default_rng(seed).permutation(rows))
    first, end = held.bounds(row)
    assert first.tolist() == starts[row.numpy()].tolist()
    assert end.tolist() == starts[row.numpy() + 1].tolist()


def test_one_entry_per_row_takes_no_bytes() -> None:
    held = load_starts(encode_starts(np.arange(50)), CPU)
    assert held.nbytes == 0
    assert [bound.tolist() for bound in held.bounds(torch.tensor([0, 49]))] == [[0, 49], [1, 50]]


def test_a_table_without_rows_can_be_asked() -> None:
    for kind in ("plain", "identity"):
        held = load_starts(encode_starts(np.zeros(1, np.int64), kind), CPU)
        assert len(held.bounds(torch.zeros(3, dtype=torch.int64))[0]) == 3


@pytest.mark.parametrize("by_numpy", [True, False])
def test_bytes_on_the_device_are_those_of_the_index_and_the_counts(by_numpy) -> None:
    for kind in KINDS:
        starts = encode_starts(starts_of(1, 200, 1, 2), kind)
        counts = 0 if starts.bits is None or not by_numpy else len(starts.bits)
        assert load_starts(starts, CPU, by_numpy).nbytes == starts.nbytes + counts


@pytest.mark.parametrize("by_numpy", [True, False])
def test_positions_beyond_31_bits(by_numpy) -> None:
    far = 2**31 + 10
    starts = RowStarts(
        2,
        far,
        bits=np.array([1, 0, 0], np.uint64),
        samples=np.array([-1]),
        exceptions=np.array([0, 5, *[far] * 6]),
        block=8,
    )
    first, end = load_starts(starts, CPU, by_numpy).bounds(torch.tensor([1, 0]))
    assert (first.tolist(), end.tolist()) == ([5, 0], [far, 5])


@pytest.mark.parametrize("vocabulary", [2, 500, 2048, 2**17, 2**24, 2**27])
@pytest.mark.parametrize("tile", [1, 4, 8, 16])
@pytest.mark.parametrize("by_numpy", [True, False])
def test_windows_of_tokens_are_those_of_the_host(vocabulary, tile, by_numpy) -> None:
    random = np.random.default_rng(vocabulary)
    entries = 403
    tokens = random.integers(0, vocabulary, entries).astype(np.uint32)
    tokens[-1] = vocabulary - 1
    table = make_table(1, vocabulary, np.arange(entries + 1), tokens, "sparse")
    held = load_tokens(table, tile, CPU, by_numpy)

    entry = torch.from_numpy(random.permutation(entries))
    found = held.at(entry)
    assert found.shape == (entries, tile)
    for at, row in zip(entry.tolist(), found.tolist(), strict=True):
        real = tokens[at : at + tile].tolist()
        assert row[: len(real)] == real
        assert all(0 <= token < vocabulary for token in row)
