"""Selective projection: each beam's log-softmax, put together from its units' shares."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

FEW = tl.constexpr(16)
"""A beam with more further units than this has a wide row."""
MANY = tl.constexpr(1024)
"""So many units of a wide row are looked at at once."""
NO_MORE = tl.constexpr(1 << 30)
"""In place of a beam: no further one has a wide row."""


@triton.jit
def _with_further(unit_peak, unit_sum, peak, mass, opens, count, m):
    """Each beam's share with that of its further units; a wide row's are looked at many at once."""
    eight = tl.arange(0, 8)
    few = tl.where(count > FEW, 0, count)
    for done in range(0, tl.max(few), 8):
        there = (done + eight)[None, :] < few[:, None]
        at = opens[:, None] + done + eight[None, :]
        more = tl.load(unit_peak + at, mask=there, other=float("-inf"))
        share = tl.load(unit_sum + at, mask=there, other=0.0)
        top = tl.maximum(peak, tl.max(more, 1))
        reference = tl.where(top == float("-inf"), 0.0, top)
        mass = mass * tl.exp(peak - reference)
        mass += tl.sum(share * tl.exp(more - reference[:, None]), 1)
        peak = top
    many = tl.arange(0, MANY)
    next_wide = tl.min(tl.where(count > FEW, m, NO_MORE))
    while next_wide < NO_MORE:
        own = m == next_wide
        first = tl.sum(tl.where(own, opens, 0))
        n = tl.sum(tl.where(own, count, 0))
        for begin in range(0, n, MANY):
            there = begin + many < n
            more = tl.load(unit_peak + first + begin + many, mask=there, other=float("-inf"))
            share = tl.load(unit_sum + first + begin + many, mask=there, other=0.0)
            top = tl.maximum(peak, tl.max(more))
            reference = tl.where(top == float("-inf"), 0.0, top)
            largest = tl.max(tl.where(own, reference, float("-inf")))
            added = tl.sum(share * tl.exp(more - largest))
            mass = tl.where(own, mass * tl.exp(peak - reference) + added, mass)
            peak = tl.where(own, top, peak)
        next_wide = tl.min(tl.where((count > FEW) & (m > next_wide), m, NO_MORE))
    return peak, mass


@triton.jit
def write_normalizers(
    unit_peak, unit_sum, unit_starts, tops, log_sums, begin, M, BEAM_BLOCK: tl.constexpr
):
    """The normalizers of BEAM_BLOCK beams from ``begin`` on, in two parts whose sum they are.

    Each is subtracted for itself, as the sum would round small differences of large logits away.
    Both are 0 where nothing has any mass. All pointers are a request's.
    """
    m = begin + tl.arange(0, BEAM_BLOCK)
    inside = m < M
    peak = tl.load(unit_peak + m, mask=inside, other=float("-inf"))
    mass = tl.load(unit_sum + m, mask=inside, other=0.0)
    if tl.load(unit_starts + M) > 0:
        opens = tl.load(unit_starts + m, mask=inside, other=0)
        count = tl.load(unit_starts + m + 1, mask=inside, other=0) - opens
        peak, mass = _with_further(unit_peak + M, unit_sum + M, peak, mass, opens, count, m)
    tl.store(tops + m, tl.where(peak == float("-inf"), 0.0, peak), mask=inside)
    tl.store(log_sums + m, tl.where(mass > 0.0, tl.log(mass), 0.0), mask=inside)


@triton.jit(do_not_specialize=["M", "UNIT_CAPACITY"])
def add_shares(
    unit_peak, unit_sum, unit_starts, tops, log_sums, M, UNIT_CAPACITY,
    BEAM_BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """:func:`write_normalizers` by many programs, where most rows have several further units.

    Args:
        unit_peak, unit_sum: float32 [B, M + UNIT_CAPACITY]; unit_starts: int32 [B, M + 1].
        tops, log_sums: out, float32 [B, M].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    units_at = b * (M + UNIT_CAPACITY)
    write_normalizers(
        unit_peak + units_at, unit_sum + units_at, unit_starts + b * (M + 1), tops + b * M,
        log_sums + b * M, tl.program_id(1) * BEAM_BLOCK, M, BEAM_BLOCK,
    )  # fmt: skip
