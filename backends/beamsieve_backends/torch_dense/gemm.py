"""One large matrix product, in float32, without shortcuts."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from beamsieve_backends.processor import processor_name

# Putting a head into oneDNN's own order takes as long as a product with a hundred rows.
_WORTH_PACKING = 32

Product = Callable[[Tensor], Tensor]
"""A block [R, d] to float32 [R, V], which the next call may overwrite."""


def product_with(head: Tensor, block: int, library: str | None) -> Product:
    """The product of blocks of rows with ``head`` [V, d], which is made ready once.

    Args:
        head: float32, bfloat16 or float16.
        block: how many rows every block has.
        library: "blas" or "onednn" on the CPU; None takes BLAS on Intel's processors, where it is
            MKL, and oneDNN elsewhere if it can be called: on AMD's it is more than twice as fast.
    """
    if head.device.type == "cuda" and head.dtype != torch.float32 and _has_out_dtype():
        columns = head.t()
        return lambda rows: torch.mm(rows, columns, out_dtype=torch.float32)
    head = head.float()
    if head.device.type == "cpu" and _takes_onednn(library):
        operators: Any = torch.ops.mkldnn
        weight = head.contiguous()
        if block >= _WORTH_PACKING:
            weight = operators._reorder_linear_weight(weight, block)
        linear = operators._linear_pointwise
        return lambda rows: linear(rows.float().contiguous(), weight, None, "none", [], "")
    columns = head.t()
    product = head.new_empty(block, len(head))  # stays in the cache from block to block
    return lambda rows: torch.mm(rows.float(), columns, out=product)


@functools.cache
def _runs_on_mkl() -> bool:
    available: Any = torch.backends.mkl.is_available
    return "Intel" in processor_name() and bool(available())


def _takes_onednn(library: str | None) -> bool:
    if library is None:
        return not _runs_on_mkl() and has_onednn()
    return library == "onednn" and has_onednn()


def has_onednn() -> bool:
    """Whether oneDNN's own float32 product can be called; PyTorch keeps it behind its compiler."""
    available: Any = torch.backends.mkldnn.is_available
    names = ("_linear_pointwise", "_reorder_linear_weight")
    return bool(available()) and all(hasattr(torch.ops.mkldnn, name) for name in names)


def _has_out_dtype() -> bool:
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 8)


class _Float32Guard:
    """Keeps TF32 and bfloat16 out of float32 products while any thread is inside.

    The switches belong to the whole process: other threads' float32 products are exact too, and
    slower, for that time. Where nobody has allowed a shortcut, nothing is touched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._restore: Callable[[], None] | None = None

    @contextmanager
    def __call__(self, device: torch.device) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._restore = _forbid_shortcuts(device)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and self._restore is not None:
                    self._restore()
                    self._restore = None


true_float32 = _Float32Guard()


def _forbid_shortcuts(device: torch.device) -> Callable[[], None] | None:
    """Set float32 products to full precision; returns what undoes it, None if they were."""
    library: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    matmul: Any = getattr(library, "matmul", None)
    if matmul is not None and hasattr(matmul, "fp32_precision"):  # PyTorch 2.9 and later
        allowed = matmul.fp32_precision
        if allowed in ("ieee", "none"):
            return None
        matmul.fp32_precision = "ieee"
        return lambda: setattr(matmul, "fp32_precision", allowed)
    allowed = torch.get_float32_matmul_precision()
    if allowed == "highest":
        return None
    torch.set_float32_matmul_precision("highest")
    return lambda: torch.set_float32_matmul_precision(allowed)
