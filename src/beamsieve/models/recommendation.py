"""What is recommended after one history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beamsieve.models.data import Item


@dataclass(frozen=True)
class RecommendedItem:
    """One recommended item; the score is the log-probability of its semantic ID."""

    item: Item
    sid: tuple[int, ...]
    score: float
    title: str | None = None


@dataclass(frozen=True)
class Recommendation:
    """What is recommended after one history.

    Attributes:
        row: of the histories, from 0.
        user: of that row, where it is known.
        items: best first.
        target: the item that really came next, where it is known.
        reason: why there is no item; "" where there is one.
        free_beams: how many beams a search without the filter ended with; 0 where none was run.
        illegal_free_beams: how many of those are no item's semantic ID.
    """

    row: int
    user: Item | None
    items: tuple[RecommendedItem, ...]
    target: Item | None = None
    reason: str = ""
    free_beams: int = 0
    illegal_free_beams: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON lines."""
        return {
            "row": self.row,
            "user": self.user,
            "items": [
                {"item": hit.item, "title": hit.title, "score": hit.score, "sid": list(hit.sid)}
                for hit in self.items
            ],
            "target": self.target,
            "reason": self.reason,
        }
