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
        length: int64 [n]; how many slots are filled, from the front.
        tokens: int16 or int32 [n, T]; whatever lies behind the filled slots is some valid token.
        own: bool [n] or None; which tiles belong to a finished beam.
        ends: int64 [N]; one behind the last tile of each beam.
        counts: int64 [N]; the number of tiles of each beam.
        bounds: on the host: the end of every block of beams that ``expand`` was asked for.
        most: on the host: the most tiles of any request.
    """

    beam: Tensor
    start: Tensor
    rank: Tensor
    length: Tensor
    tokens: Tensor
    own: Tensor | None
    ends: Tensor
    counts: Tensor
    bounds: list[int]
    most: int

    def __len__(self) -> int:
        return len(self.beam)


def expand(table: DeviceTable, beams: Beams, block: int) -> Tiles:
    """The tiles of every beam; ``block`` is how many beams ``Tiles.bounds`` counts at a time.

    Waits for the device once: how many tiles there are is for the host to know.
    """
    tile = table.tile
    batch, places = beams.rows.shape
    rows = beams.rows.reshape(-1)
    live = rows >= 0
    finished = None
    if table.may_have_finished:
        finished = beams.finished.reshape(-1)
        live = live & ~finished
    row = torch.where(live, rows, 0)
    first = table.starts.index_select(0, row).to(torch.int64)
    behind = table.starts.index_select(0, row + 1).to(torch.int64)
    degree = torch.where(live, behind - first, 0)
    if finished is not None:
        first = torch.where(finished, rows, first)
        degree = torch.where(finished, 1, degree)

    counts = (degree + (tile - 1)).div(tile, rounding_mode="floor") if tile > 1 else degree
    ends = counts.cumsum(0)
    per_request = counts.view(batch, places).sum(1)
    known = torch.cat([per_request.max().view(1), ends[block - 1 :: block], ends[-1:]]).tolist()
    most, total, bounds = known[0], known[-1], known[1 : 1 + -(-len(ends) // block)]

    beam = torch.repeat_interleave(
        torch.arange(len(rows), device=rows.device), counts, output_size=total
    )
    rank = torch.arange(total, device=rows.device) - (ends - counts).index_select(0, beam)
    offset = rank * tile if tile > 1 else rank
    start = first.index_select(0, beam) + offset
    length = (degree.index_select(0, beam) - offset).clamp_(max=tile)
    own = None
    entry = start
    if finished is not None:
        own = finished.index_select(0, beam)
        entry = torch.where(own, 0, start)  # a leaf is no entry of this table
    tokens = table.windows.index_select(0, entry)
    return Tiles(beam, start, rank, length, tokens, own, ends, counts, bounds, most)
