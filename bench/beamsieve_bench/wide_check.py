"""The gate before a figure of the wide-beam decoder: kernels against their laws, on the device.

Inputs are fresh random numbers at the measured size; laws run in float32 on the same values. Each
difference is ||kernel - law|| / ||law||, which must stay within what rounding to bfloat16 makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from beamsieve.models.wide import calls, laws
from beamsieve.models.wide.context import CONTEXT_KINDS, context_attention
from beamsieve_bench.wide_free import FreeBeams, best_continuations, free_step
from beamsieve_bench.wide_workload import WideWorkload

TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 1e-3}


class GateError(AssertionError):
    """A kernel's answer is not right, so there is nothing to measure."""


@contextmanager
def poisoned() -> Iterator[None]:
    """New memory holds NaN, so that a place which no kernel wrote is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def check_all(workload: WideWorkload, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Every kernel; the differences found.

    Raises:
        GateError: one is too large, or nothing was compared.
    """
    with torch.no_grad(), poisoned():
        return {
            **check_own(workload, device, dtype),
            **check_context(workload, device, dtype),
            **check_rest(workload, device, dtype),
        }


def random_ids(workload: WideWorkload, t: int, device: str) -> Tensor:
    """Block tables int32 [R, L] as a decode with dynamic widths leaves them at token ``t``."""
    draw = torch.Generator(device="cpu").manual_seed(t)
    batch, length = workload.batch, len(workload.codebooks)
    beams = (1, *workload.dynamic[:-1])
    ids, first = torch.arange(batch)[:, None].repeat(1, length), batch
    for step in range(1, t):
        parents = torch.randint(0, beams[step - 1], (batch, beams[step]), generator=draw)
        flat = (parents + torch.arange(batch)[:, None] * beams[step - 1]).reshape(-1)
        ids = ids[flat].clone()
        ids[:, step] = torch.arange(first, first + len(ids))
        first += len(ids)
    return ids.int().to(device)


def check_own(workload: WideWorkload, device: str, dtype: torch.dtype) -> dict[str, float]:
    """All kernels of self-attention, at every token."""
    heads, width = workload.config.heads, workload.config.head_width
    length = len(workload.codebooks)
    blocks = workload.rows(workload.dynamic)
    products = torch.randn(blocks, 3, heads, width, device=device).to(dtype)
    found: dict[str, float] = {}
    for t in range(1, length + 1):
        ids = random_ids(workload, t, device)
        rows = len(ids)
        product = products[-rows:]
        some = torch.randperm(rows, device=device)[:4096]
        expected = laws.in_place(products.float(), ids[some], t)
        _note(found, f"in place, t={t}", calls.in_place(products, ids, t)[some], expected)
        order = torch.randperm(rows, device=device).int()
        _note(
            found, f"ordered, t={t}", calls.in_place(products, ids, t, order=order)[some], expected
        )
        pool = products[:, 1:].clone()
        pool[ids[:, t - 1].long()] = torch.nan  # what must be written first
        pool_law = pool.clone()
        mixed = calls.paged(product, pool[:, 0], pool[:, 1], ids, t)
        laws.paged(product, pool_law[:, 0], pool_law[:, 1], ids, t)
        if not torch.equal(pool, pool_law):
            raise GateError(f"paged, t={t}: the written blocks differ")
        chosen = ids[some].long()
        wide = pool.float()
        before = wide[chosen[:, :t]]
        expected = laws.attend(product[some, 0].float(), before[:, :, 0], before[:, :, 1])
        _note(found, f"paged, t={t}", mixed[some], expected)
        caches = torch.randn(2, length, rows, heads, width, device=device).to(dtype)
        keys, values = caches[0], caches[1]
        mixed = calls.fused(product, keys, values, t)
        if not torch.equal(keys[t - 1], product[:, 1]) or not torch.equal(
            values[t - 1], product[:, 2]
        ):
            raise GateError(f"fused, t={t}: the written keys or values differ")
        expected = laws.coalesced(
            product[some, 0].float(), keys[:, some].float(), values[:, some].float(), t
        )
        _note(found, f"fused, t={t}", mixed[some], expected)
        mixed = calls.coalesced(product[:, 0].contiguous(), keys, values, t)
        _note(found, f"coalesced, t={t}", mixed[some], expected)
    return _within(found, dtype)


def check_context(workload: WideWorkload, device: str, dtype: torch.dtype) -> dict[str, float]:
    """All ways of cross-attention, with and without lengths, at the width of the last step."""
    heads, width = workload.config.heads, workload.config.head_width
    batch, beams = workload.batch, workload.dynamic[-2]
    found: dict[str, float] = {}
    queries = torch.randn(batch, beams, heads, width, device=device).to(dtype)
    kept = torch.randn(batch, workload.columns, 2, heads, width, device=device).to(dtype)
    keys, values = kept[:, :, 0], kept[:, :, 1]
    some = torch.randint(1, workload.columns + 1, (batch,), device=device, dtype=torch.int32)
    for lengths in (None, some):
        expected = laws.beam_as_query(queries.float(), keys.float(), values.float(), lengths)
        for kind in CONTEXT_KINDS:
            try:
                mixed = context_attention(kind)(queries, keys, values, lengths)
            except RuntimeError:
                continue  # it does not serve these shapes, and so cannot be chosen
            name = f"{kind}{'' if lengths is None else ' with lengths'}"
            _note(found, name, mixed, expected)
    return _within(found, dtype)


def check_rest(workload: WideWorkload, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Norms, float8 rows, and the block tables' way through a reordering."""
    size, batch = workload.config.width, workload.batch
    found: dict[str, float] = {}
    x = torch.randn(4096, size, device=device).to(dtype)
    added = torch.randn_like(x)
    _note(found, "norm", calls.norm(x), laws.norm(x.float()))
    total = x.clone()
    _note(found, "norm of a sum", calls.norm(total, added), laws.norm(x.float() + added.float()))
    _note(found, "the sum", total, x.float() + added.float())
    values, scales = calls.norm_quantize(x)
    error = _difference(values.float() * scales, laws.norm(x.float()))
    if not error < 0.05:
        raise GateError(f"float8 rows: {error}")
    beams, vocabulary = workload.dynamic[-2], workload.codebooks[0]
    codes = torch.randn(vocabulary, size, device=device).to(dtype)
    old = random_ids(workload, 3, device)
    tokens = torch.randint(0, vocabulary, (batch, beams, 3), device=device, dtype=torch.int32)
    parents = torch.randint(0, len(old) // batch, (batch, beams), device=device)
    tokens[-1, -1], parents[-1, -1] = -1, -1
    bases = torch.arange(4, device=device, dtype=torch.int32) * vocabulary
    ids, first_ids, inputs = calls.advance(tokens, parents, old, bases, 1000, codes)
    ids_law, first_law = laws.advance(tokens, parents, old, bases, 1000)
    if not torch.equal(ids, ids_law) or not torch.equal(first_ids, first_law):
        raise GateError("the block tables behind a reordering differ")
    if not torch.equal(inputs, codes[tokens[..., -1].clamp(min=0).long()].view(-1, size)):
        raise GateError("the new tokens' embeddings differ")
    hidden = torch.randn(batch * (1 + vocabulary), size, device=device).to(dtype)
    rows = torch.randn(1 + vocabulary, size, device=device).to(dtype)
    asked = torch.randn(1 + vocabulary, 2 * size, device=device).to(dtype)
    pairs = zip(calls.repeated(rows, asked, batch), laws.repeated(rows, asked, batch), strict=True)
    if not all(torch.equal(made, wanted) for made, wanted in pairs):
        raise GateError("the repeated rows differ")
    second, rows = calls.second(tokens[..., :1], hidden, 4)
    second_law, rows_law = laws.second(tokens[..., :1], hidden, 4)
    if not torch.equal(second[:, :2], second_law[:, :2]) or not torch.equal(rows, rows_law):
        raise GateError("the rows behind the first token differ")
    logits = torch.randn(batch, beams, vocabulary, device=device).to(dtype)
    scores = torch.randn(batch, beams, device=device)
    width = min(beams, vocabulary)
    best, places = best_continuations(logits, scores, width)
    every = (torch.log_softmax(logits.float(), -1) + scores[..., None]).flatten(1)
    _note(found, "the best without a catalog", best, every.topk(width).values)
    _note(found, "their places", every.gather(1, places), best)
    states = torch.randn(batch, beams, size, device=device).to(dtype)
    _check_step(tokens, states, codes, scores, width)
    return _within(found, dtype)


def _check_step(tokens: Tensor, hidden: Tensor, head: Tensor, scores: Tensor, width: int) -> None:
    """The beams of a step without a catalog are those behind the best continuations.

    Raises:
        GateError: they are not.
    """
    before = FreeBeams(tokens, scores, torch.zeros_like(scores, dtype=torch.int64))
    after = free_step(before, hidden, head, width)
    best, places = best_continuations(hidden @ head.t(), scores, width)
    parents = places // len(head)
    longer = tokens.gather(1, parents[..., None].expand(-1, -1, tokens.shape[2]))
    longer = torch.cat([longer, (places % len(head)).int()[..., None]], -1)
    pairs = (after.scores, best), (after.parents, parents), (after.tokens, longer)
    if not all(torch.equal(found, expected) for found, expected in pairs):
        raise GateError("the beams of a step without a catalog differ")


def _difference(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).norm() / expected.norm())


def _note(found: dict[str, float], name: str, mixed: Tensor, expected: Tensor) -> None:
    found[name] = _difference(mixed.reshape(expected.shape), expected)


def _within(found: dict[str, float], dtype: torch.dtype) -> dict[str, float]:
    if not found:
        raise GateError("nothing was checked")
    for name, error in found.items():
        if not error <= TOLERANCE[dtype]:
            raise GateError(f"{name}: differs from its law by {error:.2e}")
    return found
