"""Arrays onto a CUDA device through two pinned buffers: one is filled while the other is copied.

The copies run on a stream of their own, so that a decode beside them goes on. What is filled from
may be a file mapped into memory: then filling is what reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve_backends.two_buffers import AT_ONCE_BYTES, FILLERS, chunk_bytes, send


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A copy of a host array on the device, complete when this returns.

    Raises:
        torch.OutOfMemoryError: there is no room for it; nothing else has changed.
    """
    plain = np.ascontiguousarray(array)
    if device.type != "cuda" or plain.nbytes < AT_ONCE_BYTES:
        # A copy, for the host's own array may be a read-only memory map.
        return torch.from_numpy(np.array(plain)).to(device)
    return Uploader(device, chunk_bytes(plain.nbytes)).upload(plain)


class Uploader:
    """Two pinned buffers and a stream.

    Args:
        device: a CUDA device.
        size: of a buffer, in bytes.
        fillers: how many threads fill one.
    """

    def __init__(self, device: torch.device, size: int, fillers: int = FILLERS) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._fillers = fillers
        self.buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]

    def upload(self, array: NDArray[Any]) -> Tensor:
        """One contiguous array; see :func:`to_device`."""
        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        # On the caller's stream, so that memory just freed there is not taken while still in use;
        # the copies wait for what was started there.
        found = torch.empty(array.shape, dtype=kind, device=self._device)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        octets = array.reshape(-1).view(np.uint8)
        target = found.view(-1).view(torch.uint8)

        def copy(number: int, place: int, first: int, count: int) -> Callable[[], object]:
            with torch.cuda.stream(self._stream):
                part = self.buffers[number][place : place + count]
                target[first : first + count].copy_(part, non_blocking=True)
                event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(self._stream)
            wait: Callable[[], object] = event.synchronize
            return wait

        send(octets, [buffer.numpy() for buffer in self.buffers], copy, self._fillers)
        self._stream.synchronize()
        return found
