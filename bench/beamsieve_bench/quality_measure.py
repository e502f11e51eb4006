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
from beamsieve.models.scorer import as_tensor
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
    batch: int = 2048,
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
    model, widths = first.model, [width] * first.model.levels
    lists = ItemLists(index)
    counted = _Work(index)
    legal, illegal, free = LegalSids(index), 0, 0
    numbered = number(histories, index)
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in ways}
    # By length, so that little is padded; the order of the rows does not matter to a mean.
    order = np.argsort(np.diff(numbered.histories.starts), kind="stable")
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        reading = first.read([numbered.histories[int(row)] for row in rows])
        for name, way in ways.items():
            score: Any = model.scorer(reading, widths)
            if way is first:
                score = counted.watch(score)
            beams = way.engine.search(score, widths, len(rows))
            found[name].append(lists(beams, max(CUT_OFFS)))
        tokens = search_freely(model, reading, width).tokens.cpu().numpy()
        free += tokens[..., 0].size
        illegal += int((~legal(tokens)).sum())
    whole = {name: np.concatenate(parts) for name, parts in found.items()}
    targets = numbered.targets[order]
    popular = index.items.numbers(list(checkpoint.popular))[None, : max(CUT_OFFS)]
    return {
        "rows": len(order),
        **{name: ranked(items, targets) for name, items in whole.items()},
        "popularity": ranked(np.repeat(popular, len(order), 0), targets),
        **{
            f"overlap_at_{cut}": shared(whole["filter_first"], whole["score_first"], cut)
            for cut in OVERLAPS
        },
        "illegal_free_share": illegal / free,
        **counted.result(),
    }


class ItemLists:
    """From beams to the numbers of the items that they stand for, without a loop over rows.

    Items come as ``engine.results`` lists them where no item has two semantic IDs.
    """

    def __init__(self, index: Index) -> None:
        self._starts, self._numbers = index.leaf_items

    def __call__(self, beams: Beams, count: int) -> NDArray[np.int64]:
        """int64 [B, count], -1 where there is none."""
        leaves = as_tensor(beams.rows, torch.device("cpu")).numpy()
        starts = np.asarray(self._starts, np.int64)
        sizes = np.where(leaves >= 0, np.diff(starts)[leaves], 0)
        ends = sizes.cumsum(1)
        places = np.arange(count)
        # Of each place in the list, the beam whose items it falls among.
        beam = (places[None, :, None] >= ends[:, None, :]).sum(2)
        real = places < ends[:, -1:]
        beam = np.minimum(beam, leaves.shape[1] - 1)
        before = np.take_along_axis(ends - sizes, beam, 1)
        first = starts[np.maximum(np.take_along_axis(leaves, beam, 1), 0)]
        numbers = np.asarray(self._numbers, np.int64)
        at = np.where(real, first + places - before, 0)
        return np.where(real, numbers[at], -1)


def ranked(items: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, float]:
    """Recall and NDCG of one relevant item per row, at every cut-off."""
    hit = items == targets[:, None]
    places = np.where(hit.any(1), hit.argmax(1), math.inf)
    gains = 1 / np.log2(2 + places)
    found: dict[str, float] = {}
    for cut in CUT_OFFS:
        found[f"recall_at_{cut}"] = float((places < cut).mean())
        found[f"ndcg_at_{cut}"] = float(np.where(places < cut, gains, 0).mean())
    return found


def shared(one: NDArray[np.int64], other: NDArray[np.int64], cut: int) -> float:
    """The mean share of their first ``cut`` items that two lists have in common."""
    both = np.zeros(len(one), np.int64)
    for place in range(cut):
        item = one[:, place : place + 1]
        both += ((item == other[:, :cut]) & (item >= 0)).any(1)
    longest = np.maximum((one[:, :cut] >= 0).sum(1), (other[:, :cut] >= 0).sum(1))
    return float((both / np.maximum(longest, 1)).mean())


class _Work:
    """Counts the scores that a search needs, per step."""

    def __init__(self, index: Index) -> None:
        self._children = [np.diff(table.plain_starts()) for table in index.tables]
        self._sizes = index.codebooks
        self._valid = np.zeros(index.length, np.int64)
        self._all = np.zeros(index.length, np.int64)

    def watch(self, score: Any) -> Any:
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
