"""The scores of a step's candidates, from their logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from beamsieve_backends.torch_dense.statistics import Statistics
from beamsieve_backends.torch_dense.sums import Mass
from beamsieve_backends.torch_dense.tables import DeviceTable
from beamsieve_backends.torch_dense.tiles import Tiles


@dataclass(frozen=True)
class Scored:
    """The candidates of a step with what their scores are made of: n tiles of T slots.

    Most candidates are never looked at again, so a score is computed when it is asked for.

    Attributes:
        tiles: the candidates.
        logits: float32 [n, T]; -inf where a slot is empty or its logit unusable.
        best_logit: float32 [n]; the largest of each tile.
        mass: the mass of each tile's beam, [n].
        base: float32 [n]; the score of each tile's beam.
    """

    tiles: Tiles
    logits: Tensor
    best_logit: Tensor
    mass: Mass
    base: Tensor

    def scores(self, tiles: Tensor | None = None) -> Tensor:
        """float32 [n, T]: cumulative scores without guidance; of all tiles, or of those given."""
        logits, (largest, log_sum), base = self.logits, self.mass, self.base
        if tiles is not None:
            logits, largest = logits.index_select(0, tiles), largest.index_select(0, tiles)
            log_sum, base = log_sum.index_select(0, tiles), base.index_select(0, tiles)
        return _cumulative(logits, largest[:, None], log_sum[:, None], base[:, None])

    def best(self) -> Tensor:
        """float32 [n]; the best score of each tile without guidance."""
        return _cumulative(self.best_logit, *self.mass, self.base)


def scored(
    logits: Tensor,
    statistics: Statistics,
    mass: Mass | None,
    base: Tensor,
    table: DeviceTable,
    tiles: Tiles,
    kept: Tensor | None,
    over_kept: bool,
) -> Scored:
    """Scores from logits.

    Args:
        logits: float32 [n, T]; whatever the product gave. Used up.
        statistics: of the logits.
        mass: of each beam [N]; None for the mass of each beam's own candidates.
        base: float32 [N]; the beams' scores.
        table: the step's table.
        tiles: the candidates.
        kept: bool [n, T], which of them targeting keeps; None for all.
        over_kept: whether the mass is that of the candidates that targeting keeps.
    """
    statistics.finish(logits)
    if mass is None and not (over_kept and kept is not None):
        mass = statistics.mass()
    if kept is not None:
        statistics.again(logits.masked_fill_(~kept, -torch.inf))
    if mass is None:
        mass = statistics.mass()
    best = statistics.best
    largest = mass.largest.index_select(0, tiles.beam)
    log_sum = mass.log_sum.index_select(0, tiles.beam)
    if tiles.own is not None:
        # A finished beam's candidate is the beam itself: log-probability 0 in slot 0.
        own = table.mask[min(1, table.tile)]
        logits = torch.where(tiles.own[:, None], own, logits)
        best, largest, log_sum = (
            torch.where(tiles.own, 0.0, part) for part in (best, largest, log_sum)
        )
    return Scored(tiles, logits, best, Mass(largest, log_sum), base.index_select(0, tiles.beam))


def with_guidance(scores: Tensor, tiles: Tiles, values: Tensor | None) -> Tensor:
    """Add ``values[b, m, token]``; a finished beam is past guidance. Dead where not finite."""
    if values is not None:
        place = tiles.beam[:, None] * values.shape[2] + tiles.tokens
        added = values.reshape(-1).index_select(0, place.view(-1)).view_as(scores)
        if tiles.own is not None:
            added = torch.where(tiles.own[:, None], 0.0, added)
        scores = scores + added
    return torch.nan_to_num(scores, nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)


def _cumulative(logits: Tensor, largest: Tensor, log_sum: Tensor, base: Tensor) -> Tensor:
    """``base + log-probability``; each rounding on the way keeps the order of the logits."""
    return (logits - largest).sub_(log_sum).add_(base)
