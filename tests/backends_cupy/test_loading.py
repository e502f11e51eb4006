"""What is kept of a device over many searches and indexes, by the host's side alone."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from beamsieve.index.layouts import make_table
from beamsieve_backends.cupy_raw import blas, tables


@pytest.fixture
def made(monkeypatch):
    """Every handle that was made, in place of cuBLAS's own."""
    handles = []

    class Made:
        def __init__(self):
            handles.append(self)

    monkeypatch.setattr(blas, "Products", Made)
    return handles


def test_threads_that_come_and_go_share_one_handle(made):
    handles = blas.Handles()

    def multiply():
        with handles.lent():
            pass

    for _ in range(5):
        thread = threading.Thread(target=multiply)
        thread.start()
        thread.join()
    assert len(made) == 1


def test_products_at_one_moment_have_a_handle_each_and_a_failed_one_gives_it_back(made):
    handles = blas.Handles()
    with handles.lent() as one, handles.lent() as other:
        assert one is not other
    with pytest.raises(ZeroDivisionError), handles.lent():
        raise ZeroDivisionError
    with handles.lent(), handles.lent():
        assert len(made) == 2


@pytest.mark.parametrize("rows", [0, 1, tables.MOST_BEAMS, tables.MOST_BEAMS + 1, 600_000])
@pytest.mark.parametrize("most", [1, 2, 60, 300_000])
def test_the_sums_of_the_largest_rows_are_those_of_all_rows_sorted(rows, most):
    degrees = np.random.default_rng(rows + most).integers(0, most, rows)
    largest = np.maximum(np.sort(degrees)[::-1][: tables.MOST_BEAMS], 1)
    expected = np.ones(tables.MOST_BEAMS, np.int64)
    expected[: len(largest)] = largest
    found = tables._largest_sums(degrees)
    assert found.tolist() == [0, *np.cumsum(expected).tolist()]


@pytest.mark.parametrize(("children", "listed"), [(100, False), (12, True)])
def test_a_list_that_is_nearly_as_large_as_a_bitmap_goes_up_as_one(backend, children, listed):
    rows, vocabulary = 50, 512
    row_starts = np.arange(rows + 1) * children
    tokens = np.concatenate([np.arange(row, row + children) for row in range(rows)])
    given = make_table(2, vocabulary, row_starts, tokens.astype(np.uint16), "sparse")
    index: Any = SimpleNamespace(tables=(given,), leaf_starts=None)
    loaded = backend.load(index).tables[0]
    assert loaded.listed == listed
    if listed:
        return
    words = np.zeros((rows, vocabulary // 64), np.uint64)
    for row, token in zip(np.repeat(np.arange(rows), children), tokens.tolist(), strict=True):
        words[row, token // 64] |= np.uint64(1) << np.uint64(token % 64)
    np.testing.assert_array_equal(loaded.arrays["bitmap"], words)
