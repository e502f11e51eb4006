"""The catalog: what it accepts, what it refuses, and how rows and leaves are numbered."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from beamsieve_spec import CatalogError, Trie

from .models import random_sids


def test_rows_and_leaves_are_lexicographic_places() -> None:
    trie = Trie([(2, 0), (0, 1, 1), (0, 1, 0), (2, 5)])
    assert trie.prefixes == [
        [()],
        [(0,), (2,)],
        [(0, 1), (2, 0), (2, 5)],
        [(0, 1, 0), (0, 1, 1)],
    ]
    assert trie.leaves == [(0, 1, 0), (0, 1, 1), (2, 0), (2, 5)]
    assert trie.leaf_interval[0, 1] == (0, 2)
    assert trie.leaf_interval[2,] == (2, 4)
    assert trie.leaf_interval[()] == (0, 4)


@pytest.mark.parametrize("seed", range(8))
def test_the_position_of_an_entry_is_its_childs_row(seed: int) -> None:
    trie = Trie(random_sids(random.Random(seed), levels=3, vocabulary=5, count=30))
    for step in (1, 2, 3):
        row_starts, tokens = trie.table(step)
        assert len(row_starts) == len(trie.prefixes[step - 1]) + 1
        assert len(tokens) == len(trie.prefixes[step]) == row_starts[-1]
        for r, prefix in enumerate(trie.prefixes[step - 1]):
            for position in range(row_starts[r], row_starts[r + 1]):
                assert trie.prefixes[step][position] == (*prefix, tokens[position])


def test_a_short_sid_is_a_row_without_entries() -> None:
    trie = Trie([(0,), (1, 1)])
    assert trie.table(2) == ([0, 0, 1], [1])


def test_the_leaves_below_a_prefix_are_one_interval() -> None:
    trie = Trie(random_sids(random.Random(3), levels=3, vocabulary=4, count=40))
    for prefix in itertools.chain(*trie.prefixes):
        first, stop = trie.leaf_interval[prefix]
        below = [leaf for leaf, sid in enumerate(trie.leaves) if sid[: len(prefix)] == prefix]
        assert below == list(range(first, stop))


def test_repeated_pairs_count_once_and_collisions_keep_the_input_order() -> None:
    trie = Trie([(1, 2), (0, 0), (1, 2), (1, 2), (0, 1)], items=["z", "m", "a", "z", "m"])
    assert trie.items == {(1, 2): ["z", "a"], (0, 0): ["m"], (0, 1): ["m"]}


def test_minus_one_pads_the_end_of_a_shorter_sid() -> None:
    trie = Trie(np.array([[1, 2, 3], [4, -1, -1]]))
    assert trie.leaves == [(1, 2, 3), (4,)]
    assert trie.codebooks == [5, 3, 4]


def test_a_proper_prefix_is_refused_without_end_tokens_and_found_with_them() -> None:
    sids = [(1, 2), (1, 2, 3), (4, 5, 6)]
    with pytest.raises(CatalogError, match="proper prefix"):
        Trie(sids)
    trie = Trie(sids, codebooks=[10, 10, 10], end_token=True)
    assert trie.codebooks == [11, 11, 11, 1]
    assert trie.leaves == [(1, 2, 3, 0), (1, 2, 10), (4, 5, 6, 0)]


@pytest.mark.parametrize(
    ("sids", "codebooks", "message"),
    [
        ([], None, "empty"),
        ([(1, 2, 30)], [10, 10, 10], "row 0: token 30"),
        ([(0, 0), (1, -2)], [2, 2], "row 1: token -2"),
        ([(0, -1, 1)], [2, 2, 2], "token -1"),
        ([(0, 1), ()], [2, 2], "row 1 has 0 tokens"),
        ([(0, 1, 1)], [2, 2], "row 0 has 3 tokens"),
    ],
)
def test_what_no_catalog_may_hold_is_refused(
    sids: list[tuple[int, ...]], codebooks: list[int] | None, message: str
) -> None:
    with pytest.raises(CatalogError, match=message):
        Trie(sids, codebooks=codebooks)


def test_items_are_found_with_and_without_the_end_token() -> None:
    trie = Trie([(1, 2), (1, 2), (1,), (1, 2, 3)], items="abcd", codebooks=[5] * 3, end_token=True)
    for spelled in [(1, 2), (1, 2, 5), (1, 2, -1)]:
        assert trie.items_of(spelled) == ["a", "b"]
    assert trie.items_of((1,)) == trie.items_of((1, 5)) == ["c"]
    assert trie.items_of((1, 2, 3)) == trie.items_of((1, 2, 3, 0)) == ["d"]
    for unknown in [(), (5,), (2,), (1, 2, 3, 1), (1, 2, 3, 0, 0)]:
        assert trie.items_of(unknown) == []
    assert Trie([(1, 2)], items="a").items_of((1,)) == []


def test_nothing_follows_an_unknown_prefix() -> None:
    trie = Trie([(1, 2), (3,)])
    assert [trie.children(prefix) for prefix in [(1,), (2,), (1, 3), (9, 9, 9), (3,)]] == [
        [2],
        [],
        [],
        [],
        [],
    ]
