"""The kernels as functions of tensors, with the shapes of their tiles."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beamsieve.models.wide import laws
from beamsieve.models.wide.kernels import (
    advance_rows,
    coalesced_attention,
    context_attention,
    norm_rows,
    own_attention,
    repeat_rows,
    second_rows,
)
from beamsieve.models.wide.launch import INTERPRETED, cdiv, launch, power_of_two

Shape = dict[str, int]

OWN: Shape = {"ROWS": 1, "VALUES": 512, "warps": 1, "stages": 2}
"""Rows of a tile of ``own_attention``, and values of each: a few heads."""
COALESCED: Shape = {"G": 16, "warps": 4, "stages": 2}
"""Rows of a tile of ``coalesced_attention``."""
CONTEXT: Shape = {"ROWS": 64, "TILES": 16, "warps": 4, "stages": 2}
"""Beams of a tile of ``context_attention``, and its tiles per program."""
COLUMNS = 128
"""Context tokens that ``context_attention`` holds at once."""


def norm(x: Tensor, added: Tensor | None = None) -> Tensor:
    """``laws.norm`` of x [R, d]; with ``added``, of x + added, which becomes x."""
    out = torch.empty_like(x)
    _norm(x, added, out, None, normed=True)
    return out


def norm_quantize(x: Tensor, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``laws.quantize`` of the norm of x [R, d]; with ``added`` as in ``norm``."""
    out, scales = _float8_rows(x)
    _norm(x, added, out, scales, normed=True)
    return out, scales


def quantize(x: Tensor, *, relu: bool = False) -> tuple[Tensor, Tensor]:
    """``laws.quantize`` of x [R, d], or of its positive part."""
    out, scales = _float8_rows(x)
    _norm(x, None, out, scales, relu=relu)
    return out, scales


def _float8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    return out, torch.empty(len(x), 1, dtype=torch.float32, device=x.device)


def _norm(
    x: Tensor,
    added: Tensor | None,
    out: Tensor,
    scales: Tensor | None,
    *,
    normed: bool = False,
    relu: bool = False,
) -> None:
    rows, columns = x.shape
    up = power_of_two(columns)
    each = max(1, 4096 // up)
    launch(
        norm_rows, cdiv(rows, each), x, x if added is None else added, out,
        x if scales is None else scales, rows, laws.EPSILON,
        torch.finfo(torch.float8_e4m3fn).max,
        N=columns, N_UP=up, ADD=added is not None, NORM=normed, RELU=relu,
        QUANTIZE=scales is not None, ROWS=each, warps=min(16, max(4, each * up // 1024)),
    )  # fmt: skip


def coalesced(
    queries: Tensor, keys: Tensor, values: Tensor, t: int, shape: Shape | None = None
) -> Tensor:
    """``laws.coalesced``: queries [R, H, D], keys and values [L, R, H, D]."""
    rows, heads, width = queries.shape
    out = torch.empty_like(queries)
    tile = dict(COALESCED if shape is None else shape)
    up = power_of_two(t)
    tile["G"] = min(tile["G"], max(16, power_of_two(rows)))
    launch(
        coalesced_attention, cdiv(rows, tile["G"]) * heads, queries, keys, values, out, rows,
        width**-0.5, T=t, T_UP=up, H=heads, D=width, UPCAST=INTERPRETED, **tile,
    )  # fmt: skip
    return out


def fused(
    product: Tensor, keys: Tensor, values: Tensor, t: int, shape: Shape | None = None
) -> Tensor:
    """``laws.fused``: product [R, 3, H, D], keys and values [L, R, H, D]."""
    return _own(product, keys, values, None, t, shape, len(product), write=True)


def paged(
    product: Tensor, keys: Tensor, values: Tensor, ids: Tensor, t: int, shape: Shape | None = None
) -> Tensor:
    """``laws.paged``: product [R, 3, H, D], keys and values [blocks, H, D], ids int32 [R, L]."""
    return _own(product, keys, values, ids, t, shape, len(product), write=True)


def in_place(
    products: Tensor,
    ids: Tensor,
    t: int,
    shape: Shape | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """``laws.in_place``: products [blocks, 3, H, D], ids int32 [R, L].

    ``order``, int32 [R], lists the rows as programs shall take them: rows with the same ancestors
    side by side read these once.
    """
    keys, values = products[:, 1], products[:, 2]
    return _own(products, keys, values, ids, t, shape, len(ids), write=False, order=order)


def _own(
    product: Tensor,
    keys: Tensor,
    values: Tensor,
    ids: Tensor | None,
    t: int,
    shape: Shape | None,
    rows: int,
    *,
    write: bool,
    order: Tensor | None = None,
) -> Tensor:
    heads, width = product.shape[-2:]
    out = torch.empty(rows, heads, width, dtype=product.dtype, device=product.device)
    tile = dict(OWN if shape is None else shape)
    tile["HEADS"] = min(max(1, tile.pop("VALUES") // width), heads & -heads)
    launch(
        own_attention, cdiv(rows, tile["ROWS"]) * (heads // tile["HEADS"]),
        product[:, 0], product[:, 1], product[:, 2], keys, values,
        product if ids is None else ids, product if order is None else order, out, rows,
        width**-0.5,
        T=t, LENGTH=0 if ids is None else ids.shape[1], H=heads, D=width,
        PRODUCT_STRIDE=product.stride(0), CACHE_STRIDE=keys.stride(-3), PAGED=ids is not None,
        IN_PLACE=not write, WRITE=write, ORDERED=order is not None, **tile,
    )  # fmt: skip
    return out


def context(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor | None,
    shape: Shape | None = None,
) -> Tensor:
    """``laws.beam_as_query``: queries [B, M, H, D], keys and values [B, C, H, D]; [B, M, H, D]."""
    batch, beams, heads, width = queries.shape
    columns = keys.shape[1]
    out = torch.empty_like(queries)
    tile = dict(CONTEXT if shape is None else shape)
    tile["ROWS"] = min(tile["ROWS"], max(16, power_of_two(beams)))
    tile["TILES"] = min(tile["TILES"], cdiv(beams, tile["ROWS"]))
    held = min(COLUMNS, max(16, power_of_two(columns)))
    launch(
        context_attention, (cdiv(beams, tile["ROWS"] * tile["TILES"]), heads, batch), queries,
        keys, values, queries if lengths is None else lengths, out, beams, columns, width**-0.5,
        H=heads, D=width, KEY_STRIDE=keys.stride(1), HAS_LENGTHS=lengths is not None,
        COLUMNS=held, BLOCKS=cdiv(columns, held), UPCAST=INTERPRETED, **tile,
    )  # fmt: skip
    return out


def advance(
    tokens: Tensor, parents: Tensor, old_ids: Tensor, bases: Tensor, first: int, codes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``laws.advance``, and the new tokens' rows of ``codes`` [V, d]."""
    return _advance(tokens, parents, old_ids, bases, first, codes, None, 0)[:3]


def advance_paired(
    tokens: Tensor,
    parents: Tensor,
    old_ids: Tensor,
    bases: Tensor,
    first: int,
    x: Tensor,
    asked: Tensor,
    second: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``laws.advance`` and ``laws.paired``."""
    return _advance(tokens, parents, old_ids, bases, first, x, asked, second)


def _advance(
    tokens: Tensor,
    parents: Tensor,
    old_ids: Tensor,
    bases: Tensor,
    first: int,
    codes: Tensor,
    asked: Tensor | None,
    second: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, beams, t = tokens.shape
    rows, length = batch * beams, old_ids.shape[1]
    ids, first_ids = (
        torch.empty(rows, length, dtype=torch.int32, device=codes.device) for _ in range(2)
    )
    x = torch.empty(rows, codes.shape[1], dtype=codes.dtype, device=codes.device)
    wide = 0 if asked is None else asked.shape[1]
    queries = torch.empty(rows, wide, dtype=codes.dtype, device=codes.device)
    arrays: list[Any] = [tokens.contiguous(), parents.contiguous(), codes, old_ids, ids, first_ids]
    launch(
        advance_rows, rows, *arrays, bases, x, codes if asked is None else asked,
        x if asked is None else queries, rows, beams, len(old_ids) // batch, first,
        T=t, LENGTH=length, N=codes.shape[1], N_UP=power_of_two(codes.shape[1]),
        PAIRS=second, W=wide, W_UP=power_of_two(wide),
    )  # fmt: skip
    return ids, first_ids, x, queries


def second(tokens: Tensor, hidden: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """``laws.second``."""
    batch, beams = tokens.shape[:2]
    rows, width = batch * beams, hidden.shape[1]
    ids = torch.empty(rows, length, dtype=torch.int32, device=hidden.device)
    out = torch.empty(rows, width, dtype=hidden.dtype, device=hidden.device)
    launch(
        second_rows, rows, tokens.contiguous(), hidden, ids, out, len(hidden) // batch - 1, beams,
        LENGTH=length, N=width, N_UP=power_of_two(width),
    )  # fmt: skip
    return ids, out


def repeated(x: Tensor, asked: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """``laws.repeated``."""
    rows, size = x.shape
    wide = asked.shape[1]
    out = torch.empty(batch * rows, size, dtype=x.dtype, device=x.device)
    also = torch.empty(batch * rows, wide, dtype=x.dtype, device=x.device)
    launch(
        repeat_rows, batch * rows, x, asked, out, also, rows,
        N=size, N_UP=power_of_two(size), W=wide, W_UP=power_of_two(wide),
    )  # fmt: skip
    return out, also
