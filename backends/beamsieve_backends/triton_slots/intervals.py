"""Device helpers: a request's keys, dealt to its programs by value.

Each program takes the keys between two borders, and needs no others to rank them: what is compared
falls with the square of the programs. A border belongs to two of them, which find it each for
itself. So it follows from the keys and from the count that is wanted, and equal keys never lie on
both of its sides.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import ordered, unordered

ABOVE_ALL = tl.constexpr(2147483647)
"""Above every ordered key."""
NEAR = tl.constexpr(32)
"""As near to the count that is wanted, a border stays: a round costs more than a few keys."""


@triton.jit
def _guess(low, high, at_low, at_high, wanted, halve):
    """A value inside of [low, high) (int32 keys that ``at_low`` and ``at_high`` others reach) that
    about ``wanted`` may reach: on the line between the two as floats, or ``halve`` way."""
    worst, best = unordered(low), unordered(high - 1)
    part = (wanted - at_high).to(tl.float32) / tl.maximum(at_low - at_high, 1).to(tl.float32)
    # What is rounded is said, so that both programs of a border guess the same.
    straight = ordered(tl.fma(worst - best, part, best))
    width = (high - low).to(tl.uint32, bitcast=True)
    middle = low + (width >> 1).to(tl.int32, bitcast=True)
    # Where floats overflow, the line leads anywhere.
    return tl.maximum(tl.minimum(tl.where(halve, middle, straight), high - 1), low + 1)


@triton.jit
def _is_open(low, high, at, wanted, slack):
    """Whether a border that ``at`` keys reach is to move on, and can."""
    width = (high - low).to(tl.uint32, bitcast=True)
    return (tl.abs(at - wanted) > slack) & (width > 1)


@triton.jit
def _cut(low, high, at_low, at_high, at, border, found, wanted, is_open):
    """What is left of [low, high), and how many keys reach the border, once ``found`` of them were
    counted at it."""
    lower, upper = is_open & (found > wanted), is_open & (found <= wanted)
    low, at_low = tl.where(lower, border, low), tl.where(lower, found, at_low)
    high, at_high = tl.where(upper, border, high), tl.where(upper, found, at_high)
    return low, high, at_low, at_high, tl.where(is_open, found, at)


@triton.jit
def interval_of(keys, tau, kept, number, parts, most):
    """The ``number``-th of ``parts`` intervals of those int32 ``keys`` (fewer than 2**15) that
    reach ``tau``, which are ``kept``: about as many in each, no more than ``most`` if it can be.

    Returns ``(lower, upper)``: its keys reach ``lower``, but not ``upper``. Every value from
    ``tau`` on lies in one interval; the first has the largest. Where many keys are equal, intervals
    differ in size.
    """
    each = kept // parts
    slack = tl.minimum(tl.maximum((most - each) // 2, 4), NEAR)
    # Less than half of what lies between two borders, so that they cannot change places.
    slack = tl.minimum(slack, tl.maximum(each - 1, 0) // 2)
    top = tl.max(keys) + 1
    for_upper, for_lower = number * kept // parts, (number + 1) * kept // parts
    upper, above = tl.where(for_upper <= slack, top, tau), tl.where(for_upper <= slack, 0, kept)
    lower, inside = tl.where(for_lower <= slack, top, tau), tl.where(for_lower <= slack, 0, kept)
    # Of either border: where it lies, and how many keys reach those ends.
    low1, high1, at_low1, at_high1 = tau, top, kept, 0
    low2, high2, at_low2, at_high2 = tau, top, kept, 0
    open1 = _is_open(low1, high1, above, for_upper, slack)
    open2 = _is_open(low2, high2, inside, for_lower, slack)
    turn = 0
    while open1 | open2:
        # Lines soon meet what is spread evenly; halves come to an end whatever the keys are.
        halve = turn > 2
        turn += 1
        guess1 = _guess(low1, high1, at_low1, at_high1, for_upper, halve)
        guess2 = _guess(low2, high2, at_low2, at_high2, for_lower, halve)
        upper, lower = tl.where(open1, guess1, upper), tl.where(open2, guess2, lower)
        # Both counts share one sum, which is what a round takes.
        both = tl.sum((keys >= upper).to(tl.int32) + ((keys >= lower).to(tl.int32) << 16))
        low1, high1, at_low1, at_high1, above = _cut(
            low1, high1, at_low1, at_high1, above, upper, both & 0xFFFF, for_upper, open1
        )
        low2, high2, at_low2, at_high2, inside = _cut(
            low2, high2, at_low2, at_high2, inside, lower, both >> 16, for_lower, open2
        )
        open1 = _is_open(low1, high1, above, for_upper, slack)
        open2 = _is_open(low2, high2, inside, for_lower, slack)
    # Where equal keys leave none near the count, they lie above both programs' border.
    upper = tl.where(tl.abs(above - for_upper) > slack, low1, upper)
    lower = tl.where(tl.abs(inside - for_lower) > slack, low2, lower)
    return tl.where(number == parts - 1, tau, lower), tl.where(number == 0, ABOVE_ALL, upper)
