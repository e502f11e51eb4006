"""A Wide model's weights as a search reads them: one dtype, gains folded in, inputs tabulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from beamsieve.errors import InputError
from beamsieve.models.wide.config import WideConfig
from beamsieve.models.wide.opened import Opened, Opening, pair_bytes
from beamsieve.models.wide.products import ProductKind, Products, Weight, make_products

if TYPE_CHECKING:
    from beamsieve.models.wide.model import Wide

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class LayerWeights:
    """One layer's weights, as ``products`` reads them; W = heads * head_width.

    Attributes:
        own_in: [3 * W, d], for queries, keys and values.
        own_out: [d, W].
        query: [W, d], of the cross-attention.
        context: [2 * W, d], for the context's keys and values; a tensor.
        context_out: [d, W].
        feed_in: [feed, d].
        feed_bias: [feed]; a tensor.
        feed_out: [d, feed].
    """

    own_in: Weight
    own_out: Weight
    query: Weight
    context: Tensor
    context_out: Weight
    feed_in: Weight
    feed_bias: Tensor
    feed_out: Weight


@dataclass(frozen=True)
class WideWeights:
    """A whole decoder's weights.

    Attributes:
        config: the sizes.
        codebooks: V_l per level.
        products: how they are multiplied.
        layers: of the decoder.
        start: [1, d]; the input before the first token.
        codes: per level but the last [V_l, d]; the input behind each token.
        heads: per level [V_l, d].
        first_table: [1 + sum of V_l, 3 * W]; the first layer's product behind ``start`` and behind
            each token, since it depends on nothing else.
        bases: int32 [L]; where each level's part of it begins.
        opened: 1 + V_1 rows, behind ``start`` and behind each token of the first level.
        pairs: V_1 * V_2 rows, behind each two tokens of the first two levels; None where they were
            not to be made.
    """

    config: WideConfig
    codebooks: tuple[int, ...]
    products: Products
    layers: tuple[LayerWeights, ...]
    start: Tensor
    codes: tuple[Tensor, ...]
    heads: tuple[Tensor, ...]
    first_table: Tensor
    bases: Tensor
    opened: Opened
    pairs: Opened | None

    @property
    def dtype(self) -> torch.dtype:
        """Of the residual stream."""
        return self.start.dtype

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.start.device


@torch.no_grad()
def weights_of(
    model: Wide,
    dtype: torch.dtype,
    *,
    products: ProductKind = "own",
    kernels: bool = False,
    table_bytes: int = 0,
) -> WideWeights:
    """The weights of a model, on its device.

    Each norm's gain is folded into the product behind it.

    Args:
        model: in evaluation mode.
        dtype: bfloat16, float16 or float32.
        products: "own" for products in that dtype, "float8" for float8 with scales per row.
        kernels: whether Triton's kernels will read them.
        table_bytes: what the table of all pairs of first tokens may take; it is left out where it
            would take more. It pays for itself in the second search or so.

    Raises:
        InputError: another dtype, or float8 on a GPU that has none.
    """
    _check(model, dtype, products, kernels=kernels)
    how = make_products(products, dtype, kernels=kernels)

    def after(gain: Tensor, weight: Tensor) -> Tensor:
        return (weight * gain).to(dtype)

    layers = [
        LayerWeights(
            how.weight(after(layer.own_norm.weight, layer.own_in.weight)),
            how.weight(layer.own_out.weight.to(dtype)),
            how.weight(after(layer.context_norm.weight, layer.query.weight)),
            layer.context.weight.to(dtype).contiguous(),
            how.weight(layer.context_out.weight.to(dtype)),
            how.weight(after(layer.feed_norm.weight, layer.feed_in.weight)),
            layer.feed_in.bias.to(dtype).contiguous(),
            how.weight(layer.feed_out.weight.to(dtype)),
        )
        for layer in model.layers
    ]
    scale = model.config.width**0.5
    start = (model.start * scale).to(dtype)[None]
    codes = tuple((code.weight * scale).to(dtype).contiguous() for code in model.codes)
    inputs = torch.cat([start, *codes])
    first = how.product(how.normed(inputs.clone(), None), layers[0].own_in)
    config, books = model.config, model.codebooks
    opening = Opening(
        inputs, first.view(len(first), 3, config.heads, config.head_width), layers[0].own_out,
        layers[0].query, how,
    )  # fmt: skip
    taken = pair_bytes(books, config.width, config.inner, dtype)
    return WideWeights(
        config,
        books,
        how,
        tuple(layers),
        start,
        codes,
        tuple(after(model.norm.weight, head.weight).contiguous() for head in model.heads),
        first,
        torch.tensor(_bases(model.codebooks), dtype=torch.int32, device=start.device),
        opening.singles(books[0]),
        opening.pairs(*books[:2]) if 0 < taken <= table_bytes else None,
    )


def _check(model: Wide, dtype: torch.dtype, products: ProductKind, *, kernels: bool) -> None:
    if dtype not in DTYPES:
        raise InputError(
            f"dtype is {dtype!r}; a Wide model serves torch.bfloat16, torch.float16 and "
            f"torch.float32."
        )
    if kernels and dtype == torch.float32:
        raise InputError(
            "The attention kernels serve bfloat16 and float16, not float32; use attention='plain'."
        )
    device = model.start.device
    if products == "float8":
        if dtype != torch.bfloat16:
            raise InputError(
                f"float8 products answer in bfloat16, not in {dtype}; give dtype=torch.bfloat16."
            )
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
            raise InputError(
                "float8 products need a GPU of compute capability 8.9 or later; use products='own'."
            )


def _bases(codebooks: Sequence[int]) -> list[int]:
    """Row 0 is the start's; then each level's tokens. Level l's tokens are inputs of step l + 1."""
    bases = [0, 1]
    for size in codebooks[:-2]:
        bases.append(bases[-1] + size)
    return bases[: len(codebooks)]
