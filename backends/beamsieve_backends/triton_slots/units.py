"""Device helpers: the units that a beam's valid tokens are put in.

A beam has one unit of SLOTS slots, whatever its row: unit m is beam m's, so most tokens need no
search. What a row has beyond that lies in further units of FURTHER slots each, behind those of all
beams and in the beams' order. So slots follow the sum of the degrees, and nobody waits for a wide
row.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import row_bounds, token_at, token_of_rank

DONE = tl.constexpr(-1)
"""In place of a degree: the beam is finished, and goes on as it is."""
WIDEST = tl.constexpr(5)
"""Numbers that are kept of a request's widest beam."""


@triton.jit
def bounds_of(
    rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    beam, there,
):  # fmt: skip
    """``(row, first, degree)`` of beams: what they are at, -1 where not ``there``; their first
    entry, or a finished beam's leaf; and how many valid tokens they have, DONE if finished."""
    row = tl.load(rows + beam, mask=there, other=-1)
    done = (row >= 0) & (tl.load(finished + beam, mask=there, other=0) != 0)
    first, end = row_bounds(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row,
        (row >= 0) & (done == 0),
    )  # fmt: skip
    return row, tl.where(done, row, first), tl.where(done, DONE, (end - first).to(tl.int32))


@triton.jit
def count_units(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    first_entry, degrees, unit_starts, widest, b, M,
    SLOTS: tl.constexpr, FURTHER: tl.constexpr, BEAMS_UP: tl.constexpr,
):  # fmt: skip
    """Write what all units of request b follow from.

    Args:
        first_entry: out, int64 [B, M]; degrees: out, int32 [B, M]; see :func:`bounds_of`.
        unit_starts: out, int32 [B, M + 1]; the further units of the beams before each, and of all.
        widest: out, int64 [B, WIDEST]: of the request's widest beam (the first of several) which
            it is, where its further units begin, how many they are, its first entry, its degree.

    Returns ``(row, degree)``, each [BEAMS_UP].
    """
    m = tl.arange(0, BEAMS_UP)
    inside = m < M
    row, first, degree = bounds_of(
        rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
        start_gap, b * M + m, inside,
    )  # fmt: skip
    further = tl.where(degree > SLOTS, (degree - SLOTS + FURTHER - 1) // FURTHER, 0)
    ends = tl.cumsum(further, 0)
    tl.store(first_entry + b * M + m, first, mask=inside)
    tl.store(degrees + b * M + m, degree, mask=inside)
    tl.store(unit_starts + b * (M + 1), 0)
    tl.store(unit_starts + b * (M + 1) + 1 + m, ends, mask=inside)
    # The most units, then the lowest place, in one number, which is less than M * V.
    rank = further * M + (M - 1 - m)
    own = inside & (rank == tl.max(tl.where(inside, rank, -1)))
    to = widest + b * WIDEST + tl.zeros((BEAMS_UP,), tl.int32)
    tl.store(to, m.to(tl.int64), mask=own)
    tl.store(to + 1, (ends - further).to(tl.int64), mask=own)
    tl.store(to + 2, further.to(tl.int64), mask=own)
    tl.store(to + 3, first, mask=own)
    tl.store(to + 4, degree.to(tl.int64), mask=own)
    return row, degree


@triton.jit
def beam_of(unit_starts, unit, M, BLOCK: tl.constexpr):
    """int32: the beam that one of a request's further units is of."""
    found = 0
    for begin in range(0, M, BLOCK):
        m = begin + tl.arange(0, BLOCK)
        end = tl.load(unit_starts + 1 + m, mask=m < M, other=2147483647)
        found += tl.sum((end <= unit).to(tl.int32))
    return found


@triton.jit
def tokens_of(
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, row, first, rank, real,
    DENSE: tl.constexpr,
):  # fmt: skip
    """int32: the tokens of rows that so many others of theirs (``rank``) come before; 0 where not
    ``real``. All of one shape."""
    rank = rank.to(tl.int64)
    if DENSE:
        return token_of_rank(bitmaps, ranks, rank_mask, words, rank_words, row, rank, real)
    return token_at(tokens, token_bits, first + rank, real)
