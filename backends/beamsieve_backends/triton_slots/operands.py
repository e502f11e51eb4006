"""What a full projection reads besides its inputs: sparse rows as bitmaps, float32 in two parts."""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import row_bounds, token_at


@triton.jit
def cleared_row(
    rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    beam, bitmap, words, WORD_BLOCK: tl.constexpr,
):  # fmt: skip
    """Write 0 to a beam's int32 ``bitmap`` of so many words; int64: the first entry of its row and
    the one behind the last, which are one where it has none."""
    for begin in range(0, words, WORD_BLOCK):
        word = begin + tl.arange(0, WORD_BLOCK)
        tl.store(bitmap + word, tl.zeros((WORD_BLOCK,), tl.int32), mask=word < words)
    row = tl.load(rows + beam) + tl.zeros((1,), tl.int64)
    live = (row >= 0) & (tl.load(finished + beam) == 0)
    start, end = row_bounds(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row, live
    )
    start, end = tl.sum(start), tl.sum(end)
    tl.debug_barrier()
    return start, end


@triton.jit(do_not_specialize=["start_kind", "start_shift", "start_gap", "token_bits", "words"])
def row_bitmaps(
    rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, words,
    WORD_BLOCK: tl.constexpr, ENTRIES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write each beam's row of a sparse table as a bitmap, int32 [beams, words]: one beam a
    program."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    beam = tl.program_id(0).to(tl.int64)
    bitmaps += beam * words
    start, end = cleared_row(
        rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
        start_gap, beam, bitmaps, words, WORD_BLOCK,
    )  # fmt: skip
    for begin in range(start, end, ENTRIES):
        entry = begin + tl.arange(0, ENTRIES).to(tl.int64)
        inside = entry < end
        token = token_at(tokens, token_bits, entry, inside)
        bit = tl.full((ENTRIES,), 1, tl.int32) << (token & 31)
        tl.atomic_or(bitmaps + (token >> 5), bit, mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=["x_rows", "y_rows"])
def split_rows(x, x_high, x_low, x_inverse, x_rows, y, y_high, y_low, y_inverse, y_rows, D,
               D_UP: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Write each float32 row of two matrices as two float16 rows whose sum, times ``inverse``, it
    is.

    A power of two brings the row's largest value to 2**13 first, so that neither part leaves
    float16's range: 22 bits of every value stay, as in a three-pass tf32 product, and the product
    runs twice as fast. high, low: float16 [rows, D]; inverse: float32 [rows].
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    own = tl.program_id(0) * ROWS
    of_x = tl.cdiv(x_rows, ROWS) * ROWS
    if own < of_x:
        _split(x, x_high, x_low, x_inverse, x_rows, own, D, D_UP, ROWS)
    else:
        _split(y, y_high, y_low, y_inverse, y_rows, own - of_x, D, D_UP, ROWS)


@triton.jit
def _split(x, high, low, inverse, n, first, D, D_UP: tl.constexpr, ROWS: tl.constexpr):
    row = first + tl.arange(0, ROWS).to(tl.int64)
    k = tl.arange(0, D_UP)
    there = (row < n)[:, None] & (k < D)[None, :]
    at = row[:, None] * D + k[None, :]
    value = tl.load(x + at, mask=there, other=0.0)
    exponent = (tl.max(tl.abs(value), 1).to(tl.int32, bitcast=True) >> 23) & 0xFF
    exponent = tl.maximum(exponent, 14)
    scale = ((267 - exponent) << 23).to(tl.float32, bitcast=True)
    scaled = value * scale[:, None]
    part = scaled.to(tl.float16)
    tl.store(high + at, part, mask=there)
    tl.store(low + at, (scaled - part.to(tl.float32)).to(tl.float16), mask=there)
    tl.store(inverse + row, ((exponent - 13) << 23).to(tl.float32, bitcast=True), mask=row < n)
