"""What a trained model's recommendations are worth, filter-first beside score-first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.engine import Engine
from beamsieve.models.checkpoint import Checkpoint
from beamsieve.models.data import Histories
from beamsieve.models.free import LegalSids, search_freely
from beamsieve.models.generator import Generator
from beamsieve.models.scorer import BeamScorer, as_tensor
from beamsieve.models.sequences import number
from beamsieve.models.serving import Recommender

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.interface import Beams

CUT_OFFS = (5, 10, 50)
OVERLAPS = (10, 50)


def measure(
    checkpoint: Checkpoint,
    index: Index,
    histories: Histories,
    *,
    backend: str,
    width: int = 50,
    batch: int = 256,
) -> dict[str, Any]:
    """Decode every history in three ways.

    Returns:
        plain values: ``rows``; ``filter_first`` and ``score_first``, each with ``recall_at_k`` and
        ``ndcg_at_k`` (items of one semantic ID count one by one); ``popularity`` likewise;
        ``overlap_at_k``, the mean share of their first k items that both ways have in common;
        ``valid_scores`` and ``all_scores`` per step, those that filter-first needs and those of
        whole codebooks, and ``work_saved``; ``illegal_free_share``, of beams searched without a
        filter.
    """
    ways = {
        "filter_first": Recommender(checkpoint, Engine(index, backend, normalize="catalog")),
        "score_first": Recommender(checkpoint, Engine(index, backend, normalize="all")),
    }
    first = ways["filter_first"]
    model = first.model
    assert isinstance(model, Generator)
    ranks = {name: _Ranks() for name in (*ways, "popularity")}
    overlaps: dict[int, list[float]] = {cut: [] for cut in OVERLAPS}
    counted = _Work(index)
    legal, illegal, free = LegalSids(index), 0, 0
    popular = {str(item): rank for rank, item in enumerate(checkpoint.popular)}
    sequences = number(histories, index).histories
    for start in range(0, len(sequences), batch):
        rows = range(start, min(start + batch, len(sequences)))
        reading = first.read([sequences[row] for row in rows])
        found = {}
        for name, way in ways.items():
            score = BeamScorer(model, reading)
            asked: Any = counted.watch(score) if way is first else score
            beams = way.engine.search(asked, [width] * model.levels, len(rows))
            found[name] = [hits.items for hits in way.engine.results(beams, max(CUT_OFFS))]
        tokens = search_freely(model, reading, width).tokens.cpu().numpy()
        free += tokens[..., 0].size
        illegal += int((~legal(tokens)).sum())
        for place, row in enumerate(rows):
            target = str(histories.target(row))
            for name in ways:
                ranks[name].add(_place(target, found[name][place]))
            ranks["popularity"].add(popular.get(target))
            for cut, shares in overlaps.items():
                both = [{*found[name][place][:cut]} for name in ways]
                shares.append(len(both[0] & both[1]) / max(1, *map(len, both)))
    return {
        "rows": len(sequences),
        **{name: kept.means() for name, kept in ranks.items()},
        **{f"overlap_at_{cut}": float(np.mean(shares)) for cut, shares in overlaps.items()},
        "illegal_free_share": illegal / free,
        **counted.result(),
    }


def _place(target: str, items: list[Any]) -> int | None:
    return next((place for place, item in enumerate(items) if str(item) == target), None)


class _Work:
    """Counts the scores that a search needs, per step."""

    def __init__(self, index: Index) -> None:
        self._children = [np.diff(table.plain_starts()) for table in index.tables]
        self._sizes = index.codebooks
        self._valid = np.zeros(index.length, np.int64)
        self._all = np.zeros(index.length, np.int64)

    def watch(self, score: BeamScorer) -> Any:
        """The same scorer, counted."""

        def counted(step: int, beams: Beams) -> Any:
            rows = as_tensor(beams.rows, torch.device("cpu")).numpy()
            live: NDArray[np.int64] = rows[rows >= 0]
            self._valid[step - 1] += int(self._children[step - 1][live].sum())
            self._all[step - 1] += len(live) * self._sizes[step - 1]
            return score(step, beams)

        return counted

    def result(self) -> dict[str, Any]:
        saved = 1 - self._valid / np.maximum(self._all, 1)
        return {
            "valid_scores": self._valid.tolist(),
            "all_scores": self._all.tolist(),
            "work_saved": [float(share) for share in saved],
            "work_saved_in_all": float(1 - self._valid.sum() / max(1, self._all.sum())),
        }


class _Ranks:
    """Recall and NDCG of one relevant item per row."""

    def __init__(self) -> None:
        self._places: list[float] = []

    def add(self, place: int | None) -> None:
        """``place`` counts from 0; None where the target was not found."""
        self._places.append(math.inf if place is None else place)

    def means(self) -> dict[str, float]:
        places = np.array(self._places)
        gains = 1 / np.log2(2 + places)
        found: dict[str, float] = {}
        for cut in CUT_OFFS:
            found[f"recall_at_{cut}"] = float((places < cut).mean())
            found[f"ndcg_at_{cut}"] = float(np.where(places < cut, gains, 0).mean())
        return found
