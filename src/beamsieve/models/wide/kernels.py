"""Triton kernels of the wide-beam decoder. The law of each is a function of ``laws``.

Notation: R rows (one per request and beam, a request's side by side), H heads of D values, t tokens
of a row so far, its own included. ``product`` is the fused product for queries, keys and values:
[R, 3 * H * D], queries first.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def own_attention(
    queries, keys, values, key_cache, value_cache, ids, order, out, R, scale,
    T: tl.constexpr, LENGTH: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    PRODUCT_STRIDE: tl.constexpr, CACHE_STRIDE: tl.constexpr,
    PAGED: tl.constexpr, IN_PLACE: tl.constexpr, WRITE: tl.constexpr, ORDERED: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Each row attends to its own T tokens; law: ``laws.paged`` (``laws.fused`` unless PAGED).

    A block of the cache is one token of one row: token j of row r stands in block ids[r, j] (in
    block j * R + r unless PAGED). IN_PLACE, the product itself is the cache and row r's own
    block is ids[r, T - 1]; else the row's own keys and values come from the product's row r, and
    WRITE puts them into its own block. ORDERED, programs take rows as ``order`` lists them.
    """
    W: tl.constexpr = H * D
    # Neighbouring programs take the heads of the same rows, whose memory is contiguous.
    parts: tl.constexpr = H // HEADS
    part = tl.program_id(0) % parts
    lane = tl.arange(0, ROWS * HEADS)
    r = (tl.program_id(0) // parts) * ROWS + lane // HEADS
    there = r < R
    if ORDERED:
        r = tl.load(order + r, mask=there, other=0)
    r = r.to(tl.int64)
    at = (part * HEADS + lane % HEADS)[:, None] * D + tl.arange(0, D)[None, :]
    inside = there[:, None]
    if PAGED:
        own = tl.load(ids + r * LENGTH + (T - 1), mask=there, other=0).to(tl.int64)
    else:
        own = (T - 1) * R + r
    from_row = own if IN_PLACE else r
    place = from_row[:, None] * PRODUCT_STRIDE + at
    q = tl.load(queries + place, mask=inside, other=0.0).to(tl.float32) * (scale * LOG2_E)
    k = tl.load(keys + place, mask=inside, other=0.0)
    v = tl.load(values + place, mask=inside, other=0.0)
    if WRITE:
        mine = own[:, None] * CACHE_STRIDE + at
        tl.store(key_cache + mine, k, mask=inside)
        tl.store(value_cache + mine, v, mask=inside)
    peak = tl.sum(q * k.to(tl.float32), 1)
    mass = tl.full([ROWS * HEADS], 1.0, tl.float32)
    mixed = v.to(tl.float32)
    for j in tl.static_range(T - 1):
        if PAGED:
            block = tl.load(ids + r * LENGTH + j, mask=there, other=0).to(tl.int64)
        else:
            block = j * R + r
        before = block[:, None] * CACHE_STRIDE + at
        k = tl.load(key_cache + before, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(value_cache + before, mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(q * k, 1)
        higher = tl.maximum(peak, score)
        fade = tl.exp2(peak - higher)
        weight = tl.exp2(score - higher)
        mass = mass * fade + weight
        mixed = mixed * fade[:, None] + v * weight[:, None]
        peak = higher
    mixed = mixed / mass[:, None]
    tl.store(out + r[:, None] * W + at, mixed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def coalesced_attention(
    queries, keys, values, out, R, scale,
    T: tl.constexpr, T_UP: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    G: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """G rows and one head a tile, masked so that no row sees another; law: ``laws.coalesced``.

    queries and out [R, H, D]; keys and values [L, R, H, D], of which the first T count.
    """
    W: tl.constexpr = H * D
    head = tl.program_id(0) % H
    first = (tl.program_id(0) // H) * G
    g = tl.arange(0, G)
    r = (first + g).to(tl.int64)
    c = tl.arange(0, G * T_UP)  # column c is token c % T_UP of the tile's row c // T_UP
    d = tl.arange(0, D)
    q_at = r[:, None] * W + head * D + d[None, :]
    q = tl.load(queries + q_at, mask=(r < R)[:, None], other=0.0)
    c_row = (first + c // T_UP).to(tl.int64)
    c_in = (c_row < R) & (c % T_UP < T)
    k_at = ((c % T_UP).to(tl.int64) * R + c_row)[:, None] * W + head * D + d[None, :]
    k = tl.load(keys + k_at, mask=c_in[:, None], other=0.0)
    v = tl.load(values + k_at, mask=c_in[:, None], other=0.0)
    if UPCAST:
        q, k, v = q.to(tl.float32), k.to(tl.float32), v.to(tl.float32)
    score = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
    mine = (c[None, :] // T_UP == g[:, None]) & (c % T_UP < T)[None, :]
    score = tl.where(mine, score, float("-inf"))
    weight = tl.exp2(score - tl.max(score, 1)[:, None])
    weight = weight / tl.sum(weight, 1)[:, None]
    mixed = tl.dot(weight.to(v.dtype), v)
    tl.store(out + q_at, mixed.to(out.dtype.element_ty), mask=(r < R)[:, None])


@triton.jit
def context_attention(
    queries, keys, values, lengths, out, M, C, scale,
    H: tl.constexpr, D: tl.constexpr, KEY_STRIDE: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    ROWS: tl.constexpr, TILES: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """All beams of a request attend to its context; law: ``laws.beam_as_query``.

    queries and out [B, M, H, D]; keys and values [B, C, H, D] with KEY_STRIDE elements from one
    token to the next; of request b the first lengths[b] tokens count, C without lengths. A program
    takes one request, one head and TILES tiles of ROWS beams.
    """
    W: tl.constexpr = H * D
    head = tl.program_id(1)
    b = tl.program_id(2).to(tl.int64)
    length = C
    if HAS_LENGTHS:
        length = tl.load(lengths + b)
    d = tl.arange(0, D)
    c = tl.arange(0, COLUMNS)
    kept = (b * C + c)[:, None] * KEY_STRIDE + head * D + d[None, :]
    if BLOCKS == 1:  # the whole context is held while the beams go by
        k = tl.load(keys + kept, mask=(c < length)[:, None], other=0.0)
        v = tl.load(values + kept, mask=(c < length)[:, None], other=0.0)
        if UPCAST:
            k, v = k.to(tl.float32), v.to(tl.float32)
    for tile in tl.range(0, TILES):
        m = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        at = (b * M + m)[:, None] * W + head * D + d[None, :]
        q = tl.load(queries + at, mask=(m < M)[:, None], other=0.0)
        if UPCAST:
            q = q.to(tl.float32)
        if BLOCKS == 1:
            score = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
            score = tl.where((c < length)[None, :], score, float("-inf"))
            peak = tl.maximum(tl.max(score, 1), -1e30)  # no token at all leaves nothing, not NaN
            weight = tl.exp2(score - peak[:, None])
            mass = tl.sum(weight, 1)
            mixed = tl.dot(weight.to(v.dtype), v)
        else:
            peak = tl.full([ROWS], -1e30, tl.float32)
            mass = tl.zeros([ROWS], tl.float32)
            mixed = tl.zeros([ROWS, D], tl.float32)
            for block in tl.range(0, BLOCKS):  # not unrolled: a context may have many blocks
                c_in = block * COLUMNS + c < length
                more = kept + block * COLUMNS * KEY_STRIDE
                k = tl.load(keys + more, mask=c_in[:, None], other=0.0)
                v = tl.load(values + more, mask=c_in[:, None], other=0.0)
                if UPCAST:
                    k, v = k.to(tl.float32), v.to(tl.float32)
                score = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
                score = tl.where(c_in[None, :], score, float("-inf"))
                higher = tl.maximum(peak, tl.max(score, 1))
                fade = tl.exp2(peak - higher)
                weight = tl.exp2(score - higher[:, None])
                mass = mass * fade + tl.sum(weight, 1)
                mixed = mixed * fade[:, None] + tl.dot(weight.to(v.dtype), v)
                peak = higher
        mixed = mixed / tl.where(mass > 0, mass, 1.0)[:, None]
        tl.store(out + at, mixed.to(out.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def norm_rows(
    x, added, out, scales, R, epsilon, largest,
    N: tl.constexpr, N_UP: tl.constexpr, ADD: tl.constexpr, NORM: tl.constexpr,
    RELU: tl.constexpr, QUANTIZE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Root-mean-square norm of rows [R, N]; laws: ``laws.norm`` and ``laws.quantize``.

    ADD, x += added first, and x is written back. NORM and RELU say what is done then. QUANTIZE, a
    row leaves in float8 with the scale that brings it back: its largest value becomes the type's
    ``largest``.
    """
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    n = tl.arange(0, N_UP)
    inside = (r < R)[:, None] & (n < N)[None, :]
    at = r[:, None] * N + n[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(added + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, value.to(x.dtype.element_ty), mask=inside)
    if NORM:
        mean = tl.sum(value * value, 1) / N
        value = value * tl.rsqrt(mean + epsilon)[:, None]
    if RELU:
        value = tl.maximum(value, 0.0)
    if QUANTIZE:
        scale = tl.maximum(tl.max(tl.abs(value), 1), 1e-12) / largest
        tl.store(scales + r, scale, mask=r < R)
        value = value / scale[:, None]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def advance_rows(
    tokens, parents, codes, old_ids, ids, first_ids, bases, x, asked, asked_out,
    R, M, M_BEFORE, first,
    T: tl.constexpr, LENGTH: tl.constexpr, N: tl.constexpr, N_UP: tl.constexpr,
    PAIRS: tl.constexpr, W: tl.constexpr, W_UP: tl.constexpr,
):  # fmt: skip
    """Rows after one more token: block ids in the beams' new order, and the token's embedding.

    Law: ``laws.advance``. One program a row; T tokens are spelt, the last of which is new. PAIRS,
    rows of ``codes`` and ``asked`` stand behind the last two tokens, PAIRS of them behind each
    first; law: ``laws.paired``.
    """
    r = tl.program_id(0).to(tl.int64)
    parent = tl.maximum(tl.load(parents + r).to(tl.int64), 0)
    before = (r // M) * M_BEFORE + parent
    for j in tl.static_range(T):
        tl.store(ids + r * LENGTH + j, tl.load(old_ids + before * LENGTH + j))
        spelt = tl.maximum(tl.load(tokens + r * T + j).to(tl.int32), 0)
        tl.store(first_ids + r * LENGTH + j + 1, tl.load(bases + j + 1) + spelt)
    tl.store(ids + r * LENGTH + T, (first + r).to(tl.int32))
    tl.store(first_ids + r * LENGTH, 0)
    token = tl.maximum(tl.load(tokens + r * T + T - 1).to(tl.int64), 0)
    if PAIRS:
        token += tl.maximum(tl.load(tokens + r * T + T - 2).to(tl.int64), 0) * PAIRS
        w = tl.arange(0, W_UP)
        query = tl.load(asked + token * W + w, mask=w < W)
        tl.store(asked_out + r * W + w, query, mask=w < W)
    n = tl.arange(0, N_UP)
    code = tl.load(codes + token * N + n, mask=n < N)
    tl.store(x + r * N + n, code, mask=n < N)


@triton.jit
def second_rows(
    tokens, hidden, ids, out, V, M,
    LENGTH: tl.constexpr, N: tl.constexpr, N_UP: tl.constexpr,
):  # fmt: skip
    """Rows behind the first token where all first tokens were computed; law: ``laws.second``."""
    r = tl.program_id(0).to(tl.int64)
    root = (r // M) * (1 + V)
    own = root + 1 + tl.maximum(tl.load(tokens + r).to(tl.int64), 0)
    tl.store(ids + r * LENGTH, root.to(tl.int32))
    tl.store(ids + r * LENGTH + 1, own.to(tl.int32))
    n = tl.arange(0, N_UP)
    state = tl.load(hidden + own * N + n, mask=n < N)
    tl.store(out + r * N + n, state, mask=n < N)


@triton.jit
def repeat_rows(
    x, asked, x_out, asked_out, R,
    N: tl.constexpr, N_UP: tl.constexpr, W: tl.constexpr, W_UP: tl.constexpr,
):  # fmt: skip
    """Rows x [R, N] and asked [R, W] once per request: program r writes what row r % R holds."""
    r = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N_UP)
    held = tl.load(x + (r % R) * N + n, mask=n < N)
    w = tl.arange(0, W_UP)
    also = tl.load(asked + (r % R) * W + w, mask=w < W)
    tl.store(x_out + r * N + n, held, mask=n < N)
    tl.store(asked_out + r * W + w, also, mask=w < W)
