"""Sending a host array through two buffers in turns: one is filled while the other is copied.

Every thread that fills has its own share of both buffers and its own run of the array, so that it
waits for its own copies alone. What a buffer is and how it is copied is the backend's; nothing here
needs a GPU or an array library besides NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES = 64 << 20
"""Bytes of a buffer, for large arrays."""
_LEAST_CHUNK_BYTES = 4 << 20
_CHUNKS = 8
_LAST_BYTES = 4 << 20
AT_ONCE_BYTES = 1 << 20
"""An array below this goes as it is: two buffers would gain nothing."""
FILLERS = 1
"""Threads that fill. One is slower than the bus, but it seldom asks for the interpreter's lock, for
which a decode beside it would wait; and an index is there within a moment either way.
"""

Copy = Callable[[int, int, int, int], Callable[[], object]]
"""``copy(number, place, first, count)`` starts copying ``count`` bytes of buffer ``number``, from
``place`` on, to the bytes from ``first`` on of what is sent; and returns what waits until they may
be written again. Several threads call it."""


def chunk_bytes(count: int) -> int:
    """Bytes of a buffer for an array of so many: long passes, but enough of them to overlap."""
    return min(CHUNK_BYTES, max(_LEAST_CHUNK_BYTES, count // _CHUNKS))


def _turns(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """What to fill in each turn: ``size`` bytes, but less and less at the end, as nothing is left
    to be filled while the last part is copied.
    """
    while first < last:
        left = last - first
        count = size if left > size else min(left, max(_LAST_BYTES, -(-left // 2)))
        yield first, first + count
        first += count


def send(
    octets: NDArray[np.uint8], buffers: Sequence[NDArray[np.uint8]], copy: Copy, fillers: int
) -> None:
    """Fill the buffers in turns and start a copy of each; the last copies may still be under way.

    Args:
        octets: uint8 [n], what to send.
        buffers: uint8 [size] each, of one size.
        copy: how what was filled is copied.
        fillers: how many threads fill.
    """
    share = max(1, len(buffers[0]) // fillers)
    run = -(-len(octets) // fillers)

    def work(filler: int) -> None:
        waits: list[Callable[[], object] | None] = [None] * len(buffers)
        place, last = filler * share, min(len(octets), (filler + 1) * run)
        for turn, (first, end) in enumerate(_turns(filler * run, last, share)):
            part, number = octets[first:end], turn % len(buffers)
            before = waits[number]
            if before is not None:
                before()  # its last copy has left the buffer
            np.copyto(buffers[number][place : place + len(part)], part)
            waits[number] = copy(number, place, first, len(part))

    if fillers == 1:
        work(0)
        return
    with ThreadPoolExecutor(fillers) as pool:
        list(pool.map(work, range(fillers)))
