"""The ``width`` best candidates of each request, in the contract's order.

Higher key; then lower parent place; then lower token. ``torch.topk`` promises no order among equal
keys, so it is used only to find a threshold, every candidate that reaches the threshold is kept,
and a stable sort of those, which stand in flat order (beam, then token), does the rest.

Where the candidates come in tiles, the threshold is the width-th largest of the tiles' best keys:
each of those is a distinct candidate, so at least ``width`` candidates reach it, and only the tiles
that reach it are looked into. In the rare case that very many keys are equal (all logits the same,
say) every tile reaches it, and the sort is as long as the step has candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from beamsieve.interface import Beams
from beamsieve_backends.torch_dense.tables import DeviceTable


class Survivors(NamedTuple):
    """Candidates that may be kept, in flat order. All arrays are [s]."""

    beam: Tensor
    """int64; the flat beam."""
    token: Tensor
    """An integer dtype; -1 for a finished beam."""
    row: Tensor
    """int64; the entry's position, or a finished beam's leaf."""
    score: Tensor
    """float32."""
    key: Tensor
    """float32; above -inf."""


def tile_threshold(
    best: Tensor, request: Tensor, place: Tensor, most: int, batch: int, width: int
) -> Tensor:
    """float32 [B]: the width-th largest of each request's tile maxima; -inf with fewer tiles.

    Args:
        best: float32 [n]; the best key of each tile.
        request: int64 [n]; whose tile it is.
        place: int64 [n]; 0, 1, … among the tiles of one request.
        most: the most tiles of any request.
        batch: B.
        width: how many candidates are wanted.
    """
    if most < width:
        return best.new_full((batch,), -torch.inf)
    laid_out = best.new_full((batch * most,), -torch.inf)
    laid_out.index_copy_(0, request * most + place, best)
    return laid_out.view(batch, most).topk(width, sorted=False).values.amin(1)


def keep_best(beams: Beams, table: DeviceTable, found: Survivors, width: int) -> Beams:
    """The next beams: the ``width`` best survivors of each request."""
    batch, places = beams.rows.shape
    device = found.key.device
    request = found.beam.div(places, rounding_mode="floor")
    order = torch.sort((request << 32) | _descending(found.key), stable=True).indices
    number = torch.zeros(batch, dtype=torch.int64, device=device)
    number.scatter_add_(0, request, torch.ones_like(request))
    first = number.cumsum(0) - number
    count = number.clamp(max=width)

    slot = torch.arange(width, device=device)
    real = slot < count[:, None]
    if not len(order):
        return _none_left(beams, width)
    pick = order.index_select(
        0, torch.where(real, first[:, None] + slot, 0).clamp_(max=len(order) - 1).view(-1)
    )

    def taken(values: Tensor, empty: float) -> Tensor:
        return torch.where(real, values.index_select(0, pick).view(batch, width), empty)

    parents = taken(found.beam % places, -1)
    token = taken(found.token.to(torch.int32), -1)
    rows = taken(found.row, -1)
    finished = real
    if table.all_end:
        if table.ended_leaf is not None:
            rows = _leaves(rows, token >= 0, table.ended_leaf)
    elif table.ended_leaf is None:
        finished = real & (token < 0) if table.may_have_finished else torch.zeros_like(real)
    else:
        assert table.child_starts is not None
        live = real & (token >= 0)
        entry = torch.where(live, rows, 0)
        ends = live & (table.child_starts[entry] == table.child_starts[entry + 1])
        finished = ends | (real & ~live)
        rows = _leaves(rows, ends, table.ended_leaf)
    before = beams.tokens.gather(
        1, parents.clamp(min=0)[:, :, None].expand(-1, -1, beams.tokens.shape[2])
    )
    before = torch.where(real[:, :, None], before, -1)
    return Beams(
        step=beams.step + 1,
        tokens=torch.cat([before, token[:, :, None]], 2),
        scores=taken(found.score, -torch.inf),
        keys=taken(found.key, -torch.inf),
        rows=rows,
        parents=parents,
        finished=finished,
        count=count,
        search=beams.search,
    )


def _descending(key: Tensor) -> Tensor:
    """float32 to int64 in 0 … 2**32 - 1: smaller for a larger key, equal for equal keys."""
    bits = (key + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    ascending = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return 0x7FFFFFFF - ascending.to(torch.int64)


def _leaves(rows: Tensor, ends: Tensor, leaf: Tensor) -> Tensor:
    return torch.where(ends, leaf[torch.where(ends, rows, 0)], rows)


def _none_left(beams: Beams, width: int) -> Beams:
    batch, device = len(beams.count), beams.rows.device
    shape = (batch, width)
    none = torch.full(shape, -1, dtype=torch.int64, device=device)
    dead = torch.full(shape, -torch.inf, device=device)
    return Beams(
        step=beams.step + 1,
        tokens=torch.full((*shape, beams.step + 1), -1, dtype=torch.int32, device=device),
        scores=dead,
        keys=dead.clone(),
        rows=none,
        parents=none.clone(),
        finished=torch.zeros(shape, dtype=torch.bool, device=device),
        count=torch.zeros(batch, dtype=torch.int64, device=device),
        search=beams.search,
    )
