"""The first layer up to its cross-attention, looked up by token: no context has been seen there.

A row's residual stream and its cross-attention's queries depend on the tokens spelt so far alone,
so they are the same for every request and every search. Behind the start and one token they always
stand in a table; behind two tokens where the table of all pairs is small enough to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beamsieve.models.wide import laws
from beamsieve.models.wide.products import Products, Weight

PAIR_BYTES = 2 << 30
"""What a decoder lets the table of all pairs take, if it is not told."""
_AT_ONCE = 1 << 14
"""Rows of it that are made at once, which bounds the memory used on the way."""


@dataclass(frozen=True)
class Opened:
    """Rows behind some tokens.

    Attributes:
        x: the residual stream [n, d] behind the first layer's self-attention.
        asked: the queries [n, W] of its cross-attention.
    """

    x: Tensor
    asked: Tensor


class Opening:
    """How such rows are made: by the products that a search itself would make them with.

    Args:
        inputs: [1 + sum of V_l, d]; behind the start and behind each token.
        products: their first layer's products [1 + sum of V_l, 3, H, D].
        own_out: the first layer's; [d, W].
        query: the first layer's; [W, d].
        how: the products.
    """

    def __init__(
        self, inputs: Tensor, products: Tensor, own_out: Weight, query: Weight, how: Products
    ) -> None:
        self.inputs, self.products, self.how = inputs, products, how
        self.own_out, self.query = own_out, query
        self._attend: Callable[[Tensor, Tensor, int], Tensor] = laws.in_place
        if how.kernels:
            from beamsieve.models.wide import calls

            self._attend = calls.in_place

    def singles(self, first: int) -> Opened:
        """Behind the start alone, and behind the start and each of ``first`` tokens."""
        ids = torch.arange(1 + first, dtype=torch.int32, device=self.inputs.device)[:, None]
        both = torch.cat([torch.zeros_like(ids), ids], 1)[1:]
        alone = self._attend(self.products, ids[:1], 1)
        mixed = torch.cat([alone, self._attend(self.products, both.contiguous(), 2)])
        return self._rows(self.inputs[: 1 + first].clone(), mixed)

    def pairs(self, first: int, second: int) -> Opened:
        """Behind the start and two tokens: row a * second + b, of the first two levels' tokens."""
        d, wide = self.inputs.shape[1], self.products[0, 0].numel()
        made = Opened(
            self.inputs.new_empty(first * second, d), self.inputs.new_empty(first * second, wide)
        )
        for start in range(0, first * second, _AT_ONCE):
            stop = min(start + _AT_ONCE, first * second)
            number = torch.arange(start, stop, dtype=torch.int32, device=self.inputs.device)
            ids = torch.stack(
                [torch.zeros_like(number), 1 + number // second, 1 + first + number % second], 1
            )
            x = self.inputs.index_select(0, ids[:, 2])
            part = self._rows(x, self._attend(self.products, ids, 3))
            made.x[start:stop], made.asked[start:stop] = part.x, part.asked
        return made

    def _rows(self, x: Tensor, mixed: Tensor) -> Opened:
        pending = self.how.add(x, self.how.activation(mixed.reshape(len(x), -1)), self.own_out)
        return Opened(x, self.how.product(self.how.normed(x, pending), self.query))


def pair_bytes(codebooks: Sequence[int], width: int, inner: int, dtype: torch.dtype) -> int:
    """What the table of all pairs takes; 0 where no third step would read it."""
    if len(codebooks) < 3:
        return 0
    return codebooks[0] * codebooks[1] * (width + inner) * dtype.itemsize
