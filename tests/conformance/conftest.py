"""What all tests of the suite share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> Iterator[None]:
    """Each session of pytest ends with ten full collections. What other tests left in this process
    is put out of their sight, as it would take them longer than the session itself."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
