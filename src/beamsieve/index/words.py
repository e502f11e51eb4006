"""Arrays of small unsigned integers as 64-bit words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def whole_words(source: NDArray[np.unsignedinteger]) -> tuple[NDArray[np.uint64], int]:
    """A contiguous array's whole words, without a copy; and the bytes behind them as one more."""
    octets = source.reshape(-1).view(np.uint8)
    whole = len(octets) & ~7
    return octets[:whole].view(np.uint64), int.from_bytes(octets[whole:].tobytes(), "little")
