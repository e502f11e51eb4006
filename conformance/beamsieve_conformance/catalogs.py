"""Catalogs to try a backend on: the shapes that real ones take, and the edges where code breaks.

A :class:`CatalogShape` says what a catalog is like in a few numbers; :meth:`CatalogShape.sids`
makes it, always the same from the same shape. Hypothesis draws shapes, so a failure shrinks to the
smallest shape that shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

EDGES = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 4095, 4097)
"""Codebook sizes around the words, tiles and token dtypes that code is cut by."""
HUGE = (32767, 32768, 32769, 65535, 65536, 65537, 70000)
COUNTS = (5, 1, 2, 3, 9, 20, 50, 120, 300, 800, 2000, 5000)
"""How many rows are drawn: sizes of every order alike, where integers would be mostly small."""

SID = tuple[int, ...]


@dataclass(frozen=True)
class CatalogShape:
    """What a catalog is like.

    Attributes:
        codebooks: V_1 … V_L.
        count: how many rows are drawn; fewer distinct semantic IDs may come out.
        hub: a level (from 0) at which half of the rows share one prefix and differ in this token,
            so that one row of its table is far wider than the others; None without one.
        chain: a level (from 1) from which on each prefix has exactly one child; None without one.
        ragged: whether some semantic IDs end early.
        end_token: whether the index appends end tokens, so that one may be a prefix of another.
        copies: how many rows share the semantic ID of an earlier row (collisions).
        seed: of the random tokens.
    """

    codebooks: tuple[int, ...]
    count: int
    hub: int | None = None
    chain: int | None = None
    ragged: bool = False
    end_token: bool = False
    copies: int = 0
    seed: int = 0

    def sids(self) -> list[SID]:
        """The rows, in no order; a repeated semantic ID is a collision of items."""
        rng = np.random.default_rng(self.seed)
        levels = len(self.codebooks)
        tokens = np.stack([rng.integers(0, size, self.count) for size in self.codebooks], axis=1)
        tokens[0] = [size - 1 for size in self.codebooks]
        if self.count > 1:
            tokens[1] = 0
        if self.hub is not None:
            self._widen(tokens, self.hub)
        if self.chain is not None:
            self._narrow(tokens, self.chain, rng)
        lengths = np.full(self.count, levels)
        if self.ragged and levels > 1:
            shortened = rng.random(self.count) < 0.2
            lengths[shortened] = levels - rng.geometric(0.6, int(shortened.sum())).clip(
                1, levels - 1
            )
        sids = [
            tuple(row[:length])
            for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)
        ]
        if not self.end_token:
            sids = without_extensions(sids)
        again = rng.integers(0, len(sids), self.copies).tolist()
        sids += [sids[place] for place in again]
        return [sids[place] for place in rng.permutation(len(sids)).tolist()]

    def _widen(self, tokens: NDArray[np.int64], level: int) -> None:
        """Half of the rows share the first row's prefix, and count through the hub's codebook."""
        hub = tokens[: (self.count + 1) // 2]
        hub[:, :level] = tokens[0, :level]
        hub[:, level] = (tokens[0, level] - np.arange(len(hub))) % self.codebooks[level]

    def _narrow(self, tokens: NDArray[np.int64], level: int, rng: np.random.Generator) -> None:
        """From ``level`` on, the tokens are a function of those before."""
        _, first, inverse = np.unique(
            tokens[:, :level], axis=0, return_index=True, return_inverse=True
        )
        tokens[:, level:] = tokens[first, level:][inverse.reshape(-1)]


def without_extensions(sids: list[SID]) -> list[SID]:
    """Those that no other one is a proper prefix of.

    >>> without_extensions([(1, 2), (1,), (2, 3), (1, 2, 3)])
    [(1,), (2, 3)]
    """
    known = set(sids)
    return [sid for sid in sids if not any(sid[:length] in known for length in range(1, len(sid)))]


@st.composite
def shapes(
    draw: st.DrawFn,
    *,
    largest: int = 70_000,
    ragged: bool = True,
    most: int = 5_000,
    levels: int = 8,
) -> CatalogShape:
    """Shapes with 1 to 8 levels, codebooks of 1 to ``largest`` tokens and up to ``most`` rows."""
    depth = draw(st.integers(1, levels))
    small = st.one_of(st.integers(1, 9), st.sampled_from(EDGES)).filter(lambda v: v <= largest)
    codebooks = [draw(small) for _ in range(depth)]
    if largest > max(EDGES) and draw(st.sampled_from((False, False, False, False, True))):
        huge = st.sampled_from(HUGE)
        codebooks[draw(st.integers(0, depth - 1))] = min(draw(huge), largest)
    count = draw(st.sampled_from([n for n in COUNTS if n <= most]))
    is_ragged = ragged and draw(st.booleans())
    return CatalogShape(
        codebooks=tuple(codebooks),
        count=count,
        hub=draw(st.none() | st.integers(0, depth - 1)),
        chain=draw(st.none() | st.integers(1, depth)),
        ragged=is_ragged,
        end_token=is_ragged and draw(st.booleans()),
        copies=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 2**16)),
    )
