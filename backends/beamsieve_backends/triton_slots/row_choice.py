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
    NOTHING,
    ordered,
    packed,
    places_held,
    threshold_held,
    unordered,
    usable,
)
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
def _key(logit, score, top, log_sum):
    return usable(score + ((logit - top) - log_sum))


@triton.jit
def _write(
    code, rank, b, first_row, done, history, row, following, out, W, T, last, ragged,
    T_UP: tl.constexpr,
):  # fmt: skip
    """Write the candidates ``code`` (packed) as beams, each at its place ``rank``."""
    tokens, token_bits, _, bitmap, ranks, rank_mask, words, rank_words, has_holes, listed = row
    ordered_key = (code >> 32).to(tl.int32)
    live = ordered_key > DEAD
    place = ((code & LARGEST_ID) ^ LARGEST_ID).to(tl.int32)
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
    past = tl.zeros((code.shape[0], T_UP), tl.int32)
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
    "next_kind", "next_shift", "next_gap", "n", "V", "W", "T", "last", "ragged", "SLACK",
])  # fmt: skip
def choose_row(
    scores, logits, candidates, rows, finished, history,
    tokens, token_bits, bits, bitmap, ranks, rank_mask, words, rank_words, has_holes, listed,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    n, V, W, T, last, ragged, SLACK,
    GIVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BOUND: tl.constexpr,
    DIRECT: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr, T_UP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Several programs per request.

    Args:
        scores, rows, finished: [B]; history: int32 [B, T - 1]; of the requests' one beam.
        logits: float32 [B, ROWS * COLUMNS], as ``row_logits.multiply_row`` wrote them; or, if
            GIVEN, the caller's, [B, V].
        candidates: workspace, int64 [B, ROWS * COLUMNS].
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
    own_logits = logits + b * (V if GIVEN else PLACES)
    first_row = tl.load(rows + b)
    done = (tl.load(finished + b) != 0) & (first_row >= 0)
    live = (first_row >= 0) & (done == 0)
    score = tl.load(scores + b)
    place = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    logit = _logits_at(own_logits, place, row, live, done, n, GIVEN)
    own = tl.program_id(1) * OWN + tl.arange(0, OWN)
    if DIRECT:
        own_logit = _logits_at(own_logits, own, row, live, done, n, GIVEN)
    largest = tl.max(logit, 0)
    top = tl.max(largest)
    top = tl.where(top == float("-inf"), 0.0, top)
    mass = tl.sum(tl.sum(tl.exp(logit - top), 0))
    log_sum = tl.where(mass > 0.0, tl.log(mass), 0.0)
    key = _key(logit, score, top, log_sum)
    if DIRECT:
        code = packed(key, place)
        mine = packed(_key(own_logit, score, top, log_sum), own)
        better = (code[None, :, :] > mine[:, None, None]).to(tl.int32)
        rank = tl.sum(tl.sum(better, 1), 1)
        _write(
            mine, rank, b, first_row, done, history, row, following, out, W, T, last, ragged, T_UP
        )
        if tl.program_id(1) == 0:
            alive = tl.sum((key > float("-inf")).to(tl.int32))
            write_padding(alive, b, out, W, T, T_UP, PADDED)
    else:
        candidates += b * PLACES
        crowded = W >= 0
        if BOUND:
            # The order of logits is that of keys, though keys may be equal where they are not.
            bound, _ = threshold_held(ordered(largest), W, SLACK)
            bound = _key(unordered(bound), score, top, log_sum)
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
            tl.store(candidates + to, packed(key, place), mask=keep)
        elif BOUND:
            before = tl.cumsum(in_column, 0) - in_column
            to = before[None, :] + tl.cumsum(passes, 0) - passes
            tl.store(candidates + to, packed(key, place), mask=passes > 0)
        tl.debug_barrier()
        begin, stride = tl.program_id(1) * OWN, tl.num_programs(1) * OWN
        for first in range(begin, count, stride):
            at = first + tl.arange(0, OWN)
            mine = tl.load(candidates + at, mask=at < count, other=NOTHING)
            rank, _ = ranked(candidates, count, mine, OWN, OTHERS)
            _write(
                mine, rank, b, first_row, done, history, row, following, out, W, T, last, ragged,
                T_UP,
            )  # fmt: skip
        if begin == 0:
            write_padding(count, b, out, W, T, T_UP, PADDED)
