"""Semantic IDs as single numbers, whose order is the semantic IDs' own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel

WORD = 64
_SIDE_BY_SIDE = 1024


@dataclass(frozen=True)
class TokenRanges:
    """The smallest and the largest token of every level; -1 where a semantic ID has ended."""

    lowest: tuple[int, ...]
    highest: tuple[int, ...]

    @classmethod
    def of(cls, sids: NDArray[np.integer], threads: int | None = None) -> TokenRanges:
        """Of integers [n, L], n > 0."""

        def ends(rows: tuple[int, int]) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = []
            for first, last in parallel.blocks(*rows):
                block = _ends(sids[first:last])
                found = _joined(found, block) if found else block
            return found

        tasks = parallel.pieces(len(sids), 1 << 18)
        whole: list[tuple[int, int]] = []
        for part in parallel.run(ends, tasks, threads):
            whole = _joined(whole, part) if whole else part
        return cls(tuple(low for low, _ in whole), tuple(high for _, high in whole))

    @classmethod
    def joined(cls, ranges: Sequence[TokenRanges], length: int) -> TokenRanges:
        """Of several matrices together; those of fewer than ``length`` levels have -1 behind."""
        lowest = [
            -1 if any(len(one.lowest) <= at for one in ranges) else 2**63 for at in range(length)
        ]
        highest = [-1] * length
        for one in ranges:
            for level, (low, high) in enumerate(zip(one.lowest, one.highest, strict=True)):
                lowest[level] = min(lowest[level], low)
                highest[level] = max(highest[level], high)
        return cls(tuple(lowest), tuple(highest))


def _ends(sids: NDArray[np.integer]) -> list[tuple[int, int]]:
    """The least and the largest token of each level, in one block."""
    count, length = sids.shape
    sides = count // _SIDE_BY_SIDE
    if sides and sids.flags.c_contiguous:
        # Many rows as one long row: the least and the largest of columns that lie side by side.
        whole = sids[: sides * _SIDE_BY_SIDE].reshape(sides, _SIDE_BY_SIDE * length)
        ends = [end(axis=0).reshape(_SIDE_BY_SIDE, length) for end in (whole.min, whole.max)]
        sids = np.concatenate([*ends, sids[sides * _SIDE_BY_SIDE :]])
    return list(zip(sids.min(axis=0).tolist(), sids.max(axis=0).tolist(), strict=True))


def _joined(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]


@dataclass(frozen=True)
class Coding:
    """How a semantic ID becomes one number: its tokens' bits side by side, the first on top.

    Attributes:
        bits: per level.
        offset: what is added to every token: 1 where a shorter semantic ID has -1 behind its end.
    """

    bits: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, ranges: TokenRanges) -> Coding:
        """The fewest bits for tokens in these ranges."""
        offset = int(min(ranges.lowest) < 0)
        return cls(tuple((high + offset).bit_length() for high in ranges.highest), offset)

    @property
    def length(self) -> int:
        """L, the number of levels."""
        return len(self.bits)

    @cached_property
    def total(self) -> int:
        """Bits of the whole number."""
        return sum(self.bits)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """Per level, how many bits lie below its token's."""
        return tuple(sum(self.bits[level + 1 :]) for level in range(self.length))

    def keys(
        self, sids: NDArray[np.integer], out: NDArray[np.uint64] | None = None
    ) -> NDArray[np.uint64]:
        """uint64 [n]: the numbers of integers [n, L]; total must be at most 64."""
        keys = np.empty(len(sids), np.uint64) if out is None else out
        for first, last in parallel.blocks(0, len(sids)):
            key = keys[first:last]
            for level, bits in enumerate(self.bits):
                token = sids[first:last, level]
                if self.offset:
                    token = token + 1
                if level == 0:
                    np.copyto(key, token, casting="unsafe")
                    continue
                np.left_shift(key, np.uint64(bits), out=key)
                np.bitwise_or(key, token, out=key, casting="unsafe", dtype=np.uint64)
        return keys

    def tokens(self, keys: NDArray[np.uint64], level: int) -> NDArray[np.uint64]:
        """uint64 [n]: the tokens at one level (from 0), ``offset`` added."""
        mask = np.uint64((1 << self.bits[level]) - 1)
        return (keys >> np.uint64(self.shifts[level])) & mask

    def differences(
        self, keys: NDArray[np.uint64], before: int | None, out: NDArray[np.integer]
    ) -> None:
        """The first level at which each key differs from the one before it; L where none does.

        Args:
            keys: uint64 [n], ascending.
            before: the key before the first; None for none, from which level 0 differs.
            out: [n]; written.
        """
        changed = np.empty_like(keys)
        np.bitwise_xor(keys[1:], keys[:-1], out=changed[1:])
        changed[0] = np.iinfo(np.uint64).max if before is None else int(keys[0]) ^ before
        out[:] = 0
        for shift in self.shifts:
            # A change below a level's bits leaves that level and all above it as they were.
            if shift < WORD:
                out += changed < np.uint64(1 << shift)
            else:
                out += 1
        if before is None:
            out[0] = 0
