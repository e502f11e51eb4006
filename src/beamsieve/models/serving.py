"""Recommendations: a checkpoint and an index, histories in, items out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.errors import InputError, RequestError
from beamsieve.models.ahead import ConceptRows, open_concepts
from beamsieve.models.batches import pad
from beamsieve.models.checkpoint import Checkpoint, check_fit, load_checkpoint
from beamsieve.models.concepts import Concepts
from beamsieve.models.data import Histories, Item, read_histories
from beamsieve.models.free import LegalSids, search_freely
from beamsieve.models.model import Read
from beamsieve.models.progress import progress_bar
from beamsieve.models.recommendation import Recommendation, RecommendedItem
from beamsieve.models.sequences import ItemSids, Unknown, number, say_too_long
from beamsieve.targeting.requests import check_request

if TYPE_CHECKING:
    from beamsieve.engine import Engine
    from beamsieve.index import Index
    from beamsieve.interface import Normalize
    from beamsieve.results import RequestHits


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
        self.dtype = next(self.model.parameters()).dtype
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
    histories: Histories | Concepts | str | Path,
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
        histories: histories, or a file of them (see :mod:`beamsieve.models.data`); or the
            concepts of some, which are spelt without the model's backbone.
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
    if isinstance(histories, Concepts):
        checkpoint, concepts = open_concepts(
            histories, checkpoint, index, other_catalog=other_catalog
        )
        recommender = Recommender(checkpoint, engine, other_catalog=other_catalog)
        rows: _Rows = ConceptRows(concepts, engine.device, recommender.dtype)
    else:
        recommender = Recommender(checkpoint, engine, other_catalog=other_catalog)
        if not isinstance(histories, Histories):
            histories = read_histories(histories)
        _check_requests(requests, index, len(histories))
        rows = _HistoryRows(recommender, histories, unknown)
    _check_requests(requests, index, len(rows))
    legal = LegalSids(index) if free_beams else None
    return _recommendations(recommender, rows, k, width, batch, titles, requests, legal, progress)


class _Rows(Protocol):
    """What recommendations are asked for."""

    def __len__(self) -> int: ...
    def read(self, rows: range) -> Any:
        """What the model has read of some rows."""
        ...

    def user(self, row: int) -> Item | None:
        """The row's user, where it is known."""
        ...

    def target(self, row: int) -> Item | None:
        """What came next, where it is known."""
        ...


class _HistoryRows:
    def __init__(self, recommender: Recommender, histories: Histories, unknown: Unknown) -> None:
        self._recommender = recommender
        self._sequences = number(histories, recommender.index, unknown).histories
        self.user, self.target = histories.user, histories.target
        say_too_long(self._sequences, recommender.model.config.longest, histories.source)

    def __len__(self) -> int:
        return len(self._sequences)

    def read(self, rows: range) -> Any:
        return self._recommender.read([self._sequences[row] for row in rows])


def _check_requests(requests: Sequence[Any] | None, index: Index, rows: int) -> None:
    # All of them, before the first batch is decoded, and by their place among all.
    if requests is None:
        return
    if len(requests) != rows:
        raise RequestError(f"{len(requests)} requests for {rows} histories; give one for each.")
    for place, request in enumerate(requests):
        check_request(index.row_layout, index.items.are_strings, request, place)


def _recommendations(
    recommender: Recommender,
    asked_for: _Rows,
    k: int,
    width: int,
    batch: int,
    titles: Mapping[Item, str] | None,
    requests: Sequence[Any] | None,
    legal: LegalSids | None,
    progress: bool | None,
) -> Iterator[Recommendation]:
    with progress_bar(progress) as bar:
        bar.begin("recommend", len(asked_for))
        for start in range(0, len(asked_for), batch):
            rows = range(start, min(start + batch, len(asked_for)))
            reading = asked_for.read(rows)
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
                    user=asked_for.user(row),
                    items=shown[place],
                    target=asked_for.target(row),
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
