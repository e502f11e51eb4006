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
    """

    histories: Tensor
    targets: Tensor
    rows: Tensor
    places: Tensor

    def to(self, device: str) -> Batch:
        """The same on another device."""
        return Batch(
            self.histories.to(device),
            self.targets.to(device),
            self.rows.to(device),
            self.places.to(device),
        )


def pad(histories: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Item numbers [B, T] of the longest, -1 behind the end of shorter ones."""
    padded = np.full((len(histories), max(map(len, histories), default=0)), -1, np.int64)
    for row, history in enumerate(histories):
        padded[row, : len(history)] = history
    return padded


def hold_out(
    sequences: Sequences, share: float, seed: int, longest: int
) -> tuple[Sequences, list[NDArray[np.int64]]]:
    """Training windows, and sequences of which the last item is for validation alone.

    The held-out item's own history stays in training: what is judged is the next item of a known
    user, as it will be in use.
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
    return windows(Sequences.of(kept), longest), [everything[place] for place in np.sort(chosen)]


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
        chosen = [sequences[place] for place in pieces[piece]]
        if drop:
            chosen = [_thinned(sequence, drop, random) for sequence in chosen]
        padded = pad(chosen)
        rows, places = np.nonzero(padded >= 0)
        yield Batch(
            torch.from_numpy(sids.first(padded[:, :-1])),
            torch.from_numpy(sids.drawn(padded[rows, places], random)),
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
    sequence: NDArray[np.int64], drop: float, random: np.random.Generator
) -> NDArray[np.int64]:
    kept = sequence[random.random(len(sequence)) >= drop]
    return kept if len(kept) else sequence[-1:]
