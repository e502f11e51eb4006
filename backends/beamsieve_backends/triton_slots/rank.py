"""Selection, last part: each candidate's rank is how many are better, and is its place.

Counting needs no sort: every candidate finds its own place, and writes its own beam. The order
(higher key, lower parent, lower token) is one int64, so there are no ties and no place is taken
twice.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import (
    rank_in_row,
    row_bounds,
    row_start,
    token_at,
)
from beamsieve_backends.triton_slots.ordering import (
    DEAD,
    LARGEST_ID,
    NOTHING,
    unordered,
)


@triton.jit
def leads_to(entry, live, following, last, ragged):
    """Which row, or leaf, each entry (int64, where ``live``) leads to, and whether it ends there;
    ``following``, ``last`` and ``ragged`` as of :func:`rank_and_write`."""
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first = following
    ends = live & (last != 0)
    if ragged != 0:
        ends = live
        if last == 0:
            opens, closes = row_bounds(
                next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, entry, live
            )
            ends = live & (opens == closes)
        leaf = tl.load(leaf_first + entry, mask=ends, other=0)
        entry = tl.where(ends, leaf, entry)
    return entry, ends


@triton.jit
def _successors(
    identity, slot, live, b, beams, table, following, units, M, V, T, last, ragged,
    BY_SLOT: tl.constexpr, T_UP: tl.constexpr,
):  # fmt: skip
    """What the candidates ``identity`` (``m * V + token``) of request b, where ``live``, become.

    Arguments as of :func:`rank_and_write`; slot: theirs. Returns ``(parent, token, entry,
    ends, done, past)``: the new beam's row or leaf, whether it is finished, and whether its parent
    was; and the parent's tokens, [n, T_UP].
    """
    rows, finished, history = beams
    t = tl.arange(0, T_UP)
    parent = tl.where(live, identity // V, 0)
    token = tl.where(live, identity % V, 0)
    row = tl.load(rows + b * M + parent, mask=live, other=0)
    done = tl.load(finished + b * M + parent, mask=live, other=0) != 0
    past = tl.load(
        history + (b * M + parent)[:, None] * (T - 1) + t[None, :],
        mask=live[:, None] & (t < T - 1)[None, :],
        other=0,
    )
    step_from = live & (done == 0)
    entry = row
    if BY_SLOT:
        first_entry, unit_starts, slots_each, further_each = units
        begins = tl.load(unit_starts + b * (M + 1) + parent, mask=step_from, other=0)
        own = M * slots_each
        behind = slots_each + slot - own - begins * further_each
        of_row = tl.where(slot < own, slot - parent * slots_each, behind)
        entry = tl.load(first_entry + b * M + parent, mask=step_from, other=0)
        entry += of_row.to(tl.int64)
    else:
        (
            start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, tokens,
            token_bits, bitmaps, ranks, rank_mask, words, rank_words, dense, search_steps,
        ) = table  # fmt: skip
        if dense != 0:
            # Its loads are under way while the row's start is looked up.
            within = rank_in_row(
                bitmaps, ranks, rank_mask, words, rank_words, row, token, step_from
            )
            entry = within + row_start(
                start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row,
                step_from,
            )  # fmt: skip
        else:
            low, high = row_bounds(
                start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row,
                step_from,
            )  # fmt: skip
            for _ in range(search_steps):
                middle = (low + high) // 2
                searching = step_from & (low < high)
                less = searching & (token_at(tokens, token_bits, middle, searching) < token)
                low = tl.where(less, middle + 1, low)
                high = tl.where(searching & (less == 0), middle, high)
            entry = low
    entry, ends = leads_to(entry, step_from, following, last, ragged)
    return parent, token, tl.where(done, row, entry), ends | done, done, past


@triton.jit
def ranked(keys, n, mine, OWN: tl.constexpr, OTHERS: tl.constexpr):
    """int32 [OWN], int32: how many of the n packed candidates are better than each of ``mine``, and
    how many live."""
    against = tl.arange(0, OTHERS)
    nothing = tl.full((), NOTHING, tl.int64) | LARGEST_ID
    better = tl.zeros((OWN, OTHERS), tl.int32)
    living = tl.zeros((OTHERS,), tl.int32)
    # Four loads are under way at once: what a round takes is the wait for them.
    for other_first in range(0, n, 4 * OTHERS):
        at = other_first + against
        one = tl.load(keys + at, mask=at < n, other=NOTHING)
        two = tl.load(keys + at + OTHERS, mask=at + OTHERS < n, other=NOTHING)
        three = tl.load(keys + at + 2 * OTHERS, mask=at + 2 * OTHERS < n, other=NOTHING)
        four = tl.load(keys + at + 3 * OTHERS, mask=at + 3 * OTHERS < n, other=NOTHING)
        better += (one[None, :] > mine[:, None]).to(tl.int32)
        better += (two[None, :] > mine[:, None]).to(tl.int32)
        better += (three[None, :] > mine[:, None]).to(tl.int32)
        better += (four[None, :] > mine[:, None]).to(tl.int32)
        living += (one > nothing).to(tl.int32) + (two > nothing).to(tl.int32)
        living += (three > nothing).to(tl.int32) + (four > nothing).to(tl.int32)
    return tl.sum(better, 1), tl.sum(living)


@triton.jit
def write_beams(
    rank, live, key, score, parent, token, entry, ends, done, past, b, out, W, T,
    T_UP: tl.constexpr,
):  # fmt: skip
    """Write candidates whose ``rank`` is a place."""
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, _ = out
    t = tl.arange(0, T_UP)
    keep = live & (rank < W)
    where = b * W + rank
    tl.store(out_keys + where, key, mask=keep)
    tl.store(out_scores + where, score, mask=keep)
    tl.store(out_rows + where, entry, mask=keep)
    tl.store(out_parents + where, parent.to(tl.int64), mask=keep)
    tl.store(out_finished + where, ends.to(tl.int8), mask=keep)
    newest = tl.where(done, -1, token).to(tl.int32)
    line = tl.where((t == T - 1)[None, :], newest[:, None], past)
    where = where[:, None] * T + t[None, :]
    tl.store(out_tokens + where, line, mask=keep[:, None] & (t < T)[None, :])


@triton.jit
def write_padding(alive, b, out, W, T, T_UP: tl.constexpr, OWN: tl.constexpr):
    """Write how many beams request b has, and what fills the places behind them."""
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count = out
    lane = tl.arange(0, OWN)
    t = tl.arange(0, T_UP)
    kept = tl.minimum(alive, W)
    tl.store(out_count + b, kept.to(tl.int64))
    for first in range(kept, W, OWN):
        place = first + lane
        empty = place < W
        where = b * W + place
        no_score = tl.full((OWN,), float("-inf"), tl.float32)
        minus_one = tl.full((OWN,), -1, tl.int64)
        tl.store(out_keys + where, no_score, mask=empty)
        tl.store(out_scores + where, no_score, mask=empty)
        tl.store(out_rows + where, minus_one, mask=empty)
        tl.store(out_parents + where, minus_one, mask=empty)
        tl.store(out_finished + where, tl.zeros((OWN,), tl.int8), mask=empty)
        tl.store(
            out_tokens + where[:, None] * T + t[None, :],
            tl.full((OWN, T_UP), -1, tl.int32),
            mask=empty[:, None] & (t < T)[None, :],
        )


@triton.jit
def rank_and_write(
    keys, scores, slots, n, has_scores, b, begin, stride, before, pads, beams, table, following,
    units, out, M, V, W, T, last, ragged,
    BY_SLOT: tl.constexpr, T_UP: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """Write the n candidates of request b as beams, in order, as far as they are among its W best.

    Args:
        keys: packed candidates, of which this program places ``begin : begin + OWN`` and what
            follows in steps of ``stride``; scores, where they are not the keys; slots, if BY_SLOT.
        before: how many better ones the request has beside these n.
        pads: whether this program writes the padding, too; no worse ones are beside the n then.
        beams: rows, finished and history of all requests; history int32 [B, M, T - 1].
        BY_SLOT: a child's row follows from its slot and ``units``: first_entry int64 [B, M],
            unit_starts int32 [B, M + 1], and the slots of a beam's own and of its further units.
        table: unless BY_SLOT, row starts, tokens, bitmaps and ranks, whether the table is dense
            (bitmap and rank tell a child's row) or not (a search in the row's tokens, in so many
            halvings).
        following: the next table's row starts, and leaf_first, int64 [entries], each entry's first
            leaf, where semantic IDs are of several lengths (``ragged``).
        out: out_tokens … out_count. last: whether this is the last table.
    """
    lane = tl.arange(0, OWN)
    alive = 0
    for first in range(begin, n, stride):
        i = first + lane
        mine = tl.load(keys + i, mask=i < n, other=NOTHING)
        ordered_key = (mine >> 32).to(tl.int32)
        live = (i < n) & (ordered_key > DEAD)
        identity = ((mine & LARGEST_ID) ^ LARGEST_ID).to(tl.int32)
        key = unordered(ordered_key)
        score = key
        if has_scores != 0:
            score = tl.load(scores + i, mask=live, other=0.0)
        slot = i
        if BY_SLOT:
            slot = tl.load(slots + i, mask=live, other=0)
        # All look-ups come before the counting, which they need not wait for.
        parent, token, entry, ends, done, past = _successors(
            identity, slot, live, b, beams, table, following, units, M, V, T, last, ragged,
            BY_SLOT, T_UP,
        )  # fmt: skip
        rank, alive = ranked(keys, n, mine, OWN, OTHERS)
        write_beams(
            before + rank, live, key, score, parent, token, entry, ends, done, past, b, out, W, T,
            T_UP,
        )  # fmt: skip
    if pads:
        write_padding(before + alive, b, out, W, T, T_UP, OWN)


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "dense", "search_steps", "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last",
    "ragged", "CAPACITY",
])  # fmt: skip
def write_best(
    keys, scores, count,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, dense, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, CAPACITY,
    T_UP: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """:func:`rank_and_write` by several programs per request. keys, scores: [B, CAPACITY], of which
    ``count`` [B] are set."""
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    table = (
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, tokens,
        token_bits, bitmaps, ranks, rank_mask, words, rank_words, dense, search_steps,
    )  # fmt: skip
    following = (
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    )  # fmt: skip
    out = (out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count)
    rank_and_write(
        keys + b * CAPACITY, scores + b * CAPACITY, None, tl.load(count + b), 1, b,
        tl.program_id(1) * OWN, tl.num_programs(1) * OWN, 0, tl.program_id(1) == 0,
        (rows, finished, history), table, following, None, out, M, V, W, T, last, ragged, False,
        T_UP, OWN, OTHERS,
    )  # fmt: skip
