"""The parts that every model of the family is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

_SHORT = 8
"""Up to so many positions, products are faster on a GPU than kernels that work in tiles of 64."""


class Block(nn.Module):
    """One layer: causal attention and a feed-forward net, each behind its own ``norm``."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        norm: type[nn.LayerNorm] | type[nn.RMSNorm] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = norm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_norm = norm(width)
        self.feed_in = nn.Linear(width, 4 * width)
        self.feed_out = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x [..., n, width], each [..., heads, n, width / heads]."""
        parts = self.queries_keys_values(self.attention_norm(x))
        parts = parts.unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return parts[0], parts[1], parts[2]

    def add(self, x: Tensor, mixed: Tensor) -> Tensor:
        """x after the attention's answer [..., heads, n, width / heads] and the feed-forward."""
        x = x + self.dropout(self.attention_out(mixed.transpose(-2, -3).flatten(-2)))
        fed = self.feed_out(F.gelu(self.feed_in(self.feed_norm(x))))
        added: Tensor = x + self.dropout(fed)
        return added

    def attend(
        self, x: Tensor, seen: Tensor | None = None, last: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x [..., n, width] after this layer, with its keys and values.

        Position i attends to positions 0 … i, or to those that ``seen``, bool [n, n], says. With
        ``last`` only so many positions at the end are wanted.
        """
        queries, keys, values = self.project(x)
        if seen is not None:
            mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        else:
            wanted = slice(None if last is None else -last, None)
            x = x[..., wanted, :]
            mixed = causal_attention(queries[..., wanted, :], keys, values)
        return self.add(x, mixed), keys, values

    def forward(self, x: Tensor, seen: Tensor | None = None, last: int | None = None) -> Tensor:
        """x [..., n, width] after this layer, as ``attend`` says."""
        return self.attend(x, seen, last)[0]


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """What the last q of n positions, queries [..., q, d], make of the values [..., n, d]."""
    count, length = queries.shape[-2], keys.shape[-2]
    if count == length and not (queries.is_cuda and length <= _SHORT):
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    hidden = queries.new_full((count, length), -torch.inf).triu(1 + length - count)
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    return torch.softmax(scores + hidden, -1) @ values


_Layer = TypeVar("_Layer", bound=nn.Module)


class Layers(nn.ModuleList, Generic[_Layer]):
    """A list of modules that says which kind they are."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[_Layer]: ...
        def __getitem__(self, place: int) -> _Layer: ...  # type: ignore[override]


def blocks(count: int, width: int, heads: int, dropout: float) -> Layers[Block]:
    """``count`` layers of one size."""
    return Layers[Block](Block(width, heads, dropout) for _ in range(count))


def draw_weights(module: nn.Module) -> None:
    """Draw all weights anew: N(0, 0.02), and N(0, 1/width) for embeddings.

    Embeddings are multiplied by the square root of their width where they are read, so their
    values enter the network with variance 1.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5)


def at_places(x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """x [B, T, …] at int64 rows and places [N]: [N, …].

    As ``x[rows, places]``, whose gradient sorts the places and takes those of one place in turn.
    """
    return x.flatten(0, 1).index_select(0, rows * x.shape[1] + places)


def read_levels(tables: Iterable[nn.Embedding], codes: Tensor) -> Tensor:
    """Embeddings [..., n, d] of the first n levels' codes int64 [..., n], each of its own table.

    A code of -1 (a level that a shorter semantic ID does not have) reads its table's last row.
    All tables are read as one: the gradient of a look-up costs a sort of its codes, and so there
    is one of them.
    """
    tables = [*tables][: codes.shape[-1]]
    starts, last = _borders(tuple(table.num_embeddings for table in tables), codes.device)
    rows = torch.where(codes < 0, last, codes + starts)
    return F.embedding(rows, torch.cat([table.weight for table in tables]))


@lru_cache(64)
def _borders(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """First and last row of each of some tables, one behind the other; int64, on the device."""
    ends = torch.tensor(sizes).cumsum(0)
    return (ends - torch.tensor(sizes)).to(device), (ends - 1).to(device)
