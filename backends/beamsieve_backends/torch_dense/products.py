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

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from beamsieve.interface import StepInputs
from beamsieve_backends.torch_dense.sums import Mass, shift_of
from beamsieve_backends.torch_dense.tables import DeviceTable
from beamsieve_backends.torch_dense.tiles import Tiles

_SMALLEST_BLOCK, _LARGEST_BLOCK = 16, 256
_CHUNK_SLOTS = 1 << 15

Multiply = Callable[[Tensor, Tensor], Tensor]
"""[R, d] and [V, d] to float32 [R, V]."""

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
    multiply: Multiply,
    whole: bool,
) -> tuple[Tensor, Mass | None]:
    """Every beam against the whole codebook, or the caller's logits; the valid columns picked.

    Returns:
        float32 [n, T], and, if ``whole``, each beam's mass over the whole codebook.
    """
    rows, head, bias = _rows_of(inputs)
    block = block_rows(places)
    vocabulary = table.vocabulary
    picked = torch.empty(tiles.tokens.shape, dtype=torch.float32, device=rows.device)
    masses = []
    begin = 0
    for at, end in enumerate(tiles.bounds):
        logits = rows[at * block : (at + 1) * block]
        if whole or inputs.logits is None:
            logits = _padded(logits, block)
        if inputs.logits is None:
            if begin == end and not whole:
                continue
            logits = multiply(logits, head)
            if bias is not None:
                logits = logits.add_(bias)
        if whole:
            masses.append(_mass(logits))
        place = (tiles.beam[begin:end] - at * block).mul_(vocabulary)[:, None]
        place = (place + tiles.tokens[begin:end]).view(-1)
        picked[begin:end] = logits.reshape(-1).index_select(0, place).view(-1, table.tile)
        begin = end
    if not whole:
        return picked, None
    return picked, Mass(*(torch.cat(parts)[: len(rows)] for parts in zip(*masses, strict=True)))


def selective_logits(inputs: StepInputs, table: DeviceTable, tiles: Tiles) -> Tensor:
    """Each candidate's head row against its beam's hidden state: float32 [n, T]."""
    hidden, head, bias = _rows_of(inputs)
    if not len(tiles):
        return torch.empty(tiles.tokens.shape, dtype=torch.float32, device=hidden.device)
    if hidden.device.type == "cpu":
        logits = _sampled(hidden.float(), head.float(), tiles)
    else:
        logits = _gathered(hidden, head, tiles)
    if bias is not None:
        logits = logits + bias.index_select(0, tiles.tokens.view(-1).to(torch.int32)).view_as(
            logits
        )
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
    largest = shift_of(usable.amax(-1))
    return Mass(largest, (usable - largest[:, None]).exp_().sum(-1).log_())


def _sampled(hidden: Tensor, head: Tensor, tiles: Tiles) -> Tensor:
    slots = tiles.tokens.numel()
    dtype = torch.int32 if slots < 2**31 else torch.int64
    # A pattern may not name more cells than the product has; whole tiles of a small codebook do,
    # so rows that nothing asks for make it larger.
    hidden = _padded(hidden, max(len(hidden), -(-slots // len(head))))
    rows = torch.full((len(hidden) + 1,), slots, dtype=dtype)
    rows[0] = 0
    rows[1 : len(tiles.ends) + 1] = tiles.ends * tiles.tokens.shape[1]
    pattern = torch.sparse_csr_tensor(
        rows,
        tiles.tokens.view(-1).to(dtype),
        torch.zeros(slots),
        size=(len(hidden), len(head)),
        check_invariants=False,
    )
    sampled_addmm: Any = torch.sparse.sampled_addmm
    values: Tensor = sampled_addmm(pattern, hidden, head.t(), beta=0.0).values()
    return values.view(tiles.tokens.shape)


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


def best_multiply(device: torch.device, dtype: torch.dtype, gemm: str | None) -> Multiply:
    """The matrix product to use for float32, bfloat16 or float16 inputs on this device."""
    if device.type == "cuda" and dtype != torch.float32 and _has_out_dtype():
        return lambda rows, head: torch.mm(rows, head.t(), out_dtype=torch.float32)
    if device.type == "cpu" and gemm != "blas" and has_onednn():
        linear: Any = torch.ops.mkldnn._linear_pointwise
        return lambda rows, head: linear(rows.float(), head.float(), None, "none", [], "")
    return lambda rows, head: rows.float() @ head.float().t()


def has_onednn() -> bool:
    """Whether oneDNN's float32 product, some 2 × as fast as MKL's on AMD, is there to be called."""
    available: Any = torch.backends.mkldnn.is_available
    return bool(available()) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


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
