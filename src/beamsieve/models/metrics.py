"""How good recommendations are: Recall and NDCG of the item that really came next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beamsieve.errors import InputError
from beamsieve.models.data import Item

if TYPE_CHECKING:
    from beamsieve.models.recommendation import Recommendation


class Metrics:
    """Recall@k and NDCG@k over recommendations that know their target, at the level of items.

    There is one relevant item per row, so Recall@k is the share of rows whose target is among the
    first k items, and NDCG@k the mean of 1 / log2(1 + rank) there (Järvelin and Kekäläinen 2002,
    with one relevant document). Items that share a semantic ID count one by one, in the order in
    which they are listed: a target behind k others is no hit. A target that the index does not
    have is a miss; rows without a target are left out.

    Args:
        ks: the cut-offs.
        popular: the same list for everyone, best first, to be measured beside the model: see
            :attr:`beamsieve.models.Checkpoint.popular`.
    """

    def __init__(self, ks: Sequence[int] = (5, 10), popular: Sequence[Item] = ()) -> None:
        if not ks or min(ks) < 1:
            raise InputError(f"The cut-offs are {list(ks)}; give at least one, from 1 on.")
        self._ks = tuple(sorted(set(ks)))
        self._popular = {str(item): rank for rank, item in reversed([*enumerate(popular, 1)])}
        self._rows = 0
        self._without_target = 0
        self._model = _Ranks(self._ks)
        self._baseline = _Ranks(self._ks)
        self._free = 0
        self._illegal = 0

    def add(self, recommendation: Recommendation) -> None:
        """Count one row."""
        self._free += recommendation.free_beams
        self._illegal += recommendation.illegal_free_beams
        if recommendation.target is None:
            self._without_target += 1
            return
        self._rows += 1
        target = str(recommendation.target)
        ranks = (
            rank for rank, hit in enumerate(recommendation.items, 1) if str(hit.item) == target
        )
        self._model.add(next(ranks, None))
        self._baseline.add(self._popular.get(target))

    def result(self) -> dict[str, Any]:
        """Plain values: rows, ``recall_at_k`` and ``ndcg_at_k`` of each k, and those of
        popularity as ``popularity_recall_at_k`` …; and the share of illegal free beams, if any
        were searched. Shares are NaN where there was nothing to count.
        """
        found: dict[str, Any] = {"rows": self._rows, "rows_without_target": self._without_target}
        found |= self._model.means(self._rows)
        if self._popular:
            means = self._baseline.means(self._rows)
            found |= {f"popularity_{name}": value for name, value in means.items()}
        if self._free:
            found["illegal_free_share"] = self._illegal / self._free
        return found


class _Ranks:
    """Sums over rows of what the target's rank is worth at each cut-off."""

    def __init__(self, ks: Sequence[int]) -> None:
        self._hits = dict.fromkeys(ks, 0)
        self._gains = dict.fromkeys(ks, 0.0)

    def add(self, rank: int | None) -> None:
        for k in self._hits:
            if rank is not None and rank <= k:
                self._hits[k] += 1
                self._gains[k] += 1 / math.log2(1 + rank)

    def means(self, rows: int) -> dict[str, float]:
        found = {
            f"recall_at_{k}": hits / rows if rows else math.nan for k, hits in self._hits.items()
        }
        for k, gain in self._gains.items():
            found[f"ndcg_at_{k}"] = gain / rows if rows else math.nan
        return found
