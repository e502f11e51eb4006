"""Arrays onto a CUDA device through two pinned buffers: one is filled while the other is copied.

The copies run on a stream of their own, so that a decode beside them goes on. What is filled from
may be a file mapped into memory: then filling is what reads it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CHUNK_BYTES = 16 << 20
"""Bytes of a pinned buffer."""
AT_ONCE_BYTES = 1 << 20
"""An array below this goes as it is: two buffers would gain nothing."""
FILLERS = 4
"""Threads that fill a buffer: one alone is slower than the bus."""


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A copy of a host array on the device, complete when this returns.

    Raises:
        torch.OutOfMemoryError: there is no room for it; nothing else has changed.
    """
    plain = np.ascontiguousarray(array)
    if device.type != "cuda" or plain.nbytes < AT_ONCE_BYTES:
        # A copy, for the host's own array may be a read-only memory map.
        return torch.from_numpy(np.array(plain)).to(device)
    return Uploader(device).upload(plain)


class Uploader:
    """Two pinned buffers and a stream.

    Args:
        device: a CUDA device.
        chunk_bytes: the size of a buffer.
        fillers: how many threads fill one.
    """

    def __init__(
        self, device: torch.device, chunk_bytes: int = CHUNK_BYTES, fillers: int | None = None
    ) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._fillers = fillers or min(FILLERS, os.cpu_count() or 1)
        self.buffers = [
            torch.empty(chunk_bytes, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]

    def upload(self, array: NDArray[Any]) -> Tensor:
        """One contiguous array; see :func:`to_device`."""
        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        # On the caller's stream, so that memory just freed there is not taken while still in use;
        # the copies wait for what was started there.
        found = torch.empty(array.shape, dtype=kind, device=self._device)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        octets = array.reshape(-1).view(np.uint8)
        target = found.view(-1).view(torch.uint8)
        copied: list[Any] = [None, None]
        size = len(self.buffers[0])
        with ThreadPoolExecutor(self._fillers) as pool:
            for number, first in enumerate(range(0, len(octets), size)):
                part = octets[first : first + size]
                buffer, before = self.buffers[number % 2], copied[number % 2]
                if before is not None:
                    before.synchronize()  # its last copy has left the buffer
                fill(buffer.numpy()[: len(part)], part, pool, self._fillers)
                with torch.cuda.stream(self._stream):
                    target[first : first + len(part)].copy_(buffer[: len(part)], non_blocking=True)
                    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
                    event.record(self._stream)
                    copied[number % 2] = event
        self._stream.synchronize()
        return found


def fill(
    buffer: NDArray[np.uint8], part: NDArray[np.uint8], pool: ThreadPoolExecutor, fillers: int
) -> None:
    """Copy ``part`` into ``buffer``, in equal runs side by side."""
    cuts = np.linspace(0, len(part), fillers + 1).astype(int).tolist()
    runs = [slice(first, last) for first, last in pairwise(cuts)]
    list(pool.map(lambda run: np.copyto(buffer[run], part[run]), runs))
