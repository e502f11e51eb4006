"""The logits of a step of one beam over a table of one row, for the row's tokens alone.

    for b in requests:
        for p, v in enumerate(tokens of the row): logits[b, p] = hidden[b] . head[v] (+ bias[v])

The row is the same for every request, so its tokens are known without a search, and they are spread
over the whole GPU: a program takes sixteen of them, for some of the requests. A product is summed
in the same order alone and among others, so a request's numbers do not depend on its batch.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import token_at
from beamsieve_backends.triton_slots.ordering import usable
from beamsieve_backends.triton_slots.products import UNIT, logits_by_matrix


@triton.jit
def has_token(bitmap, place, inside, has_holes):
    """Whether the row has a token at each place (``inside``): of a dense table whose row has
    ``has_holes``, the bitmap (int32 words) says so."""
    there = inside
    if has_holes != 0:
        word = tl.load(bitmap + (place >> 5), mask=inside, other=0)
        there = inside & (((word >> (place & 31)) & 1) != 0)
    return there


@triton.jit
def as_candidates(logit, place, there, live, done):
    """Logits as they may win: -inf where there is no candidate. A beam that is ``done`` is the one
    candidate of its request, at the first place, with a log-probability of 0."""
    logit = usable(tl.where(there & live, logit, float("-inf")))
    return tl.where(done & (place == 0), 0.0, logit)


@triton.jit
def _logits_by_fma(
    hidden, head, state, token, D,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """float32 [requests, UNIT]: hidden states ``state`` (int64 [requests]) times the head rows of
    ``token`` (int64 [UNIT]).

    Multiplied and added one part of K after the other, in so many words: however many requests
    there are, a compiler has no choice of its own. PART / 4 or 8 lanes share a row, which adds
    fewer lanes up than if a warp did.
    """
    k = tl.arange(0, PART)
    requests: tl.constexpr = state.shape[0]
    total = tl.zeros((requests, UNIT, PART), tl.float32)
    same = tl.zeros((1, UNIT, 1), tl.int64)
    for first in range(0, D, BLOCK_K):
        for part in tl.static_range(BLOCK_K // PART):
            at = first + part * PART + k
            h_at = hidden + ((state * D)[:, None, None] + same) + at[None, None, :]
            w_at = head + (token * D)[:, None] + at[None, :]
            if EVEN:
                h, w = tl.load(h_at), tl.load(w_at)
            else:
                there = at < D
                h = tl.load(h_at, mask=there[None, None, :], other=0.0)
                w = tl.load(w_at, mask=there[None, :], other=0.0)
            w = tl.broadcast_to(w.to(tl.float32)[None, :, :], (requests, UNIT, PART))
            total = tl.fma(h.to(tl.float32), w, total)
    return tl.sum(total, 2)


@triton.jit(do_not_specialize=["token_bits", "has_bias", "has_holes", "listed", "n", "batch"])
def multiply_row(
    hidden, head, bias, rows, finished, tokens, token_bits, bitmap, logits,
    has_bias, has_holes, listed, n, batch, D,
    PLACES: tl.constexpr, TOGETHER: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr,
    PART: tl.constexpr, MATRIX: tl.constexpr, UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (i, j) takes the i-th UNIT places of the row for the j-th TOGETHER requests.

    Args:
        hidden: [batch, D]; head: [V, D]; bias: float32 [V], if ``has_bias``.
        rows, finished: int64 and int8 [batch]; of the requests' one beam.
        tokens: of a table that is ``listed``, packed; there a place is an entry, else a token.
        bitmap: int32 words; the row's tokens, if it ``has_holes`` among its ``n`` places.
        logits: out, float32 [batch, PLACES], as :func:`as_candidates` has them; -inf from n on.
        MATRIX: multiplied by the matrix units, which take 16-bit numbers, TOGETHER = COLUMNS.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    place = tl.program_id(0) * UNIT + tl.arange(0, UNIT)
    b = tl.program_id(1) * TOGETHER + tl.arange(0, TOGETHER)
    asked = b < batch
    state = tl.minimum(b, batch - 1).to(tl.int64)
    row = tl.load(rows + state)
    done = (tl.load(finished + state) != 0) & (row >= 0)
    live = (row >= 0) & (done == 0)
    inside = place < n
    there = has_token(bitmap, place, inside, has_holes)
    token = tl.minimum(place, n - 1)
    if listed != 0:
        token = token_at(tokens, token_bits, token.to(tl.int64), token >= 0)
    if MATRIX:
        logit = logits_by_matrix(
            hidden, head, state, asked, token, inside, D, EVEN, BLOCK_K, PART, UPCAST
        )
    else:
        logit = _logits_by_fma(hidden, head, state, token.to(tl.int64), D, EVEN, BLOCK_K, PART)
    if has_bias != 0:
        logit += tl.load(bias + token)[None, :]
    logit = as_candidates(
        logit, place[None, :], there[None, :], live[:, None], done[:, None]
    )  # fmt: skip
    tl.store(logits + state[:, None] * PLACES + place[None, :], logit, mask=asked[:, None])
