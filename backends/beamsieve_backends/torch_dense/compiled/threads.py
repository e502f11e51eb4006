"""Threads for compiled loops, which let go of the interpreter.

Numba's own threads are not used: the set that every machine has may not be entered by two threads
at once, and an engine may.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_size = 0


def shared(work: Callable[[int, int], None], weights: NDArray[np.int64], threads: int) -> None:
    """Call ``work(begin, end)`` for parts of the range that ``weights`` spans, in threads.

    Args:
        work: may be called for any parts; what it does for each must not depend on how the range is
            cut.
        weights: int64 [n + 1], ascending from 0: how much work lies before each of n elements.
        threads: how many may work, the caller's own among them.
    """
    count = len(weights) - 1
    if threads == 1 or count <= 1:
        work(0, count)
        return
    shares = weights[-1] * np.arange(1, threads) / threads
    middles = (weights[:-1] + weights[1:]) / 2  # a share that ends in an element ends beside it
    cuts = [0, *np.searchsorted(middles, shares).tolist(), count]
    mine, *others = [(begin, end) for begin, end in pairwise(cuts) if begin < end]
    pool = _workers(threads - 1)
    waiting = [pool.submit(work, *part) for part in others]
    try:
        work(*mine)
    finally:
        wait(waiting)  # for all of them, whichever fails: they write what the caller owns
    for part in waiting:
        part.result()


def _workers(threads: int) -> ThreadPoolExecutor:
    global _pool, _size
    with _lock:
        if _pool is None or _size < threads:
            # The threads of a smaller pool end once nobody holds it any more.
            _pool = ThreadPoolExecutor(threads, thread_name_prefix="beamsieve-step")
            _size = threads
        return _pool


def _forget() -> None:
    """A child process has its parent's pool, but none of its threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
