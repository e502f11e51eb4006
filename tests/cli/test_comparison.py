"""What ``verify`` looks at: the tables themselves, as a decode reads them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from beamsieve.catalog import Catalog
from beamsieve.cli.comparison import first_difference
from beamsieve.index import Index, StepTable

SIDS = np.random.default_rng(1).integers(0, 100, (300, 3))
RAGGED = [[0], [0, 1], [0, 1, 2], [3, 1], [4]]


def index_with(index: Index, step: int, table: StepTable) -> Index:
    """The index with one table replaced."""
    tables = list(index.tables)
    tables[step - 1] = table
    return Index(replace(index.parts, tables=tuple(tables)))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("end_token", [False, True])
def test_an_index_of_the_same_catalog_does_not_differ(layout, end_token):
    catalog = Catalog.from_arrays(SIDS, codebooks=100, end_token=end_token)
    assert first_difference(Index.build(catalog, layout), catalog) is None


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_semantic_ids_of_several_lengths_are_found(layout):
    ends = Catalog.from_arrays(RAGGED, end_token=True)
    assert first_difference(Index.build(ends, layout), ends) is None

    without = Catalog.from_arrays([[0, 1], [2], [1, 1]])
    assert first_difference(Index.build(without, layout), without) is None


def test_a_wrong_rank_is_seen():
    catalog = Catalog.from_arrays(SIDS, codebooks=100)
    index = Index.build(catalog, "dense")
    table = index.tables[1]
    assert table.ranks is not None
    ranks = table.ranks + np.uint16(1)

    found = first_difference(index_with(index, 2, replace(table, ranks=ranks)), catalog)

    assert found is not None
    assert "is not in the index" in found


def test_a_wrong_token_is_seen():
    catalog = Catalog.from_arrays(SIDS, codebooks=100)
    index = Index.build(catalog, "sparse")
    table = index.tables[2]
    assert table.tokens is not None
    tokens = table.tokens.copy()
    tokens[-1] = 99 if tokens[-1] < 99 else 98
    found = first_difference(index_with(index, 3, replace(table, tokens=tokens)), catalog)

    assert found is not None
    assert "is not in the index" in found


def test_a_semantic_id_too_many_is_seen():
    catalog = Catalog.from_arrays(SIDS, codebooks=100)
    fewer = Catalog.from_arrays(SIDS[:-1], codebooks=100)

    found = first_difference(Index.build(catalog), fewer)

    assert found is not None
    assert str(tuple(SIDS[-1].tolist())) in found


def test_a_longer_semantic_id_is_not_mistaken_for_its_prefix():
    index = Index.build(Catalog.from_arrays([[0, 1, 1], [2, 0, 0]], codebooks=4))
    catalog = Catalog.from_arrays([[0, 1, -1], [2, 0, 0]], codebooks=4)

    found = first_difference(index, catalog)

    assert found is not None
    assert found.startswith("semantic ID (0, 1) of item 0 is not in the index")


def test_another_title_is_seen_and_none_at_all_is_no_title():
    titles = ["A", None, "C"]
    catalog = Catalog.from_arrays([[2], [0], [1]], items=["c", "a", "b"], titles=titles)
    index = Index.build(catalog)
    assert first_difference(index, catalog) is None
    for other, says in (("X", "'C' in the index and 'X' in"), (None, "'C' in the index and None")):
        named = Catalog.from_arrays(
            [[1], [2], [0]], items=["b", "c", "a"], titles=[other, "A", None]
        )
        assert says in str(first_difference(index, named))
    untitled = Catalog.from_arrays([[2], [0], [1]], items=["c", "a", "b"])
    assert first_difference(index, untitled) is None
