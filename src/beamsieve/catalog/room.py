"""Space for a column of known length, so that batches are copied once, and let go of at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Room:
    """Takes the runs of a column as they come.

    Args:
        count: how many rows there will be at most.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._array: NDArray[Any] | None = None
        self._used = 0

    def put(self, run: NDArray[Any]) -> NDArray[Any]:
        """A copy of a run behind those before it; the run itself where it does not fit there."""
        if self._array is None:
            self._array = np.empty((self._count, *run.shape[1:]), run.dtype)
        held, used = self._array, self._used
        fits = held.dtype == run.dtype and held.shape[1:] == run.shape[1:]
        if not fits or used + len(run) > self._count:
            return run
        self._used += len(run)
        place = held[used : self._used]
        place[...] = run
        return place

    def whole(self, runs: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
        """All runs as one array, if they are what was put here, without a gap; else None."""
        held = self._array
        if held is None or sum(map(len, runs)) != self._used:
            return None
        if any(run.base is not held for run in runs if len(run)):
            return None
        return held[: self._used]
