"""Work in threads. NumPy, Arrow and xxhash let go of the interpreter as they work: it scales."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from beamsieve.errors import InputError

Job = Callable[[], object]
Task = TypeVar("Task")
Result = TypeVar("Result")

BLOCK_ROWS = 1 << 15
"""Rows that one pass works on at a time, so that what it writes is still in the cache for the next.
Where many threads work, more: they meet in the interpreter between two passes, and wait there.
"""
_FEW_THREADS = 2
_MOST_BLOCKS = 16

_own = threading.local()


def thread_count(threads: int | None) -> int:
    """How many threads to use: as many as this process may run on processors, when None.

    Raises:
        InputError: not a whole number from 1.
    """
    if threads is None:
        if hasattr(os, "sched_getaffinity"):
            return max(1, len(os.sched_getaffinity(0)))
        return os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise InputError(f"threads is {threads!r}; give a whole number from 1, or None.")
    return threads


def run(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    threads: int | None = None,
    done: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """``[work(task) for task in tasks]``, in threads.

    Args:
        work: what to do; it must not depend on the order in which tasks are done.
        tasks: to what.
        threads: how many; see :func:`thread_count`.
        done: called by the caller's own thread with how many tasks are done, and how many there
            are. When it raises, the tasks that have not begun are dropped, the others end, and the
            error is raised here; so is an error of a task, and a KeyboardInterrupt.
    """
    workers = min(thread_count(threads), len(tasks))
    found: list[Result] = []
    if workers <= 1:
        for task in tasks:
            found.append(work(task))
            if done is not None:
                done(len(found), len(tasks))
        return found
    held: ThreadPoolExecutor | None = getattr(_own, "team", None)
    with _pool(workers) if held is None else nullcontext(held) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for future in futures:
                found.append(future.result())
                if done is not None:
                    done(len(found), len(tasks))
        except BaseException:
            for future in futures:
                future.cancel()
            wait(futures)
            raise
    return found


@contextmanager
def team(threads: int | None = None) -> Iterator[None]:
    """Within, every :func:`run` of this thread shares the same threads, and none makes its own."""
    count = thread_count(threads)
    if count == 1 or getattr(_own, "team", None) is not None:
        yield
        return
    with _pool(count) as pool:
        _own.team = pool
        try:
            yield
        finally:
            _own.team = None


def _pool(workers: int) -> ThreadPoolExecutor:
    rows = BLOCK_ROWS * min(_MOST_BLOCKS, max(1, workers // _FEW_THREADS * 2 - 1))
    return ThreadPoolExecutor(workers, "beamsieve", _begin, (rows,))


def side_by_side(works: Iterable[Iterator[Sequence[Job]]], threads: int | None = None) -> None:
    """Do works whose steps are jobs for many threads: each yields jobs, and goes on once all that
    were yielded with them are done.

    Args:
        works: generators.
        threads: how many to use; see :func:`thread_count`.
    """
    left = list(works)
    while left:
        found = run(lambda work: next(work, None), left, threads)
        left = [work for work, jobs in zip(left, found, strict=True) if jobs is not None]
        run(lambda job: job(), [job for jobs in found if jobs for job in jobs], threads)


def pieces(count: int, size: int) -> list[tuple[int, int]]:
    """Cut ``count`` rows into runs of at most ``size``: where each begins and ends."""
    return [(start, min(count, start + size)) for start in range(0, count, size)]


def shares(
    count: int, size: int, threads: int | None = None, multiple: int = 1
) -> list[tuple[int, int]]:
    """Cut ``count`` rows into runs of about ``size``, as many for each thread: none waits for long.

    Args:
        count: how many rows.
        size: of a run.
        threads: how many there are; see :func:`thread_count`.
        multiple: every run but the last one has a multiple of so many rows.
    """
    workers = thread_count(threads)
    runs = workers * max(1, round(count / (workers * size)))
    rows = -(-max(1, count) // runs) if count > size else max(1, count)
    return pieces(count, -(-rows // multiple) * multiple)


def blocks(start: int, stop: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """The runs of at most ``size`` rows (or :func:`block_rows`) from ``start`` to ``stop``."""
    size = size or block_rows()
    for first in range(start, stop, size):
        yield first, min(stop, first + size)


def block_rows() -> int:
    """How many rows one pass should work on in this thread."""
    return int(getattr(_own, "rows", BLOCK_ROWS))


def _begin(rows: int) -> None:
    _own.rows = rows
