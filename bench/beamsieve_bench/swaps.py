"""Replacing the index under a decode: what the device's memory holds before and after, and what is
said of an index that it has no room for.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from beamsieve.catalog import Catalog
from beamsieve.engine import Engine
from beamsieve.errors import BackendError
from beamsieve.index import Index
from beamsieve.opening import SPARE_BYTES
from beamsieve_bench.catalogs import MANY, many_sids
from beamsieve_bench.decoder import Decoder

DECODERS = 8
LEFT_BYTES = 4 << 20
"""What an index could still take of a GPU that was filled."""
_PIECE_BYTES = 4 << 20


class Memory:
    """What a backend's array library holds of a device.

    Args:
        device: which.
        cupy: whether that library is CuPy, and not PyTorch.
    """

    def __init__(self, device: torch.device, cupy: bool) -> None:
        self._device = device
        self._cupy: Any = None
        if cupy:
            import cupy as library

            self._cupy = library

    def held(self) -> int:
        """Bytes of all arrays there are; what a library keeps for later ones is not counted."""
        gc.collect()
        torch.cuda.synchronize(self._device)
        if self._cupy is None:
            return torch.cuda.memory_allocated(self._device)
        with self._cupy.cuda.Device(self._device.index or 0):
            return int(self._cupy.get_default_memory_pool().used_bytes())

    def give_back(self) -> None:
        """What is kept for later arrays, to the driver."""
        torch.cuda.empty_cache()
        if self._cupy is not None:
            with self._cupy.cuda.Device(self._device.index or 0):
                self._cupy.get_default_memory_pool().free_all_blocks()

    def given_out(self) -> int:
        """Bytes that the driver has given out, to anybody."""
        free, whole = torch.cuda.mem_get_info(self._device)
        return whole - free

    def filled(self, free_bytes: Callable[[], int | None]) -> list[torch.Tensor]:
        """What leaves searches the room that a load leaves them, and an index next to nothing.

        Args:
            free_bytes: the backend's own, which counts what its library keeps.
        """

        def room() -> int:
            return min(
                (free_bytes() or 0) - SPARE_BYTES - LEFT_BYTES,
                torch.cuda.mem_get_info(self._device)[0],
            )

        taken: list[torch.Tensor] = []
        size = room()
        while size > _PIECE_BYTES:  # not all that is free can be had in one piece
            try:
                taken.append(torch.empty(size, dtype=torch.uint8, device=self._device))
            except torch.OutOfMemoryError:
                size -= max(size // 64, _PIECE_BYTES)
            else:
                size = min(size, room())
        return taken


def measure_swaps(
    indexes: Sequence[Index], large: Index, backend: str, device: torch.device, swaps: int = 20
) -> dict[str, Any]:
    """Bytes on the device before and after replacements by two indexes in turns under eight
    decoding threads; then the refusal of ``large`` while next to nothing is free.

    Raises:
        SystemExit: a search belonged to neither index, or none was possible beside the refusal.
    """
    one, other = indexes
    engine, memory = Engine(one, backend=backend), Memory(device, "cupy" in backend)
    prints = {one.fingerprint, other.fingerprint}

    def swapped(times: int) -> int:
        """Replace so often; how many searches ended meanwhile."""
        stop = threading.Event()

        def decode(_: int) -> int:
            decoder, count = Decoder(engine, 2, 16, device), 0
            while not stop.is_set():
                if decoder.search().fingerprint not in prints:
                    raise SystemExit("a search ended on no known index")
                count += 1
            return count

        with ThreadPoolExecutor(DECODERS) as pool:
            running = [pool.submit(decode, number) for number in range(DECODERS)]
            try:
                for swap in range(times):
                    engine.replace(other if swap % 2 == 0 else one)
            finally:
                stop.set()
            return sum(thread.result() for thread in running)

    swaps -= swaps % 2  # so that the first index serves afterwards
    swapped(2)  # the libraries' own workspaces are there from now on
    before, device_before = memory.held(), memory.given_out()
    searches = swapped(swaps)
    after, device_after = memory.held(), memory.given_out()

    memory.give_back()
    decoder = Decoder(engine, 2, 16, device)
    decoder.search()  # what a search needs is kept for the next one
    filler = memory.filled(engine._backend.free_bytes)
    held, refusal = memory.held(), None
    try:
        engine.replace(large)
    except BackendError as error:
        refusal = str(error)
    left = memory.held()
    beams = decoder.search()
    serves = engine.index is one and beams.fingerprint == one.fingerprint
    found = int(beams.count.sum())
    del filler, beams
    memory.give_back()
    return {
        "what": "swap",
        "backend": backend,
        "swaps": swaps,
        "searches": searches,
        "device_before": device_before,
        "device_after": device_after,
        "bytes_before": before,
        "bytes_after": after,
        "refusal": refusal,
        "bytes_before_refusal": held,
        "bytes_after_refusal": left,
        "old_index_serves": serves,
        "beams_while_full": found,
    }


def an_index(items: int, seed: int) -> Index:
    """Of a made catalog."""
    size = MANY._replace(items=items)
    return Index.build(Catalog.from_arrays(many_sids(size, seed), codebooks=size.vocabulary))
