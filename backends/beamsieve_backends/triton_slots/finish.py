"""Selection in one kernel, where every logit was written: threshold, survivors, ranks, new beams.

Several programs of a request find the same survivors, each for itself, and write the same numbers
to the same places; then each ranks its own share. Nobody waits for anybody, and a step is two
launches. That suits what is small per request; what is larger is chosen, scored once more and
ranked by kernels of their own (``choose``, ``revisit``, ``rank``).
"""

# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

from beamsieve_backends.triton_slots.choose import log_mass
from beamsieve_backends.triton_slots.ordering import (
    LOWEST,
    ordered,
    packed,
    places_held,
    threshold_held,
    usable,
)
from beamsieve_backends.triton_slots.rank import rank_and_write

_RUNTIME = [
    "start_kind", "start_shift", "start_gap", "token_bits", "rank_mask", "words", "rank_words",
    "dense", "search_steps", "next_kind", "next_shift", "next_gap", "M", "V", "W", "T", "last",
    "ragged", "SLACK", "beams", "tiles", "CAPACITY",
]  # fmt: skip


@triton.jit(do_not_specialize=_RUNTIME)
def finish_tokens(
    scores, tile_peak, tile_sum, logits, candidates,
    rows, finished, history,
    start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap,
    tokens, token_bits, bitmaps, ranks, rank_mask, words, rank_words, dense, search_steps,
    next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count,
    M, V, W, T, last, ragged, SLACK, beams, tiles, columns, CAPACITY,
    TILES_UP: tl.constexpr, COLUMNS_UP: tl.constexpr, BEAMS_UP: tl.constexpr, T_UP: tl.constexpr,
    DIRECT: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """All tokens of all beams of a request are held at once.

    Args:
        tile_peak, tile_sum: float32 [tiles, B * M]; logits: float32 [B, M, columns], -inf where
            not valid.
        candidates: workspace, int64 [B, CAPACITY]. The others as ``rank_and_write`` says.
        DIRECT: they are few, so all are ranked, without a threshold before.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    candidates += b * CAPACITY
    m = tl.arange(0, BEAMS_UP)
    tile = tl.arange(0, TILES_UP)
    there = (m < M)[:, None] & (tile < tiles)[None, :]
    at = tile.to(tl.int64)[None, :] * beams + (b * M + m)[:, None]
    peak = tl.load(tile_peak + at, mask=there, other=float("-inf"))
    mass = tl.load(tile_sum + at, mask=there, other=0.0)
    score = tl.load(scores + b * M + m, mask=m < M, other=float("-inf"))
    v = tl.arange(0, COLUMNS_UP)
    there = (m < M)[:, None] & (v < V)[None, :]
    at = (b * M + m)[:, None] * columns + v[None, :]
    logit = tl.load(logits + at, mask=there, other=float("-inf"))
    top, log_sum = log_mass(peak, mass)
    total = usable(score[:, None] + ((logit - top[:, None]) - log_sum[:, None]))
    key = tl.where(there, ordered(total), LOWEST)
    identity = m[:, None] * V + v[None, :]
    if DIRECT:
        n = M * V
        tl.store(candidates + identity, packed(total, identity), mask=there)
    else:
        tau, need = threshold_held(key, W, SLACK)
        keep, place, n = places_held(key, tau, need)
        tl.store(candidates + place, packed(total, identity), mask=keep)
    tl.debug_barrier()
    table = (
        start_array, start_bits, start_exceptions, start_kind, start_shift, start_gap, tokens,
        token_bits, bitmaps, ranks, rank_mask, words, rank_words, dense, search_steps,
    )  # fmt: skip
    following = (
        next_array, next_bits, next_exceptions, next_kind, next_shift, next_gap, leaf_first,
    )  # fmt: skip
    out = (out_tokens, out_scores, out_keys, out_rows, out_parents, out_finished, out_count)
    rank_and_write(
        candidates, scores, None, n, 0, b, tl.program_id(1) * OWN, tl.num_programs(1) * OWN, 0,
        tl.program_id(1) == 0, (rows, finished, history), table, following, None, out, M, V, W, T,
        last, ragged, False, T_UP, OWN, OTHERS,
    )  # fmt: skip
