"""The sort against Python's own, in every regime of key packing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.catalog.order import lexicographic_order, sort_sids


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    count, length = draw(st.integers(1, 60)), draw(st.integers(1, 9))
    tops = [draw(st.sampled_from([0, 1, 5, 255, 2**16, 2**31 - 2])) for _ in range(length)]
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    sids = np.stack([random.integers(-1, top, count, endpoint=True) for top in tops], axis=1)
    repeats = random.integers(0, count, count)
    shared = draw(st.integers(0, length))
    sids[:, :shared] = sids[repeats, :shared]
    return sids.astype(np.int32)


@settings(max_examples=300, deadline=None)
@given(matrices())
def test_order_is_lexicographic_and_stable(sids: np.ndarray) -> None:
    rows = sids.tolist()
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    assert lexicographic_order(sids).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(matrices())
def test_differences_are_the_first_differing_level(sids: np.ndarray) -> None:
    order = sort_sids(sids)
    length = sids.shape[1]
    assert order.difference[0] == 0
    for before, row, found in zip(order.sids, order.sids[1:], order.difference[1:], strict=False):
        differing = np.flatnonzero(before != row)
        assert found == (differing[0] if len(differing) else length)


@pytest.mark.parametrize("count", [70_000, 200_000])
def test_many_rows_need_several_rounds(count: int) -> None:
    random = np.random.default_rng(count)
    sids = random.integers(0, 2, (count, 6)).astype(np.int32) * (2**15 - 1)
    sids[:, -1] = random.integers(0, 2**15, count)
    assert lexicographic_order(sids).tolist() == np.lexsort(sids.T[::-1]).tolist()


def test_rows_too_many_for_packing_fall_back() -> None:
    random = np.random.default_rng(0)
    sids = random.integers(0, 2**31 - 1, (2**17, 2)).astype(np.int32)
    sids[:, 0] %= 3
    sids[1000:2000] = sids[:1000]
    assert lexicographic_order(sids).tolist() == np.lexsort(sids.T[::-1]).tolist()
