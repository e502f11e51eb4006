"""Training data on a device, in shapes that never change: what a captured step needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.models.batches import Batch, pad, padded
from beamsieve.models.sequences import Sequences

_SHARES = (0.5, 0.7, 0.85, 0.95, 1.0)
"""Histories up to these quantiles of length are trained together."""
_VALIDATED = 4096
"""Held-out histories that decide which weights are kept."""


@dataclass
class Bucket:
    """Training sequences of nearly one length, and the step that trains on some of them."""

    numbers: Tensor  # int64 [n + 1, T]; the last row is empty
    chosen: Tensor  # int64 [B]; what the step reads
    places: int  # about as many as the items of B rows that are left to train on
    graph: Any = None

    @property
    def steps(self) -> int:
        """Of one epoch."""
        return -(-(len(self.numbers) - 1) // len(self.chosen))


def buckets(learnt: Sequences, batch: int, device: torch.device, drop: float = 0.0) -> list[Bucket]:
    """Sequences by length; each step reads about as many items as ``batch`` mean ones have.

    ``drop``: the chance that an item is left out.
    """
    lengths = np.diff(learnt.starts)
    edges = sorted({int(np.quantile(lengths, share, method="higher")) for share in _SHARES})
    places = batch * float(lengths.mean())
    found, before = [], 0
    for edge in edges:
        rows = np.flatnonzero((lengths > before) & (lengths <= edge))
        before = edge
        numbers = padded(learnt, rows)
        numbers = np.concatenate([numbers, np.full((1, numbers.shape[1]), -1)])
        size = min(len(rows), max(8, int(places / edge)))
        chosen = torch.zeros(size, dtype=torch.int64, device=device)
        # As many places as a batch has in the mean, and four standard deviations.
        mean = size * float(lengths[rows].mean()) * (1 - drop)
        spread = size * float(lengths[rows].var()) * (1 - drop) ** 2 + mean * drop
        most = min(size * edge, int(mean + 4 * spread**0.5) + size)
        found.append(Bucket(torch.from_numpy(numbers).to(device), chosen, most))
    return found


def held_batches(held: list[NDArray[Any]], sids: Tensor, longest: int) -> list[Batch]:
    """Of the held-out sequences evenly many, each one's last item behind all others.

    Args:
        held: item numbers.
        sids: int64 [items + 1, L], on the device; the last row is of no item.
        longest: how many items the model reads.
    """
    held = sorted(held[:: max(1, len(held) // _VALIDATED)], key=len)
    batches = []
    for start in range(0, len(held), 1024):
        chosen = held[start : start + 1024]
        histories = [sequence[:-1][-longest:] for sequence in chosen]
        batches.append(
            Batch(
                sids[torch.from_numpy(pad(histories)).to(sids.device)],
                sids[torch.tensor([int(s[-1]) for s in chosen], device=sids.device)],
                torch.arange(len(chosen), device=sids.device),
                torch.tensor([len(h) for h in histories], device=sids.device),
            )
        )
    return batches


def thinned(numbers: Tensor, drop: float) -> Tensor:
    """Padded sequences [B, T] with items left out, each with the chance ``drop``; one stays."""
    if not drop:
        return numbers
    real = numbers >= 0
    luck = torch.rand(numbers.shape, device=numbers.device)
    luckiest = torch.where(real, luck, -1.0).argmax(1, keepdim=True)
    kept = (luck >= drop).scatter(1, luckiest, True) & real
    length = numbers.shape[1]
    places = torch.where(kept, kept.cumsum(1) - 1, length)
    whole = numbers.new_full((len(numbers), length + 1), -1).scatter(1, places, numbers)
    return whole[:, :length]


def compacted(real: Tensor, size: int, nothing: int) -> Tensor:
    """int64 [size]: the places that are real, in order, and ``nothing`` for the rest.

    Args:
        real: bool [n]; of more than ``size`` the last are left out.
        size: fixed, whatever is real, so that a captured step can use it.
        nothing: which place to name where there is none.
    """
    slots = torch.where(real, real.cumsum(0) - 1, size).clamp(max=size)
    found = torch.full((size + 1,), nothing, dtype=torch.int64, device=real.device)
    return found.scatter(0, slots, torch.arange(len(real), device=real.device))[:size]
