"""What a search keeps on the device between its steps: memory to work in."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np


class Workspace:
    """Named buffers that grow when needed and are used again by every later step.

    Buffers hold no state from one step to the next, except ``zeros``, which kernels leave at
    zero. One stream at a time uses a workspace.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._buffers: dict[str, Any] = {}
        self._kept: list[Any] = []

    def take(self, name: str, count: int, dtype: Any) -> Any:
        """The first ``count`` elements of the buffer ``name``."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < count or buffer.dtype != dtype:
            if buffer is not None:
                self._kept.append(buffer)  # a captured graph may still write there
            buffer = self._device.empty((count,), dtype)
            self._buffers[name] = buffer
        return buffer[:count]

    def filled(self, name: str, count: int, dtype: Any) -> Any:
        """As ``take``, but zero at first: for what is read whole and written in part."""
        before = self._buffers.get(name)
        found = self.take(name, count, dtype)
        if self._buffers[name] is not before:
            self._buffers[name].view(np.uint8)[...] = 0
        return found

    def meetings(self, batch: int) -> Any:
        """uint32 [2 * batch], ``Meeting`` per request: zero between kernels."""
        return self.zeros("meetings", 2 * batch)

    def zeros(self, name: str, count: int) -> Any:
        """uint32 [count or more], zero between kernels, which leave them so."""
        words = self._buffers.get(name)
        if words is None or words.size < count:
            words = self._device.take_zeros(count)
            self._buffers[name] = words
            weakref.finalize(self, self._device.give_zeros, words, self._device.stream())
        return words

    def product(self) -> Any:
        """Memory for cuBLAS."""
        if "product" not in self._buffers:
            self._buffers["product"] = self._device.product_workspace()
        return self._buffers["product"]

    def keep(self, *arrays: Any) -> None:
        """Hold arrays for as long as the search lives, because a captured graph uses them."""
        self._kept.extend(arrays)


class Session:
    """The device side of one search; ``Search.device_requests`` holds it.

    ``requests`` is the batch's targeting (``targeting.DeviceRequests``), or None without any.
    """

    def __init__(self, device: Any, requests: Any = None) -> None:
        self._device = device
        self.requests = requests
        self._workspaces: dict[int, Workspace] = {}
        self._lock = threading.Lock()

    def workspace(self) -> Workspace:
        """The current stream's own."""
        stream = self._device.stream()
        with self._lock:
            if stream not in self._workspaces:
                self._workspaces[stream] = Workspace(self._device)
            return self._workspaces[stream]
