"""The candidates of each beam, their logits, and what these come to: loops over beams.

A beam's candidates stand side by side in one array, from ``start[beam]`` on. Every function works
on the beams from ``begin`` up to ``end`` and writes nothing of the others, so that threads may
share the beams in any way; and what it writes of a beam follows from that beam alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve_backends.torch_dense.compiled.toolchain import compiled
from beamsieve_backends.torch_dense.compiled.vectors import DOTS, LANES, dots, float_of

_UNUSABLE = 0x7F800000  # the exponent of NaN and of both infinities
_MINUS_INFINITY = np.int32(-0x800000)
_ALL_BUT_SIGN = 0x7FFFFFFF
_ZERO, _NONE = np.float32(0), np.float32(-np.inf)

# exp(x) = 2**n * exp(r), with r within half of ln 2 of zero. The parts of ln 2 and the polynomial
# (degree 6, relative error 2e-8 before rounding) are those of Cephes' expf (S. Moshier, 1989).
_LOWEST_POWER = np.float32(-87.0)
_LOG2_E, _HALF = np.float32(1.44269504), np.float32(0.5)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E7, _E6, _E5 = (
    np.float32(1.9875691500e-4),
    np.float32(1.3981999507e-3),
    np.float32(8.3334519073e-3),
)
_E4, _E3, _E2 = (
    np.float32(4.1665795894e-2),
    np.float32(1.6666665459e-1),
    np.float32(5.0000001201e-1),
)
_ONE = np.float32(1)


@compiled()
def locate(
    starts: Any,
    identity: bool,
    rows: Any,
    finished: Any,
    first: Any,
    degree: Any,
    start: Any,
    own: Any,
) -> int:
    """Where each beam's candidates are.

    Args:
        starts: int32 or int64 [rows + 1] of the table; unread where ``identity``: row r owns the
            entry r alone.
        identity: see there.
        rows: int64 [N]; as ``Beams.rows``.
        finished: bool [N], or of no length where no beam can be.
        first: int64 [N], written: the first entry; a finished beam's leaf.
        degree: int64 [N], written: how many candidates; a finished beam is its own only one.
        start: int64 [N + 1], written: where they stand among those of all beams.
        own: bool [N], written: whether the beam is finished.

    Returns:
        the number of all candidates.
    """
    total = 0
    mixed = len(finished) > 0
    for beam in range(len(rows)):
        row = rows[beam]
        own[beam] = mixed and row >= 0 and finished[beam]
        first[beam], degree[beam], start[beam] = row, 0, total
        if own[beam] or (identity and row >= 0):
            degree[beam] = 1
        elif row >= 0:
            first[beam] = starts[row]
            degree[beam] = starts[row + 1] - starts[row]
        total += degree[beam]
    start[len(rows)] = total
    return total


@compiled()
def multiply(
    tokens: Any,
    first: Any,
    degree: Any,
    start: Any,
    own: Any,
    hidden: Any,
    head: Any,
    size: int,
    block: int,
    vocabulary: int,
    begin: int,
    end: int,
    logits: Any,
) -> None:
    """Each candidate's head row against its beam's hidden state.

    ``block`` tokens of the codebook are taken at a time, by all beams, so that their head rows stay
    in the processor's cache. No bit depends on it.

    Args:
        tokens: int16 or int32; of the table's entries.
        first: as ``locate`` writes it, as are the next three.
        degree: int64 [N].
        start: int64 [N + 1].
        own: bool [N].
        hidden: float32 [N * d].
        head: float32 [V * d].
        size: d.
        block: see there.
        vocabulary: V.
        begin: see the module.
        end: see the module.
        logits: float32, written.
    """
    cursor = np.zeros(end - begin, np.int64)
    rest = np.empty(DOTS, np.float32)
    odd = size % LANES
    for top in range(block, vocabulary + block, block):
        for beam in range(begin, end):
            if own[beam]:
                logits[start[beam]] = _ZERO
                continue
            place, count, slot = first[beam], degree[beam], start[beam]
            done = cursor[beam - begin]
            stop = done
            if top >= vocabulary:
                stop = count
            else:
                while stop + DOTS <= count and tokens[place + stop + DOTS - 1] < top:
                    stop += DOTS
                while stop < count and tokens[place + stop] < top:
                    stop += 1
            at = beam * size
            for one in range(done, stop - DOTS + 1, DOTS):
                dots(head, hidden, at, size, tokens, place + one, DOTS, logits, slot + one)
            left = (stop - done) % DOTS
            if left:
                one = stop - left
                dots(head, hidden, at, size, tokens, place + one, left, rest, 0)
                for number in range(left):
                    logits[slot + one + number] = rest[number]
            if odd:
                for one in range(done, stop):
                    behind = np.int64(tokens[place + one]) * size + size - odd
                    total = _ZERO
                    for term in range(odd):
                        total += hidden[at + size - odd + term] * head[behind + term]
                    logits[slot + one] += total
            cursor[beam - begin] = stop


@compiled()
def pick(
    tokens: Any,
    first: Any,
    degree: Any,
    start: Any,
    own: Any,
    given: Any,
    vocabulary: int,
    begin: int,
    end: int,
    logits: Any,
) -> None:
    """Each candidate's logit out of its beam's row of ``given``, float32 [N * V].

    The other arguments are those of ``multiply``.
    """
    for beam in range(begin, end):
        place, slot = first[beam], start[beam]
        if own[beam]:
            logits[slot] = _ZERO
            continue
        for one in range(degree[beam]):
            logits[slot + one] = given[beam * vocabulary + tokens[place + one]]


@compiled()
def add_bias(
    tokens: Any, first: Any, degree: Any, start: Any, own: Any, bias: Any, begin: int, end: int,
    logits: Any,
) -> None:  # fmt: skip
    """Add ``bias[token]``, float32 [V], to each logit; the others are those of ``multiply``."""
    for beam in range(begin, end):
        if not own[beam]:
            for one in range(degree[beam]):
                logits[start[beam] + one] += bias[tokens[first[beam] + one]]


@compiled()
def weigh(
    start: Any,
    degree: Any,
    own: Any,
    bits: Any,
    logits: Any,
    kept: Any,
    kept_start: Any,
    over_kept: bool,
    begin: int,
    end: int,
    largest: Any,
    log_sum: Any,
) -> None:
    """Write -inf over what is unusable or not kept, and sum each beam's exponentials.

    Args:
        start: as ``locate`` writes it, as are the next two.
        degree: int64 [N].
        own: bool [N].
        bits: int32; the same memory as ``logits``.
        logits: float32; changed.
        kept: bool; which candidates targeting keeps, a beam's from ``kept_start`` on. Of no length
            where it keeps all.
        kept_start: int64 [N].
        over_kept: whether the sum is over the kept candidates alone.
        begin: see the module.
        end: see the module.
        largest: float32 [N], written: the largest usable logit, 0 without one.
        log_sum: float32 [N], written: the log of the sum of ``exp(logit - largest)``, likewise.
    """
    asked = len(kept) > 0
    for beam in range(begin, end):
        largest[beam] = log_sum[beam] = _ZERO
        if own[beam]:
            continue
        slots = slice(start[beam], start[beam] + degree[beam])
        if asked and over_kept:
            _drop(bits[slots], kept, kept_start[beam])
        _clean(bits[slots])
        top = largest_of(bits[slots])
        if top > _NONE:
            largest[beam] = top
            log_sum[beam] = np.log(_sum_of_shares(logits[slots], top))
        if asked and not over_kept:
            _drop(bits[slots], kept, kept_start[beam])


@compiled()
def _drop(bits: Any, kept: Any, begin: int) -> None:
    for one in range(len(bits)):
        if not kept[begin + one]:
            bits[one] = _MINUS_INFINITY


@compiled()
def _clean(bits: Any) -> None:
    for one in range(len(bits)):
        mine = bits[one]
        bits[one] = _MINUS_INFINITY if mine & _UNUSABLE == _UNUSABLE else mine


@compiled()
def largest_of(bits: Any) -> Any:
    """The largest of float32 numbers, given as int32: their order does not change when they are
    turned round below zero, and a compiler may take several whole numbers at a time."""
    top = np.int32(ascending(_MINUS_INFINITY))
    for one in range(len(bits)):
        top = max(top, ascending(bits[one]))
    return float_of(ascending(top))


@compiled()
def ascending(bits: Any) -> Any:
    """A float32's bits as an int32 that is larger for a larger number; and back again."""
    return np.int32(bits ^ ((bits >> 31) & _ALL_BUT_SIGN))


@compiled(fastmath={"reassoc"})
def _sum_of_shares(logits: Any, top: Any) -> Any:
    # Several at a time, in an order that follows from how many there are.
    total = _ZERO
    for one in range(len(logits)):
        total += exponential(logits[one] - top)
    return total


@compiled()
def exponential(power: Any) -> Any:
    """float32: e to a power of at most 0; 0 below -87."""
    bounded = max(power, _LOWEST_POWER)
    twos = np.int32(bounded * _LOG2_E - _HALF)  # cut towards zero: the nearest whole number
    whole = np.float32(twos)
    rest = bounded - whole * _LN2_HIGH - whole * _LN2_LOW
    series = _E7
    series = series * rest + _E6
    series = series * rest + _E5
    series = series * rest + _E4
    series = series * rest + _E3
    series = series * rest + _E2
    series = series * rest * rest + rest + _ONE
    found = series * float_of(np.int32((twos + 127) << 23))
    return found if power >= _LOWEST_POWER else _ZERO
