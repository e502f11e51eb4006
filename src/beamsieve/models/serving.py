"""Recommendations from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from beamsieve.models.data import Histories, Item

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.interface import Normalize


@dataclass(frozen=True)
class RecommendedItem:
    """One recommended item; the score is the log-probability of its semantic ID."""

    item: Item
    sid: tuple[int, ...]
    score: float
    title: str | None = None


@dataclass(frozen=True)
class Recommendation:
    """The recommendations of one row of histories, best first."""

    row: int
    user: Item | None
    items: tuple[RecommendedItem, ...]
    target: Item | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For JSONL."""
        raise NotImplementedError


def recommend(
    checkpoint: str | Path,
    index: Index | str | Path,
    histories: Histories | str | Path,
    *,
    k: int = 10,
    width: int = 50,
    backend: str | None = None,
    normalize: Normalize = "catalog",
    batch: int = 64,
    unknown: Literal["skip", "refuse"] = "skip",
    titles: Mapping[Item, str] | None = None,
    progress: bool | None = None,
) -> Iterator[Recommendation]:
    """Recommend ``k`` items for each history, in the order of the rows.

    With ``Metrics`` of :mod:`beamsieve.models.metrics`: ``metrics = Metrics((5, 10))``, then
    ``metrics.add(recommendation)`` for each, then ``metrics.result()`` (a dict).
    """
    raise NotImplementedError
