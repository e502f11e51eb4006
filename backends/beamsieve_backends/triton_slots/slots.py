"""Selective projection: only the valid tokens of each beam, their head rows read in place.

Beam m's first ``slots_each`` valid tokens have slots of its own, ``m * slots_each`` and on, so they
need no search and no compaction. What a row has beyond them lies in tiles of ``tile_size`` slots
behind those of all beams, and programs of their own score the tiles: a wide row costs what its own
tokens cost, and nobody waits for it. A second kernel then normalises, and chooses.
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.lookup import row_start, token_at, token_of_rank
from beamsieve_backends.triton_slots.ordering import NOTHING, best_from, packed, usable
from beamsieve_backends.triton_slots.rank import BY_SLOT, rank_and_write
from beamsieve_backends.triton_slots.targeting import permitted


@triton.jit
def _candidates_of(
    rows, finished, start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    m, inside,
):  # fmt: skip
    """First entry (a finished beam's: its leaf), number of candidates, whether finished, row."""
    row = tl.load(rows + m, mask=inside, other=-1)
    done = (row >= 0) & (tl.load(finished + m, mask=inside, other=0) != 0)
    live = (row >= 0) & (done == 0)
    start = row_start(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row, live
    )
    end = row_start(
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, row + 1, live
    )
    return tl.where(done, row, start), tl.where(done, 1, (end - start).to(tl.int32)), done, row


@triton.jit
def _score(
    hidden, head, bias, logits, tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words,
    has_bias, row, passed, first, degree, done, beam, slot, V, D,
    EVEN: tl.constexpr, BLOCK_K: tl.constexpr, HAS_LOGITS: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Logits and tokens [n, slots] of n runs of entries: of which ``row``, behind how many others
    (``passed``), their ``first``, their length ``degree``, whose ``beam``. -inf where there is
    none; 0, with the token 0, for a finished beam."""
    inside = slot[None, :] < degree[:, None]
    real = _real(degree, done, slot)
    rank = passed[:, None] + slot[None, :].to(tl.int64)
    if DENSE:
        lines = row[:, None] + tl.zeros(rank.shape, tl.int64)
        token = token_of_rank(bitmaps, ranks, rank_mask, words, rank_words, lines, rank, real)
    else:
        token = token_at(tokens, token_bits, first[:, None] + rank, real)
    token = tl.where(real, token, 0)
    if HAS_LOGITS:
        logit = tl.load(logits + beam[:, None] * V + token, mask=real, other=0.0).to(tl.float32)
    else:
        logit = tl.zeros(token.shape, tl.float32)
        at_head = token.to(tl.int64) * D
        for begin in range(0, D, BLOCK_K):
            k = begin + tl.arange(0, BLOCK_K)
            used = degree > 0
            if EVEN:
                h = tl.load(hidden + beam[:, None] * D + k[None, :], mask=used[:, None], other=0.0)
                w = tl.load(
                    head + at_head[:, :, None] + k[None, None, :], mask=real[:, :, None], other=0.0
                )
            else:
                h = tl.load(
                    hidden + beam[:, None] * D + k[None, :],
                    mask=used[:, None] & (k < D)[None, :],
                    other=0.0,
                )
                w = tl.load(
                    head + at_head[:, :, None] + k[None, None, :],
                    mask=real[:, :, None] & (k < D)[None, None, :],
                    other=0.0,
                )
            logit += tl.sum(h.to(tl.float32)[:, None, :] * w.to(tl.float32), 2)
        if has_bias != 0:
            logit += tl.load(bias + token, mask=real, other=0.0)
    return tl.where(real, usable(logit), tl.where(inside, 0.0, float("-inf"))), token


@triton.jit
def _real(degree, done, slot):
    """Which slots hold a token."""
    return (slot[None, :] < degree[:, None]) & (done == 0)[:, None]


@triton.jit
def _share(logit):
    """Largest logit of each line, and the sum of exp(logit - largest)."""
    peak = tl.max(logit, 1)
    reference = tl.where(peak == float("-inf"), 0.0, peak)
    return peak, tl.sum(tl.exp(logit - reference[:, None]), 1)


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "has_bias", "M", "V", "CAPACITY",
    "TILE_CAPACITY", "wide_from", "rank_mask", "words", "rank_words", "has_parts", "segments",
    "bit_words", "has_sets", "batch", "over_kept",
])  # fmt: skip
def score_slots(
    hidden, head, bias, logits, rows, finished,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, has_bias,
    slot_logits, slot_tokens, first_entry, beam_peak, beam_sum,
    tile_starts, tile_beam, tile_peak, tile_sum,
    M, V, D, CAPACITY, TILE_CAPACITY, wide_from,
    part_starts, has_parts, segment_numbers, segments, index, matcher_rows,
    asks, bits, bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
    leaf_end, has_sets, batch,
    over_kept,
    BEAMS: tl.constexpr, SLOTS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
    BEAMS_UP: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr, TILE_K: tl.constexpr,
    HAS_LOGITS: tl.constexpr, DENSE: tl.constexpr, TARGETED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Every valid token of every beam: logit and token, and each beam's share of the log-softmax.

    The programs from ``wide_from`` on score the tiles, TILES at a time; those before, BEAMS beams.

    Args:
        slot_logits: out, float32 [B, CAPACITY]; -inf where a slot is empty. slot_tokens: int32.
        first_entry: out, int64 [B, M]. beam_peak, beam_sum: out, float32 [B, M]; of a beam's own
            slots.
        tile_starts: out, int32 [B, M + 1]; the tiles of the beams before each; only where there are
            programs for tiles. tile_beam, tile_peak, tile_sum: out, [B, TILE_CAPACITY].
        TARGETED: the arguments from ``part_starts`` on are those of ``targeting.permitted``, and
            what it does not permit scores -inf; ``over_kept``: and is no part of the log-softmax.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    slot_logits += b * CAPACITY
    slot_tokens += b * CAPACITY
    program = tl.program_id(1)
    if program < wide_from:
        m = program * BEAMS + tl.arange(0, BEAMS)
        inside = m < M
        first, degree, done, row = _candidates_of(
            rows + b * M, finished + b * M, start_array, start_bits, start_exceptions, start_kind,
            start_shift, start_gap, m, inside,
        )  # fmt: skip
        beam = b * M + m
        slot = tl.arange(0, SLOTS)
        logit, token = _score(
            hidden, head, bias, logits, tokens, token_bits, bitmaps, ranks, rank_mask, words,
            rank_words, has_bias, row, first - first, first, degree, done, beam, slot, V, D, EVEN,
            BLOCK_K, HAS_LOGITS, DENSE,
        )  # fmt: skip
        counted = logit
        if TARGETED:
            kept = permitted(
                first[:, None] + slot[None, :], _real(degree, done, slot), b,
                part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
                bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
                leaf_end, has_sets, batch,
            )  # fmt: skip
            logit = tl.where(kept | done[:, None], logit, float("-inf"))
            counted = tl.where(over_kept != 0, logit, counted)
        peak, mass = _share(counted)
        tl.store(first_entry + beam, first, mask=inside)
        tl.store(beam_peak + beam, peak, mask=inside)
        tl.store(beam_sum + beam, mass, mask=inside)
        at = m[:, None] * SLOTS + slot[None, :]
        tl.store(slot_logits + at, logit, mask=inside[:, None])
        tl.store(slot_tokens + at, token, mask=inside[:, None])
    else:
        everyone = tl.arange(0, BEAMS_UP)
        _first, degrees, _done, _rows = _candidates_of(
            rows + b * M, finished + b * M, start_array, start_bits, start_exceptions, start_kind,
            start_shift, start_gap, everyone, everyone < M,
        )  # fmt: skip
        tiles = tl.where(degrees > SLOTS, (degrees - SLOTS + TILE - 1) // TILE, 0)
        ends = tl.cumsum(tiles, 0)
        total = tl.sum(tiles)
        if program == wide_from:
            own = tile_starts + b * (M + 1)
            tl.store(own + everyone, ends - tiles, mask=everyone < M)
            tl.store(own + M, total)
        programs = tl.num_programs(1) - wide_from
        for begin in range((program - wide_from) * TILES, total, programs * TILES):
            tile = begin + tl.arange(0, TILES)
            real = tile < total
            m = tl.sum((ends[None, :] <= tile[:, None]).to(tl.int32), 1)
            m = tl.where(real, m, 0)
            before = tl.sum(
                tl.where(everyone[None, :] == m[:, None], (ends - tiles)[None, :], 0), 1
            )
            first, degree, done, row = _candidates_of(
                rows + b * M, finished + b * M, start_array, start_bits, start_exceptions,
                start_kind, start_shift, start_gap, m, real,
            )  # fmt: skip
            passed = SLOTS + (tile - before) * TILE
            left = tl.where(real, degree - passed, 0)
            slot = tl.arange(0, TILE)
            logit, token = _score(
                hidden, head, bias, logits, tokens, token_bits, bitmaps, ranks, rank_mask, words,
                rank_words, has_bias, row, passed.to(tl.int64), first, left, done, b * M + m, slot,
                V, D, EVEN, TILE_K, HAS_LOGITS, DENSE,
            )  # fmt: skip
            counted = logit
            if TARGETED:
                kept = permitted(
                    first[:, None] + passed.to(tl.int64)[:, None] + slot[None, :],
                    _real(left, done, slot), b,
                part_starts, has_parts, segment_numbers, segments, index, matcher_rows, asks, bits,
                bit_words, counts, table_starts, tables, mode, leaf_starts, leaves, leaf_first,
                leaf_end, has_sets, batch,
                )  # fmt: skip
                logit = tl.where(kept, logit, float("-inf"))
                counted = tl.where(over_kept != 0, logit, counted)
            peak, mass = _share(counted)
            to = b * TILE_CAPACITY + tile
            tl.store(tile_beam + to, m, mask=real)
            tl.store(tile_peak + to, peak, mask=real)
            tl.store(tile_sum + to, mass, mask=real)
            at = M * SLOTS + tile[:, None] * TILE + slot[None, :]
            tl.store(slot_logits + at, logit, mask=real[:, None])
            tl.store(slot_tokens + at, token, mask=real[:, None])


@triton.jit(do_not_specialize=[
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "search_steps", "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last", "ragged",
    "SLACK", "CAPACITY", "TILE_CAPACITY", "has_tiles", "has_bonus", "has_nudge", "slots_each",
    "tile_size",
])  # fmt: skip
def finish_slots(
    scores, slot_logits, slot_tokens, beam_peak, beam_sum, tile_starts, tile_beam, tile_peak,
    tile_sum, first_entry, bonus, nudge, tops, log_sums, candidates, candidate_scores, best_keys,
    best_scores, best_slots,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, child, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, CAPACITY, TILE_CAPACITY, slots_each, tile_size, has_tiles,
    has_bonus, has_nudge,
    BEAM_BLOCK: tl.constexpr, CHUNK: tl.constexpr, T_UP: tl.constexpr, OWN: tl.constexpr,
    OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Log-probabilities, and the W best of what ``score_slots`` wrote.

    Args:
        tops, log_sums: workspace, float32 [B, M]. candidates, best_keys: int64, candidate_scores,
            best_scores: float32, best_slots: int32, all workspace [B, CAPACITY]. As in ``finish``,
            all programs of a request write the same there.
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
    n = M * slots_each
    if has_tiles != 0:
        n += tl.load(tile_starts + b * (M + 1) + M) * tile_size
    for begin in range(0, M, BEAM_BLOCK):
        m = begin + tl.arange(0, BEAM_BLOCK)
        inside = m < M
        peak = tl.load(beam_peak + b * M + m, mask=inside, other=float("-inf"))
        mass = tl.load(beam_sum + b * M + m, mask=inside, other=0.0)
        if has_tiles != 0:
            opens = tl.load(tile_starts + b * (M + 1) + m, mask=inside, other=0)
            count = tl.load(tile_starts + b * (M + 1) + m + 1, mask=inside, other=0) - opens
            eight = tl.arange(0, 8)
            for done in range(0, tl.max(count), 8):
                there = (done + eight)[None, :] < count[:, None]
                at = b * TILE_CAPACITY + opens[:, None] + done + eight[None, :]
                more = tl.load(tile_peak + at, mask=there, other=float("-inf"))
                share = tl.load(tile_sum + at, mask=there, other=0.0)
                top = tl.maximum(peak, tl.max(more, 1))
                reference = tl.where(top == float("-inf"), 0.0, top)
                mass = mass * tl.exp(peak - reference)
                mass += tl.sum(share * tl.exp(more - reference[:, None]), 1)
                peak = top
        tl.store(tops + b * M + m, tl.where(peak == float("-inf"), 0.0, peak), mask=inside)
        log_sum = tl.where(mass > 0.0, tl.log(mass), 0.0)
        tl.store(log_sums + b * M + m, log_sum, mask=inside)
    tl.debug_barrier()
    for begin in range(0, n, CHUNK):
        slot = begin + tl.arange(0, CHUNK)
        real = slot < n
        logit = tl.load(slot_logits + b * CAPACITY + slot, mask=real, other=float("-inf"))
        token = tl.load(slot_tokens + b * CAPACITY + slot, mask=real, other=0)
        first = M * slots_each
        m = slot // slots_each
        if has_tiles != 0:
            in_tile = real & (slot >= first)
            tile = tl.where(in_tile, (slot - first) // tile_size, 0)
            owner = tl.load(tile_beam + b * TILE_CAPACITY + tile, mask=in_tile, other=0)
            m = tl.where(in_tile, owner, m)
        m = tl.where(real, m, 0)
        beam = b * M + m
        # What is not there scores -inf, whatever the rest is.
        score = tl.load(scores + beam, mask=real, other=0.0)
        top = tl.load(tops + beam, mask=real, other=0.0)
        total = score + ((logit - top) - tl.load(log_sums + beam, mask=real, other=0.0))
        is_token = real & (logit > float("-inf"))
        if has_bonus + has_nudge != 0:
            row_done = tl.load(finished + beam, mask=real, other=0) != 0
            is_token = is_token & (row_done == 0)
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
        first_entry, tile_starts, slots_each, tile_size,
        out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
        M, V, W, T, last, ragged, T_UP, OWN, OTHERS,
    )  # fmt: skip
