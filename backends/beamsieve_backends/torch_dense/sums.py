"""Sums and maxima per beam, in an order that is fixed.

A library's reduction may split its work by the size of the whole array, and then a request's bits
depend on its neighbours. So on CUDA every sum is a tree of additions: the halves of a row of 2**k
numbers are added element by element until one number is left. A row is padded with zeros to such a
length; a longer padding adds zeros and changes no bit, so the result follows from the row alone.
On the CPU, where a tree's many short additions are slow, wide rows are summed by an operation that
takes each row by itself, and a beam's tiles one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_GROUP = 64
_VECTOR = 16  # so many float32 fill the longest vector of a processor


class Mass(NamedTuple):
    """The normalizer of each beam's log-probabilities, in two parts.

    A log-probability is ``(logit - largest) - log_sum``: subtracting the largest logit first is
    exact where logits are large, and keeps their small differences.
    """

    largest: Tensor
    """float32 [N]; the largest usable logit, 0 where there is none."""
    log_sum: Tensor
    """float32 [N]; the log of the sum of ``exp(logit - largest)``; 0 where there is none."""


def finite_or_zero_(values: Tensor) -> Tensor:
    """Write 0 over -inf, so that nothing subtracts -inf from -inf; for values that are no NaN."""
    return values.nan_to_num_(neginf=0.0)


def tree_sum(values: Tensor) -> Tensor:
    """Sum each row of [n, T], T a power of two."""
    while values.shape[1] > 1:
        front, back = values.chunk(2, 1)
        values = front + back
    return values.squeeze(1)


def row_sums(values: Tensor) -> Tensor:
    """Sum each row of [n, T], T a power of two, whatever the other rows are."""
    if values.device.type == "cpu" and values.shape[1] >= _VECTOR:
        return values.sum(1)  # PyTorch adds each such row by itself, in one way; a tree is slower
    return tree_sum(values)


class TilesOfBeams:
    """Which tiles are whose, for reductions from tiles [n] to beams [N].

    Args:
        beam: int64 [n]; whose tile each is, ascending.
        rank: int64 [n]; 0, 1, … among the tiles of one beam.
        beams: N.
        most: no beam has more tiles than this.
    """

    def __init__(self, beam: Tensor, rank: Tensor, beams: int, most: int) -> None:
        self._groups: TilesOfBeams | None = None
        self._beam, self._beams = beam, beams
        self._width = _GROUP
        if most <= _GROUP:
            self._width = 1 << max(0, most - 1).bit_length()
            self._rows = beams
            self._place = beam if self._width == 1 else beam * self._width + rank
            return
        # A beam with very many tiles: groups of tiles are reduced first, then the groups.
        place = rank % _GROUP
        opens = place == 0
        first = opens.nonzero().squeeze(1)
        self._rows = len(first)
        self._place = (opens.cumsum(0) - 1) * _GROUP + place
        self._groups = TilesOfBeams(
            beam.index_select(0, first),
            rank.index_select(0, first) // _GROUP,
            beams,
            -(-most // _GROUP),
        )

    def sum(self, values: Tensor) -> Tensor:
        """The sum of each beam's values; 0 without any."""
        if values.device.type == "cpu":  # one after the other, in order
            return values.new_zeros(self._beams).index_add_(0, self._beam, values)
        sums = tree_sum(self._laid_out(values, 0.0))
        return sums if self._groups is None else self._groups.sum(sums)

    def max(self, values: Tensor) -> Tensor:
        """The largest of each beam's values; -inf without any."""
        laid_out = self._laid_out(values, -torch.inf)
        largest = laid_out.squeeze(1) if self._width == 1 else laid_out.amax(1)
        return largest if self._groups is None else self._groups.max(largest)

    def _laid_out(self, values: Tensor, empty: float) -> Tensor:
        laid_out = values.new_full((self._rows * self._width,), empty)
        return laid_out.index_copy_(0, self._place, values).view(self._rows, self._width)
