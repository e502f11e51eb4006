"""What is trained on and what is held out, and how it becomes tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.models.sequences import ItemSids, Sequences, windows

# Batches are cut from shuffled stretches of this many, sorted by length: less padding, same luck.
_STRETCH = 16


@dataclass(frozen=True)
class Batch:
    """Histories whose every position is to predict the item after it.

    Attributes:
        histories: int64 [B, T, L]; the items read. Position t of the model's output comes after t
            of them.
        targets: int64 [N, L]; the semantic IDs to predict.
        rows: int64 [N]; which history each target belongs to.
        places: int64 [N]; after how many of its items each target comes.
        drawn: how many of the targets, the last ones, are no item that came but one drawn from the
            catalog (:mod:`beamsieve.models.validity`).
    """

    histories: Tensor
    targets: Tensor
    rows: Tensor
    places: Tensor
    drawn: int = 0

    def to(self, device: str) -> Batch:
        """The same on another device, which is not waited for."""
        parts: tuple[Tensor, ...] = (self.histories, self.targets, self.rows, self.places)
        if torch.device(device).type == "cuda":
            parts = tuple(part.pin_memory() for part in parts)
        histories, targets, rows, places = (part.to(device, non_blocking=True) for part in parts)
        return Batch(histories, targets, rows, places, self.drawn)


def pad(histories: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Item numbers [B, T] of the longest, -1 behind the end of shorter ones."""
    sequences = Sequences.of(histories)
    return padded(sequences, np.arange(len(sequences)))


def padded(sequences: Sequences, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Item numbers [B, T] of some sequences, -1 behind the end of shorter ones."""
    starts = sequences.starts[rows]
    lengths = sequences.starts[rows + 1] - starts
    places = np.arange(lengths.max(initial=0))
    real = places < lengths[:, None]
    numbers = np.full(real.shape, -1, np.int64)
    numbers[real] = sequences.items[(starts[:, None] + places)[real]]
    return numbers


def hold_out(
    sequences: Sequences, share: float, seed: int, longest: int
) -> tuple[Sequences, list[NDArray[np.int64]]]:
    """Training windows, and sequences of which the last item is for validation alone.

    The held-out item's own history stays in training: what is judged is the next item of a known
    user, as it will be in use. A window has one item more than the model reads: its last item is
    predicted from ``longest`` items, which is the place that a full history is served from.
    """
    long_enough = np.flatnonzero(np.diff(sequences.starts) > 1)
    count = min(len(long_enough), max(1, round(share * len(sequences)))) if share else 0
    chosen = np.random.default_rng([seed, 0]).permutation(long_enough)[:count]
    held = np.zeros(len(sequences), np.bool_)
    held[chosen] = True
    everything = [sequences[place] for place in range(len(sequences))]
    kept = [
        sequence[:-1] if is_held else sequence
        for sequence, is_held in zip(everything, held, strict=True)
    ]
    training = windows(Sequences.of(kept), longest + 1)
    return training, [everything[place] for place in np.sort(chosen)]


def training_batches(
    sequences: Sequences,
    sids: ItemSids,
    *,
    size: int,
    drop: float,
    random: np.random.Generator,
) -> Iterator[Batch]:
    """One pass over all sequences, shuffled; each item is left out with the chance ``drop``."""
    order = random.permutation(len(sequences))
    lengths = np.diff(sequences.starts)
    stretches = [
        stretch[np.argsort(lengths[stretch], kind="stable")]
        for stretch in np.split(order, range(size * _STRETCH, len(order), size * _STRETCH))
    ]
    pieces = [
        stretch[start : start + size]
        for stretch in stretches
        for start in range(0, len(stretch), size)
    ]
    for piece in random.permutation(len(pieces)):
        numbers = padded(sequences, pieces[piece])
        if drop:
            numbers = _thinned(numbers, drop, random)
        rows, places = np.nonzero(numbers >= 0)
        yield Batch(
            torch.from_numpy(sids.first(numbers[:, :-1])),
            torch.from_numpy(sids.drawn(numbers[rows, places], random)),
            torch.from_numpy(rows),
            torch.from_numpy(places),
        )


def validation_batches(
    held: list[NDArray[np.int64]], sids: ItemSids, *, size: int, longest: int
) -> Iterator[Batch]:
    """The held-out targets alone, each after the whole history before it."""
    for start in range(0, len(held), size):
        chosen = held[start : start + size]
        histories = [sequence[:-1][-longest:] for sequence in chosen]
        targets = np.asarray([sequence[-1] for sequence in chosen], np.int64)
        yield Batch(
            torch.from_numpy(sids.first(pad(histories))),
            torch.from_numpy(sids.first(targets)),
            torch.arange(len(chosen)),
            torch.tensor([len(history) for history in histories]),
        )


def _thinned(
    numbers: NDArray[np.int64], drop: float, random: np.random.Generator
) -> NDArray[np.int64]:
    """Padded sequences [B, T] with items left out; of each, one at least stays."""
    real = numbers >= 0
    kept = real & (random.random(numbers.shape) >= drop)
    none = np.flatnonzero(~kept.any(1))
    kept[none, real[none].sum(1) - 1] = True
    order = np.argsort(~kept, axis=1, kind="stable")[:, : kept.sum(1).max()]
    thinned: NDArray[np.int64] = np.where(
        np.take_along_axis(kept, order, 1), np.take_along_axis(numbers, order, 1), -1
    )
    return thinned
