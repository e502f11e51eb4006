"""float32 factors of a full projection in two float16 parts each: 22 bits of every number stay."""

from __future__ import annotations

import torch

from beamsieve_backends.triton_slots.call import Call
from beamsieve_backends.triton_slots.launch import cdiv, launch, power_of_two
from beamsieve_backends.triton_slots.operands import split_rows


def split(call: Call) -> tuple[torch.Tensor, ...]:
    """hidden and head, each in two float16 parts, and what undoes their scales."""
    prepared: tuple[torch.Tensor, ...] | None = call.inputs.prepared
    hidden = _parts_for(call.hidden, call.D)
    head = _parts_for(call.head, call.D) if prepared is None else prepared
    counts = (call.hidden.numel() // call.D, 0 if prepared is not None else len(call.head))
    _split_rows((call.hidden, call.head), (hidden, head), counts, call.D)
    return (*hidden, *head)


def head_parts(head: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
    """What ``split`` makes of a head [V, D]: high, low and inverse; None if it is not float32."""
    if head.dtype != torch.float32:
        return None
    head = head.contiguous()
    V, D = head.shape
    parts = _parts_for(head, D)
    _split_rows((head, head), (parts, parts), (0, V), D)
    return parts


def _parts_for(rows: torch.Tensor, D: int) -> tuple[torch.Tensor, ...]:
    n = rows.numel() // D
    high, low = (torch.empty(n, D, dtype=torch.float16, device=rows.device) for _ in range(2))
    return high, low, torch.empty(n, dtype=torch.float32, device=rows.device)


def _split_rows(
    given: tuple[torch.Tensor, torch.Tensor],
    parts: tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]],
    counts: tuple[int, int],
    D: int,
) -> None:
    columns = power_of_two(D)
    each = max(1, 4096 // columns)
    launch(
        split_rows, (sum(cdiv(n, each) for n in counts),), given[0], *parts[0], counts[0],
        given[1], *parts[1], counts[1], D, D_UP=columns, ROWS=each,
    )  # fmt: skip
