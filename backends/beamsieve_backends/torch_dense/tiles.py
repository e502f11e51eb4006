"""The candidates of a step, cut into tiles.

A beam's candidates are the entries of its row. They are cut into tiles of ``table.tile`` slots, so
that everything after works on a matrix [n, T] whose size follows the sum of the rows' degrees: a
row as wide as the codebook takes as many tiles as it needs, and its neighbours none more. Tiles
stand in flat order (beam, then token), and a slot's place in them is its place in the contract's
tie rule. Positions are 64-bit.

A finished beam is its own only candidate: one tile, one slot, whose "entry" is its leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from beamsieve.interface import Beams
from beamsieve_backends.torch_dense.tables import DeviceTable


@dataclass(frozen=True)
class Tiles:
    """n tiles of T slots. N = B × M beams, flat.

    Attributes:
        beam: int64 [n]; the flat beam of each tile, ascending.
        start: int64 [n]; the entry in slot 0. The entry in slot s is ``start + s``, and its child's
            row too; a finished beam's tile starts at its leaf.
        rank: int64 [n]; 0, 1, … among the tiles of one beam.
        tokens: int16 or int32 [n, T]; whatever lies behind the filled slots is some valid token.
        own: bool [n] or None; which tiles belong to a finished beam.
        ends: int64 [N]; one behind the last tile of each beam.
        opens: int64 [B]; the first tile of each request, or where it would stand.
        degree: int64 [N]; the number of candidates of each beam.
        most: on the host: the most tiles of any beam.
        most_of_request: on the host: the most tiles of any request.
        bounds: on the host: the end of every block of beams that ``expand`` was asked for.
    """

    beam: Tensor
    start: Tensor
    rank: Tensor
    tokens: Tensor
    own: Tensor | None
    ends: Tensor
    opens: Tensor
    degree: Tensor
    most: int
    most_of_request: int
    bounds: list[int]

    def __len__(self) -> int:
        return len(self.beam)

    @property
    def size(self) -> int:
        """T, the slots of a tile."""
        return self.tokens.shape[1]

    def length(self, tiles: Tensor | None = None) -> Tensor:
        """int64: how many slots are filled, from the front; of all tiles, or of those given."""
        beam, rank = self.beam, self.rank
        if tiles is not None:
            beam, rank = beam.index_select(0, tiles), rank.index_select(0, tiles)
        return (self.degree.index_select(0, beam) - rank * self.size).clamp_(max=self.size)


def expand(table: DeviceTable, beams: Beams, block: int) -> Tiles:
    """The tiles of every beam; ``block`` is how many beams ``Tiles.bounds`` counts at a time.

    Waits for the device once: how many tiles there are is for the host to know.
    """
    batch, places = beams.rows.shape
    rows = beams.rows.reshape(-1)
    live = rows >= 0
    finished = None
    if table.may_have_finished:
        finished = beams.finished.reshape(-1)
        live &= ~finished
    row = rows.clamp(min=0) if finished is None else torch.where(live, rows, 0)
    first, end = table.starts.bounds(row)
    degree = (end - first).mul_(live).to(torch.int64)
    first = first.to(torch.int64)
    if finished is not None:
        first = torch.where(finished, rows, first)
        degree = torch.where(finished, 1, degree)

    counts = degree if table.tile == 1 else (degree + (table.tile - 1)) >> table.tile_bits
    ends = counts.cumsum(0)
    before = ends - counts
    # The widest beam, and the ends of requests and of blocks, in one transfer.
    wanted = [counts.max()[None], ends[places - 1 :: places]]
    if block != places:
        wanted.append(ends[block - 1 :: block])
    most, *known_ends = torch.cat(wanted).tolist()
    of_requests, bounds = known_ends[:batch], known_ends[-batch:]
    total = of_requests[-1]
    if block != places:
        bounds = known_ends[batch:]
        if len(ends) % block:
            bounds.append(total)
    most_of_request = max(end - start for start, end in pairwise([0, *of_requests]))

    beam = torch.repeat_interleave(counts, output_size=total)
    if most <= 1:
        rank = torch.zeros_like(beam)
        start = first.index_select(0, beam)
    else:
        rank = torch.arange(total, device=rows.device) - before.index_select(0, beam)
        start = first.index_select(0, beam)
        start += rank if table.tile == 1 else rank << table.tile_bits
    own, entry = None, start
    if finished is not None:
        own = finished.index_select(0, beam)
        entry = torch.where(own, 0, start)  # a leaf is no entry of this table
    tokens = table.tokens.at(entry)
    opens = before[::places]
    return Tiles(beam, start, rank, tokens, own, ends, opens, degree, most, most_of_request, bounds)
