"""Sums whose order is fixed, so that a request's bits do not depend on its neighbours.

A library's reduction may split its work by the size of the whole array. Here every sum is a tree
of additions whose shape follows from the summed row alone: halves are added element by element
until one number is left. Adding zeros at the end of a row changes nothing, to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_GROUP = 64


class Mass(NamedTuple):
    """The normalizer of each beam's log-probabilities, in two parts.

    A log-probability is ``(logit - largest) - log_sum``: subtracting the largest logit first is
    exact where logits are large, and keeps their small differences.
    """

    largest: Tensor
    """float32 [N]; the largest usable logit, 0 where there is none."""
    log_sum: Tensor
    """float32 [N]; the log of the sum of ``exp(logit - largest)``; -inf where there is none."""


def shift_of(largest: Tensor) -> Tensor:
    """``largest``, or 0 where every logit is -inf, so that nothing subtracts -inf from -inf."""
    return torch.where(largest == -torch.inf, 0.0, largest)


def tree_sum(values: Tensor) -> Tensor:
    """[n, T] to [n], for T a power of two."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values.squeeze(-1)


def sum_per_beam(values: Tensor, beam: Tensor, rank: Tensor, beams: int, most: int) -> Tensor:
    """Sum the tiles of each beam.

    Args:
        values: float32 [n].
        beam: int64 [n]; whose tile each is, ascending.
        rank: int64 [n]; 0, 1, … within a beam.
        beams: N.
        most: no row of this table has more tiles; it, and no beam's neighbour, shapes the tree.

    Returns:
        float32 [N]; 0 for a beam without tiles.
    """
    while most > _GROUP:  # a table with very wide rows: first sum groups of a beam's tiles
        place = rank % _GROUP
        opens = place == 0
        first = opens.nonzero().squeeze(1)
        group = opens.cumsum(0) - 1
        values = tree_sum(_padded(values, group * _GROUP + place, len(first), _GROUP))
        beam, rank = beam.index_select(0, first), rank.index_select(0, first) // _GROUP
        most = -(-most // _GROUP)
    width = 1 << max(0, most - 1).bit_length()
    return tree_sum(_padded(values, beam * width + rank, beams, width))


def _padded(values: Tensor, place: Tensor, rows: int, width: int) -> Tensor:
    padded = torch.zeros(rows * width, dtype=values.dtype, device=values.device)
    return padded.index_copy_(0, place, values).view(rows, width)
