"""Selection, last part: each candidate's rank is how many are better, and is its place.

Counting needs no sort and no synchronisation: every block of candidates finds its own places, and
writes its own beams. The order (higher key, lower parent, lower token) is one int64, so there are
no ties and no place is taken twice.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.ordering import DEAD, LARGEST_ID, NOTHING, unordered


@triton.jit
def ones_below(word, bit):
    """How many of the lowest ``bit`` bits (0 to 63) of an int64 are set."""
    x = word & ((tl.full(bit.shape, 1, tl.int64) << bit.to(tl.int64)) - 1)
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (x * 0x0101010101010101) >> 56


@triton.jit
def write_best(
    candidate_keys, candidate_scores, candidate_rows, candidate_count,
    rows, finished, history, row_starts, tokens, bitmaps, ranks, next_starts, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, CAPACITY,
    T: tl.constexpr, T_UP: tl.constexpr, WORDS64: tl.constexpr, TOKEN_MASK: tl.constexpr,
    RANK_MASK: tl.constexpr, CHILD: tl.constexpr, SEARCH_STEPS: tl.constexpr, LAST: tl.constexpr,
    RAGGED: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The W best of each request as beams, in order, and padding behind them.

    Args:
        candidate_keys: int64 [B, CAPACITY]; candidate_scores, candidate_rows likewise (the rows
            only when CHILD is "given").
        history: int32 [B, M, T - 1]; out_tokens: int32 [B, W, T].
        CHILD: where a child's row comes from: "given", "dense" (bitmap and rank) or "sparse" (a
            search in the row's tokens, SEARCH_STEPS halvings).
        LAST: this is the last table. RAGGED: semantic IDs of several lengths; leaf_first int64
            [entries] is then each entry's first leaf, next_starts the next table's row starts.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(candidate_count + b)
    candidate_keys += b * CAPACITY
    lane = tl.arange(0, OWN)
    alive = 0
    for first in range(tl.program_id(1) * OWN, n, tl.num_programs(1) * OWN):
        i = first + lane
        mine = tl.load(candidate_keys + i, mask=i < n, other=NOTHING)
        rank = tl.zeros((OWN,), tl.int32)
        alive = 0
        for begin in range(0, n, OTHERS):
            at = begin + tl.arange(0, OTHERS)
            other = tl.load(candidate_keys + at, mask=at < n, other=NOTHING)
            rank += tl.sum((other[None, :] > mine[:, None]).to(tl.int32), 1)
            alive += tl.sum(((other >> 32).to(tl.int32) > DEAD).to(tl.int32))
        ordered_key = (mine >> 32).to(tl.int32)
        keep = (i < n) & (rank < W) & (ordered_key > DEAD)
        identity = ((mine & LARGEST_ID) ^ LARGEST_ID).to(tl.int32)
        parent = tl.where(keep, identity // V, 0)
        token = tl.where(keep, identity % V, 0)
        row = tl.load(rows + b * M + parent, mask=keep, other=0)
        done = tl.load(finished + b * M + parent, mask=keep, other=0) != 0
        step_from = keep & (done == 0)
        if CHILD == "given":
            child = tl.load(candidate_rows + b * CAPACITY + i, mask=keep, other=0)
        elif CHILD == "dense":
            cell = row * WORDS64 + (token >> 6)
            word = tl.load(bitmaps + cell, mask=step_from, other=0)
            before = tl.load(ranks + cell, mask=step_from, other=0).to(tl.int64) & RANK_MASK
            child = tl.load(row_starts + row, mask=step_from, other=0).to(tl.int64)
            child += before + ones_below(word, token & 63)
        else:
            low = tl.load(row_starts + row, mask=step_from, other=0).to(tl.int64)
            high = tl.load(row_starts + row + 1, mask=step_from, other=0).to(tl.int64)
            for _ in range(SEARCH_STEPS):
                middle = (low + high) // 2
                searching = step_from & (low < high)
                here = tl.load(tokens + middle, mask=searching, other=0).to(tl.int32) & TOKEN_MASK
                less = searching & (here < token)
                low = tl.where(less, middle + 1, low)
                high = tl.where(searching & (less == 0), middle, high)
            child = low
        ends = step_from
        if RAGGED:
            if not LAST:
                opens = tl.load(next_starts + child, mask=step_from, other=0).to(tl.int64)
                closes = tl.load(next_starts + child + 1, mask=step_from, other=0).to(tl.int64)
                ends = step_from & (opens == closes)
            leaf = tl.load(leaf_first + child, mask=ends, other=0)
            child = tl.where(ends, leaf, child)
        else:
            ends = step_from & LAST
        child = tl.where(done, row, child)

        where = b * W + rank
        tl.store(out_keys + where, unordered(ordered_key), mask=keep)
        score = tl.load(candidate_scores + b * CAPACITY + i, mask=keep, other=0.0)
        tl.store(out_scores + where, score, mask=keep)
        tl.store(out_rows + where, child, mask=keep)
        tl.store(out_parents + where, parent, mask=keep)
        tl.store(out_finished + where, (ends | done).to(tl.int8), mask=keep)
        t = tl.arange(0, T_UP)
        past = tl.load(
            history + (b * M + parent)[:, None] * (T - 1) + t[None, :],
            mask=keep[:, None] & (t < T - 1)[None, :],
            other=0,
        )
        newest = tl.where(done, -1, token).to(tl.int32)
        line = tl.where((t == T - 1)[None, :], newest[:, None], past)
        where = where[:, None] * T + t[None, :]
        tl.store(out_tokens + where, line, mask=keep[:, None] & (t < T)[None, :])

    if tl.program_id(1) == 0:
        kept = tl.minimum(alive, W)
        tl.store(out_count + b, kept.to(tl.int64))
        for first in range(kept, W, OWN):
            place = first + lane
            empty = place < W
            where = b * W + place
            nothing = tl.full((OWN,), float("-inf"), tl.float32)
            minus_one = tl.full((OWN,), -1, tl.int64)
            tl.store(out_keys + where, nothing, mask=empty)
            tl.store(out_scores + where, nothing, mask=empty)
            tl.store(out_rows + where, minus_one, mask=empty)
            tl.store(out_parents + where, minus_one, mask=empty)
            tl.store(out_finished + where, tl.zeros((OWN,), tl.int8), mask=empty)
            t = tl.arange(0, T_UP)
            tl.store(
                out_tokens + where[:, None] * T + t[None, :],
                tl.full((OWN, T_UP), -1, tl.int32),
                mask=empty[:, None] & (t < T)[None, :],
            )
