"""What the backend holds of an index: its step's own tables, and the halves' once they are used."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from beamsieve_backends.torch_dense import TorchBackend
from beamsieve_backends.triton_slots.matchers import DeviceTargeting
from beamsieve_backends.triton_slots.tables import DeviceTables

if TYPE_CHECKING:
    from beamsieve.index import Index


class TritonTables:
    """An index on the device: the step's own tables, and those of the halves once they are used."""

    def __init__(
        self, index: Index, step: DeviceTables, targeting: DeviceTargeting, halves: TorchBackend
    ) -> None:
        self.step = step
        self.targeting = targeting
        self._index = index
        self._halves = halves
        self._loaded: Any = None
        self._lock = threading.Lock()

    def for_halves(self) -> Any:
        """The tables of the torch backend, loaded when they are first asked for."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._halves.load(self._index)
            return self._loaded

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        halves = 0 if self._loaded is None else self._halves.device_bytes(self._loaded)
        return self.step.nbytes + self.targeting.nbytes + halves
