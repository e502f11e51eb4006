"""Held-out users decoded in three ways, compared and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.engine import Engine
from beamsieve.models.checkpoint import Checkpoint
from beamsieve.models.data import Histories
from beamsieve.models.free import LegalSids, search_freely
from beamsieve.models.metrics import Metrics
from beamsieve.models.progress import Bar
from beamsieve.models.recommendation import Recommendation, RecommendedItem
from beamsieve.models.scorer import as_tensor
from beamsieve.models.sequences import number
from beamsieve.models.serving import Recommender

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.interface import Beams
    from beamsieve.results import RequestHits

K = 10
WIDTH = 50
BATCH = 50
"""Users decoded at once."""
TIMED = 5
"""Decodes behind each timing, after one that does not count."""
SHOWN = 3
"""Users whose recommendations are shown."""


class Comparison:
    """Filter-first, score-first, and no filter, on the same model and users.

    Args:
        checkpoint: the model.
        index: its items.
        histories: of the users to decode, with their targets.
        backend: config string of the engine.
    """

    def __init__(
        self, checkpoint: Checkpoint, index: Index, histories: Histories, backend: str
    ) -> None:
        self.histories = histories
        self.filter_first = Recommender(checkpoint, Engine(index, backend, normalize="catalog"))
        self.score_first = Recommender(checkpoint, Engine(index, backend, normalize="all"))
        self.model = self.filter_first.model
        self.widths = [WIDTH] * self.model.levels
        self.legal = LegalSids(index)
        sequences = number(histories, index).histories
        self.batches = [
            range(start, min(start + BATCH, len(sequences)))
            for start in range(0, len(sequences), BATCH)
        ]
        self.readings = [
            self.filter_first.read([sequences[row] for row in rows]) for rows in self.batches
        ]

    def quality(self, bar: Bar) -> dict[str, Any]:
        """Decode everyone in every way; plain values, named as ``run_demo`` says."""
        metrics = Metrics((K,), self.filter_first.checkpoint.popular)
        users: list[dict[str, Any]] = []
        shared: list[float] = []
        filtered: list[NDArray[np.bool_]] = []
        free: list[NDArray[np.bool_]] = []
        bar.begin("decode", len(self.batches))
        for rows, reading in zip(self.batches, self.readings, strict=True):
            score = self.model.scorer(reading, self.widths)
            beams = self._search(self.filter_first, score, len(rows))
            found = self.filter_first.engine.results(beams, K)
            others = self.score_first.decode(reading, K, WIDTH)
            filtered.append(self.legal(_finished(beams)))
            free.append(self.legal(search_freely(self.model, reading, WIDTH).tokens.cpu().numpy()))
            for row, own, other in zip(rows, found, others, strict=True):
                metrics.add(self._recommendation(row, own))
                shared.append(len({*own.items} & {*other.items}) / max(len(own), len(other), 1))
                if len(users) < SHOWN:
                    users.append(self._shown(row, own))
            bar.advance()
        measured = metrics.result()
        return {
            "held_out_users": measured["rows"],
            **{name: value for name, value in measured.items() if name.endswith(f"_at_{K}")},
            "legal_share": {
                "with_filter": float(np.concatenate(filtered).mean()),
                "without_filter": float(np.concatenate(free, axis=None).mean()),
            },
            "overlap": statistics.fmean(shared),
            "users": users,
        }

    def times(self) -> dict[str, Any]:
        """Milliseconds per request: medians, the methods taking turns on the same users."""
        decode: dict[str, list[float]] = {}
        stage: dict[str, list[float]] = {}
        for turn in range(TIMED + 1):
            reading = self.readings[turn % len(self.readings)]
            batch = len(reading)
            for name, way in (
                ("filter_first", self.filter_first),
                ("score_first", self.score_first),
            ):
                recorded = _Recorder(self.model.scorer(reading, self.widths))
                spent = _milliseconds(self._search, way, recorded, batch) / batch
                decode.setdefault(name, []).append(spent)
                spent = _milliseconds(self._search, way, recorded.replay, batch) / batch
                stage.setdefault(name, []).append(spent)
            spent = _milliseconds(search_freely, self.model, reading, WIDTH) / batch
            decode.setdefault("without_filter", []).append(spent)
        # The first turn warms caches and allocators.
        return {
            "ms_per_request": {name: statistics.median(ms[1:]) for name, ms in decode.items()},
            "stage_ms_per_request": {name: statistics.median(ms[1:]) for name, ms in stage.items()},
        }

    def _search(self, way: Recommender, score: Callable[[int, Beams], Any], batch: int) -> Beams:
        return way.engine.search(score, self.widths, batch)

    def _recommendation(self, row: int, hits: RequestHits) -> Recommendation:
        items = tuple(RecommendedItem(hit.item, hit.sid, hit.score) for hit in hits)
        return Recommendation(row, None, items, self.histories.target(row), hits.reason)

    def _shown(self, row: int, hits: RequestHits) -> dict[str, Any]:
        index = self.filter_first.index

        def names(items: list[Any]) -> list[str | None]:
            return index.titles_of(index.items.numbers(items))

        target = self.histories.target(row)
        return {
            "history": names(self.histories.history(row)),
            "recommended": [
                {"item": hit.item, "name": name, "score": hit.score, "hit": hit.item == target}
                for hit, name in zip(hits, names(hits.items), strict=True)
            ],
            "came_next": names([target])[0],
        }


class _Recorder:
    """Asks a scorer, and can say the same again without the model."""

    def __init__(self, score: Callable[[int, Any], Any]) -> None:
        self._score = score
        self._said: dict[int, Any] = {}

    def __call__(self, step: int, beams: Beams) -> Any:
        self._said[step] = self._score(step, beams)
        return self._said[step]

    def replay(self, step: int, beams: Beams) -> Any:
        return self._said[step]


def _finished(beams: Beams) -> NDArray[Any]:
    """Tokens [n, L] of all real beams, on the host."""
    cpu = torch.device("cpu")
    real = as_tensor(beams.rows, cpu) >= 0
    tokens: NDArray[Any] = as_tensor(beams.tokens, cpu)[real].numpy()
    return tokens


def _milliseconds(work: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return 1e3 * (time.perf_counter() - began)
