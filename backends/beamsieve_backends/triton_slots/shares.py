"""Selective projection: each beam's log-softmax, put together from its units' shares."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.units import WIDEST

FEW = tl.constexpr(16)
"""A beam with more further units than this has a wide row."""
MANY = tl.constexpr(1024)
"""So many units of a wide row are looked at at once."""
NO_MORE = tl.constexpr(1 << 30)
"""In place of a beam: no further one has a wide row."""


@triton.jit
def _joined(peak, mass, more, share):
    """The shares (largest logit and sum) of two sets of slots as one. Which product is rounded is
    said, so that every kernel does the same."""
    top = tl.maximum(peak, more)
    reference = tl.where(top == float("-inf"), 0.0, top)
    return top, tl.fma(mass, tl.exp(peak - reference), share * tl.exp(more - reference))


@triton.jit
def _of_wide_row(unit_peak, unit_sum, n):
    """The share of a wide row's n further units, many looked at at once."""
    many = tl.arange(0, MANY)
    peak = tl.full((), float("-inf"), tl.float32)
    mass = tl.full((), 0.0, tl.float32)
    for begin in range(0, n, MANY):
        there = begin + many < n
        more = tl.load(unit_peak + begin + many, mask=there, other=float("-inf"))
        share = tl.load(unit_sum + begin + many, mask=there, other=0.0)
        top = tl.max(more)
        reference = tl.where(top == float("-inf"), 0.0, top)
        peak, mass = _joined(peak, mass, top, tl.sum(share * tl.exp(more - reference)))
    return peak, mass


@triton.jit
def _with_others(unit_peak, unit_sum, peak, mass, opens, count, m):
    """Each beam's share with that of its further units; the widest beam's have no ``count``."""
    eight = tl.arange(0, 8)
    few = tl.where(count > FEW, 0, count)
    for done in range(0, tl.max(few), 8):
        there = (done + eight)[None, :] < few[:, None]
        at = opens[:, None] + done + eight[None, :]
        more = tl.load(unit_peak + at, mask=there, other=float("-inf"))
        share = tl.load(unit_sum + at, mask=there, other=0.0)
        top = tl.max(more, 1)
        reference = tl.where(top == float("-inf"), 0.0, top)
        share = tl.sum(share * tl.exp(more - reference[:, None]), 1)
        peak, mass = _joined(peak, mass, top, share)
    next_wide = tl.min(tl.where(count > FEW, m, NO_MORE))
    while next_wide < NO_MORE:
        own = m == next_wide
        first = tl.sum(tl.where(own, opens, 0))
        n = tl.sum(tl.where(own, count, 0))
        more, share = _of_wide_row(unit_peak + first, unit_sum + first, n)
        top, total = _joined(peak, mass, more, share)
        peak, mass = tl.where(own, top, peak), tl.where(own, total, mass)
        next_wide = tl.min(tl.where((count > FEW) & (m > next_wide), m, NO_MORE))
    return peak, mass


@triton.jit
def write_normalizers(
    unit_peak, unit_sum, unit_starts, widest, tops, log_sums, begin, M, BEAM_BLOCK: tl.constexpr
):
    """The normalizers of BEAM_BLOCK beams from ``begin`` on, in two parts whose sum they are.

    Each is subtracted for itself, as the sum would round small differences of large logits away.
    Both are 0 where nothing has any mass. All pointers are a request's.
    """
    m = begin + tl.arange(0, BEAM_BLOCK)
    inside = m < M
    peak = tl.load(unit_peak + m, mask=inside, other=float("-inf"))
    mass = tl.load(unit_sum + m, mask=inside, other=0.0)
    opens = tl.load(unit_starts + m, mask=inside, other=0)
    count = tl.load(unit_starts + m + 1, mask=inside, other=0) - opens
    further = tl.load(unit_starts + M)
    # Of the widest beam it is known where its units lie: most requests that meet a wide row meet
    # one, which takes no search then.
    beam = tl.load(widest)
    at = M + tl.load(widest + 1)
    wide = tl.load(widest + 2).to(tl.int32)
    if (wide > FEW) & (beam >= begin) & (beam < begin + BEAM_BLOCK):
        own = m == beam
        more, share = _of_wide_row(unit_peak + at, unit_sum + at, wide)
        top, total = _joined(peak, mass, more, share)
        peak, mass = tl.where(own, top, peak), tl.where(own, total, mass)
        count = tl.where(own, 0, count)
        further -= wide
    if further > 0:
        peak, mass = _with_others(unit_peak + M, unit_sum + M, peak, mass, opens, count, m)
    tl.store(tops + m, tl.where(peak == float("-inf"), 0.0, peak), mask=inside)
    tl.store(log_sums + m, tl.where(mass > 0.0, tl.log(mass), 0.0), mask=inside)


@triton.jit(do_not_specialize=["M", "UNIT_CAPACITY"])
def add_shares(
    unit_peak, unit_sum, unit_starts, widest, tops, log_sums, M, UNIT_CAPACITY,
    BEAM_BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """:func:`write_normalizers` by many programs, where most rows have several further units.

    Args:
        unit_peak, unit_sum: float32 [B, M + UNIT_CAPACITY]; unit_starts: int32 [B, M + 1], and
            widest: int64 [B, WIDEST], as ``units.count_units`` writes them.
        tops, log_sums: out, float32 [B, M].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    units_at = b * (M + UNIT_CAPACITY)
    write_normalizers(
        unit_peak + units_at, unit_sum + units_at, unit_starts + b * (M + 1), widest + b * WIDEST,
        tops + b * M, log_sums + b * M, tl.program_id(1) * BEAM_BLOCK, M, BEAM_BLOCK,
    )  # fmt: skip
