"""From finished beams to the users' items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import InputError

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.interface import Backend, Beams, Search

ItemId = int | str


class Hit(NamedTuple):
    """One recommended item, the semantic ID that spells it, and that semantic ID's score."""

    item: ItemId
    sid: tuple[int, ...]
    """As the user wrote it: without an end token, without padding."""
    score: float


@dataclass(frozen=True)
class RequestHits(Sequence[Hit]):
    """One request's items, best first; a sequence of :class:`Hit`.

    Attributes:
        hits: the items.
        generated_sids: how many semantic IDs the search ended with.
        generated_items: how many distinct items they stand for.
        removed_items: how many of those the request's exact rules took away.
        reason: why there is no item; "" where there is one.
    """

    hits: tuple[Hit, ...]
    generated_sids: int
    generated_items: int
    removed_items: int = 0
    reason: str = ""

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    @property
    def pass_rate(self) -> float:
        """The share of generated items that the exact rules left; 1 where nothing was generated."""
        if not self.generated_items:
            return 1.0
        return 1 - self.removed_items / self.generated_items

    @property
    def items(self) -> list[ItemId]:
        """The item ids alone."""
        return [hit.item for hit in self.hits]


class Generated(NamedTuple):
    """Every distinct item of a batch in result order: requests in turn, best item first."""

    requests: NDArray[np.int64]
    """[n]; which request."""
    numbers: NDArray[np.int64]
    """[n]; positions in ``index.items``."""
    leaves: NDArray[np.int64]
    """[n]; the leaf of the best semantic ID that stands for the item."""
    scores: NDArray[np.float32]
    """[n]; the score of that semantic ID."""


def generated_items(
    index: Index,
    scores: NDArray[np.float32],
    leaves: NDArray[np.int64],
    count: NDArray[np.int64],
) -> Generated:
    """Expand every beam into its items, each item once at its best score.

    Equal scores keep the order of the beams, then the input order of the items under one semantic
    ID.

    Args:
        index: the index that the search began on.
        scores: float32 [B, M].
        leaves: int64 [B, M].
        count: int64 [B]; how many places of each request hold a beam.
    """
    real = np.arange(scores.shape[1]) < count[:, None]
    requests = np.nonzero(real)[0]
    scores, leaves = scores[real], leaves[real]
    order = np.lexsort((-scores, requests))  # stable, so equal scores stay in the beams' order
    counts, numbers = index.items_of_leaves(leaves[order])
    beam = np.repeat(order, counts)
    requests = requests[beam]
    # The first occurrence of an item in a request is its best one.
    first = np.unique(requests * len(index.items) + numbers, return_index=True)[1]
    first.sort()
    beam = beam[first]
    return Generated(requests[first], numbers[first], leaves[beam], scores[beam])


def exactly_eligible(
    search: Search, found: Generated, count: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[str]]:
    """bool [n]: which items the exact rules leave; and per request why nothing would be left."""
    assert search.asked is not None
    assert search.requests is not None
    keep = np.ones(len(found.numbers), np.bool_)
    bounds = np.searchsorted(found.requests, np.arange(len(search.asked) + 1))
    reasons = []
    for b, request in enumerate(search.asked):
        mine = slice(bounds[b], bounds[b + 1])
        if request is not None:
            keep[mine] = search.index.eligible(request, found.numbers[mine], b)
        listed = search.requests.leaf_starts[b + 1] - search.requests.leaf_starts[b]
        if search.requests.leaf_mode[b] == 1 and not listed:
            reasons.append("allow, less exclude, names no item of this index")
        elif request is not None and not count[b]:
            reasons.append(
                "no beam is left: no item that the request may see lies below its prefix, or every "
                "candidate died"
            )
        else:
            reasons.append(_reason(int(count[b]), mine.stop - mine.start))
    return keep, reasons


def hits_of_beams(backend: Backend, beams: Beams, k: int) -> list[RequestHits]:
    """Each request's ``k`` best items; errors as ``Engine.results`` says."""
    index = beams.search.index
    rows, finished, count, scores = (
        backend.to_host(array) for array in (beams.rows, beams.finished, beams.count, beams.scores)
    )
    if ((rows != -1) & ~finished).any():
        raise InputError(
            f"{beams.step} of {index.length} levels are decoded; results needs all of them."
        )
    found = generated_items(index, scores, rows, count)
    if beams.search.asked is None:
        return hits_of(index, found, count, k)
    keep, reasons = exactly_eligible(beams.search, found, count)
    return hits_of(index, found, count, k, keep, reasons)


def hits_of(
    index: Index,
    found: Generated,
    count: NDArray[np.int64],
    k: int,
    keep: NDArray[np.bool_] | None = None,
    reasons: Sequence[str] | None = None,
) -> list[RequestHits]:
    """The ``k`` best items of each request, or as many as there are.

    Args:
        index: the index that the search began on.
        found: all items of the batch, from :func:`generated_items`.
        count: int64 [B]; the number of semantic IDs of each request.
        k: items per request.
        keep: bool [n], which items the exact rules leave; all of them when None.
        reasons: why a request would be empty, where more is known than is seen here.
    """
    batch = len(count)
    generated = np.bincount(found.requests, minlength=batch)
    if keep is not None:
        found = Generated(
            found.requests[keep], found.numbers[keep], found.leaves[keep], found.scores[keep]
        )
    left = np.bincount(found.requests, minlength=batch)
    starts = np.cumsum(left) - left
    shown = np.flatnonzero(np.arange(len(found.requests)) - starts[found.requests] < k)
    items = index.items.list(found.numbers[shown])
    sids = index.sid_of_leaf(found.leaves[shown]).tolist()
    scores = found.scores[shown].tolist()
    hits = [
        Hit(item, tuple(token for token in sid if token >= 0), score)
        for item, sid, score in zip(items, sids, scores, strict=True)
    ]
    results = []
    end = 0
    for b in range(batch):
        start, end = end, end + min(k, int(left[b]))
        reason = ""
        if not left[b]:
            reason = reasons[b] if reasons else _reason(int(count[b]), int(generated[b]))
        results.append(
            RequestHits(
                tuple(hits[start:end]),
                int(count[b]),
                int(generated[b]),
                int(generated[b] - left[b]),
                reason,
            )
        )
    return results


def _reason(sids: int, items: int) -> str:
    if not sids:
        return "no beam is left: no semantic ID begins with the prefix, or every candidate died"
    return f"the exact rules removed all {items} items of the {sids} semantic IDs found"
