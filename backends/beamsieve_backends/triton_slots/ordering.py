"""Device helpers: floats that sort as integers, and the k-th largest of many.

A candidate's place in the order (higher key, then lower parent, then lower token) is one int64:
the ordered key above, the complement of ``parent * V + token`` below, so that larger is better.
"""

from __future__ import annotations

import triton
import triton.language as tl

DEAD = tl.constexpr(-2139095041)
"""The ordered key of -inf; whatever may win lies above it."""
LOWEST = tl.constexpr(-2147483648)
"""Below every ordered key: the filling of blocks that are larger than their data."""
NOTHING = tl.constexpr(-2139095041 << 32)
"""At or below every packed candidate that is dead, below every one that lives."""
LARGEST_ID = tl.constexpr(0xFFFFFFFF)


@triton.jit
def ordered(x):
    """float32 to the int32 whose signed order is the float's; -0 and 0 become one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def unordered(i):
    """The float32 that :func:`ordered` made ``i`` of."""
    return (i ^ ((i >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def usable(x):
    """``x``, but -inf in place of NaN and +inf."""
    return tl.where(x < float("inf"), x, float("-inf"))


@triton.jit
def packed(key, identity):
    """The int64 that orders candidates: ``ordered(key)`` above, the complement of the id below."""
    return (ordered(key).to(tl.int64) << 32) | (LARGEST_ID - identity.to(tl.int64))


@triton.jit
def kth_held(keys, k):
    """The k-th largest of int32 ``keys`` that one program holds; :data:`LOWEST` if there are fewer.

    Two bits an iteration: three counts travel in one int64 reduction.
    """
    low = tl.full((), LOWEST, tl.int64)
    for i in range(16):
        unit = tl.full((), 1, tl.int64) << (30 - 2 * i)
        first = (keys >= (low + unit).to(tl.int32)).to(tl.int64)
        second = (keys >= (low + 2 * unit).to(tl.int32)).to(tl.int64)
        third = (keys >= (low + 3 * unit).to(tl.int32)).to(tl.int64)
        counts = tl.sum(first + (second << 21) + (third << 42))
        reached = (
            ((counts & 0x1FFFFF) >= k).to(tl.int64)
            + (((counts >> 21) & 0x1FFFFF) >= k).to(tl.int64)
            + ((counts >> 42) >= k).to(tl.int64)
        )
        low += reached * unit
    return low.to(tl.int32)


@triton.jit
def kth_in_memory(keys, n, k, CHUNK: tl.constexpr):
    """As :func:`kth_held`, for the ``n`` int32 behind the pointer ``keys``."""
    low = tl.full((), LOWEST, tl.int64)
    for i in range(16):
        unit = tl.full((), 1, tl.int64) << (30 - 2 * i)
        counts = tl.zeros((), tl.int64)
        for begin in range(0, n, CHUNK):
            at = begin + tl.arange(0, CHUNK)
            held = tl.load(keys + at, mask=at < n, other=LOWEST)
            first = (held >= (low + unit).to(tl.int32)).to(tl.int64)
            second = (held >= (low + 2 * unit).to(tl.int32)).to(tl.int64)
            third = (held >= (low + 3 * unit).to(tl.int32)).to(tl.int64)
            counts += tl.sum(first + (second << 21) + (third << 42))
        reached = (
            ((counts & 0x1FFFFF) >= k).to(tl.int64)
            + (((counts >> 21) & 0x1FFFFF) >= k).to(tl.int64)
            + ((counts >> 42) >= k).to(tl.int64)
        )
        low += reached * unit
    return low.to(tl.int32)


@triton.jit
def places_of_best(keys, tau, need, above_before, equal_before):
    """Where each key goes when those above ``tau``, and the first ``need`` equal to it, are kept.

    Returns ``(keep, place, above, equal)``: the flags, the place in order of position, and how
    many were above and equal so far, to hand on to the next chunk (``*_before``).
    """
    above = (keys > tau).to(tl.int32)
    equal = (keys == tau).to(tl.int32)
    both = above + (equal << 16)
    running = tl.cumsum(both, 0) - both
    above_here = above_before + (running & 0xFFFF)
    equal_here = equal_before + (running >> 16)
    keep = (above > 0) | ((equal > 0) & (equal_here < need))
    place = above_here + tl.minimum(equal_here, need)
    return keep, place, above_before + tl.sum(above), equal_before + tl.sum(equal)
