"""The choice of a step of one beam over a table of one row, from its logits.

    mass = log-sum-exp(logits[b])
    keys = scores[b] + (logits[b] - mass)
    best = sorted(keys, key = (-key, place in row))[:W]

All programs of a request hold all its keys, and each writes its share of the beams. What is held is
a block [ROWS, COLUMNS] of which a thread holds whole columns: the largest of each column stand for
all, as long as there are more columns than beams are kept. The W-th best of them is a bound that
not many more than W keys reach.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
# What one constant of a kernel decides is bound, or used, as the same constant says.
# pyright: reportPossiblyUnboundVariable=false
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import rank_in_row, token_at
from beamsieve_backends.triton_slots.ordering import (
    DEAD,
    LARGEST_ID,
    LOWEST,
    NOTHING,
    narrowed,
    ordered,
    packed,
    places_held,
    threshold_held,
    unordered,
    usable,
)
from beamsieve_backends.triton_slots.project import exp_of_difference
from beamsieve_backends.triton_slots.rank import leads_to, ranked, write_beams, write_padding
from beamsieve_backends.triton_slots.row_logits import as_candidates, has_token

PADDED = tl.constexpr(128)
"""Places that are padded at once."""


@triton.jit
def _logits_at(logits, place, row, live, done, n, GIVEN: tl.constexpr):
    """float32: logits as they may win, at these places; GIVEN ones as the caller has them."""
    if not GIVEN:
        return tl.load(logits + place)
    tokens, token_bits, bitmap, _, _, _, _, _, has_holes, listed = row
    inside = place < n
    at = place
    if listed != 0:
        at = token_at(tokens, token_bits, place.to(tl.int64), inside)
    logit = tl.load(logits + at, mask=inside, other=float("-inf")).to(tl.float32)
    return as_candidates(logit, place, has_token(bitmap, place, inside, has_holes), live, done)


@triton.jit
def _where_kept(kept, logit, place, done, n):
    """Logits of places that targeting lets win; of the others -inf. Of a finished beam's it has
    nothing to say."""
    word = tl.load(kept + (place >> 5), mask=place < n, other=0)
    return tl.where((((word >> (place & 31)) & 1) != 0) | done, logit, float("-inf"))


@triton.jit
def _key(logit, score, top, log_sum):
    """float32, -inf or finite, as the logit and the score are."""
    return score + ((logit - top) - log_sum)


@triton.jit
def _bound(largest, top, k, slack):
    """A logit that ``k`` to ``k + slack`` of ``largest`` reach, or more where many are equal; below
    all that live where fewer do. ``top`` is their largest."""
    keys = ordered(largest)
    low = tl.min(keys)
    high = ordered(top) + 1
    reached = largest.shape[0]
    if low == DEAD:
        reached = tl.sum((keys > DEAD).to(tl.int32))
        low = DEAD + 1
    low, _, _ = narrowed(keys, low, high, reached, k, slack)
    return unordered(low)


@triton.jit
def _ranked_among(key, place, mine, own, begin):
    """How many of the ordered keys [ROWS, COLUMNS] are better than each of ``mine`` [OWN], which
    are the keys at ``own``, from ``begin`` on.

    One comparison each: of the places before, an equal key is better, of those behind it is not.
    Its own places are compared apart.
    """
    behind = place >= begin
    against = tl.where(behind & (place < begin + own.shape[0]), LOWEST, key - behind.to(tl.int32))
    better = (against[None, :, :] >= mine[:, None, None]).to(tl.int32)
    tied = (mine[None, :] == mine[:, None]) & (own[None, :] < own[:, None])
    within = ((mine[None, :] > mine[:, None]) | tied).to(tl.int32)
    return tl.sum(tl.sum(better, 1), 1) + tl.sum(within, 1)


@triton.jit
def _append(candidates, to, code, keep):
    """Store in one dimension: in two, numbers would first change places among the threads."""
    size: tl.constexpr = code.shape[0] * code.shape[1]
    at = candidates + tl.reshape(to, (size,))
    tl.store(at, tl.reshape(code, (size,)), mask=tl.reshape(keep, (size,)))


@triton.jit
def _write(
    ordered_key, place, rank, b, first_row, done, history, row, following, out, W, T, last, ragged,
    T_UP: tl.constexpr,
):  # fmt: skip
    """Write candidates (ordered keys, places in the row) as beams, each as the ``rank``-th."""
    tokens, token_bits, _, bitmap, ranks, rank_mask, words, rank_words, has_holes, listed = row
    live = ordered_key > DEAD
    going = live & (done == 0)
    token = place
    if listed != 0:
        token = token_at(tokens, token_bits, place.to(tl.int64), going)
    entry = place.to(tl.int64)
    if has_holes != 0:
        nought = tl.zeros(place.shape, tl.int64)
        entry = rank_in_row(bitmap, ranks, rank_mask, words, rank_words, nought, place, going)
    entry, ends = leads_to(entry, going, following, last, ragged)
    entry = tl.where(done, first_row, entry)
    past = tl.zeros((place.shape[0], T_UP), tl.int32)
    if T_UP > 1:
        t = tl.arange(0, T_UP)
        there = live[:, None] & (t < T - 1)[None, :]
        past = tl.load(history + b * (T - 1) + t[None, :] + past, mask=there, other=0)
    key = unordered(ordered_key)
    write_beams(
        rank, live, key, key, place * 0, token, entry, ends | done, done, past, b, out, W, T, T_UP
    )


@triton.jit(do_not_specialize=[
    "token_bits", "rank_mask", "words", "rank_words", "has_holes", "listed",
    "next_kind", "next_shift", "next_gap", "n", "stride", "W", "T", "last", "ragged", "SLACK",
    "kept_words", "over_kept",
])  # fmt: skip
def choose_row(
    scores, logits, candidates, rows, finished, history, kept,
    tokens, token_bits, bits, bitmap, ranks, rank_mask, words, rank_words, has_holes, listed,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    n, stride, W, T, last, ragged, SLACK, kept_words, over_kept,
    TARGETED: tl.constexpr, GIVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BOUND: tl.constexpr, DIRECT: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
    T_UP: tl.constexpr, UPCAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Several programs per request.

    Args:
        scores, rows, finished: [B]; history: int32 [B, T - 1]; of the requests' one beam.
        logits: [B, stride]; float32 as ``row_logits.multiply_row`` wrote them, where stride is
            ROWS * COLUMNS; or, if GIVEN, the caller's, by token. A stride not known when it is
            compiled lets lanes take single logits in turns, so that none changes lanes later.
        candidates: workspace, int64 [B, ROWS * COLUMNS].
        kept: int32 [B, kept_words], if TARGETED: which places targeting lets win; ``over_kept``:
            and are the normalizer's.
        tokens … listed: the row, as ``multiply_row`` has it; ``bits`` is its bitmap in int32 words,
            ``bitmap`` in int64 ones, of which ``ranks`` count the tokens.
        next_array … ragged: as ``rank.rank_and_write`` has them.
        BOUND: a bound is found among columns' largest, which are many enough; else among all.
        DIRECT: keys are few, so each program compares its OWN with all.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    PLACES: tl.constexpr = ROWS * COLUMNS
    b = tl.program_id(0).to(tl.int64)
    row = (
        tokens, token_bits, bits, bitmap, ranks, rank_mask, words, rank_words, has_holes, listed,
    )  # fmt: skip
    following = (
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    )  # fmt: skip
    out = (out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count)
    own_logits = logits + b * stride
    first_row = tl.load(rows + b)
    done = (tl.load(finished + b) != 0) & (first_row >= 0)
    live = (first_row >= 0) & (done == 0)
    score = usable(tl.load(scores + b))
    place = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    logit = _logits_at(own_logits, place, row, live, done, n, GIVEN)
    own = tl.program_id(1) * OWN + tl.arange(0, OWN)
    if DIRECT:
        own_logit = _logits_at(own_logits, own, row, live, done, n, GIVEN)
    winning = logit
    if TARGETED:
        kept += b * kept_words
        winning = _where_kept(kept, logit, place, done, n)
        logit = tl.where(over_kept != 0, winning, logit)
        if DIRECT:
            own_logit = _where_kept(kept, own_logit, own, done, n)
    largest = tl.max(logit, 0)
    top = tl.max(largest)
    top = tl.where(top == float("-inf"), 0.0, top)
    mass = tl.sum(tl.sum(exp_of_difference(logit, top, UPCAST), 0))
    log_sum = tl.where(mass > 0.0, tl.log(mass), 0.0)
    key = _key(winning, score, top, log_sum)
    if DIRECT:
        begin = tl.program_id(1) * OWN
        mine = ordered(_key(own_logit, score, top, log_sum))
        rank = _ranked_among(ordered(key), place, mine, own, begin)
        _write(
            mine, own, rank, b, first_row, done, history, row, following, out, W, T, last, ragged,
            T_UP,
        )  # fmt: skip
        if tl.program_id(1) == 0:
            alive = tl.sum((key > float("-inf")).to(tl.int32))
            write_padding(alive, b, out, W, T, T_UP, PADDED)
    else:
        candidates += b * PLACES
        crowded = W >= 0
        if BOUND:
            # The order of logits is that of keys, though keys may be equal where they are not.
            best = top
            if TARGETED:
                largest = tl.max(winning, 0)
                best = tl.max(largest)
            bound = _key(_bound(largest, best, W, SLACK), score, top, log_sum)
            passes = ((key >= bound) & (key > float("-inf"))).to(tl.int32)
            in_column = tl.sum(passes, 0)
            count = tl.sum(in_column)
            # Many are equal, or the best lie in few columns.
            crowded = count > 2 * (W + SLACK)
        else:
            count = 0
        if crowded:
            tau, need = threshold_held(ordered(key), W, SLACK)
            keep, to, count = places_held(ordered(key), tau, need)
            _append(candidates, to, packed(key, place), keep)
        elif BOUND:
            before = tl.cumsum(in_column, 0) - in_column
            to = before[None, :] + tl.cumsum(passes, 0) - passes
            _append(candidates, to, packed(key, place), passes > 0)
        tl.debug_barrier()
        begin, stride = tl.program_id(1) * OWN, tl.num_programs(1) * OWN
        for first in range(begin, count, stride):
            at = first + tl.arange(0, OWN)
            mine = tl.load(candidates + at, mask=at < count, other=NOTHING)
            rank, _ = ranked(candidates, count, mine, OWN, OTHERS)
            _write(
                (mine >> 32).to(tl.int32), ((mine & LARGEST_ID) ^ LARGEST_ID).to(tl.int32), rank,
                b, first_row, done, history, row, following, out, W, T, last, ragged, T_UP,
            )  # fmt: skip
        if begin == 0:
            write_padding(count, b, out, W, T, T_UP, PADDED)
