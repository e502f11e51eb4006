"""The logits of a step's candidates: the products of hidden states and head rows.

Two ways lead to the same numbers, up to rounding. The **full** projection multiplies every beam
with the whole head and picks the valid columns; the **selective** one multiplies only the head rows
of valid tokens. Products accumulate in float32, whatever the inputs' dtype, and TF32 and bfloat16
shortcuts for float32 are kept out.

**Batch independence.** How a library orders the additions of a matrix product depends on the
product's shape. So the full projection always runs in blocks of one fixed number of rows (the last
one padded with zeros), which follows from the beams per request and never from the batch: every
block is the same call, and within it each row's sum runs over d alone. On the CPU the selective
projection is one dot product per candidate (``torch.sparse.sampled_addmm``); on CUDA it runs in
chunks of one fixed number of tiles.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from beamsieve.interface import StepInputs
from beamsieve_backends.torch_dense.gemm import product_with, true_float32
from beamsieve_backends.torch_dense.statistics import Statistics
from beamsieve_backends.torch_dense.sums import Mass, finite_or_zero_
from beamsieve_backends.torch_dense.tables import DeviceTable
from beamsieve_backends.torch_dense.tiles import Tiles

_SMALLEST_BLOCK, _LARGEST_BLOCK = 16, 256
_CACHED_BLOCK = 128
_CHUNK_SLOTS = 1 << 15

with warnings.catch_warnings():
    # PyTorch says once per process that its CSR tensors are a beta feature; nothing here rests on
    # more than ``sampled_addmm``, which the tests hold to the specification.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([0])[:0], torch.zeros(0), (1, 1))


def block_rows(places: int) -> int:
    """How many beams a block of the full projection holds, for M places per request."""
    return min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, 1 << (places - 1).bit_length()))


def full_logits(
    inputs: StepInputs,
    table: DeviceTable,
    tiles: Tiles,
    places: int,
    library: str | None,
    whole: bool,
    statistics: Statistics,
) -> tuple[Tensor, Mass | None]:
    """Every beam against the whole codebook, or the caller's logits; the valid columns picked.

    Args:
        inputs: with hidden states and head, or with logits.
        table: the step's table.
        tiles: its candidates, counted in blocks of ``block_rows(places)`` beams.
        places: M.
        library: what multiplies on the CPU; see ``product_with``.
        whole: whether the mass of the whole codebook is wanted.
        statistics: take every block of the result.

    Returns:
        float32 [n, T], and, if ``whole``, each beam's mass over the whole codebook.
    """
    rows, head, bias = _rows_of(inputs)
    block, vocabulary = block_rows(places), table.vocabulary
    product = None if inputs.hidden is None else product_with(head, block, library)
    picked = torch.empty(tiles.tokens.shape, dtype=torch.float32, device=rows.device)
    # Within a block, places are small enough for 32 bits unless the codebook is enormous.
    dtype = torch.int32 if block * vocabulary < 2**31 else torch.int64
    first = ((tiles.beam & (block - 1)) * vocabulary).to(dtype)[:, None]

    def places_of(some: slice) -> Tensor:
        return tiles.tokens[some].to(dtype, copy=True).add_(first[some]).view(-1)

    # A large block is done with while it is in the cache; many small ones are quicker all at once.
    by_block = rows.device.type == "cpu" and block >= _CACHED_BLOCK
    every = None if by_block else places_of(slice(None))
    masses = []
    begin = 0
    with true_float32(rows.device):
        for at, end in enumerate(tiles.bounds):
            if begin == end and not whole:
                continue
            beams, some = slice(at * block, (at + 1) * block), slice(begin, end)
            logits = rows[beams]
            if whole or product is not None:
                logits = _padded(logits, block)
            if product is not None:
                logits = product(logits)
                if bias is not None:
                    logits.add_(bias)
            if whole:
                masses.append(_mass(logits))
            valid, cells = logits.reshape(-1), picked[some]
            size = table.tile
            place = places_of(some) if every is None else every[begin * size : end * size]
            if valid.dtype == torch.float32:
                torch.index_select(valid, 0, place, out=cells.view(-1))
            else:
                cells.view(-1).copy_(valid.index_select(0, place))
            if by_block:
                statistics.add(cells, begin, beams)
            begin = end
    if not by_block:
        statistics.add(picked, 0, slice(None))
    if not whole:
        return picked, None
    return picked, Mass(*(torch.cat(parts)[: len(rows)] for parts in zip(*masses, strict=True)))


def selective_logits(inputs: StepInputs, tiles: Tiles) -> Tensor:
    """Each candidate's head row against its beam's hidden state: float32 [n, T]."""
    hidden, head, bias = _rows_of(inputs)
    if not len(tiles):
        return torch.empty(tiles.tokens.shape, dtype=torch.float32, device=hidden.device)
    if hidden.device.type == "cpu":
        logits = _sampled(hidden.float(), head.float(), tiles)
    else:
        logits = _gathered(hidden, head, tiles)
    if bias is not None:
        tokens = tiles.tokens.reshape(-1).to(torch.int32)
        logits = logits + bias.index_select(0, tokens).view_as(logits)
    return logits


def _rows_of(inputs: StepInputs) -> tuple[Tensor, Tensor, Tensor | None]:
    values: Any = inputs.hidden if inputs.logits is None else inputs.logits
    bias = None if inputs.bias is None else inputs.bias.float()
    head: Any = inputs.head
    return values.flatten(0, 1), head, bias


def _padded(rows: Tensor, block: int) -> Tensor:
    missing = block - len(rows)
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


def _mass(logits: Tensor) -> Mass:
    """The mass of each row of [R, V]."""
    usable = torch.nan_to_num(logits.float(), nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
    largest = finite_or_zero_(usable.amax(-1))
    return Mass(largest, finite_or_zero_((usable - largest[:, None]).exp_().sum(-1).log_()))


def _sampled(hidden: Tensor, head: Tensor, tiles: Tiles) -> Tensor:
    slots, size = tiles.tokens.numel(), tiles.size
    ends = tiles.ends if size == 1 else tiles.ends * size
    # A pattern may not name more cells than the product has; whole tiles of a small codebook do,
    # so rows that nothing asks for make it larger.
    missing = -(-slots // len(head)) - len(hidden)
    if missing > 0:
        hidden = _padded(hidden, len(hidden) + missing)
        ends = torch.cat([ends, ends[-1:].expand(missing)])
    pattern = torch.sparse_csr_tensor(
        torch.cat([ends.new_zeros(1), ends]),
        tiles.tokens.view(-1).to(torch.int64),
        torch.zeros(slots, dtype=torch.float32),
        size=(len(hidden), len(head)),
        check_invariants=False,
    )
    sampled_addmm: Any = torch.sparse.sampled_addmm
    sampled_addmm(pattern, hidden, head.t(), beta=0.0, out=pattern)
    return pattern.values().view(tiles.tokens.shape)


def _gathered(hidden: Tensor, head: Tensor, tiles: Tiles) -> Tensor:
    tile = tiles.tokens.shape[1]
    chunk = max(1, _CHUNK_SLOTS // tile)
    logits = torch.empty(tiles.tokens.shape, dtype=torch.float32, device=hidden.device)
    for begin in range(0, len(tiles), chunk):
        beam, tokens = tiles.beam[begin : begin + chunk], tiles.tokens[begin : begin + chunk]
        missing = chunk - len(beam)
        if missing:
            beam = torch.cat([beam, beam.new_zeros(missing)])
            tokens = torch.cat([tokens, tokens.new_zeros(missing, tile)])
        rows = head.index_select(0, tokens.reshape(-1).to(torch.int32)).view(chunk, tile, -1)
        states = hidden.index_select(0, beam).unsqueeze(2)
        product = torch.bmm(rows.float(), states.float()).squeeze(2)
        logits[begin : begin + chunk] = product[: chunk - missing]
    return logits
