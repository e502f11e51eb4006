"""Which candidates a request may go on to (GRACE, arXiv 2608.00938, sections 3.2 to 3.4).

A candidate passes when a leaf that the request permits lies below it, and one part of its edge
matcher has every bit that the request asks for and, in every Bloom attribute, at least one of the
request's signatures. The cheap tests come first, and each later one looks only at what is left:
the candidates of requests that ask for anything; of these, those above a permitted leaf; then bits;
then Bloom filters.

Many signatures are not tried one by one: see ``_signatures_left``. Matcher rows repeat: where the
requests times the distinct rows are fewer than the candidates, every such pair is tested once and
the candidates look their pair up; otherwise each candidate's own pair is tested.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beamsieve.interface import Beams
from beamsieve_backends.torch_dense.matchers import DeviceRequests, DeviceTargeting, Rows, StepRows
from beamsieve_backends.torch_dense.tiles import Tiles

_CHUNK_CELLS = 1 << 22
_FEW_SIGNATURES = 8
_ONLY, _ALL_BUT = 1, 2


def kept_slots(beams: Beams, tiles: Tiles) -> Tensor:
    """bool [n, T]: the slots that targeting keeps; True wherever it does not ask."""
    asked: DeviceRequests = beams.search.device_requests
    targeting: DeviceTargeting = beams.search.tables.targeting
    places = beams.rows.shape[1]
    request = tiles.beam.div(places, rounding_mode="floor")
    slot = torch.arange(tiles.size, device=tiles.beam.device)
    tested = (slot < tiles.length()[:, None]) & asked.asks[request][:, None]
    if tiles.own is not None:
        tested &= ~tiles.own[:, None]
    cell = tested.view(-1).nonzero().squeeze(1)
    tile = cell >> (tiles.size.bit_length() - 1)
    entry = tiles.start.index_select(0, tile) + (cell & (tiles.size - 1))
    request = request.index_select(0, tile)
    if asked.has_sets:
        permitted = _above_permitted(asked, targeting, beams.step, entry, request)
        cell, entry, request = cell[permitted], entry[permitted], request[permitted]
    if targeting.steps:
        cell = cell[_matches(asked, targeting.steps[beams.step], entry, request)]
    kept = ~tested
    kept.view(-1)[cell] = True
    return kept


def _above_permitted(
    asked: DeviceRequests, targeting: DeviceTargeting, step: int, entry: Tensor, request: Tensor
) -> Tensor:
    """bool [k]: whether a permitted leaf lies in the entry's leaf interval."""
    starts, ends = targeting.leaf_bounds[step]
    first, behind = starts[entry].to(torch.int64), ends[entry].to(torch.int64)
    own = request * (targeting.leaf_count + 1)
    listed = torch.searchsorted(asked.leaves, own + behind)
    listed -= torch.searchsorted(asked.leaves, own + first)
    mode = asked.mode[request]
    only, all_but = listed > 0, listed < behind - first
    return torch.where(mode == _ONLY, only, (mode != _ALL_BUT) | all_but)


def _matches(asked: DeviceRequests, rows: StepRows, entry: Tensor, request: Tensor) -> Tensor:
    """bool [k]: whether one part of the entry's matcher passes the request's tests."""
    place, part = torch.arange(len(entry), device=entry.device), entry
    if rows.part_starts is not None:
        first = rows.part_starts[entry].to(torch.int64)
        counts = rows.part_starts[entry + 1].to(torch.int64) - first
        place = torch.repeat_interleave(place, counts)
        within = torch.arange(len(place), device=entry.device) - (counts.cumsum(0) - counts)[place]
        part, request = first[place] + within, request[place]
    tests: list[tuple[Rows, Tensor, Tensor | None, tuple[int, ...]]] = []
    if rows.bits is not None and asked.bit_words:
        tests.append((rows.bits, asked.bits[:, None, :], None, asked.bit_words))
    for segment, signed, count in zip(rows.blooms, asked.signatures, asked.counts, strict=True):
        if signed is not None:
            tests.append((segment, signed, count, tuple(range(signed.shape[2]))))
    for segment, signatures, number, words in tests:
        passed = _has_one(segment, signatures, number, words, part, request)
        place, part, request = place[passed], part[passed], request[passed]
    matched = torch.zeros(len(entry), dtype=torch.bool, device=entry.device)
    matched[place] = True
    return matched


def _has_one(
    segment: Rows,
    signed: Tensor,
    count: Tensor | None,
    words: tuple[int, ...],
    part: Tensor,
    request: Tensor,
) -> Tensor:
    """bool [k]: whether the part's row contains one of the request's signatures.

    Args:
        segment: the rows.
        signed: int64 [B, n, words].
        count: int64 [B]; how many of the n are real, 0 for a request that passes untested. None
            where all are.
        words: the words to look at; the others ask nothing.
        part: int64 [k].
        request: int64 [k].
    """
    if not len(part):  # a level where no semantic ID goes on has no rows to look at
        return part.bool()
    row = segment.index.index_select(0, part).to(torch.int64)
    batch, distinct = len(signed), len(segment.rows)
    if batch * distinct <= len(row):
        pair = torch.arange(batch * distinct, device=row.device)
        known = _contains(
            segment.rows,
            signed,
            count,
            words,
            pair % distinct,
            pair.div(distinct, rounding_mode="floor"),
        )
        return known.index_select(0, request * distinct + row)
    return _contains(segment.rows, signed, count, words, row, request)


def _contains(
    rows: Tensor,
    signed: Tensor,
    count: Tensor | None,
    words: tuple[int, ...],
    row: Tensor,
    request: Tensor,
) -> Tensor:
    """bool [k]: the test of each pair of row and request."""
    number = signed.shape[1]
    if count is not None and number > _FEW_SIGNATURES:
        left_over = _signatures_left(rows, signed, row, request, count)
        return left_over | (count[request] == 0)
    chunk = max(1, _CHUNK_CELLS // number)
    which = torch.arange(number, device=row.device)
    found: list[Tensor] = []
    for begin in range(0, max(1, len(row)), chunk):
        mine, own = row[begin : begin + chunk], request[begin : begin + chunk]
        hit = torch.ones(len(mine), number, dtype=torch.bool, device=row.device)
        for word in words:
            asks = signed[:, :, word][own]
            hit &= (rows[:, word][mine][:, None] & asks) == asks
        if count is not None:
            real = count[own][:, None]
            hit = (hit & (which < real)) | (real == 0)
        found.append(hit.any(1))
    return torch.cat(found)


def _signatures_left(
    rows: Tensor, signed: Tensor, row: Tensor, request: Tensor, count: Tensor
) -> Tensor:
    """bool [k]: whether a row contains one of many signatures, without a loop over them.

    Turned round once per request: for every byte of a row and every value that it may have, the set
    of signatures (64 at a time, as the bits of a word) that this byte rules out. Then a row needs
    one look-up per byte, and contains a signature exactly when not all of them are ruled out.
    """
    size = rows.shape[1] * 8
    octets = rows.contiguous().view(torch.uint8)
    found = torch.zeros(len(row), dtype=torch.bool, device=row.device)
    for begin in range(0, signed.shape[1], 64):
        ruled_out = _ruled_out(signed[:, begin : begin + 64]).view(-1)
        real = (count - begin).clamp(0, 64)
        # All bits of a word, or the lowest ``real`` of them.
        every = torch.where(real == 64, -1, (1 << real.clamp(max=63)) - 1)
        out = torch.zeros(len(row), dtype=torch.int64, device=row.device)
        for place in range(size):
            value = octets[:, place].index_select(0, row).to(torch.int64)
            out |= ruled_out.index_select(0, (request * size + place) * 256 + value)
        mine = every[request]
        found |= (out & mine) != mine
    return found


def _ruled_out(signed: Tensor) -> Tensor:
    """int64 [B, bytes, 256]: which of up to 64 signatures each value of each byte rules out."""
    batch, number, words = signed.shape
    bit = torch.arange(64, device=signed.device)
    which = bit[:number, None]
    # Which signatures need each bit of a row; every signature adds a bit of its own to the sum.
    needs = torch.zeros(batch, words, 64, dtype=torch.int64, device=signed.device)
    for word in range(words):
        needs[:, word] = (((signed[:, :, word, None] >> bit) & 1) << which).sum(1)
    needs = needs.view(batch, words * 8, 8)
    value = torch.arange(256, device=signed.device)
    out = torch.zeros(batch, words * 8, 256, dtype=torch.int64, device=signed.device)
    for place in range(8):
        lacks = (value >> place) & 1 == 0
        out |= torch.where(lacks, needs[:, :, place, None], 0)
    return out
