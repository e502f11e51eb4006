"""Ordered selection: higher key, then lower place; any width; a full buffer changes nothing."""

import numpy as np
import pytest


def expected(row, k):
    keys = np.where(np.isfinite(row), row, -np.inf)
    order = np.lexsort((np.arange(len(keys)), -keys))[:k]
    return order[np.isfinite(keys[order])]


def check(backend, values, k):
    best, places = backend.top(values, k)
    for row, found, chosen in zip(values, best, places, strict=True):
        wanted = expected(row, k)
        assert chosen[: len(wanted)].tolist() == wanted.tolist()
        assert (found[: len(wanted)] == row[wanted]).all()
        assert (chosen[len(wanted) :] == -1).all()
        assert (found[len(wanted) :] == -np.inf).all()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (63, 64), (1000, 5), (20_000, 300), (40_000, 4096)])
def test_random_values(backend, n, k):
    check(backend, np.random.default_rng(n).standard_normal((3, n)).astype(np.float32), k)


@pytest.mark.parametrize("levels", [1, 2, 7])
def test_ties_that_overflow_the_buffer(backend, levels):
    values = np.random.default_rng(levels).integers(0, levels, (2, 9000)).astype(np.float32)
    check(backend, values, 600)


def test_all_of_the_best_in_a_few_tiles(backend):
    values = np.random.default_rng(0).standard_normal((2, 30_000)).astype(np.float32)
    check(backend, np.sort(values, axis=1), 700)


def test_values_far_apart(backend):
    values = np.random.default_rng(0).standard_normal((2, 9000)).astype(np.float32)
    values[:, 17] = -3e38
    values[:, 4000] = 3e38
    check(backend, values, 512)


def test_dead_values_are_never_taken(backend):
    values = np.full((2, 3000), -np.inf, np.float32)
    values[0, ::700] = [1, np.nan, 2, np.inf, 3]
    check(backend, values, 100)
