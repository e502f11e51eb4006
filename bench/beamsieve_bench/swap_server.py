"""A server for the benchmark of swaps: threads that share an engine, and requests that fall due."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import beamsieve as bs

HIDDEN = 64
K = 10
Answer = list[list[tuple[Any, float]]]


class WrongAnswerError(Exception):
    """A request got what no index of the two would have given."""


@dataclass(frozen=True)
class Served:
    """One request: seconds of the clock when it fell due and when its items were there."""

    due: float
    done: float
    fingerprint: str


class Question:
    """What a model says for one batch of requests: the same at every call.

    Args:
        codebooks: V_1 … V_L.
        batch: requests.
        width: beams per request.
        device: where to say it.
        seed: which question; the heads are those of all questions.
    """

    def __init__(
        self, codebooks: Sequence[int], batch: int, width: int, device: torch.device, seed: int
    ) -> None:
        draw = torch.Generator().manual_seed(seed + 1)
        self._hidden = [
            torch.randn(batch, width if step else 1, HIDDEN, generator=draw).to(device)
            for step in range(len(codebooks))
        ]
        draw.manual_seed(0)
        self.heads = [torch.randn(size, HIDDEN, generator=draw).to(device) for size in codebooks]
        self.widths, self._batch = [width] * len(codebooks), batch

    def put_to(self, engine: bs.Engine) -> tuple[str, Answer]:
        """Which index answered, and the items and scores of every request."""
        beams = engine.search(
            lambda step, beams: (self._hidden[step - 1], self.heads[step - 1]),
            self.widths,
            self._batch,
        )
        found = engine.results(beams, k=K)
        return beams.fingerprint, [[(hit.item, hit.score) for hit in hits] for hits in found]


@dataclass(frozen=True)
class Side:
    """One of the two indexes: its file, the plan measured for it, and what it answers."""

    path: Path
    fingerprint: str
    plan: bs.Plan
    answers: list[Answer]


class Server:
    """Threads that share an engine, and requests that fall due at fixed times; a ``with`` block.

    Args:
        engine: what serves.
        questions: what is asked, in turns.
        sides: the indexes that may answer, by fingerprint.
        interval: seconds from one request to the next.
        threads: how many serve.
    """

    def __init__(
        self,
        engine: bs.Engine,
        questions: Sequence[Question],
        sides: dict[str, Side],
        interval: float,
        threads: int,
    ) -> None:
        self._engine, self._questions, self._sides = engine, questions, sides
        self._interval, self._threads = interval, threads
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(threads)
        self.served: list[Served] = []

    def __enter__(self) -> Server:
        """Begin."""
        began = time.perf_counter()
        self._running = [
            self._pool.submit(self._serve, number, began) for number in range(self._threads)
        ]
        return self

    def __exit__(self, *failure: object) -> None:
        """End.

        Raises:
            WrongAnswerError: a request was not answered as its index alone would have.
        """
        self._stop.set()
        self._pool.shutdown()
        for thread in self._running:
            thread.result()

    def _serve(self, number: int, began: float) -> None:
        while not self._stop.is_set():
            due = began + number * self._interval
            self._stop.wait(max(0.0, due - time.perf_counter()))
            seed = number % len(self._questions)
            fingerprint, given = self._questions[seed].put_to(self._engine)
            done = time.perf_counter()
            side = self._sides.get(fingerprint)
            if side is None or given != side.answers[seed]:
                raise WrongAnswerError(f"request {number}: not the answer of index {fingerprint}.")
            self.served.append(Served(due, done, fingerprint))
            number += self._threads


def latencies(
    served: Sequence[Served], windows: Sequence[tuple[float, float]]
) -> dict[str, dict[str, float]]:
    """Quantiles in milliseconds, of the requests before any swap, open during one, and between."""
    parts: dict[str, list[float]] = {"before": [], "during": [], "between": []}
    for one in served:
        met = any(one.due < end and one.done > begin for begin, end in windows)
        early = one.done <= windows[0][0]
        parts["before" if early else "during" if met else "between"].append(one.done - one.due)
    return {name: _quantiles(taken) for name, taken in parts.items() if taken}


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    p50, p95, p99, most = np.quantile(seconds, (0.5, 0.95, 0.99, 1)).tolist()
    named = {"p50": p50, "p95": p95, "p99": p99, "most": most}
    found: dict[str, float] = {"requests": len(seconds)}
    return found | {name: round(s * 1e3, 3) for name, s in named.items()}
