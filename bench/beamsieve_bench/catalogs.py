"""The catalogs that the measurements use: distinct, sorted, skewed semantic IDs.

Real catalogs are no uniform sample. A few tokens of each prefix are popular and most are rare, so a
table holds hub rows next to a long tail of rows with a single child, and the popular tokens of one
prefix are not those of another. Uniform semantic IDs would hide all of this.

So level 1 is drawn near uniformly, and every deeper token is drawn by popularity: u uniform in
[0, 1), rank floor(V · u²), which makes rank r the rarer the larger it is. The ranks are then turned
round the codebook by an amount that the prefix determines, so that each prefix has popular tokens
of its own. Rows are drawn until enough distinct ones remain. Equal arguments give equal bytes.
"""

from __future__ import annotations

import os
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel

MOST_TOKENS = 1 << 20
"""Of a level. The heads of more would not fit beside anything."""
_SPARE = 1.15
_COLUMNS = 4
"""What is drawn beside the tokens' own columns, in int64 columns."""
_PRIME = 1_000_003


class Workload(NamedTuple):
    """A catalog's size: N semantic IDs of ``length`` levels with V tokens each."""

    items: int
    vocabulary: int
    length: int

    def too_large(self) -> str:
        """Why such a catalog is not made, with the limit; empty where it can be."""
        if self.vocabulary > MOST_TOKENS:
            return f"{self.vocabulary:,} tokens a level are above the {MOST_TOKENS:,} that are made"
        levels = min(self.length, 63)  # which are too many for two tokens, and soon computed
        if self.vocabulary**levels >= 1 << 63:
            return f"{self.vocabulary:,} tokens to the power of {self.length} are not below 2**63"
        memory = _memory()
        most = memory // int(_SPARE * 8 * (self.length + _COLUMNS))
        if self.items > most:
            return (
                f"{self.items:,} semantic IDs are more than the {most:,} that this machine's "
                f"{memory / 1e9:.0f} GB of memory have room to draw"
            )
        return ""


def _memory() -> int:
    """Bytes of this machine's memory."""
    known = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in known:
        return 1 << 40  # not told: what any machine of today lacks
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


WORKLOADS = {
    "S1": Workload(1_000_000, 2048, 4),
    "Z1": Workload(10_000_000, 2048, 4),
    "Z2": Workload(10_000_000, 512, 4),
    "Z3": Workload(10_000_000, 8192, 3),
}
"""S1 is for processors, Z1 to Z3 are for graphics cards. Hidden states have 256 numbers in all."""


MANY = Workload(100_000_000, 2048, 4)
"""For building alone, from :func:`many_sids`."""


def skewed_sids(workload: Workload, seed: int = 0) -> NDArray[np.int32]:
    """int32 [N, L] in lexicographic order, without repetition; fewer where the draw had fewer.

    Raises:
        ValueError: it is too large to be made.
    """
    items, vocabulary, length = workload
    why = workload.too_large()
    if why:
        raise ValueError(f"{why}.")
    draw = np.random.default_rng(seed)
    uniform = draw.random((int(items * _SPARE), length))
    token = (uniform[:, 0] * vocabulary).astype(np.int64)
    turn = token.copy()
    # A semantic ID as one number in base V: distinct ones are found, and sorted, as integers.
    number = token.copy()
    for level in range(1, length):
        rank = (uniform[:, level] ** 2 * vocabulary).astype(np.int64)
        token = (rank + turn * 7919) % vocabulary
        turn = (turn * 31 + token * 17 + 5) % _PRIME
        number = number * vocabulary + token
    del uniform
    number = np.unique(number)
    if len(number) > items:
        number = np.sort(draw.permutation(number)[:items])
    place = vocabulary ** np.arange(length - 1, -1, -1, dtype=np.int64)
    sids = np.empty((len(number), length), np.int32)
    for level in range(length):
        sids[:, level] = number // place[level] % vocabulary
    return sids


def many_sids(workload: Workload, seed: int = 0) -> NDArray[np.int32]:
    """int32 [N, L]: distinct and skewed like :func:`skewed_sids`, but made in threads and unsorted.

    Rows of one first token are drawn on their own, from a generator of their own; a row's place is
    a fixed multiple of its number, modulo N. For catalogs of a hundred million.

    Raises:
        ValueError: the draw had too few distinct semantic IDs.
    """
    items, vocabulary, length = workload
    share = np.diff(np.arange(vocabulary + 1) * items // vocabulary)
    first_row = np.cumsum(share) - share
    step = next(n for n in range(int(items * 0.618) | 1, 2 * items + 2) if gcd(n, items) == 1)
    sids = np.empty((items, length), np.int32)

    def draw(token: int) -> None:
        random = np.random.default_rng([seed, token])
        count = int(share[token] * _SPARE) + 16
        turn = np.full(count, token, np.int64)
        number = np.zeros(count, np.int64)
        for _ in range(1, length):
            rank = (random.random(count) ** 2 * vocabulary).astype(np.int64)
            mine = (rank + turn * 7919) % vocabulary
            turn = (turn * 31 + mine * 17 + 5) % _PRIME
            number = number * vocabulary + mine
        number = np.unique(number)
        if len(number) < share[token]:
            raise ValueError(f"only {len(number)} of {share[token]} semantic IDs are distinct")
        number = random.permutation(number)[: share[token]]
        place = (first_row[token] + np.arange(share[token])) * step % items
        sids[place, 0] = token
        for level in range(length - 1, 0, -1):
            sids[place, level] = number % vocabulary
            number //= vocabulary

    parallel.run(draw, range(vocabulary))
    return sids
