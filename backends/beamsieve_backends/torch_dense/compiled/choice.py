"""The best candidates of each request, in the contract's order: loops over requests.

Candidates come in flat order (beam, then token). One joins those that are held if its key is above
the threshold; when no room is left the ``width`` best stay, and the least of them is the new
threshold. A later candidate with the threshold's own key would stand behind ``width`` others, so it
is passed over. Held candidates keep their flat order, and a sort by (key, place) ends it all.

The first threshold comes from parts of the beams' candidates: each part's best score is one of a
candidate of its own, so no winner lies below the ``width``-th largest of them, and parts whose best
lies below it are not looked into.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve_backends.torch_dense.compiled.logits import ascending, largest_of
from beamsieve_backends.torch_dense.compiled.toolchain import compiled
from beamsieve_backends.torch_dense.compiled.vectors import bits_of, float_of

_SPARE = 256
_SHORT = 16
_PLACE = (1 << 32) - 1
_ZERO, _NONE = np.float32(0), np.float32(-np.inf)
_LARGEST = np.float32(np.finfo(np.float32).max)
_PARTS = 4  # for each place to fill, to find the first threshold


@compiled()
def choose(
    tokens: Any,
    first: Any,
    degree: Any,
    start: Any,
    own: Any,
    bits: Any,
    logits: Any,
    largest: Any,
    log_sum: Any,
    base: Any,
    bonus: Any,
    nudge: Any,
    places: int,
    vocabulary: int,
    before: Any,
    all_end: bool,
    begin: int,
    end: int,
    out_tokens: Any,
    out_scores: Any,
    out_keys: Any,
    out_rows: Any,
    out_parents: Any,
    out_finished: Any,
    out_count: Any,
) -> None:
    """Write the next beams of the requests from ``begin`` up to ``end``.

    Args:
        tokens: as in ``logits.multiply`` and ``logits.weigh``, as are those up to ``log_sum``.
        first: int64 [N].
        degree: int64 [N].
        start: int64 [N + 1].
        own: bool [N].
        bits: int32; the same memory as ``logits``.
        logits: float32.
        largest: float32 [N].
        log_sum: float32 [N].
        base: float32 [N]; the beams' scores.
        bonus: float32 [N * V]; of no length without.
        nudge: float32 [N * V]; likewise.
        places: M.
        vocabulary: V.
        before: int32 [N, t]; the beams' tokens.
        all_end: whether every entry completes a semantic ID.
        begin: see there.
        end: see there.
        out_tokens: int32 [B, W, t + 1], written, as are all that follow.
        out_scores: float32 [B, W].
        out_keys: float32 [B, W]; of no length where keys are scores.
        out_rows: int64 [B, W].
        out_parents: int64 [B, W].
        out_finished: bool [B, W].
        out_count: int64 [B].
    """
    width, depth = out_scores.shape[1], before.shape[1]
    guided = len(bonus) > 0 or len(nudge) > 0
    room = 2 * width + _SPARE
    order, scratch = np.empty(room, np.int64), np.empty(room, np.int64)
    scores, keys = np.empty(room, np.float32), np.empty(room, np.float32)
    beams, entries = np.empty(room, np.int64), np.empty(room, np.int64)
    for request in range(begin, end):
        held: Any = np.int64(0)  # an int of Python's own would be compiled for twice
        top = request * places
        number = start[top + places] - start[top]
        part, reach = max(1, number), _NONE
        peaks = np.empty(0, np.float32)
        if not guided and number > _PARTS * width:
            part = number // (_PARTS * width)
            peaks = np.empty(number // part + places, np.float32)
            parts = _find_peaks(start, bits, largest, log_sum, base, top, places, part, peaks)
            reach = _just_below(peaks, parts, width)
        seen = 0
        for beam in range(top, top + places):
            slot, large, summed, mine = start[beam], largest[beam], log_sum[beam], base[beam]
            for front in range(0, degree[beam], part):
                seen += 1
                if len(peaks) and not peaks[seen - 1] > reach:
                    continue
                for one in range(front, min(front + part, degree[beam])):
                    score = logits[slot + one] - large - summed + mine
                    key = score
                    if guided and not own[beam]:
                        cell = beam * vocabulary + tokens[first[beam] + one]
                        if len(bonus):
                            key = score = score + bonus[cell]
                        if len(nudge):
                            key = score + nudge[cell]
                    if not (key > reach and key <= _LARGEST and abs(score) <= _LARGEST):
                        continue
                    order[held] = _ranked(key, held)
                    scores[held], keys[held] = score, key
                    beams[held], entries[held] = beam, one
                    held += 1
                    if held == room:
                        last = _nth(order, scratch, held, width - 1)
                        reach = keys[last & _PLACE]
                        held = _keep_to(last, order, scores, keys, beams, entries, held)
        if held > width:
            last = _nth(order, scratch, held, width - 1)
            held = _keep_to(last, order, scores, keys, beams, entries, held)
        _sort(order, held)
        out_count[request] = held
        for place in range(held):
            which = order[place] & _PLACE
            beam, ends = beams[which], own[beams[which]]
            entry = first[beam] + entries[which]
            for level in range(depth):
                out_tokens[request, place, level] = before[beam, level]
            out_tokens[request, place, depth] = -1 if ends else tokens[entry]
            out_scores[request, place] = scores[which]
            out_rows[request, place] = entry
            out_parents[request, place] = beam - request * places
            out_finished[request, place] = ends or all_end
            if len(out_keys):
                out_keys[request, place] = keys[which]
        for place in range(held, width):
            for level in range(depth + 1):
                out_tokens[request, place, level] = -1
            out_scores[request, place] = _NONE
            out_rows[request, place] = out_parents[request, place] = -1
            out_finished[request, place] = False
            if len(out_keys):
                out_keys[request, place] = _NONE


@compiled()
def lay_out(
    tokens: Any,
    first: Any,
    degree: Any,
    start: Any,
    own: Any,
    logits: Any,
    largest: Any,
    log_sum: Any,
    base: Any,
    bonus: Any,
    kept: Any,
    kept_start: Any,
    vocabulary: int,
    begin: int,
    end: int,
    out_tokens: Any,
    out_scores: Any,
    out_rows: Any,
) -> None:
    """Write the padded slots [N, S] of the beams from ``begin`` up to ``end``.

    The arguments are those of ``choose`` and of ``logits.weigh``. A candidate that targeting drops
    leaves its slot empty.
    """
    slots = out_tokens.shape[1]
    for beam in range(begin, end):
        for one in range(slots):
            out_tokens[beam, one], out_scores[beam, one], out_rows[beam, one] = -1, _NONE, -1
            if one >= degree[beam] or (len(kept) and not kept[kept_start[beam] + one]):
                continue
            score = logits[start[beam] + one] - largest[beam] - log_sum[beam] + base[beam]
            entry = first[beam] + one
            if not own[beam]:
                out_tokens[beam, one] = tokens[entry]
                if len(bonus):
                    score += bonus[beam * vocabulary + tokens[entry]]
            out_rows[beam, one] = entry
            out_scores[beam, one] = score if abs(score) <= _LARGEST else _NONE


@compiled()
def _ranked(key: Any, place: int) -> Any:
    """A number that is smaller for a larger key, and for equal keys at a smaller place."""
    bits = bits_of(key + _ZERO)  # -0.0 + 0.0 is 0.0
    return (np.int64(~ascending(bits)) << 32) | place


@compiled()
def _find_peaks(
    start: Any,
    bits: Any,
    largest: Any,
    log_sum: Any,
    base: Any,
    top: int,
    places: int,
    part: int,
    peaks: Any,
) -> int:
    """Write the best score of every ``part`` candidates of each beam; returns how many parts."""
    seen = 0
    for beam in range(top, top + places):
        for front in range(start[beam], start[beam + 1], part):
            logit = largest_of(bits[front : min(front + part, start[beam + 1])])
            peaks[seen] = logit - largest[beam] - log_sum[beam] + base[beam]
            seen += 1
    return seen


@compiled()
def _just_below(peaks: Any, count: int, width: int) -> Any:
    """The largest float32 below the ``width``-th largest peak; -inf with fewer."""
    if count < width:
        return _NONE
    ranks = np.empty(count, np.int64)
    for place in range(count):
        ranks[place] = ~np.int64(ascending(bits_of(peaks[place] + _ZERO)))
    reached = ~_nth(ranks, ranks, count, width - 1)
    if float_of(ascending(np.int32(reached))) == _NONE:
        return _NONE
    # The bits below those of 0.0 are of -0.0, which is its equal.
    return float_of(ascending(np.int32(reached - (1 if reached else 2))))


@compiled()
def _keep_to(
    last: int, order: Any, scores: Any, keys: Any, beams: Any, entries: Any, held: int
) -> int:
    """Keep what is ranked up to ``last``, in its order; returns how many these are."""
    left = 0
    for old in range(held):
        if order[old] <= last:
            order[left] = _ranked(keys[old], left)
            scores[left], keys[left] = scores[old], keys[old]
            beams[left], entries[left] = beams[old], entries[old]
            left += 1
    return left


@compiled()
def _nth(order: Any, values: Any, count: int, nth: int) -> Any:
    """The ``nth`` smallest (from 0) of the first ``count`` of ``order``.

    ``values`` is overwritten; it may be ``order``.
    """
    for place in range(count):
        values[place] = order[place]
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if nth <= right:
            high = right
        elif nth >= left:
            low = left
        else:
            break
    return values[nth]


@compiled()
def _sort(values: Any, count: int) -> None:
    """Put the first ``count`` values, all distinct, in order: heapsort, or insertion if few."""
    if count <= _SHORT:
        for end in range(1, count):
            value, place = values[end], end
            while place and values[place - 1] > value:
                values[place] = values[place - 1]
                place -= 1
            values[place] = value
        return
    for root in range(count // 2 - 1, -1, -1):
        _sink(values, root, count)
    for end in range(count - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        _sink(values, 0, end)


@compiled()
def _sink(values: Any, root: int, count: int) -> None:
    value = values[root]
    child = 2 * root + 1
    while child < count:
        if child + 1 < count and values[child + 1] > values[child]:
            child += 1
        if values[child] <= value:
            break
        values[root] = values[child]
        root, child = child, 2 * child + 1
    values[root] = value
