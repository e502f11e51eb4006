"""G1: a catalog with targeting at the size of GRACE's, made so that its fill rates are alike.

GRACE (section 3.5, Tables 1 and 2) reports 30 million semantic IDs, one item on each at the median,
448 bits and 256 Bloom bits per row, a root whose Bloom row is 0.979 full, and rows after two tokens
that are 0.069 full. Its data is not public, so this page makes its own:

- semantic IDs as ``catalogs`` makes them: 30 million, four levels of 512 tokens;
- every prefix of two tokens belongs to three *ad sets* of its own, and every longer prefix to one
  of these: neighbours in meaning share advertisers. An ad set targets one or two of PLACES places,
  with four Bloom bits each. Three ad sets, 4.5 places and 18 bits of 256 make 0.07 after two
  tokens; PLACES = 246 places make 1 - (1 - 1/255)^(4 · 246) = 0.979 at the root;
- of 448 bits, five attributes have 250, 101, 64, 24 and 9, each with its reserved bit. An ad set
  puts a rule on an attribute with probability 0.3, and then accepts 5/8 of the values: a random
  viewer passes all five with probability (1 - 0.3 · 3/8)^5 = 0.55 (GRACE, Table 3: 0.58).

Rows of ad sets are drawn from the prefix alone, so equal arguments give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamsieve.index.tables import StepTable
from beamsieve.interface import RequestFilters
from beamsieve.targeting.bloom import signatures
from beamsieve.targeting.matchers import StepMatchers
from beamsieve.targeting.row_table import RowTable
from beamsieve_bench.catalogs import Workload

G1 = Workload(30_000_000, 512, 4)
WIDTHS = (512, 1024, 1024, 1024)
BATCH = 16
PLACES = 246
PLACES_PER_REQUEST = 64
BLOOM_BITS = 256
ATTRIBUTES = (249, 100, 63, 23, 8)
"""Values per bit attribute; each has a reserved bit besides, 448 in all."""
AD_SETS = 3
"""Ad sets per prefix of two tokens."""


@dataclass(frozen=True)
class Rows:
    """Rows side by side: bits uint64 [n, 7] and Bloom words uint64 [n, 4]."""

    bits: NDArray[np.uint64]
    bloom: NDArray[np.uint64]

    def united(self, starts: NDArray[np.integer]) -> Rows:
        """One row for each run that begins at ``starts``."""
        return Rows(
            np.bitwise_or.reduceat(self.bits, starts, axis=0),
            np.bitwise_or.reduceat(self.bloom, starts, axis=0),
        )

    def fill(self, index: NDArray[np.integer] | None = None) -> tuple[float, float]:
        """The mean share of bits set, in bits and Bloom, over all owners."""

        def share(words: NDArray[np.uint64]) -> float:
            counts = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
            owned = counts if index is None else counts[index]
            return float(owned.mean() / (64 * words.shape[1]))

        return share(self.bits), share(self.bloom)


def place_signatures() -> NDArray[np.uint64]:
    """uint64 [PLACES, 4]: the Bloom signatures of all places."""
    return signatures([f"splace-{i}" for i in range(PLACES)], BLOOM_BITS)


def ad_set_rows(count: int, seed: int = 0) -> Rows:
    """The rows of ``count`` ad sets."""
    draw = np.random.default_rng(seed)
    places = place_signatures()
    chosen = draw.integers(0, PLACES, (count, 2))
    two = draw.random(count) < 0.5
    bloom = places[chosen[:, 0]]
    bloom[two] |= places[chosen[two, 1]]
    # a | (b & c) of random words has 5/8 of its bits set.
    words = draw.integers(0, 1 << 64, (3, count, 7), np.uint64)
    some = words[0] | (words[1] & words[2])
    bits = np.zeros((count, 7), np.uint64)
    offset = 0
    for values in ATTRIBUTES:
        everything = attribute_mask(offset, values + 1)
        accepted = attribute_mask(offset + 1, values)
        ruled = draw.random(count) < 0.3
        bits |= np.where(ruled[:, None], some & accepted, everything)
        offset += values + 1
    return Rows(bits, bloom)


def attribute_mask(offset: int, count: int) -> NDArray[np.uint64]:
    """uint64 [7] with ``count`` bits set from ``offset`` on."""
    mask = ((1 << count) - 1) << offset
    return np.array([mask >> 64 * word & (2**64 - 1) for word in range(7)], np.uint64)


def make_matchers(tables: Sequence[StepTable], seed: int = 0) -> tuple[StepMatchers, ...]:
    """The edge matchers of a four-level catalog.

    The prefix of three tokens decides the ad set; its leaves have the same row, so that the rows of
    the last two steps are those of the ad sets themselves.
    """
    pairs = tables[1].entries  # prefixes of two tokens
    owner = np.repeat(np.arange(pairs), np.diff(tables[2].plain_starts()))
    draw = np.random.default_rng(seed + 1)
    of_triple = (owner * AD_SETS + draw.integers(0, AD_SETS, len(owner))).astype(np.int32)
    of_leaf = np.repeat(of_triple, np.diff(tables[3].plain_starts()))
    sets = ad_set_rows(pairs * AD_SETS, seed)
    triples = Rows(sets.bits[of_triple], sets.bloom[of_triple])
    two = triples.united(tables[2].plain_starts()[:-1])
    one = two.united(tables[1].plain_starts()[:-1])

    def step(rows: Rows, index: NDArray[np.int32]) -> StepMatchers:
        return StepMatchers(None, RowTable(rows.bits, index), (RowTable(rows.bloom, index),))

    def each(rows: Rows) -> StepMatchers:
        return step(rows, np.arange(len(rows.bits), dtype=np.int32))

    return each(one), each(two), step(sets, of_triple), step(sets, of_leaf)


def fill_rates(matchers: Sequence[StepMatchers]) -> dict[str, tuple[float, float]]:
    """Per step, and for the root, the mean fill of bits and of Bloom rows."""
    rates = {}
    for number, step in enumerate(matchers, 1):
        rows = Rows(step.bits.rows, step.blooms[0].rows)
        if number == 1:
            rates["root"] = rows.united(np.zeros(1, np.int64)).fill()
        rates[f"after {number} tokens"] = rows.fill(step.bits.index)
    return rates


def make_requests(batch: int = BATCH, seed: int = 0) -> RequestFilters:
    """Viewers with one value of every attribute, and 64 places each."""
    draw = np.random.default_rng(seed + 2)
    bits = np.zeros((batch, 7), np.uint64)
    offset = 0
    for values in ATTRIBUTES:
        for b, value in enumerate(draw.integers(0, values, batch)):
            bits[b] |= attribute_mask(offset + 1 + int(value), 1)
        offset += values + 1
    places = place_signatures()
    chosen = np.stack([draw.permutation(PLACES)[:PLACES_PER_REQUEST] for _ in range(batch)])
    return RequestFilters(
        bits=bits,
        bloom=(places[chosen],),
        bloom_count=(np.full(batch, PLACES_PER_REQUEST, np.int32),),
        leaf_mode=np.zeros(batch, np.int8),
        leaf_starts=np.zeros(batch + 1, np.int64),
        leaves=np.empty(0, np.int64),
    )
