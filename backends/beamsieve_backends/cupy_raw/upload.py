"""Arrays onto the device through two pinned buffers: one is filled while the other is copied.

The copies run on a stream of their own, so that a decode beside them goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from beamsieve_backends.two_buffers import AT_ONCE_BYTES, FILLERS, chunk_bytes, send


def to_device(array: NDArray[Any]) -> Any:
    """A copy of a host array on the current device, complete when this returns.

    Small ones are copied on the current stream, before what is started there next.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: there is no room for it; nothing else has changed.
    """
    plain = np.ascontiguousarray(array)
    if plain.nbytes < AT_ONCE_BYTES:
        return cupy.asarray(plain)
    found = cupy.empty(plain.shape, plain.dtype)
    stream = cupy.cuda.Stream(non_blocking=True)
    # Memory just freed on the caller's stream may still be in use there: the copies wait for that.
    freed = cupy.cuda.Event(disable_timing=True)
    freed.record(cupy.cuda.get_current_stream())
    stream.wait_event(freed)
    size = chunk_bytes(plain.nbytes)
    memory = [cupy.cuda.alloc_pinned_memory(size) for _ in range(2)]
    buffers = [np.frombuffer(pinned, np.uint8, size) for pinned in memory]

    starts = [buffer.ctypes.data for buffer in buffers]

    def copy(number: int, place: int, first: int, count: int) -> Callable[[], object]:
        with found.device:  # each thread has a current device of its own
            (found.data + first).copy_from_host_async(starts[number] + place, count, stream)
            event = cupy.cuda.Event(disable_timing=True)
            event.record(stream)
        wait: Callable[[], object] = event.synchronize
        return wait

    send(plain.reshape(-1).view(np.uint8), buffers, copy, FILLERS)
    stream.synchronize()
    return found
