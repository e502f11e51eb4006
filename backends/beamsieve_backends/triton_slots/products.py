"""Device helpers: the logits of sixteen slots, by one warp.

What bounds scattered head rows is the issue of instructions, not their bytes. So 16-bit numbers are
multiplied by the matrix units, sixteen head rows by eight hidden states at once, though most of
the products are of no use: a unit of 16 slots has one hidden state, eight units of two have eight.
Every element is summed in the same order, wherever it lies, so a slot's logit does not depend on
what is scored beside it. In float32 eight lanes or more share a row, and add their sums up once.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.tuning import FURTHER

UNIT = tl.constexpr(FURTHER)
"""Slots that a program scores at once: one further unit, or several beams' own."""
COLUMNS = tl.constexpr(8)
"""Hidden states that their head rows are multiplied by at once."""


@triton.jit
def logits_by_sums(
    hidden, head, state, token, real, D,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """float32 [UNIT]: the head rows of ``token`` [UNIT], where ``real``, times the hidden states
    numbered ``state`` (int64, [UNIT] or [1])."""
    at_hidden, at_head = state * D, token.to(tl.int64) * D
    k = tl.arange(0, PART)
    total = tl.zeros((UNIT, PART), tl.float32)
    for first in range(0, D, BLOCK_K):
        for part in tl.static_range(BLOCK_K // PART):
            at = first + part * PART + k
            there = real[:, None]
            if EVEN == 0:
                there = there & (at < D)[None, :]
            h = tl.load(hidden + at_hidden[:, None] + at[None, :], mask=there, other=0.0)
            w = tl.load(head + at_head[:, None] + at[None, :], mask=there, other=0.0)
            total += h.to(tl.float32) * w.to(tl.float32)
    return tl.sum(total, 1)


@triton.jit
def logits_by_matrix(
    hidden, head, state, there, token, real, D,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, PART: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """float32 [n, UNIT]: each of the hidden states ``state`` (int64 [n], 8 or more, where
    ``there``) times each head row of ``token`` [UNIT], where ``real``.

    UPCAST is for the interpreter, as in ``project.statistics``.
    """
    at_hidden, at_head = state * D, token.to(tl.int64) * D
    k = tl.arange(0, PART)
    total = tl.zeros((UNIT, state.shape[0]), tl.float32)
    for first in range(0, D, BLOCK_K):
        for part in tl.static_range(BLOCK_K // PART):
            at = first + part * PART + k
            h_there, w_there = there[None, :], real[:, None]
            if EVEN == 0:
                h_there = h_there & (at < D)[:, None]
                w_there = w_there & (at < D)[None, :]
            h = tl.load(hidden + at_hidden[None, :] + at[:, None], mask=h_there, other=0.0)
            w = tl.load(head + at_head[:, None] + at[None, :], mask=w_there, other=0.0)
            if UPCAST:
                both = w.to(tl.float32)[:, :, None] * h.to(tl.float32)[None, :, :]
                total += tl.sum(both, 1)
            else:
                total = tl.dot(w, h, total)
    return tl.trans(total)


@triton.jit
def share_of(counted):
    """float32 [n], [n]: the largest of each row of logits [n, slots], and the sum of the powers of
    their differences from it.

    Powers are added as integers, of which the order does not matter: a unit's share is the same
    however its slots lie in the threads. 2**-26 is lost of each, as of the sum of 16 in float32.
    """
    peak = tl.max(counted, 1)
    reference = tl.where(peak == float("-inf"), 0.0, peak)
    power = tl.exp(counted - reference[:, None]) * 67108864.0
    mass = tl.sum((power + 0.5).to(tl.int32), 1)
    return peak, mass.to(tl.float32) * 1.4901161193847656e-08
