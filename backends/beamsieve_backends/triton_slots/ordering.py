"""Device helpers: floats that sort as integers, and the k-th largest of many.

A candidate's place in the order (higher key, then lower parent, then lower token) is one int64:
the ordered key above, the complement of ``parent * V + token`` below, so that larger is better.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
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
    return (ordered(key).to(tl.int64) << 32) | (identity.to(tl.int64) ^ LARGEST_ID)


@triton.jit
def token_of(part, i, SIZE: tl.constexpr):
    """The ``i``-th token of part ``part``, where a codebook is cut into parts of SIZE (8 or more).

    Parts of fewer than 32 tokens take pieces of every eight of their 32: in the accumulators of a
    matrix product one thread holds all of such a part, and needs no other for its largest.
    """
    if SIZE >= 32:
        return part * SIZE + i
    PARTS: tl.constexpr = 32 // SIZE
    PIECE: tl.constexpr = SIZE // 4
    return (part // PARTS) * 32 + (i // PIECE) * 8 + (part % PARTS) * PIECE + i % PIECE


@triton.jit
def narrowed(keys, low, high, reached, k, slack):
    """Cut [low, high) in three until no more than ``k + slack`` of the int32 ``keys`` of one
    program reach ``low``, as ``reached`` of them do, or it is the k-th largest.

    The sum is what a round takes, so its two counts (of fewer than 2**16 keys) share one. Returns
    ``(low, reached, above)``; the last is how many reach ``high``.
    """
    above = 0
    # Differences of int32 may need 32 bits, so they are unsigned.
    while (reached > k + slack) & ((high - low).to(tl.uint32, bitcast=True) > 1):
        part = tl.umulhi((high - low).to(tl.uint32, bitcast=True), 0x55555556)
        part = tl.maximum(part.to(tl.int32, bitcast=True), 1)
        first = low + part
        second = high - part
        both = (keys >= first).to(tl.int32) + ((keys >= second).to(tl.int32) << 16)
        both = tl.sum(both)
        at_first = both & 0xFFFF
        at_second = (both.to(tl.uint32, bitcast=True) >> 16).to(tl.int32)
        low = tl.where(at_second >= k, second, tl.where(at_first >= k, first, low))
        high = tl.where(at_second >= k, high, tl.where(at_first >= k, second, first))
        above = tl.where(at_second >= k, above, tl.where(at_first >= k, at_second, at_first))
        reached = tl.where(at_second >= k, at_second, tl.where(at_first >= k, at_first, reached))
    return low, reached, above


@triton.jit
def threshold_held(keys, k, slack):
    """A threshold that ``k`` to ``k + slack`` of the int32 ``keys`` of one program reach.

    Ties that leave no such value end it at the k-th largest key itself. With fewer than ``k``
    alive, it is below all.

    Returns ``(tau, need)``: keep what lies above tau, and the first ``need`` of what equals it. All
    that lives is kept where there is no more than ``k + slack`` of it.
    """
    alive = keys > DEAD
    reached = tl.sum(alive.to(tl.int32))
    low = tl.min(tl.where(alive, keys, 2147483647))
    high = tl.max(keys) + 1
    low = tl.where(reached < k, DEAD + 1, low)
    low, reached, above = narrowed(keys, low, high, reached, k, slack)
    return low, tl.where(reached > k + slack, k - above, reached)


@triton.jit
def threshold_in_memory(keys, n, k, slack, CHUNK: tl.constexpr):
    """As :func:`threshold_held`, for the ``n`` int32 behind the pointer ``keys``."""
    reached = 0
    low = tl.full((), 2147483647, tl.int64)
    high = tl.full((), LOWEST, tl.int64)
    for begin in range(0, n, CHUNK):
        at = begin + tl.arange(0, CHUNK)
        held = tl.load(keys + at, mask=at < n, other=LOWEST)
        reached += tl.sum((held > DEAD).to(tl.int32))
        low = tl.minimum(low, tl.min(tl.where(held > DEAD, held, 2147483647)).to(tl.int64))
        high = tl.maximum(high, tl.max(held).to(tl.int64) + 1)
    low = tl.where(reached < k, DEAD + 1, low)
    above = 0
    while (reached > k + slack) & (high - low > 1):
        middle = low + (high - low) // 2
        count = 0
        for begin in range(0, n, CHUNK):
            at = begin + tl.arange(0, CHUNK)
            held = tl.load(keys + at, mask=at < n, other=LOWEST)
            count += tl.sum((held >= middle.to(tl.int32)).to(tl.int32))
        enough = count >= k
        low = tl.where(enough, middle, low)
        reached = tl.where(enough, count, reached)
        high = tl.where(enough, high, middle)
        above = tl.where(enough, above, count)
    return low.to(tl.int32), tl.where(reached > k + slack, k - above, reached)


@triton.jit
def _average(a, b):
    """Half the sum of two int64, rounded down, without its overflow."""
    return (a >> 1) + (b >> 1) + (a & b & 1)


@triton.jit
def _quarter(low, high, reached, counts, k, fine):
    """The part of [low, high) in which the count falls below k, from the ``counts`` that reach its
    inner borders, as :func:`_counts` gives them; and the count that reaches its lower end."""
    middle = _average(low, high)
    first = tl.where(fine, _average(low, middle), middle)
    third = tl.where(fine, _average(middle, high), middle)
    at_first = tl.where(fine, counts & 0x1FFFFF, counts)
    at_middle = tl.where(fine, (counts >> 21) & 0x1FFFFF, counts)
    at_third = tl.where(fine, counts >> 42, counts)
    new_high = tl.where(
        at_third >= k, high, tl.where(at_middle >= k, third, tl.where(at_first >= k, middle, first))
    )
    new_low = tl.where(
        at_third >= k, third, tl.where(at_middle >= k, middle, tl.where(at_first >= k, first, low))
    )
    reached = tl.where(
        at_third >= k,
        at_third,
        tl.where(at_middle >= k, at_middle, tl.where(at_first >= k, at_first, reached)),
    )
    return new_low, new_high, reached


@triton.jit
def _counts(keys, low, high, fine):
    """How many reach each of the three inner borders of the quarters of [low, high), 21 bits each;
    unless ``fine``, how many reach its middle."""
    middle = _average(low, high)
    at_middle = (keys >= middle).to(tl.int64)
    at_first = (keys >= _average(low, middle)).to(tl.int64)
    at_third = (keys >= _average(middle, high)).to(tl.int64)
    all_three = at_first + (at_middle << 21) + (at_third << 42)
    return tl.sum(tl.where(fine, all_three, at_middle))


@triton.jit
def best_from(candidates, n, k, slack, CHUNK: tl.constexpr):
    """A packed key that ``k`` to ``k + slack`` of the ``n`` int64 behind the pointer reach.

    With fewer than ``k`` alive, the least that lives. Packed keys differ, so there is always one.
    """
    nothing = tl.full((), NOTHING, tl.int64) | LARGEST_ID
    at = tl.arange(0, CHUNK)
    whole = tl.load(candidates + at, mask=at < n, other=NOTHING)
    alive = whole > nothing
    reached = tl.sum(alive.to(tl.int64))
    low = tl.min(tl.where(alive, whole, 0x7FFFFFFFFFFFFFFF))
    high = tl.max(whole)
    for begin in range(CHUNK, n, CHUNK):
        part = tl.load(candidates + begin + at, mask=begin + at < n, other=NOTHING)
        alive = part > nothing
        reached += tl.sum(alive.to(tl.int64))
        low = tl.minimum(low, tl.min(tl.where(alive, part, 0x7FFFFFFFFFFFFFFF)))
        high = tl.maximum(high, tl.max(part))
    high += 1
    low = tl.where(reached < k, nothing + 1, low)
    fine = n < 1 << 21
    while (reached > k + slack) & (_average(low, high) > low):
        counts = _counts(whole, low, high, fine)
        for begin in range(CHUNK, n, CHUNK):
            part = tl.load(candidates + begin + at, mask=begin + at < n, other=NOTHING)
            counts += _counts(part, low, high, fine)
        low, high, reached = _quarter(low, high, reached, counts, k, fine)
    return low


@triton.jit
def places_held(keys, tau, need):
    """Where each key of a block [rows, columns] goes when those above ``tau``, and the first
    ``need`` equal to it, are kept in order of position.

    Returns ``(keep, place, kept)``: the flags, the places, and how many are kept.
    """
    above = (keys > tau).to(tl.int32)
    equal = (keys == tau).to(tl.int32)
    both = above + (equal << 16)
    in_row = tl.cumsum(both, 1) - both
    of_row = tl.sum(both, 1)
    running = (tl.cumsum(of_row, 0) - of_row)[:, None] + in_row
    equal_before = running >> 16
    keep = (above > 0) | ((equal > 0) & (equal_before < need))
    place = (running & 0xFFFF) + tl.minimum(equal_before, need)
    return keep, place, tl.sum(above) + tl.minimum(tl.sum(equal), need)


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
