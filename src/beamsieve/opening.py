"""What an engine has loaded, and what a search begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve import checks
from beamsieve.errors import BackendError, InputError
from beamsieve.interface import Backend, Normalize, PreparedHead, Search

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.plan import Plan

SPARE_BYTES = 64 << 20
"""What a load leaves free of a device's memory: for workspaces of matrix products (32 MiB per
library and stream on an H100 or H200) and for what a search that is running takes next."""


@dataclass(frozen=True)
class Loaded:
    """An index on the device, and the plan that holds for it. Replaced as a whole."""

    index: Index
    tables: Any
    plan: Plan | None


def load(backend: Backend, index: Index, normalize: Normalize) -> Loaded:
    """Copy an index to the device, if that leaves :data:`SPARE_BYTES` of its memory free.

    Raises:
        BackendError: the backend cannot serve it, or the device has no room for it.
    """
    reason = checks.cannot_serve(backend, index, normalize)
    if reason:
        raise BackendError(reason)
    free = backend.free_bytes()
    if free is not None and free < index.device_bytes + SPARE_BYTES:
        # Not tried: an allocator that finds no room first gives back what it keeps for the searches
        # that are running, and those would then find none.
        raise _no_room(backend, index, free)
    try:
        return Loaded(index, backend.load(index), None)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
    # Raised here, where what the failed load held is no longer held by its traceback.
    raise _no_room(backend, index, backend.free_bytes())


def _no_room(backend: Backend, index: Index, free: int | None) -> BackendError:
    known = (
        ""
        if free is None
        else f", {free:,} are free, and {SPARE_BYTES:,} of them stay so for searches"
    )
    return BackendError(
        f"The index does not fit into the memory of {backend.device}: its tables take "
        f"{index.device_bytes:,} bytes or more{known}; end the searches on older indexes, or "
        f"load a smaller one."
    )


def prepared(backend: Backend, head: Any) -> PreparedHead:
    """A head with what steps would make of it; argument and errors as ``Engine.prepare_head``."""
    array = checks.any_head(backend, head)
    try:
        made = backend.prepare_head(array)
        return PreparedHead(array, backend, made, (array, made))
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
    # Raised here, where what the attempt held is let go.
    raise BackendError(
        f"What a prepared head keeps does not fit into the memory of {backend.device}: drop "
        f"prepared heads that nobody uses any more, or give this head as it is."
    )


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed: Python's own error, or one that an array library names so.

    On a CPU, PyTorch raises a RuntimeError that says so.
    """
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)


def opened(
    backend: Backend,
    loaded: Loaded,
    batch: int | None,
    requests: Sequence[Any] | None,
    prefix: Any,
) -> tuple[Search, NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """What ``Backend.begin`` takes; arguments and errors as ``Engine.begin`` says."""
    if prefix is not None:
        prefix = checks.prefix_lists(prefix)
    if requests is not None:
        checks.a_request_list(requests)
    if batch is None:
        told = prefix if requests is None else requests
        if told is None:
            raise InputError("begin needs batch, the number of requests.")
        batch = len(told)
    batch = checks.places_for(checks.whole_number(batch, "batch"), 1)
    tokens, rows, finished = checks.given_prefixes(loaded.index, prefix, batch)
    targeting = checks.request_filters(backend, loaded.index, requests, batch)
    filters, asked = targeting or (None, None)
    search = Search(
        loaded.index, loaded.tables, batch, filters, asked, backend=backend, plan=loaded.plan
    )
    return search, tokens, rows, finished
