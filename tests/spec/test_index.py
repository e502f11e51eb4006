"""An index has the tables, leaves and items of the specification's trie, and answers as it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve import Catalog, Index
from beamsieve.errors import CatalogError
from beamsieve_conformance.vectors import read
from beamsieve_spec import Trie

CASES = {case["about"]: case for case in read("catalogs")}


def index_of(given: dict[str, Any]) -> Index:
    """The index of a catalog as the vectors give it."""
    return Index.build(
        Catalog.from_arrays(
            given["sids"], given["items"], given["codebooks"], end_token=given["end_token"]
        )
    )


@pytest.mark.parametrize("about", [about for about, case in CASES.items() if "error" in case])
def test_a_catalog_is_refused_as_the_file_says(about: str) -> None:
    with pytest.raises(CatalogError):
        index_of(CASES[about]["catalog"])


@pytest.mark.parametrize("about", [about for about, case in CASES.items() if "expected" in case])
def test_an_index_is_as_written_down(about: str) -> None:
    index, expected = index_of(CASES[about]["catalog"]), CASES[about]["expected"]
    assert list(index.codebooks) == expected["codebooks"]
    assert [table.plain_starts().tolist() for table in index.tables] == expected["row_starts"]
    assert [table.plain_tokens().tolist() for table in index.tables] == expected["tokens"]
    assert [index.leaf_of(sid) for sid in expected["leaves"]] == [*range(index.leaf_count)]
    for leaf, items in enumerate(expected["items"]):
        assert index.items.list(index.items_of_leaves([leaf])[1]) == items
    assert [[p, index.children(p).tolist()] for p, _ in expected["children"]] == expected[
        "children"
    ]
    assert [[sid, index.items_of(sid)] for sid, _ in expected["items_of"]] == expected["items_of"]


@st.composite
def tries(draw: st.DrawFn) -> tuple[Trie, Index]:
    """A catalog twice: of one length, or of several with end tokens."""
    levels, end_token = draw(st.integers(1, 3)), draw(st.booleans())
    sid = st.lists(st.integers(0, 3), min_size=1 if end_token else levels, max_size=levels)
    sids = draw(st.lists(sid.map(tuple), min_size=1, max_size=12))
    padded = [[*sid, *[-1] * (levels - len(sid))] for sid in sids]
    catalog = Catalog.from_arrays(np.array(padded), codebooks=[4] * levels, end_token=end_token)
    return Trie(padded, codebooks=[4] * levels, end_token=end_token), Index.build(catalog)


@settings(max_examples=150, deadline=None)
@given(tries(), st.data())
def test_any_look_up_is_the_specifications(pair: tuple[Trie, Index], data: st.DataObject) -> None:
    trie, index = pair
    known = st.sampled_from(trie.leaves)
    cut = st.builds(lambda sid, length: sid[:length], known, st.integers(0, 4))
    padded = st.builds(lambda sid, more: (*sid, *[-1] * more), cut, st.integers(0, 2))
    anything = st.lists(st.integers(0, 5), max_size=5).map(tuple)
    for sid in data.draw(st.lists(padded | anything, min_size=5, max_size=5)):
        assert index.items_of(sid) == trie.items_of(sid), sid
        assert index.contains(sid) == bool(trie.items_of(sid)), sid
    for prefix in data.draw(st.lists(cut | anything, min_size=5, max_size=5)):
        assert index.children(prefix).tolist() == trie.children(prefix), prefix
