"""Sending a host array through two buffers in turns: one is filled while the other is copied.

What a buffer is and how it is copied is the backend's; nothing here needs a GPU or an array library
besides NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES = 16 << 20
"""Bytes of a buffer."""
AT_ONCE_BYTES = 1 << 20
"""An array below this goes as it is: two buffers would gain nothing."""
FILLERS = 4
"""Threads that fill a buffer: one alone is slower than the bus."""

Copy = Callable[[int, int, int], Callable[[], object]]
"""``copy(number, first, count)`` starts copying the first ``count`` bytes of buffer ``number`` to
the bytes from ``first`` on, and returns what waits until the buffer may be filled again."""


def send(
    octets: NDArray[np.uint8], buffers: Sequence[NDArray[np.uint8]], copy: Copy, fillers: int
) -> None:
    """Fill the buffers in turns and start a copy of each; the last copies may still be under way.

    Args:
        octets: uint8 [n], what to send.
        buffers: uint8 [size] each, of one size.
        copy: how a filled buffer is copied.
        fillers: how many threads fill one.
    """
    waits: list[Callable[[], object] | None] = [None] * len(buffers)
    size = len(buffers[0])
    with ThreadPoolExecutor(fillers) as pool:
        for turn, first in enumerate(range(0, len(octets), size)):
            part, number = octets[first : first + size], turn % len(buffers)
            before = waits[number]
            if before is not None:
                before()  # its last copy has left the buffer
            _fill(buffers[number][: len(part)], part, pool, fillers)
            waits[number] = copy(number, first, len(part))


def _fill(
    buffer: NDArray[np.uint8], part: NDArray[np.uint8], pool: ThreadPoolExecutor, fillers: int
) -> None:
    """Copy ``part`` into ``buffer``, in equal runs side by side."""
    cuts = np.linspace(0, len(part), fillers + 1).astype(int).tolist()
    runs = [slice(first, last) for first, last in pairwise(cuts)]
    list(pool.map(lambda run: np.copyto(buffer[run], part[run]), runs))
