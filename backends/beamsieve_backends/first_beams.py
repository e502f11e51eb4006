"""The beams that a search begins with, as the backends with kernels put them on their device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def first_arrays(
    tokens: NDArray[np.int32], rows: NDArray[np.int64], finished: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """The arrays of the beams before the first step, on the host, by their names in ``Beams``.

    Args:
        tokens: int32 [B, p], each request's prefix.
        rows: int64 [B]; -1 where the prefix is unknown: that request has no beam.
        finished: bool [B].
    """
    there = rows >= 0
    scores = np.where(there, np.float32(0), np.float32(-np.inf))[:, None]
    return {
        "tokens": np.where(there[:, None], tokens, np.int32(-1))[:, None],
        "scores": scores,
        "keys": scores,
        "rows": rows[:, None],
        "parents": np.full_like(rows[:, None], -1),
        "finished": finished[:, None],
        "count": there.astype(np.int64),
    }
