"""Whole searches in CUDA graphs: captured once, replayed for every later search of the same shape.

A replay starts a search's kernels with one call in place of one for each, which is most of the time
of a small batch. The price is that everything has a fixed place in memory: what a request brings
(its prefix, its targeting) is copied into buffers of the graph, and whatever else the scorer reads
must stay where it was when the graph was captured, and be filled anew before each search.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError
from beamsieve.interface import Backend, Beams, Captured, RequestFilters, Search

KEPT = 32
"""Graphs that an engine keeps; the one that was used longest ago makes room."""

_ONE_CAPTURE = threading.Lock()


@dataclass
class CapturedSearch:
    """One graph, and what must live, and stay the same object, as long as it does."""

    tables: Any
    holds: tuple[Any, ...]
    lock: threading.Lock = field(default_factory=threading.Lock)
    captured: Captured | None = None


class SearchGraphs:
    """The captured searches of one engine.

    A graph serves the searches that agree in index, batch, widths, length of the prefix, plan,
    scorer (the same object) and which tests their targeting asks for. The number of a request's
    Bloom values and of its listed items counts only as rounded up to a power of two.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, CapturedSearch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def search(
        self,
        search: Search,
        tokens: NDArray[np.int32],
        rows: NDArray[np.int64],
        finished: NDArray[np.bool_],
        widths: Sequence[int],
        score: Callable[..., Any],
        loop: Callable[[Beams], Beams],
        reads: Sequence[Any] = (),
    ) -> Beams:
        """Replay the search's graph, and capture it first where there is none.

        Args:
            search: what ``Backend.begin`` takes, as are the next three.
            tokens: [B, p].
            rows: [B].
            finished: [B].
            widths: one per level that is left.
            score: the caller's scorer.
            loop: scores and steps with them, from the first beams to the last.
            reads: filled by ``loop`` with what must live as long as its graph.

        Raises:
            BackendError: the backend cannot capture it.
        """
        backend = self._backend
        if not backend.capabilities.graph:
            raise BackendError(
                f"The backend {backend.name!r} on {backend.device} cannot capture a search in a "
                f"CUDA graph; leave out graph=True."
            )
        if not widths:
            return loop(backend.begin(search, tokens, rows, finished))
        if search.requests is not None:
            search = replace(search, requests=filled_up(search.requests))
        key = (
            id(search.tables),
            id(search.plan),
            search.batch,
            tokens.shape[1],
            tuple(widths),
            _identity(score),
            shape_of(search.requests),
        )
        kept = self._entry(key, search, score)
        with kept.lock:
            if kept.captured is None:
                with _ONE_CAPTURE:
                    kept.captured = backend.capture(search, tokens, rows, finished, loop)
                kept.holds = (*kept.holds, *reads)
            return kept.captured.replay(search, tokens, rows, finished)

    def keep_only(self, tables: Any) -> None:
        """Drop the graphs of other tables: they would keep a replaced index on the device."""
        with self._lock:
            self._drop_all_but(tables)

    def _drop_all_but(self, tables: Any) -> None:
        for other in [key for key, one in self._kept.items() if one.tables is not tables]:
            del self._kept[other]

    def _entry(self, key: Hashable, search: Search, score: Any) -> CapturedSearch:
        with self._lock:
            self._drop_all_but(search.tables)
            kept = self._kept.get(key)
            if kept is None:
                # Held, as the key knows them by their addresses.
                kept = CapturedSearch(search.tables, (search.plan, score))
                self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return kept


def _identity(score: Any) -> Hashable:
    # A bound method is a new object at every look; its owner and its function are not.
    owner = getattr(score, "__self__", None)
    if owner is not None and hasattr(score, "__func__"):
        return id(owner), id(score.__func__)
    return id(score)


def shape_of(filters: RequestFilters | None) -> Hashable:
    """What of a batch's targeting decides which kernels run, and on arrays of which shapes."""
    if filters is None:
        return None
    return (
        bool(filters.bits.any()),
        tuple(bool(count.any()) for count in filters.bloom_count),
        tuple(signed.shape[1] for signed in filters.bloom),
        bool(filters.leaf_mode.any()),
        len(filters.leaves),
    )


def filled_up(filters: RequestFilters) -> RequestFilters:
    """The same requests in arrays whose sizes are powers of two, so that few shapes occur."""
    bloom = []
    for signed in filters.bloom:
        batch, number, words = signed.shape
        more = np.zeros((batch, _rounded(number), words), signed.dtype)
        more[:, :number] = signed
        bloom.append(more)
    leaves = np.zeros(_rounded(len(filters.leaves)), filters.leaves.dtype)
    leaves[: len(filters.leaves)] = filters.leaves
    return replace(filters, bloom=tuple(bloom), leaves=leaves)


def _rounded(number: int) -> int:
    return max(16, 1 << max(0, number - 1).bit_length())
