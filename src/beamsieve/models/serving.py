"""Recommendations: a checkpoint and an index, histories in, items out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.errors import InputError, RequestError
from beamsieve.models.batches import pad
from beamsieve.models.checkpoint import Checkpoint, check_fit, load_checkpoint
from beamsieve.models.data import Histories, Item, read_histories
from beamsieve.models.free import LegalSids, search_freely
from beamsieve.models.model import Read
from beamsieve.models.progress import progress_bar
from beamsieve.models.sequences import ItemSids, Sequences, Unknown, number
from beamsieve.targeting.requests import check_request

if TYPE_CHECKING:
    from beamsieve.engine import Engine
    from beamsieve.index import Index
    from beamsieve.interface import Normalize
    from beamsieve.results import RequestHits

_log = logging.getLogger("beamsieve")


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


class Recommender:
    """A checkpoint's model on an engine. Safe to use from several threads.

    Args:
        checkpoint: a checkpoint, or its file.
        engine: of the index that the checkpoint was trained on.
        other_catalog: accept an index of another catalog of the same tokenizer.

    Raises:
        CheckpointError: the checkpoint is damaged, or does not fit the engine's index.
    """

    def __init__(
        self, checkpoint: Checkpoint | str | Path, engine: Engine, *, other_catalog: bool = False
    ) -> None:
        self.engine = engine
        self.index = engine.index
        if isinstance(checkpoint, Checkpoint):
            check_fit(checkpoint, self.index, other_catalog=other_catalog)
        else:
            checkpoint = load_checkpoint(
                checkpoint, self.index, device=engine.device, other_catalog=other_catalog
            )
        self.checkpoint = checkpoint
        self.model = checkpoint.model.to(engine.device).eval()
        self._sids = ItemSids(self.index)

    def read(self, histories: list[NDArray[np.int64]]) -> Any:
        """Read histories of item numbers, of each its most recent items."""
        longest = self.model.config.longest
        recent = [history[-longest:] for history in histories]
        device = self.engine.device
        with torch.no_grad():
            return self.model.read(
                torch.from_numpy(self._sids.first(pad(recent))).to(device),
                torch.tensor([len(history) for history in recent], device=device),
            )

    def decode(
        self, reading: Read, k: int, width: int, requests: Sequence[Any] | None = None
    ) -> list[RequestHits]:
        """The ``k`` best items of each request, with ``width`` beams per step.

        ``requests`` holds the targeting of each, as in :meth:`beamsieve.Engine.begin`.
        """
        widths = [width] * self.model.levels
        beams = self.engine.search(
            self.model.scorer(reading, widths),
            widths=widths,
            batch=len(reading),
            requests=requests,
        )
        return self.engine.results(beams, k)


def recommend(
    checkpoint: Checkpoint | str | Path,
    index: Index | str | Path,
    histories: Histories | str | Path,
    *,
    k: int = 10,
    width: int = 50,
    backend: str | None = None,
    normalize: Normalize = "catalog",
    batch: int = 64,
    unknown: Unknown = "skip",
    titles: Mapping[Item, str] | None = None,
    requests: Sequence[Any] | None = None,
    free_beams: bool = False,
    other_catalog: bool = False,
    progress: bool | None = None,
) -> Iterator[Recommendation]:
    """Recommend ``k`` items after each history, in the order of the rows.

    An empty history is a user about whom nothing is known: what the model has learnt to come
    first is recommended.

    Args:
        checkpoint: a checkpoint, or its file.
        index: the index that it was trained on, or its file.
        histories: histories, or a file of them (see :mod:`beamsieve.models.data`).
        k: items per history.
        width: beams kept per step.
        backend: config string of the engine; its device is the model's as well.
        normalize: as in :class:`beamsieve.Engine`.
        batch: histories decoded at once.
        unknown: what to do with an item that the index does not have.
        titles: what to show for items; the index's own where it has some, when None.
        requests: the targeting of each history's user, as in :meth:`beamsieve.Engine.begin`.
        free_beams: also search without the filter, and count how many beams spell no item.
        other_catalog: accept an index of another catalog of the same tokenizer.
        progress: whether to draw a bar on stderr; None draws one where stderr is a terminal.

    Raises:
        InputError: the histories or requests cannot be used, or a number is below 1.
        CheckpointError: the checkpoint is damaged, or does not fit the index.
        BackendError: the backend cannot do it.
    """
    from beamsieve.engine import Engine
    from beamsieve.index import Index

    for name, value in (("k", k), ("width", width), ("batch", batch)):
        if value < 1:
            raise InputError(f"{name} is {value}; give at least 1.")
    if not isinstance(index, Index):
        index = Index.load(index)
    engine = Engine(index, backend=backend, normalize=normalize)
    recommender = Recommender(checkpoint, engine, other_catalog=other_catalog)
    if not isinstance(histories, Histories):
        histories = read_histories(histories)
    _check_requests(requests, index, histories)
    numbered = number(histories, index, unknown)
    longest = recommender.model.config.longest
    too_long = int((np.diff(numbered.histories.starts) > longest).sum())
    if too_long:
        _log.warning(
            "%s: %d histories are longer than the model reads; their most recent %d items count.",
            *(histories.source, too_long, longest),
        )
    legal = LegalSids(index) if free_beams else None
    return _recommendations(
        recommender,
        histories,
        numbered.histories,
        k,
        width,
        batch,
        titles,
        requests,
        legal,
        progress,
    )


def _check_requests(requests: Sequence[Any] | None, index: Index, histories: Histories) -> None:
    # All of them, before the first batch is decoded, and by their place among all.
    if requests is None:
        return
    if len(requests) != len(histories):
        raise RequestError(
            f"{len(requests)} requests for {len(histories)} histories; give one for each."
        )
    for place, request in enumerate(requests):
        check_request(index.row_layout, index.items.are_strings, request, place)


def _recommendations(
    recommender: Recommender,
    histories: Histories,
    sequences: Sequences,
    k: int,
    width: int,
    batch: int,
    titles: Mapping[Item, str] | None,
    requests: Sequence[Any] | None,
    legal: LegalSids | None,
    progress: bool | None,
) -> Iterator[Recommendation]:
    with progress_bar(progress) as bar:
        bar.begin("recommend", len(sequences))
        for start in range(0, len(sequences), batch):
            rows = range(start, min(start + batch, len(sequences)))
            reading = recommender.read([sequences[row] for row in rows])
            asked = None if requests is None else requests[rows.start : rows.stop]
            found = recommender.decode(reading, k, width, asked)
            free = illegal = np.zeros(len(rows), np.int64)
            if legal is not None:
                beams = search_freely(recommender.model, reading, width).tokens.cpu().numpy()
                free = np.full(len(rows), beams.shape[1])
                illegal = (~legal(beams)).sum(1)
            shown = _titled(recommender.index, found, titles)
            for place, row in enumerate(rows):
                yield Recommendation(
                    row=row,
                    user=histories.user(row),
                    items=shown[place],
                    target=histories.target(row),
                    reason=found[place].reason,
                    free_beams=int(free[place]),
                    illegal_free_beams=int(illegal[place]),
                )
            bar.advance(by=len(rows))


def _titled(
    index: Index, found: list[RequestHits], titles: Mapping[Item, str] | None
) -> list[tuple[RecommendedItem, ...]]:
    items = [hit.item for hits in found for hit in hits]
    if titles is not None:
        named = iter([titles.get(item) for item in items])
    else:
        named = iter(index.titles_of(index.items.numbers(items)))
    return [
        tuple(RecommendedItem(hit.item, hit.sid, hit.score, next(named)) for hit in hits)
        for hits in found
    ]
