"""A small catalog, its index, and engines on it."""

from __future__ import annotations

import numpy as np
import pytest

import beamsieve as bs

SIDS = [(0, 1, 2), (0, 1, 3), (0, 2, 2), (1, 0, 0), (1, 3, 1), (2, 2, 2), (2, 2, 3)]
CODEBOOKS = (3, 4, 5)


@pytest.fixture
def index() -> bs.Index:
    return bs.Index.build(bs.Catalog.from_arrays(np.array(SIDS), codebooks=CODEBOOKS))


@pytest.fixture
def engine(index: bs.Index) -> bs.Engine:
    return bs.Engine(index, backend="torch:cpu")


@pytest.fixture
def heads() -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    return [draw.normal(size=(size, 6)).astype(np.float32) for size in CODEBOOKS]
