"""Small models for the tests: a table of next-token logits for every prefix."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from beamsieve_spec import Beams, Trie

SID = tuple[int, ...]


def from_table(trie: Trie, *tables: Mapping[SID, Any]) -> Callable[[int, Beams], Any]:
    """A score function that answers request b, at prefix p, with ``tables[b][p]``.

    Places that are not live get NaN logits: whoever looks at them is found out.
    """

    def score(step: int, beams: Beams) -> Any:
        logits = np.full((*beams.rows.shape, trie.codebooks[step - 1]), np.nan)
        for b, m in np.argwhere((beams.rows != -1) & ~beams.finished):
            logits[b, m] = tables[b][tuple(beams.tokens[b, m].tolist())]
        return logits

    return score


def random_table(trie: Trie, seed: int) -> dict[SID, list[float]]:
    """Logits from -4 to 4 for every prefix of the trie that is not complete."""
    source = random.Random(seed)
    return {
        prefix: [source.uniform(-4, 4) for _ in range(size)]
        for prefixes, size in zip(trie.prefixes, trie.codebooks, strict=False)
        for prefix in prefixes
    }


def random_sids(source: random.Random, levels: int, vocabulary: int, count: int) -> list[SID]:
    """Up to ``count`` distinct SIDs, of one length."""
    return list({tuple(source.randrange(vocabulary) for _ in range(levels)) for _ in range(count)})
