"""What every kernel of the wide-beam decoder computes, in plain PyTorch that is read from the top.

These are also what runs where the kernels cannot: on a CPU, and on a GPU without Triton.

Notation: B requests of M beams each are R = B * M rows, a request's side by side; H heads of D
values; t tokens of a row so far, its own included; C context tokens.
Source: GRACE, sections 4.1 to 4.3 and appendix B.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

EPSILON = 1e-6


def norm(x: Tensor) -> Tensor:
    """Rows [..., d] over their root mean square, in x's dtype; the gain is the next product's."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """float8_e4m3fn [R, d] and scales float32 [R, 1] with values * scales near x, row by row."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    scales = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / largest
    return (x.float() / scales).to(torch.float8_e4m3fn), scales


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query per row: queries [R, H, D], keys and values [R, t, H, D]; answers [R, H, D]."""
    scores = (
        torch.einsum("rhd,rthd->rht", queries.float(), keys.float()) * queries.shape[-1] ** -0.5
    )
    mixed = torch.einsum("rht,rthd->rhd", torch.softmax(scores, -1), values.float())
    return mixed.to(queries.dtype)


def coalesced(queries: Tensor, keys: Tensor, values: Tensor, t: int) -> Tensor:
    """Own tokens in a dense cache: keys and values [L, R, H, D], of which the first t count."""
    return attend(queries, keys[:t].transpose(0, 1), values[:t].transpose(0, 1))


def fused(product: Tensor, keys: Tensor, values: Tensor, t: int) -> Tensor:
    """The same from the product [R, 3, H, D]; token t's keys and values are written on the way."""
    keys[t - 1], values[t - 1] = product[:, 1], product[:, 2]
    return coalesced(product[:, 0], keys, values, t)


def paged(product: Tensor, keys: Tensor, values: Tensor, ids: Tensor, t: int) -> Tensor:
    """The same over blocks: keys and values [blocks, H, D], a row's token j in block ids[r, j]."""
    own = ids[:, t - 1].long()
    keys[own], values[own] = product[:, 1], product[:, 2]
    before = ids[:, :t].long()
    return attend(product[:, 0], keys[before], values[before])


def in_place(products: Tensor, ids: Tensor, t: int) -> Tensor:
    """The same where the products [blocks, 3, H, D] of all steps are themselves the cache."""
    blocks = ids[:, :t].long()
    return attend(products[blocks[:, -1], 0], products[blocks, 1], products[blocks, 2])


def advance(
    tokens: Tensor, parents: Tensor, old_ids: Tensor, bases: Tensor, first: int
) -> tuple[Tensor, Tensor]:
    """Block tables behind one more token: copies of ids, never of keys and values.

    Args:
        tokens: [B, M, t]; -1 where there is none.
        parents: [B, M]; places in the step before; -1 in places without a beam, whose ids may be
            any.
        old_ids: int32 [B * M before, L]; the first t count.
        bases: int32 [L]; where each level's part of the first layer's table begins.
        first: block of the new token of row 0; row r's is first + r.

    Returns:
        ids of the later layers, int32 [R, L], of which t + 1 count: a row's are its parent's and a
        new one; and ids in the first layer's table, likewise, which follow from the tokens alone.
    """
    batch, beams, t = tokens.shape
    request = torch.arange(batch, device=parents.device)[:, None]
    table = old_ids.view(batch, -1, old_ids.shape[1])
    ids = table[request, parents.long().clamp(min=0)].view(batch * beams, -1).clone()
    ids[:, t] = torch.arange(first, first + len(ids), dtype=torch.int32, device=ids.device)
    first_ids = torch.zeros_like(ids)
    first_ids[:, 1 : t + 1] = bases[1 : t + 1] + tokens.reshape(-1, t).clamp(min=0).int()
    return ids, first_ids


def paired(tokens: Tensor, x: Tensor, asked: Tensor, second: int) -> tuple[Tensor, Tensor]:
    """Rows of x [V_1 * V_2, d] and asked [V_1 * V_2, W] behind tokens [B, M, 2]; V_2 is ``second``.

    Where there is no token, the row may be any.
    """
    pair = tokens.long().clamp(min=0)
    rows = (pair[..., 0] * second + pair[..., 1]).view(-1)
    return x.index_select(0, rows), asked.index_select(0, rows)


def all_first(batch: int, vocabulary: int, length: int, device: torch.device) -> Tensor:
    """Block ids int32 [B * (1 + V), L] of each request's start and of all its first tokens.

    Row 0 of a request is its start, row 1 + v its start and token v; each row has a block of its
    own. Two ids count. The start attends to its own block twice, which is as good as once.
    """
    own = torch.arange(batch * (1 + vocabulary), dtype=torch.int32, device=device)
    ids = own[:, None].repeat(1, length)
    ids[:, 0] = own - own % (1 + vocabulary)
    return ids


def repeated(x: Tensor, asked: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Rows x [1 + V, d] and asked [1 + V, W] once for each of ``batch`` requests."""
    return x.repeat(batch, 1), asked.repeat(batch, 1)


def second(tokens: Tensor, hidden: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The rows behind the first token, where those of all first tokens were computed.

    Args:
        tokens: [B, M, 1]; -1 where there is none, whose row may be any.
        hidden: [B * (1 + V), d], as ``all_first`` has them.
        length: L.

    Returns:
        block ids int32 [B * M, L], of which two count, and hidden states [B * M, d].
    """
    batch, beams = tokens.shape[:2]
    first = torch.arange(batch, device=hidden.device)[:, None] * (len(hidden) // batch)
    own = (first + 1 + tokens[:, :, 0].clamp(min=0)).view(-1)
    ids = own.int()[:, None].repeat(1, length)
    ids[:, 0] = first.expand(-1, beams).reshape(-1)
    return ids, hidden[own]


def per_beam(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """Cross-attention as generic libraries see it: every row with a copy of its request's context.

    queries [B, M, H, D]; keys and values [B, C, H, D]; lengths int [B] or None; [B, M, H, D].
    """
    batch, beams, heads, width = queries.shape
    flat = queries.reshape(batch * beams, heads, 1, width)
    copies = [kept.transpose(1, 2).repeat_interleave(beams, 0) for kept in (keys, values)]
    mask = context_mask(lengths, keys.shape[1])
    if mask is not None:
        mask = mask.repeat_interleave(beams, 0)
    mixed = F.scaled_dot_product_attention(flat, copies[0], copies[1], attn_mask=mask)
    return mixed.reshape(queries.shape)


def beam_as_query(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """The same with a request's beams as one sequence of queries: layouts change, no value does.

    Query [b * M + m, h] of the generic layout is query [b, h, m] here (equation 13), and answers
    come back the same way (14).
    """
    mixed = F.scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=context_mask(lengths, keys.shape[1]),
    )
    return mixed.transpose(1, 2)


def context_mask(lengths: Tensor | None, columns: int) -> Tensor | None:
    """bool [B, 1, 1, C]: the context tokens that count; None where all do."""
    if lengths is None:
        return None
    return (torch.arange(columns, device=lengths.device) < lengths[:, None])[:, None, None]
