"""The ``width`` best candidates of each request, in the contract's order.

Higher key; then lower parent place; then lower token. ``torch.topk`` promises no order among equal
keys, so it is used only to find a threshold, every candidate that reaches the threshold is kept,
and a stable sort of those, which stand in flat order (beam, then token), does the rest.

The threshold is the width-th largest of the tiles' best keys: each of those is a distinct
candidate, so at least ``width`` candidates reach it, and only the tiles that reach it are looked
into. In the rare case that very many keys are equal (all logits the same, say) every tile reaches
it, and the sort is as long as the step has candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from beamsieve.interface import Beams
from beamsieve_backends.torch_dense.scores import Scored
from beamsieve_backends.torch_dense.tables import DeviceTable
from beamsieve_backends.torch_dense.tiles import Tiles

# With fewer slots than this many for each place to fill, sorting all of them is quicker.
_SORTED_AT_ONCE = 3


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


def survivors(
    found: Scored,
    guided: tuple[Tensor, Tensor] | None,
    table: DeviceTable,
    shape: tuple[int, int],
    width: int,
) -> Survivors:
    """Every candidate that may be among the ``width`` best of its request.

    Args:
        found: the step's candidates.
        guided: scores and keys [n, T] where guidance changes them.
        table: the step's table.
        shape: B and M.
        width: how many are wanted of each request.
    """
    batch, places = shape
    tiles = found.tiles
    all_at_once = tiles.tokens.numel() <= _SORTED_AT_ONCE * batch * width
    few_tiles = tiles.most_of_request < width  # so their best keys alone give no threshold
    scores, keys = guided or (None, None)
    if scores is None and (all_at_once or few_tiles):
        scores = keys = found.scores()

    at = None
    if keys is not None and all_at_once:
        alive = keys > -torch.inf
    else:
        best = found.best() if keys is None else keys.amax(1)
        ranked = keys if few_tiles and keys is not None else best[:, None]
        request = tiles.beam.div(places, rounding_mode="floor")
        reach = _threshold(ranked, tiles, request, batch, width).index_select(0, request)
        at = ((best >= reach) & (best > -torch.inf)).nonzero().squeeze(1)
        if scores is None or keys is None:
            scores = keys = found.scores(at)
        else:
            one = scores is keys
            scores = scores.index_select(0, at)
            keys = scores if one else keys.index_select(0, at)
        alive = (keys >= reach.index_select(0, at)[:, None]) & (keys > -torch.inf)
    assert scores is not None
    assert keys is not None

    cell = alive.view(-1).nonzero().squeeze(1)
    tile, slot = cell >> table.tile_bits, cell & (table.tile - 1)
    if at is not None:
        tile = at.index_select(0, tile)
    token = tiles.tokens[tile, slot]
    if tiles.own is not None:
        token = torch.where(tiles.own.index_select(0, tile), -1, token)
    score = scores.view(-1).index_select(0, cell)
    return Survivors(
        tiles.beam.index_select(0, tile),
        token,
        tiles.start.index_select(0, tile) + slot,
        score,
        score if scores is keys else keys.view(-1).index_select(0, cell),
    )


def _threshold(keys: Tensor, tiles: Tiles, request: Tensor, batch: int, width: int) -> Tensor:
    """float32 [B]: the width-th largest key of each request; -inf where there are fewer.

    Args:
        keys: float32 [n, s]; keys of each tile.
        tiles: the step's tiles.
        request: int64 [n]; whose tile it is.
        batch: B.
        width: how many candidates are wanted.
    """
    most, slots = tiles.most_of_request, keys.shape[1]
    if most * slots < width:
        return keys.new_full((batch,), -torch.inf)
    places = len(tiles.ends) // batch
    opens = torch.nn.functional.pad(tiles.ends[places - 1 : -1 : places], (1, 0))
    shift = torch.arange(0, batch * most, most, device=keys.device).sub_(opens)
    place = torch.arange(len(keys), device=keys.device).add_(shift.index_select(0, request))
    laid_out = keys.new_full((batch * most, slots), -torch.inf).index_copy_(0, place, keys)
    return laid_out.view(batch, most * slots).topk(width, sorted=False).values.amin(1)


def keep_best(beams: Beams, table: DeviceTable, found: Survivors, width: int) -> Beams:
    """The next beams: the ``width`` best survivors of each request."""
    batch, places = beams.rows.shape
    device = found.key.device
    if not len(found.key):
        return _none_left(beams, width)
    request = found.beam.div(places, rounding_mode="floor")
    order = torch.sort((request << 32) - _ascending(found.key), stable=True).indices
    requests = torch.arange(batch + 1, device=device)
    bounds = torch.searchsorted(request, requests)
    place = bounds[:-1, None] + torch.arange(width, device=device)
    empty = place >= bounds[1:, None]
    pick = order[place.clamp_(max=len(order) - 1)]

    def taken(values: Tensor, filler: float) -> Tensor:
        return values[pick].masked_fill_(empty, filler)

    beam = found.beam[pick]
    tokens = torch.empty((batch, width, beams.step + 1), dtype=torch.int32, device=device)
    tokens[:, :, :-1] = beams.tokens.view(batch * places, -1)[beam]
    tokens[:, :, -1] = found.token[pick]
    tokens.masked_fill_(empty[:, :, None], -1)
    rows, finished = taken(found.row, -1), ~empty
    if table.ended_leaf is not None or not table.all_end:
        rows, finished = _ended(rows, tokens[:, :, -1], empty, table)
    scores = taken(found.score, -torch.inf)
    return Beams(
        step=beams.step + 1,
        tokens=tokens,
        scores=scores,
        keys=scores if found.key is found.score else taken(found.key, -torch.inf),
        rows=rows,
        parents=(beam - requests[:-1, None] * places).masked_fill_(empty, -1),
        finished=finished,
        count=bounds.diff().clamp_(max=width),
        search=beams.search,
    )


def _ended(rows: Tensor, token: Tensor, empty: Tensor, table: DeviceTable) -> tuple[Tensor, Tensor]:
    """Rows, as leaves where a semantic ID is complete; and where one is."""
    was = (token < 0) & ~empty if table.may_have_finished else None
    if table.ended_leaf is None:
        return rows, torch.zeros_like(empty) if was is None else was
    ends = ~empty if was is None else ~(empty | was)
    entry = torch.where(ends, rows, 0)
    if table.child_starts is not None:
        ends = ends & (table.child_starts[entry] == table.child_starts[entry + 1])
    rows = torch.where(ends, table.ended_leaf[entry], rows)
    return rows, ends if was is None else ends | was


def _ascending(key: Tensor) -> Tensor:
    """float32 to int32: larger for a larger key, equal for equal keys."""
    bits = (key + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _none_left(beams: Beams, width: int) -> Beams:
    batch, device = len(beams.count), beams.rows.device
    shape = (batch, width)
    none = torch.full(shape, -1, dtype=torch.int64, device=device)
    dead = torch.full(shape, -torch.inf, device=device)
    return Beams(
        step=beams.step + 1,
        tokens=torch.full((*shape, beams.step + 1), -1, dtype=torch.int32, device=device),
        scores=dead,
        keys=dead,
        rows=none,
        parents=none,
        finished=torch.zeros(shape, dtype=torch.bool, device=device),
        count=torch.zeros(batch, dtype=torch.int64, device=device),
        search=beams.search,
    )
