"""The decoder's matrix products and norms: in the weights' own dtype, or in float8.

An activation is what a product reads: a tensor, or a float8 tensor with its scales. The residual
stream x [R, d] is changed in place; what is still to be added to it is handed on as ``pending``,
to be added on the way by the next norm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.errors import InputError
from beamsieve.models.wide import laws
from beamsieve.models.wide.launch import cdiv

ProductKind = Literal["own", "float8"]
PRODUCT_KINDS: tuple[ProductKind, ...] = get_args(ProductKind)
FEED_ROWS = 33 * 128
"""Rows that go through the feed-forward net together. What lies between its two products, 8192
values a row at the size measured, is then read out of the L2 cache in part; 33 tiles of rows times
the 4 tiles of 1024 columns are a tile for each of a GPU's 132 multiprocessors."""
Activation = Any
Weight = Any


class Products(ABC):
    """Products with weights [out, in], transposed as ``torch.nn.Linear`` does.

    Args:
        kernels: whether Triton's kernels may be used.
    """

    def __init__(self, *, kernels: bool) -> None:
        self.kernels = kernels

    @abstractmethod
    def weight(self, weight: Tensor) -> Weight:
        """A weight as the products read it."""

    @abstractmethod
    def normed(self, x: Tensor, pending: Tensor | None) -> Activation:
        """The norm of x + pending, which becomes x."""

    @abstractmethod
    def activation(self, x: Tensor) -> Activation:
        """x as a product reads it."""

    @abstractmethod
    def product(self, a: Activation, weight: Weight, out: Tensor | None = None) -> Tensor:
        """a [R, in] times the weight: [R, out]."""

    @abstractmethod
    def relu(self, a: Activation, weight: Weight, bias: Tensor) -> Activation:
        """The product plus bias [out], negative values zero, as a product reads it."""

    @abstractmethod
    def add(self, x: Tensor, a: Activation, weight: Weight) -> Tensor | None:
        """Add a product to x, or return it as pending."""

    def feed(
        self, x: Tensor, a: Activation, into: Weight, bias: Tensor, out_of: Weight
    ) -> Tensor | None:
        """Add the feed-forward net's answers to a to x, or return them as pending."""
        return self.add(x, self.relu(a, into, bias), out_of)

    def last_norm(self, x: Tensor, pending: Tensor | None) -> Tensor:
        """The norm of x + pending in x's own dtype."""
        if self.kernels:
            from beamsieve.models.wide import calls

            return calls.norm(x, pending)
        if pending is not None:
            x.add_(pending)
        return laws.norm(x)


class OwnProducts(Products):
    """bfloat16, float16 or float32, as the weights are; float32 accumulates."""

    def weight(self, weight: Tensor) -> Tensor:
        """As it is."""
        return weight.contiguous()

    def normed(self, x: Tensor, pending: Tensor | None) -> Tensor:
        """The norm."""
        return self.last_norm(x, pending)

    def activation(self, x: Tensor) -> Tensor:
        """As it is."""
        return x

    def product(self, a: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
        """One product of the library."""
        return torch.mm(a, weight.t(), out=out)

    def relu(self, a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """On a GPU the library adds the bias and cuts in the product's own epilogue."""
        if a.is_cuda and a.dtype != torch.float32:
            return torch._addmm_activation(bias, a, weight.t(), use_gelu=False)
        return F.relu(torch.addmm(bias, a, weight.t()))

    def add(self, x: Tensor, a: Tensor, weight: Tensor) -> None:
        """In the product's own epilogue."""
        x.addmm_(a, weight.t())

    def feed(self, x: Tensor, a: Tensor, into: Tensor, bias: Tensor, out_of: Tensor) -> None:
        """In pieces of at most FEED_ROWS, as even as can be."""
        size = cdiv(len(x), cdiv(len(x), FEED_ROWS))
        for first in range(0, len(x), size):
            rows = slice(first, first + size)
            self.add(x[rows], self.relu(a[rows], into, bias), out_of)


class Float8Products(Products):
    """float8_e4m3fn with a scale per row of the activation and per row of the weight.

    Law: dequantized operands multiplied in float32. The answers are in ``dtype``.
    """

    def __init__(self, dtype: torch.dtype, *, kernels: bool) -> None:
        super().__init__(kernels=kernels)
        self.dtype = dtype

    def weight(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """float8 [out, in] and scales [1, out]."""
        values, scales = laws.quantize(weight)
        return values.contiguous(), scales.t().contiguous()

    def normed(self, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        """The norm, row by row in float8."""
        if self.kernels:
            from beamsieve.models.wide import calls

            return calls.norm_quantize(x, pending)
        return laws.quantize(self.last_norm(x, pending))

    def activation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x row by row in float8."""
        if self.kernels:
            from beamsieve.models.wide import calls

            return calls.quantize(x)
        return laws.quantize(x)

    def product(
        self,
        a: tuple[Tensor, Tensor],
        weight: tuple[Tensor, Tensor],
        out: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """One scaled product of the library; on a CPU, its law."""
        values, scales = a
        if values.is_cuda:
            found: Tensor = torch._scaled_mm(
                values, weight[0].t(), scale_a=scales, scale_b=weight[1], out_dtype=self.dtype,
                bias=bias, use_fast_accum=True,
            )  # fmt: skip
        else:
            found = values.float() @ weight[0].float().t() * scales * weight[1]
            found = (found if bias is None else found + bias.float()).to(self.dtype)
        return found if out is None else out.copy_(found)

    def relu(
        self, a: tuple[Tensor, Tensor], weight: tuple[Tensor, Tensor], bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The product with its bias; the cut and the conversion are one pass."""
        fed = self.product(a, weight, bias=bias)
        if self.kernels:
            from beamsieve.models.wide import calls

            return calls.quantize(fed, relu=True)
        return laws.quantize(F.relu(fed))

    def add(
        self, x: Tensor, a: tuple[Tensor, Tensor], weight: tuple[Tensor, Tensor]
    ) -> Tensor | None:
        """Pending, as the library cannot add it."""
        return self.product(a, weight)


def make_products(kind: ProductKind, dtype: torch.dtype, *, kernels: bool) -> Products:
    """The products of that name.

    Raises:
        InputError: there are none.
    """
    if kind not in PRODUCT_KINDS:
        raise InputError(f"products is {kind!r}; it must be one of {', '.join(PRODUCT_KINDS)}.")
    return OwnProducts(kernels=kernels) if kind == "own" else Float8Products(dtype, kernels=kernels)
