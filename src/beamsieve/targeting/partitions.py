"""Dealing the semantic IDs below a prefix into parts (``beamsieve_spec.targeting_matchers``).

A semantic ID joins the part whose row would then have the fewest bits set, the first of several;
parts that are still empty come last. Dealing is a matter of order within one prefix, but prefixes
do not know of each other: in round i, every prefix deals its i-th semantic ID. So the time follows
the number of semantic IDs below the prefix that has the most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import InputError

_CHUNK_WORDS = 1 << 24

Dealt = tuple[NDArray[np.int64], NDArray[np.uint64]]
"""Where each prefix's parts begin (int64 [prefixes + 1]), and the parts' rows."""


@dataclass(frozen=True)
class Partitions:
    """Into how many parts the semantic IDs below a prefix are dealt.

    Attributes:
        static: the number of parts at each level, from 1.
        target: in its place, the mean fill at which a prefix gets no more parts.
        most: the most parts of a prefix, with ``target``.
    """

    static: tuple[int, ...] | None = None
    target: float = 1.0
    most: int = 1

    @classmethod
    def of(
        cls, static: Sequence[int] | None, dynamic: tuple[float, int] | None, length: int
    ) -> Partitions:
        """Check what the caller gives.

        Raises:
            InputError: both are given, or one of them is out of range.
        """
        if static is not None and dynamic is not None:
            raise InputError("Give static= or dynamic= partitions, not both.")
        if static is not None:
            parts = tuple(static) if isinstance(static, Iterable) else ()
            if len(parts) != length or not all(_is_count(k) for k in parts):
                raise InputError(
                    f"static is {static!r}; give a number of parts from 1 for each of the "
                    f"{length} tables."
                )
            return cls(static=tuple(int(k) for k in parts))
        if dynamic is None:
            return cls()
        refusal = InputError(
            f"dynamic is {dynamic!r}; give the target fill, from 0 to 1, and the most parts, from "
            "1."
        )
        try:
            target, most = dynamic
            target = float(target)
        except (TypeError, ValueError) as error:
            raise refusal from error
        if not 0 <= target <= 1 or not _is_count(most):
            raise refusal
        return cls(target=target, most=int(most))

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        static = None if self.static is None else list(self.static)
        return {"static": static, "target": self.target, "most": self.most}

    def at(self, level: int) -> tuple[int, float | None]:
        """For one level: the most parts, and the target fill if there is one."""
        if self.static is not None:
            return self.static[level - 1], None
        return self.most, self.target if self.most > 1 else None


def deal(
    rows: NDArray[np.uint64], starts: NDArray[np.int64], ends: NDArray[np.int64], most: int
) -> Dealt:
    """Deal each prefix's rows ``starts[p] : ends[p]`` into at most ``most`` parts.

    Args:
        rows: uint64 [leaves, words].
        starts: int64 [prefixes].
        ends: int64 [prefixes]; every prefix has at least one row.
        most: the number of parts.
    """
    sizes = ends - starts
    counts = np.zeros(len(starts), np.int64)
    pieces: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]] = []
    for chosen, slots in _groups(sizes, most, rows.shape[1]):
        parts, used = _deal_group(rows, starts[chosen], sizes[chosen], slots)
        counts[chosen] = used
        own = np.arange(slots) < used[:, None]
        pieces.append((np.repeat(chosen, used), np.nonzero(own)[1], parts[own]))
    part_starts = np.concatenate([[0], np.cumsum(counts)])
    dealt = np.empty((int(part_starts[-1]), rows.shape[1]), np.uint64)
    for prefix, slot, part in pieces:
        dealt[part_starts[prefix] + slot] = part
    return part_starts, dealt


def deal_to_target(
    rows: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    target: float,
    most: int,
    row_bits: int,
) -> Dealt:
    """Deal each prefix into as few parts as bring their mean fill down to ``target``.

    A prefix for which even ``most`` parts (or one per row) do not is dealt into that many.

    Args:
        rows: uint64 [leaves, words].
        starts: int64 [prefixes].
        ends: int64 [prefixes].
        target: share of bits set, from 0 to 1.
        most: the most parts of a prefix.
        row_bits: bits of a row that carry meaning.
    """
    sizes = ends - starts
    open_ = np.arange(len(starts))
    counts = np.zeros(len(starts), np.int64)
    pieces: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]] = []
    for k in range(1, most + 1):
        if not len(open_):
            break
        firsts, parts = deal(rows, starts[open_], ends[open_], k)
        used = np.diff(firsts)
        bits = np.bitwise_count(parts).sum(axis=1, dtype=np.int64)
        over = np.add.reduceat(bits, firsts[:-1]) > target * used * row_bits
        goes_on = over & (k < np.minimum(most, sizes[open_]))
        done = np.flatnonzero(~goes_on)
        counts[open_[done]] = used[done]
        kept = np.repeat(~goes_on, used)
        slot = np.arange(len(parts)) - np.repeat(firsts[:-1], used)
        pieces.append((np.repeat(open_, used)[kept], slot[kept], parts[kept]))
        open_ = open_[goes_on]
    part_starts = np.concatenate([[0], np.cumsum(counts)])
    dealt = np.empty((int(part_starts[-1]), rows.shape[1]), np.uint64)
    for prefix, slot, part in pieces:
        dealt[part_starts[prefix] + slot] = part
    return part_starts, dealt


def _groups(sizes: NDArray[np.int64], most: int, words: int) -> list[tuple[NDArray[np.int64], int]]:
    """Prefixes of similar size, few enough for their parts to fit the memory; and their slots."""
    order = np.argsort(-sizes, kind="stable")
    found = []
    start = 0
    while start < len(order):
        slots = int(min(most, sizes[order[start]]))
        fit = max(1, _CHUNK_WORDS // (slots * max(words, 1)))
        # Slots that a smaller prefix cannot fill cost time: halve the size, begin another group.
        smallest = slots // 2
        end = start + fit
        if slots > 1:
            tail = -sizes[order[start:end]]
            end = start + max(1, int(np.searchsorted(tail, -smallest, side="left")))
        found.append((order[start:end], slots))
        start = end
    return found


def _deal_group(
    rows: NDArray[np.uint64], starts: NDArray[np.int64], sizes: NDArray[np.int64], slots: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Deal prefixes (largest first): their parts, uint64 [prefixes, slots, words], and how many.

    An empty part is a row of zeros, so joining it gives the row itself, and of equal ones the first
    is taken: just what is asked for.
    """
    count = len(starts)
    if slots == 1:
        return _unite(rows, starts, sizes)[:, None, :], np.ones(count, np.int64)
    parts = np.zeros((count, slots, rows.shape[1]), np.uint64)
    used = np.zeros(count, np.int64)
    every = np.arange(count)
    for turn in range(int(sizes[0])):
        active = int(np.searchsorted(-sizes, -turn, side="left"))
        row = rows[starts[:active] + turn]
        joined = parts[:active] | row[:, None, :]
        bits = np.bitwise_count(joined).sum(axis=2, dtype=np.int32)
        best = bits.argmin(axis=1)
        parts[every[:active], best] = joined[every[:active], best]
        np.maximum(used[:active], best + 1, out=used[:active])
    return parts, used


def _unite(
    rows: NDArray[np.uint64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The union of each run of rows; runs neither touch each other nor come in order."""
    if sizes.max(initial=0) == 1:
        return rows[starts]
    order = np.argsort(starts, kind="stable")
    spans = np.stack([starts[order], (starts + sizes)[order]], axis=1).ravel()
    inside = spans < len(rows)
    united = np.empty((len(starts), rows.shape[1]), np.uint64)
    united[order] = np.bitwise_or.reduceat(rows, spans[inside], axis=0)[::2]
    return united


def _is_count(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return bool(whole and value >= 1)
