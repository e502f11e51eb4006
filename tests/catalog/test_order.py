"""The sort against Python's own, in every regime of key packing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamsieve.catalog import sorting
from beamsieve.catalog.order import WideOrder, first_differences, lexicographic_order
from beamsieve.catalog.sorting import PackedOrder, sort_sids


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
    ordered = order.sids
    assert order.difference[0] == 0
    for before, row, found in zip(ordered, ordered[1:], order.difference[1:], strict=False):
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


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deal and sort a few rows as if they were many."""
    monkeypatch.setattr(sorting, "_SAMPLE", 16)
    monkeypatch.setattr(sorting, "_DEAL_ROWS", 7)
    monkeypatch.setattr(sorting, "_PIECE_ROWS", 5)
    monkeypatch.setattr(sorting, "_PART_ROWS", 7)
    monkeypatch.setattr("beamsieve.parallel.blocks.__defaults__", (3,))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(matrices(), st.integers(1, 4))
def test_pieces_give_the_order_of_the_whole(
    small_pieces: None, sids: np.ndarray, threads: int
) -> None:
    order = sort_sids(sids, threads=threads)
    rows = lexicographic_order(sids)
    assert order.rows.tolist() == rows.tolist()
    assert order.sids.tolist() == sids[rows].tolist()
    assert order.difference.tolist() == first_differences(sids[rows]).tolist()


@pytest.mark.parametrize(("bits", "kind"), [(16, PackedOrder), (17, WideOrder)])
def test_what_fits_64_bits_is_packed(bits: int, kind: type) -> None:
    sids = np.random.default_rng(bits).integers(0, 2**bits - 1, (1000, 4), endpoint=True)
    assert isinstance(sort_sids(sids), kind)


@pytest.mark.parametrize("top", [1, 2**16 - 1])
def test_rows_can_be_taken_out_of_the_order(small_pieces: None, top: int) -> None:
    random = np.random.default_rng(3)
    sids = random.integers(0, top, (200, 5), endpoint=True)
    sids = sids[random.integers(0, 200, 400)]
    order = sort_sids(sids)
    again = np.flatnonzero(order.difference == 5)[::2]
    kept = order.without(again)
    assert kept.rows.tolist() == np.delete(order.rows, again).tolist()
    assert kept.sids.tolist() == np.delete(order.sids, again, axis=0).tolist()
    assert kept.difference.tolist() == first_differences(kept.sids).tolist()
