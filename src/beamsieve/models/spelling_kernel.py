"""Spelt tokens in Triton's kernels; their law is ``SpeltTokens`` of ``spelling``.

A light decoder's products are small, and what stands between them costs as much. Of a token and
layer four products and a GELU stay PyTorch's; the rest is two kernels: attention with the beams'
order, and what is added with the norm after it. What the first layer reads, and so its queries,
keys and values, is one of as many as there are codes: it is looked up.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _normed(x, gain, bias, at, E: tl.constexpr, EPSILON: tl.constexpr):
    """Layer normalisation of rows x [_, E] in float32."""
    centred = x - (tl.sum(x, 1) / E)[:, None]
    spread = tl.sum(centred * centred, 1) / E
    scaled = centred * (1.0 / tl.sqrt(spread + EPSILON))[:, None]
    weight = tl.load(gain + at).to(tl.float32)[None, :]
    return scaled * weight + tl.load(bias + at).to(tl.float32)[None, :]


@triton.jit(do_not_specialize=["N"])
def add_norm(
    x, more, gain, bias, normed, N,
    E: tl.constexpr, ROWS: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """x [N, E] += more [N, E], and the norm of the sum."""
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    at = tl.arange(0, E)
    inside = (r < N)[:, None]
    here = r[:, None] * E + at[None, :]
    total = tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(more + here, mask=inside, other=0.0).to(tl.float32)
    total = total.to(x.dtype.element_ty)
    tl.store(x + here, total, mask=inside)
    result = _normed(total.to(tl.float32), gain, bias, at, E, EPSILON)
    tl.store(normed + here, result.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _with_one_more(q, k, v, peak, mass, sums):
    """An online softmax behind one more key and value, in float32: its peak, mass and sums.

    Queries q, keys k, values v and sums are [_, D], one row per beam and head; peak and mass are
    [_]. q is scaled for powers of two. The sums of the values are not yet divided by the mass.
    """
    score = tl.sum(q * k.to(tl.float32), 1)
    higher = tl.maximum(peak, score)
    fade, weight = tl.exp2(peak - higher), tl.exp2(score - higher)
    return (
        higher,
        mass * fade + weight,
        sums * fade[:, None] + v.to(tl.float32) * weight[:, None],
    )


@triton.jit
def _with_context(
    q, peak, mass, sums, keys, values, shared, inside, KEY_STRIDE,
    C: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The same behind the C keys and values of a context, from ``shared`` [_] on: mass and sums."""
    for c in tl.static_range(C):
        there = (shared + c * KEY_STRIDE)[:, None] + tl.arange(0, D)[None, :]
        k = tl.load(keys + there, mask=inside, other=0.0)
        v = tl.load(values + there, mask=inside, other=0.0)
        peak, mass, sums = _with_one_more(q, k, v, peak, mass, sums)
    return mass, sums


@triton.jit(do_not_specialize=["N"])
def open_attention(
    product, mixed, N, scale,
    M: tl.constexpr, H: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Causal attention of each request's M concepts.

    product [N, M, 3 * H * D]: queries, keys, values; the answer goes to mixed [N, M, H * D]. The
    softmax is kept up with each key (online), sums in float32.
    """
    E: tl.constexpr = H * D
    lane = tl.arange(0, ROWS * H)
    r = (tl.program_id(0) * ROWS + lane // H).to(tl.int64)
    at = (lane % H)[:, None] * D + tl.arange(0, D)[None, :]
    inside = (r < N)[:, None]
    for m in tl.static_range(M):
        here = (r * M + m)[:, None] * (3 * E) + at
        q = tl.load(product + here, mask=inside, other=0.0).to(tl.float32) * (scale * LOG2_E)
        k = tl.load(product + here + E, mask=inside, other=0.0).to(tl.float32)
        sums = tl.load(product + here + 2 * E, mask=inside, other=0.0).to(tl.float32)
        peak = tl.sum(q * k, 1)
        mass = tl.full([ROWS * H], 1.0, tl.float32)
        for j in tl.static_range(m):
            there = (r * M + j)[:, None] * (3 * E) + at
            k = tl.load(product + there + E, mask=inside, other=0.0)
            v = tl.load(product + there + 2 * E, mask=inside, other=0.0)
            peak, mass, sums = _with_one_more(q, k, v, peak, mass, sums)
        result = (sums / mass[:, None]).to(mixed.dtype.element_ty)
        tl.store(mixed + (r * M + m)[:, None] * E + at, result, mask=inside)


@triton.jit(do_not_specialize=["N", "W", "REQUEST_STRIDE", "BEAM_STRIDE"])
def first_attention(
    codes, starts, table, products, context_keys, context_values, x, mixed,
    N, W, scale, REQUEST_STRIDE, BEAM_STRIDE, TOKEN_STRIDE, BATCH_STRIDE, HEAD_STRIDE, KEY_STRIDE,
    T: tl.constexpr, C: tl.constexpr, H: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The first layer's attention, whose queries, keys and values follow from the codes alone.

    codes [N / W, W, T] lie by three strides; a code of level j is row starts[j] + code of table
    [_, H * D], what the layer reads, and of products [_, 3 * H * D], its queries, keys and values.
    Every beam attends to its request's C context keys and its T codes; what it reads for the last
    one goes to x [N, H * D].
    """
    E: tl.constexpr = H * D
    lane = tl.arange(0, ROWS * H)
    r = (tl.program_id(0) * ROWS + lane // H).to(tl.int64)
    head = lane % H
    inside = (r < N)[:, None]
    request = r // W
    at = head[:, None] * D + tl.arange(0, D)[None, :]
    spelt = codes + request * REQUEST_STRIDE + r % W * BEAM_STRIDE
    # A place without a beam has token -1; whatever it reads is never used.
    code = tl.load(spelt + (T - 1) * TOKEN_STRIDE, mask=r < N, other=0).to(tl.int64)
    row = tl.load(starts + (T - 1)) + tl.maximum(code, 0)
    read = tl.load(table + row[:, None] * E + at, mask=inside, other=0.0)
    tl.store(x + r[:, None] * E + at, read, mask=inside)
    here = row[:, None] * (3 * E) + at
    q = tl.load(products + here, mask=inside, other=0.0).to(tl.float32) * (scale * LOG2_E)
    k = tl.load(products + here + E, mask=inside, other=0.0)
    peak = tl.sum(q * k.to(tl.float32), 1)
    mass = tl.full([ROWS * H], 1.0, tl.float32)
    sums = tl.load(products + here + 2 * E, mask=inside, other=0.0).to(tl.float32)
    for j in tl.static_range(T - 1):
        code = tl.load(spelt + j * TOKEN_STRIDE, mask=r < N, other=0).to(tl.int64)
        row = tl.load(starts + j) + tl.maximum(code, 0)
        there = row[:, None] * (3 * E) + at
        k = tl.load(products + there + E, mask=inside, other=0.0)
        v = tl.load(products + there + 2 * E, mask=inside, other=0.0)
        peak, mass, sums = _with_one_more(q, k, v, peak, mass, sums)
    shared = request * BATCH_STRIDE + head * HEAD_STRIDE
    mass, sums = _with_context(
        q, peak, mass, sums, context_keys, context_values, shared, inside, KEY_STRIDE, C, D
    )
    result = (sums / mass[:, None]).to(mixed.dtype.element_ty)
    tl.store(mixed + r[:, None] * E + at, result, mask=inside)


@triton.jit(do_not_specialize=["N", "W", "W_BEFORE"])
def spell_attention(
    product, before, parents, context_keys, context_values, mixed, own,
    N, W, W_BEFORE, scale, BATCH_STRIDE, HEAD_STRIDE, KEY_STRIDE,
    T: tl.constexpr, C: tl.constexpr, H: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """Every beam attends to its request's C context keys, its T - 1 tokens before, and itself.

    product [N, 3 * H * D] of this token: queries, keys, values. before [_, T - 1, 2, H * D], the
    keys and values of the tokens before in the beams' former order: beam r's stand at
    request * W_BEFORE + parents[r]. They are written, with this token's, to own [N, T, 2, H * D],
    but where this token is the LAST.
    The softmax is kept up with each key (online), sums in float32.
    """
    E: tl.constexpr = H * D
    lane = tl.arange(0, ROWS * H)
    r = (tl.program_id(0) * ROWS + lane // H).to(tl.int64)
    head = lane % H
    inside = (r < N)[:, None]
    request = r // W
    at = head[:, None] * D + tl.arange(0, D)[None, :]
    here = r[:, None] * (3 * E) + at
    q = tl.load(product + here, mask=inside, other=0.0).to(tl.float32) * (scale * LOG2_E)
    k = tl.load(product + here + E, mask=inside, other=0.0)
    v = tl.load(product + here + 2 * E, mask=inside, other=0.0)
    mine = r[:, None] * (T * 2 * E) + at
    if not LAST:
        tl.store(own + mine + (T - 1) * 2 * E, k, mask=inside)
        tl.store(own + mine + (T - 1) * 2 * E + E, v, mask=inside)
    peak = tl.sum(q * k.to(tl.float32), 1)
    mass = tl.full([ROWS * H], 1.0, tl.float32)
    sums = v.to(tl.float32)
    row = request * W_BEFORE
    if T > 1:
        # A place without a beam has parent -1; whatever it reads is never used.
        row += tl.maximum(tl.load(parents + r, mask=r < N, other=0), 0)
    for j in tl.static_range(T - 1):
        there = row[:, None] * ((T - 1) * 2 * E) + j * 2 * E + at
        k = tl.load(before + there, mask=inside, other=0.0)
        v = tl.load(before + there + E, mask=inside, other=0.0)
        if not LAST:
            tl.store(own + mine + j * 2 * E, k, mask=inside)
            tl.store(own + mine + j * 2 * E + E, v, mask=inside)
        peak, mass, sums = _with_one_more(q, k, v, peak, mass, sums)
    shared = request * BATCH_STRIDE + head * HEAD_STRIDE
    mass, sums = _with_context(
        q, peak, mass, sums, context_keys, context_values, shared, inside, KEY_STRIDE, C, D
    )
    result = (sums / mass[:, None]).to(mixed.dtype.element_ty)
    tl.store(mixed + r[:, None] * E + at, result, mask=inside)
