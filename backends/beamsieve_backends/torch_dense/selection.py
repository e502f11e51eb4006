"""The ``width`` best candidates of each request, in the contract's order.

Higher key; then lower parent place; then lower token. ``torch.topk`` promises no order among equal
keys, so it finds at most a threshold. Candidates stand in flat order (beam, then token), and a
stable sort does the rest.

Of a step with many tiles, the width-th largest of the tiles' best keys is a threshold: each of
those is a distinct candidate, so at least ``width`` candidates reach it, and only the tiles that
reach it are looked into. In the rare case that very many keys are equal (all logits the same, say)
every tile reaches it, and the sort is as long as the step has candidates.
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
_SORTED_AT_ONCE = 4
_LOWEST = torch.finfo(torch.float32).min


class Best(NamedTuple):
    """The kept candidates of each request, best first. All arrays are [B, W]."""

    beam: Tensor
    """int64; the flat beam."""
    token: Tensor
    """An integer dtype; -1 for a finished beam."""
    row: Tensor
    """int64; the entry's position, or a finished beam's leaf."""
    score: Tensor
    """float32."""
    key: Tensor
    """float32."""
    empty: Tensor
    """bool; the places without a candidate, in which the other arrays hold anything."""


def best_of_tiles(
    found: Scored, guided: tuple[Tensor, Tensor] | None, shape: tuple[int, int], width: int
) -> Best | None:
    """The best of a step's tiles; None where there is no candidate at all.

    Args:
        found: the step's candidates.
        guided: scores and keys [n, T] where guidance changes them.
        shape: B and M.
        width: how many are wanted of each request.
    """
    tiles = found.tiles
    size, most = tiles.size, tiles.most_of_request
    if not len(tiles):
        return None
    if most < width or most * size <= _SORTED_AT_ONCE * width:
        scores, keys = guided or (found.scores(),) * 2
        place, empty = best_of_rows(_by_request(keys, tiles, shape, most), width)
        cell = (place + (tiles.opens * size)[:, None]).masked_fill_(empty, 0).view(-1)
        held = tile = cell if size == 1 else cell >> _bits(size)
    else:
        at, scores, keys, reach = _reaching(found, guided, shape, width)
        cells = (keys >= reach[:, None]).view(-1).nonzero().squeeze(1)
        if not len(cells):
            return None
        beam = tiles.beam.index_select(0, at.index_select(0, cells >> _bits(size)))
        request = beam.div(shape[1], rounding_mode="floor")
        pick, empty = _sorted(keys.view(-1).index_select(0, cells), request, shape[0], width)
        cell = cells.index_select(0, pick.view(-1))
        held = cell >> _bits(size)
        tile = at.index_select(0, held)
    at, row = tile, tiles.start.index_select(0, tile)
    if size > 1:
        slot = cell - held * size
        at, row = tile * size + slot, row + slot
    token = tiles.tokens.view(-1).index_select(0, at)
    if tiles.own is not None:
        token = torch.where(tiles.own.index_select(0, tile), -1, token)
    beam = tiles.beam.index_select(0, tile)
    beam, token, row = (values.view(empty.shape) for values in (beam, token, row))
    score = key = scores.view(-1).index_select(0, cell).view(empty.shape)
    if keys is not scores:
        key = keys.view(-1).index_select(0, cell).view(empty.shape)
    return Best(beam, token, row, score, key, empty)


def best_of_rows(keys: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` largest of each row of [B, K]; of equal ones, those further to the front.

    Returns:
        int64 [B, width], places in the row, and bool [B, width], where there is none above -inf
        (and the place is any).
    """
    batch, columns = keys.shape
    if columns <= _SORTED_AT_ONCE * width:
        if columns < width:
            keys = torch.nn.functional.pad(keys, (0, width - columns), value=-torch.inf)
        if keys.device.type != "cpu":
            keys = keys + 0.0  # -0.0 becomes 0.0: a sort by bits tells them apart
        ranked, order = keys.sort(stable=True, descending=True)
        empty = ranked[:, :width] == -torch.inf
        return order[:, :width].masked_fill(empty, 0), empty
    reach = keys.topk(width, sorted=False).values.amin(1).clamp_(min=_LOWEST)
    cells = (keys >= reach[:, None]).view(-1).nonzero().squeeze(1)
    if not len(cells):
        nothing = torch.zeros((batch, width), dtype=torch.int64, device=keys.device)
        return nothing, nothing == 0
    request = cells.div(columns, rounding_mode="floor")
    pick, empty = _sorted(keys.view(-1).index_select(0, cells), request, batch, width)
    place = cells.index_select(0, pick.view(-1)).view(pick.shape)
    return place.remainder_(columns), empty


def _reaching(
    found: Scored, guided: tuple[Tensor, Tensor] | None, shape: tuple[int, int], width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tiles [m] that reach their request's threshold; their scores and keys [m, T]; and the
    threshold of each [m], finite."""
    tiles = found.tiles
    best = found.best() if guided is None else guided[1].amax(1)
    ranked = _by_request(best[:, None], tiles, shape, tiles.most_of_request)
    reach = ranked.topk(width, sorted=False).values.amin(1).clamp_(min=_LOWEST)
    reach = _of_tiles(reach, tiles, shape)
    at = (best >= reach).nonzero().squeeze(1)
    reach = reach.index_select(0, at)
    if guided is None:
        scores = found.scores(at)
        return at, scores, scores, reach
    scores = guided[0].index_select(0, at)
    return at, scores, scores if guided[1] is guided[0] else guided[1].index_select(0, at), reach


def _by_request(keys: Tensor, tiles: Tiles, shape: tuple[int, int], most: int) -> Tensor:
    """Keys [n, s] of tiles as [B, most × s]: a row for each request, -inf behind its tiles."""
    batch, slots = shape[0], keys.shape[1]
    shift = torch.arange(0, batch * most, most, device=keys.device) - tiles.opens
    place = _of_tiles(shift, tiles, shape) + torch.arange(len(keys), device=keys.device)
    rows = keys.new_full((batch * most, slots), -torch.inf).index_copy_(0, place, keys)
    return rows.view(batch, most * slots)


def _of_tiles(values: Tensor, tiles: Tiles, shape: tuple[int, int]) -> Tensor:
    """For each tile, its request's value of [B]."""
    return values[:, None].expand(shape).reshape(-1).index_select(0, tiles.beam)


def _sorted(key: Tensor, request: Tensor, batch: int, width: int) -> tuple[Tensor, Tensor]:
    """The best of candidates in flat order: places among them [B, width], and where there are none.

    Args:
        key: float32 [s]; above -inf.
        request: int64 [s]; ascending.
        batch: B.
        width: how many are wanted of each request.
    """
    order = torch.sort((request << 32) - _ascending(key), stable=True).indices
    bounds = torch.searchsorted(request, torch.arange(batch + 1, device=key.device))
    place = bounds[:-1, None] + torch.arange(width, device=key.device)
    empty = place >= bounds[1:, None]
    pick = order.index_select(0, place.clamp_(max=len(order) - 1).view(-1))
    return pick.view(batch, width), empty


def _ascending(key: Tensor) -> Tensor:
    """float32 to int32: larger for a larger key, equal for equal keys."""
    bits = (key + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _bits(size: int) -> int:
    """The binary logarithm of a tile's size."""
    return size.bit_length() - 1


def next_beams(beams: Beams, table: DeviceTable, best: Best | None, width: int) -> Beams:
    """The beams that these candidates are."""
    if best is None:
        return _none_left(beams, width)
    batch, places = beams.rows.shape
    empty, alive = best.empty, ~best.empty
    before = beams.tokens.view(batch * places, -1).index_select(0, best.beam.view(-1))
    token = best.token.view(-1, 1).to(torch.int32)
    tokens = torch.cat([before, token], 1).view(batch, width, -1)
    tokens.masked_fill_(empty[:, :, None], -1)
    rows, finished = best.row.masked_fill(empty, -1), alive
    if table.ended_leaf is not None or not table.all_end:
        rows, finished = ended(rows, tokens[:, :, -1], empty, table)
    scores = best.score.masked_fill(empty, -torch.inf)
    first = torch.arange(0, batch * places, places, device=rows.device)
    return Beams(
        step=beams.step + 1,
        tokens=tokens,
        scores=scores,
        keys=scores if best.key is best.score else best.key.masked_fill(empty, -torch.inf),
        rows=rows,
        parents=(best.beam - first[:, None]).masked_fill_(empty, -1),
        finished=finished,
        count=alive.sum(1),
        search=beams.search,
    )


def ended(rows: Tensor, token: Tensor, empty: Tensor, table: DeviceTable) -> tuple[Tensor, Tensor]:
    """Rows, as leaves where a semantic ID is complete; and where one is."""
    was = (token < 0) & ~empty if table.may_have_finished else None
    if table.ended_leaf is None:
        return rows, torch.zeros_like(empty) if was is None else was
    ends = ~empty if was is None else ~(empty | was)
    entry = torch.where(ends, rows, 0)
    if table.child_starts is not None:
        first, end = table.child_starts.bounds(entry.view(-1))
        ends = ends & (first == end).view_as(ends)
    rows = torch.where(ends, table.ended_leaf[entry], rows)
    return rows, ends if was is None else ends | was


def _none_left(beams: Beams, width: int) -> Beams:
    batch, device = len(beams.count), beams.rows.device
    shape = (batch, width)
    none = torch.full(shape, -1, dtype=torch.int64, device=device)
    dead = torch.full(shape, -torch.inf, dtype=torch.float32, device=device)
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
