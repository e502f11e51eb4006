"""What each tile's logits come to: the largest, and the sum of their exponentials.

A step's logits are read several times before a few of them are looked at again. So on the CPU they
are taken block by block, as the product gives them, while they are still in the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beamsieve_backends.torch_dense.sums import Mass, TilesOfBeams, finite_or_zero_, row_sums
from beamsieve_backends.torch_dense.tables import DeviceTable
from beamsieve_backends.torch_dense.tiles import Tiles

_LOWEST = torch.finfo(torch.float32).min


class Statistics:
    """Of the tiles of one step, filled by ``add``.

    Attributes:
        best: float32 [n]; the largest usable logit of each tile, -inf where there is none.

    Args:
        tiles: the candidates.
        table: the step's table.
        summed: whether the mass will be asked for.
    """

    def __init__(self, tiles: Tiles, table: DeviceTable, summed: bool) -> None:
        self.tiles, self.summed = tiles, summed
        count, size = tiles.tokens.shape
        self.best = torch.empty(count, dtype=torch.float32, device=tiles.beam.device)
        self.sums = torch.empty_like(self.best) if summed and size > 1 else None
        if size > 1:
            # Only the last tile of a beam can have empty slots; a beam without tiles adds zeros.
            filled = tiles.degree - ((tiles.degree - 1) >> table.tile_bits) * size
            self._masks = table.mask.index_select(0, filled.masked_fill_(tiles.degree == 0, size))

    def add(self, logits: Tensor, begin: int, beams: slice) -> None:
        """Take the tiles of some beams.

        Args:
            logits: float32 [k, T]; -inf is written into empty slots, and on CUDA over what is
                unusable.
            begin: the first of these tiles.
            beams: whose they are.
        """
        count, size = logits.shape
        if not count:
            return
        if size > 1:
            last = (self.tiles.ends[beams] - (begin + 1)).clamp_(min=0)
            logits.index_add_(0, last, self._masks[beams])
        if logits.device.type != "cpu":
            _make_usable_(logits)
        tiles = slice(begin, begin + count)
        self.best[tiles] = best = largest_of(logits)
        if self.sums is not None:
            shares = (logits - best.clamp(min=_LOWEST)[:, None]).exp_()
            self.sums[tiles] = row_sums(shares)

    def finish(self, logits: Tensor) -> None:
        """Write -inf over NaN and +inf, wherever these are; all tiles have been added."""
        # They show in the largest of all. Where asking is a wait, each block saw to it.
        if logits.device.type == "cpu" and len(logits) and not self.best.max().item() < torch.inf:
            self.again(_make_usable_(logits))

    def again(self, logits: Tensor) -> None:
        """Take all tiles anew, whose logits have changed."""
        self.best = largest_of(logits)
        if self.sums is not None:
            self.sums = row_sums((logits - self.best.clamp(min=_LOWEST)[:, None]).exp_())

    def mass(self) -> Mass:
        """The mass of each beam's slots, [N]."""
        tiles = self.tiles
        whose = TilesOfBeams(tiles.beam, tiles.rank, len(tiles.ends), tiles.most)
        largest = finite_or_zero_(whose.max(self.best))
        shares = (self.best - largest.index_select(0, tiles.beam)).exp_()
        if self.sums is not None:
            shares *= self.sums
        return Mass(largest, finite_or_zero_(whose.sum(shares).log_()))


def largest_of(logits: Tensor) -> Tensor:
    """The largest of each row of [n, T]."""
    return logits.squeeze(1) if logits.shape[1] == 1 else logits.amax(1)


def _make_usable_(logits: Tensor) -> Tensor:
    return logits.nan_to_num_(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
