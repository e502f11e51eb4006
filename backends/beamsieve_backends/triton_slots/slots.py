"""Selective projection: only the valid tokens of each beam, their head rows read in place.

Beam m's first SLOTS valid tokens have the slots of unit m, so they need no search and no
compaction. What a row has beyond them lies in further units of SLOTS behind those of all beams, so
that work follows the sum of the degrees: a wide row costs what its own tokens cost, and nobody
waits for it. One kernel finds the tokens, one scores them (and finds them too, where programs are
few), one normalises and chooses.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import row_bounds, token_at, token_of_rank
from beamsieve_backends.triton_slots.ordering import NOTHING, best_from, packed, usable
from beamsieve_backends.triton_slots.rank import BY_SLOT, rank_and_write
from beamsieve_backends.triton_slots.targeting import permitted

EMPTY = tl.constexpr(-1)
"""In place of a token: there is none."""
FEW = tl.constexpr(32)
"""A beam with more further units than this has a wide row."""
NOBODY = tl.constexpr(1 << 30)
FINISHED = tl.constexpr(-2)
"""In place of a token: the beam is finished, and goes on as it is."""


@triton.jit
def _tokens(
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, row, first, rank, real,
    DENSE: tl.constexpr,
):  # fmt: skip
    """The tokens [n, slots] of n rows that so many others (``rank``) come before."""
    rank = rank.to(tl.int64)
    if DENSE:
        lines = row[:, None] + tl.zeros(rank.shape, tl.int64)
        return token_of_rank(bitmaps, ranks, rank_mask, words, rank_words, lines, rank, real)
    return token_at(tokens, token_bits, first[:, None] + rank, real)


@triton.jit
def _find(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    slot_tokens, first_entry, degrees, unit_starts, unit_beam, b, M, CAPACITY, UNIT_CAPACITY,
    SLOTS: tl.constexpr, BEAMS_UP: tl.constexpr, SEARCHED: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """:func:`find_slots` for request b."""
    rows += b * M
    first_entry += b * M
    degrees += b * M
    unit_starts += b * (M + 1)
    unit_beam += b * UNIT_CAPACITY
    slot_tokens += b * CAPACITY
    m = tl.arange(0, BEAMS_UP)
    inside = m < M
    row = tl.load(rows + m, mask=inside, other=-1)
    done = (row >= 0) & (tl.load(finished + b * M + m, mask=inside, other=0) != 0)
    live = (row >= 0) & (done == 0)
    first, end = row_bounds(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row, live
    )
    degree = (end - first).to(tl.int32)
    further = tl.where(degree > SLOTS, (degree - 1) // SLOTS, 0)
    ends = tl.cumsum(further, 0)
    total = tl.sum(further)
    tl.store(first_entry + m, tl.where(done, row, first), mask=inside)
    tl.store(degrees + m, degree, mask=inside)
    tl.store(unit_starts + m, ends - further, mask=inside)
    tl.store(unit_starts + M, total)
    slot = tl.arange(0, SLOTS)
    real = slot[None, :] < degree[:, None]
    rank = slot[None, :] + tl.zeros((BEAMS_UP, SLOTS), tl.int32)
    token = _tokens(
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, row, first, rank, real,
        DENSE,
    )  # fmt: skip
    none = tl.where(done[:, None] & (slot == 0)[None, :], FINISHED, EMPTY)
    token = tl.where(real, token, none)
    tl.store(slot_tokens + m[:, None] * SLOTS + slot[None, :], token, mask=inside[:, None])
    if total > 0:
        tl.debug_barrier()
        for begin in range(0, total, SEARCHED):
            unit = begin + tl.arange(0, SEARCHED)
            there = unit < total
            # The last beam with no more than ``unit`` units before it.
            low = tl.zeros((SEARCHED,), tl.int32)
            high = low + M
            width = M
            while width > 1:
                middle = (low + high) // 2
                searching = there & (high - low > 1)
                before = tl.load(unit_starts + middle, mask=searching, other=0)
                low = tl.where(searching & (before <= unit), middle, low)
                high = tl.where(searching & (before > unit), middle, high)
                width = (width + 1) // 2
            before = tl.load(unit_starts + low, mask=there, other=0)
            passed = SLOTS * (1 + unit - before)
            rank_here = passed[:, None] + slot[None, :]
            width_here = tl.load(degrees + low, mask=there, other=0)
            real_here = there[:, None] & (rank_here < width_here[:, None])
            found = _tokens(
                tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
                tl.load(rows + low, mask=there, other=0),
                tl.load(first_entry + low, mask=there, other=0), rank_here, real_here, DENSE,
            )  # fmt: skip
            tl.store(unit_beam + unit, low, mask=there)
            at = (M + unit)[:, None] * SLOTS + slot[None, :]
            tl.store(slot_tokens + at, tl.where(real_here, found, EMPTY), mask=there[:, None])


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words", "M",
    "CAPACITY", "UNIT_CAPACITY",
])  # fmt: skip
def find_slots(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    slot_tokens, first_entry, degrees, unit_starts, unit_beam, M, CAPACITY, UNIT_CAPACITY,
    SLOTS: tl.constexpr, BEAMS_UP: tl.constexpr, SEARCHED: tl.constexpr, DENSE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The tokens of all slots of a request; one program each.

    Args:
        slot_tokens: out, int32 [B, CAPACITY]; EMPTY where there is none, FINISHED in the first slot
            of a finished beam. first_entry: out, int64 [B, M]; a finished beam's leaf.
        degrees: workspace, int32 [B, M].
        unit_starts: out, int32 [B, M + 1]; the further units of the beams before each.
        unit_beam: out, int32 [B, UNIT_CAPACITY]; whose each further unit is.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    _find(
        rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
        start_gap, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, slot_tokens,
        first_entry, degrees, unit_starts, unit_beam, tl.program_id(0).to(tl.int64), M, CAPACITY,
        UNIT_CAPACITY, SLOTS, BEAMS_UP, SEARCHED, DENSE,
    )  # fmt: skip


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "has_bias", "M", "V", "CAPACITY", "UNIT_CAPACITY", "has_parts", "segments", "bit_words",
    "has_sets", "batch", "over_kept",
])  # fmt: skip
def score_slots(
    rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, degrees,
    hidden, head, bias, logits, scores, has_bias, slot_tokens, first_entry, unit_starts, unit_beam,
    slot_scores, unit_peak, unit_sum, M, V, D, CAPACITY, UNIT_CAPACITY,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    over_kept,
    FIND: tl.constexpr, BEAMS_UP: tl.constexpr, SEARCHED: tl.constexpr, DENSE: tl.constexpr,
    UNITS: tl.constexpr, SLOTS: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_LOGITS: tl.constexpr, TARGETED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The logit of every slot that ``find_slots`` filled, and each unit's share of the log-softmax.

    Args:
        slot_scores: out, float32 [B, CAPACITY]; the logit; -inf where a slot is empty.
        unit_peak, unit_sum: out, float32 [B, M + UNIT_CAPACITY].
        TARGETED: the arguments from ``part_starts`` on are those of ``targeting.permitted``, and
            what it does not permit scores -inf; ``over_kept``: and is no part of the log-softmax.
        FIND: ``find_slots`` is done here, by every program for itself, which saves a launch where
            programs are few.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    if FIND:
        _find(
            rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift,
            start_gap, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
            slot_tokens, first_entry, degrees, unit_starts, unit_beam, b, M, CAPACITY,
            UNIT_CAPACITY, SLOTS, BEAMS_UP, SEARCHED, DENSE,
        )  # fmt: skip
        tl.debug_barrier()
    slot_scores += b * CAPACITY
    slot_tokens += b * CAPACITY
    unit_starts += b * (M + 1)
    n = M + tl.load(unit_starts + M)
    slot = tl.arange(0, SLOTS)
    for begin in range(tl.program_id(1) * UNITS, n, tl.num_programs(1) * UNITS):
        unit = begin + tl.arange(0, UNITS)
        there = unit < n
        other = there & (unit >= M)
        m = tl.load(unit_beam + b * UNIT_CAPACITY + unit - M, mask=other, other=0)
        m = tl.where(there & (unit < M), unit, m)
        beam = b * M + m
        at = unit[:, None] * SLOTS + slot[None, :]
        token = tl.load(slot_tokens + at, mask=there[:, None], other=EMPTY)
        real = token >= 0
        safe = tl.where(real, token, 0)
        if HAS_LOGITS:
            logit = tl.load(logits + beam[:, None] * V + safe, mask=real, other=0.0)
            logit = logit.to(tl.float32)
        else:
            logit = tl.zeros((UNITS, SLOTS), tl.float32)
            at_head = safe.to(tl.int64) * D
            for first_k in range(0, D, BLOCK_K):
                k = first_k + tl.arange(0, BLOCK_K)
                h_there = there[:, None]
                w_there = real[:, :, None]
                if EVEN == 0:
                    h_there = h_there & (k < D)[None, :]
                    w_there = w_there & (k < D)[None, None, :]
                h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=h_there, other=0.0)
                w = tl.load(head + at_head[:, :, None] + k[None, None, :], mask=w_there, other=0.0)
                logit += tl.sum(h.to(tl.float32)[:, None, :] * w.to(tl.float32), 2)
            if has_bias != 0:
                logit += tl.load(bias + safe, mask=real, other=0.0)
        logit = tl.where(real, usable(logit), tl.where(token == FINISHED, 0.0, float("-inf")))
        counted = logit
        if TARGETED:
            before = tl.load(unit_starts + m, mask=other, other=0)
            passed = tl.where(other, SLOTS * (1 + unit - M - before), 0)
            entry = tl.load(first_entry + beam, mask=there, other=0) + passed.to(tl.int64)
            kept = permitted(
                entry[:, None] + slot[None, :], real, b,
                part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
                bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
                leaf_end, has_sets, batch,
            )  # fmt: skip
            logit = tl.where(kept | (token == FINISHED), logit, float("-inf"))
            counted = tl.where(over_kept != 0, logit, counted)
        peak = tl.max(counted, 1)
        reference = tl.where(peak == float("-inf"), 0.0, peak)
        mass = tl.sum(tl.exp(counted - reference[:, None]), 1)
        to = b * (M + UNIT_CAPACITY) + unit
        tl.store(unit_peak + to, peak, mask=there)
        tl.store(unit_sum + to, mass, mask=there)
        tl.store(slot_scores + at, logit, mask=there[:, None])


@triton.jit
def _with_further(unit_peak, unit_sum, peak, mass, opens, count, m):
    """Each beam's share with that of its further units; a wide row's are looked at many at once."""
    eight = tl.arange(0, 8)
    for done in range(0, tl.minimum(tl.max(count), FEW), 8):
        there = (done + eight)[None, :] < count[:, None]
        at = opens[:, None] + done + eight[None, :]
        more = tl.load(unit_peak + at, mask=there, other=float("-inf"))
        share = tl.load(unit_sum + at, mask=there, other=0.0)
        top = tl.maximum(peak, tl.max(more, 1))
        reference = tl.where(top == float("-inf"), 0.0, top)
        mass = mass * tl.exp(peak - reference)
        mass += tl.sum(share * tl.exp(more - reference[:, None]), 1)
        peak = top
    many = tl.arange(0, 256)
    next_wide = tl.min(tl.where(count > FEW, m, NOBODY))
    while next_wide < NOBODY:
        own = m == next_wide
        first = tl.sum(tl.where(own, opens, 0)) + FEW
        n = tl.sum(tl.where(own, count, 0)) - FEW
        for begin in range(0, n, 256):
            there = begin + many < n
            more = tl.load(unit_peak + first + begin + many, mask=there, other=float("-inf"))
            share = tl.load(unit_sum + first + begin + many, mask=there, other=0.0)
            top = tl.maximum(peak, tl.max(more))
            reference = tl.where(top == float("-inf"), 0.0, top)
            largest = tl.max(tl.where(own, reference, float("-inf")))
            added = tl.sum(share * tl.exp(more - largest))
            mass = tl.where(own, mass * tl.exp(peak - reference) + added, mass)
            peak = tl.where(own, top, peak)
        next_wide = tl.min(tl.where((count > FEW) & (m > next_wide), m, NOBODY))
    return peak, mass


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "search_steps", "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last", "ragged",
    "SLACK", "CAPACITY", "UNIT_CAPACITY", "has_bonus", "has_nudge",
])  # fmt: skip
def finish_slots(
    scores, slot_scores, slot_tokens, unit_peak, unit_sum, unit_starts, unit_beam,
    first_entry, bonus, nudge, tops, log_sums, candidates, candidate_scores, best_keys,
    best_scores, best_slots,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, CAPACITY, UNIT_CAPACITY, has_bonus, has_nudge,
    SLOTS: tl.constexpr, BEAM_BLOCK: tl.constexpr, CHUNK: tl.constexpr, DIRECT: tl.constexpr,
    T_UP: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Log-probabilities, and the W best of what ``score_slots`` wrote.

    Args:
        tops, log_sums: workspace, float32 [B, M]. candidates, best_keys: int64, candidate_scores,
            best_scores: float32, best_slots: int32, all workspace [B, CAPACITY]. As in ``finish``,
            all programs of a request write the same there.
        DIRECT: there are few slots, so all of them are ranked, without a threshold before.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    candidates += b * CAPACITY
    candidate_scores += b * CAPACITY
    best_keys += b * CAPACITY
    best_scores += b * CAPACITY
    best_slots += b * CAPACITY
    unit_peak += b * (M + UNIT_CAPACITY)
    unit_sum += b * (M + UNIT_CAPACITY)
    units = M + tl.load(unit_starts + b * (M + 1) + M)
    n = units * SLOTS
    for begin in range(0, M, BEAM_BLOCK):
        m = begin + tl.arange(0, BEAM_BLOCK)
        inside = m < M
        peak = tl.load(unit_peak + m, mask=inside, other=float("-inf"))
        mass = tl.load(unit_sum + m, mask=inside, other=0.0)
        if units > M:
            opens = tl.load(unit_starts + b * (M + 1) + m, mask=inside, other=0)
            count = tl.load(unit_starts + b * (M + 1) + m + 1, mask=inside, other=0) - opens
            peak, mass = _with_further(unit_peak + M, unit_sum + M, peak, mass, opens, count, m)
        tl.store(tops + b * M + m, tl.where(peak == float("-inf"), 0.0, peak), mask=inside)
        log_sum = tl.where(mass > 0.0, tl.log(mass), 0.0)
        tl.store(log_sums + b * M + m, log_sum, mask=inside)
    tl.debug_barrier()
    for begin in range(0, n, CHUNK):
        slot = begin + tl.arange(0, CHUNK)
        real = slot < n
        logit = tl.load(slot_scores + b * CAPACITY + slot, mask=real, other=float("-inf"))
        token = tl.load(slot_tokens + b * CAPACITY + slot, mask=real, other=EMPTY)
        unit = slot // SLOTS
        m = tl.load(unit_beam + b * UNIT_CAPACITY + unit - M, mask=real & (unit >= M), other=0)
        m = tl.where(real & (unit < M), unit, m)
        beam = b * M + m
        # What is not there scores -inf, whatever the rest is.
        score = tl.load(scores + beam, mask=real, other=0.0)
        top = tl.load(tops + beam, mask=real, other=0.0)
        total = score + ((logit - top) - tl.load(log_sums + beam, mask=real, other=0.0))
        is_token = token >= 0
        token = tl.where(is_token, token, 0)
        if has_bonus != 0:
            total += tl.load(bonus + beam * V + token, mask=is_token, other=0.0)
        total = usable(total)
        key = total
        if has_nudge != 0:
            key += tl.load(nudge + beam * V + token, mask=is_token, other=0.0)
            key = usable(key)
            tl.store(candidate_scores + slot, total, mask=real)
        tl.store(candidates + slot, packed(key, m * V + token), mask=real)
    tl.debug_barrier()
    if DIRECT:
        best_keys = candidates
        best_scores = candidate_scores
        kept = n
    else:
        tau = best_from(candidates, n, W, SLACK, CHUNK)
        kept = 0
        for begin in range(0, n, CHUNK):
            slot = begin + tl.arange(0, CHUNK)
            whole = tl.load(candidates + slot, mask=slot < n, other=NOTHING)
            keep = whole >= tau
            place = kept + tl.cumsum(keep.to(tl.int32), 0) - 1
            kept += tl.sum(keep.to(tl.int32))
            score = tl.load(candidate_scores + slot, mask=keep & (has_nudge != 0), other=0.0)
            tl.store(best_keys + place, whole, mask=keep)
            tl.store(best_scores + place, score, mask=keep & (has_nudge != 0))
            tl.store(best_slots + place, slot, mask=keep)
        tl.debug_barrier()
    rank_and_write(
        best_keys, best_scores, best_slots, kept, has_nudge, b, tl.program_id(1) * OWN,
        tl.num_programs(1) * OWN, rows, finished, history,
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
        tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, BY_SLOT, search_steps,
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
        first_entry, unit_starts, SLOTS, DIRECT,
        out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
        M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
    )  # fmt: skip
