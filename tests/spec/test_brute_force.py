"""The search against an enumeration of the whole catalog that shares nothing with it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from beamsieve_spec import Trie, results, search

from .models import SID, from_table, random_sids, random_table


def log_p(trie: Trie, table: dict[SID, list[float]], sid: SID, normalize: str) -> float:
    """A whole SID's log-probability, token by token, from the definition."""
    total = 0.0
    for level, token in enumerate(sid):
        prefix = sid[:level]
        if normalize == "all":
            over = set(range(trie.codebooks[level]))
        else:
            over = {
                leaf[level] for leaf in trie.leaves if leaf[:level] == prefix and len(leaf) > level
            }
        mass = sum(math.exp(table[prefix][v]) for v in over)
        total += table[prefix][token] - math.log(mass)
    return total


def catalog(seed: int) -> Trie:
    """A random catalog of 1 to 4 levels; every third has SIDs of several lengths."""
    source = random.Random(seed)
    levels, vocabulary = source.randint(1, 4), source.randint(1, 6)
    sids = random_sids(source, levels, vocabulary, source.randint(1, 40))
    if seed % 3:
        return Trie(sids, codebooks=[vocabulary] * levels)
    return Trie([sid[: source.randint(1, levels)] for sid in sids], end_token=True)


@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
@pytest.mark.parametrize("seed", range(12))
def test_wide_search_sorts_the_whole_catalog(seed: int, normalize: str) -> None:
    trie = catalog(seed)
    table = random_table(trie, seed)
    beams = search(
        trie,
        from_table(trie, table),
        [len(trie.leaves)] * trie.length,
        normalize=normalize,  # type: ignore[arg-type]
    )
    expected = sorted((-log_p(trie, table, sid, normalize), sid) for sid in trie.leaves)

    assert beams.count.tolist() == [len(trie.leaves)]
    found = [tuple(t for t in tokens if t != -1) for tokens in beams.tokens[0].tolist()]
    assert found == [sid for _, sid in expected]
    np.testing.assert_allclose(beams.scores[0], [-minus for minus, _ in expected], atol=1e-12)
    assert beams.rows[0].tolist() == [trie.leaf[sid] for sid in found]


@pytest.mark.parametrize("seed", range(12))
def test_narrow_search_is_greedy_enumeration_level_by_level(seed: int) -> None:
    trie = catalog(seed)
    table = random_table(trie, seed + 100)
    widths = [1 + (seed + level) % 3 for level in range(trie.length)]
    beams = search(trie, from_table(trie, table), widths)

    kept: list[SID] = [()]
    for level, width in enumerate(widths, start=1):
        grown = {leaf[:level] for leaf in trie.leaves if leaf[: min(level - 1, len(leaf))] in kept}
        kept = sorted(grown, key=lambda prefix: -log_p(trie, table, prefix, "catalog"))[:width]
    assert [
        tuple(t for t in row if t != -1) for row in beams.tokens[0].tolist() if row[0] != -1
    ] == kept


def test_the_order_of_the_catalog_does_not_matter() -> None:
    sids = [(5, 6, 7), (1, 2, 3), (5, 6, 8), (1, 2, 4), (1, 2, 3)]
    shuffled, ordered = (Trie(rows, codebooks=[9] * 3) for rows in (sids, sorted(set(sids))))
    assert shuffled.leaves == ordered.leaves
    assert [shuffled.table(t) for t in (1, 2, 3)] == [ordered.table(t) for t in (1, 2, 3)]
    level = dict.fromkeys(
        [prefix for prefixes in shuffled.prefixes for prefix in prefixes], [0] * 9
    )
    hits = results(shuffled, search(shuffled, from_table(shuffled, level), [9, 9, 9]))
    assert {hit.sid for hit in hits[0]} == set(sids)
