"""Row starts and packed tokens against plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from beamsieve import parallel
from beamsieve.errors import IndexFileError
from beamsieve.index.encode import (
    bit_words,
    encode_starts,
    fill_bits,
    start_bits,
    start_candidates,
)
from beamsieve.index.layouts import dense_bitmap
from beamsieve.index.listing import Listing
from beamsieve.index.starts import BLOCKS, RowStarts
from beamsieve.index.tokens import (
    pack_tokens,
    packed_tokens_at,
    packed_words,
    token_bits,
    token_dtype,
    unpack_tokens,
)

KINDS = ["plain", *(f"sampled/{block}" for block in BLOCKS)]


@st.composite
def row_starts(draw: st.DrawFn) -> np.ndarray:
    """Mostly short rows, with or without empty ones, and now and then a hub."""
    smallest = draw(st.integers(0, 1))
    counts = draw(arrays(np.int64, st.integers(0, 300), elements=st.integers(smallest, 5)))
    for _ in range(draw(st.integers(0, 3)) if len(counts) else 0):
        counts[draw(st.integers(0, len(counts) - 1))] = draw(st.integers(60, 5000))
    return np.concatenate([[0], np.cumsum(counts)])


def start_by_the_law(held: RowStarts, row: int) -> int:
    """The loop of the docstring."""
    assert held.bits is not None
    assert held.samples is not None
    assert held.exceptions is not None
    block = held.block
    place = int(held.samples[row // block])
    if place < 0:
        return int(held.exceptions[(-place - 1) * block + row % block])
    left = row % block
    first = place
    while place < first + 128:
        if int(held.bits[place // 64]) >> (place % 64) & 1:
            if left == 0:
                return place - held.gap * row
            left -= 1
        place += 1
    raise AssertionError("no such row within 128 bits")


@settings(max_examples=200, deadline=None)
@given(row_starts(), st.sampled_from(KINDS))
def test_every_kind_gives_the_starts_back(starts, kind) -> None:
    held = encode_starts(starts, kind)
    rows = np.arange(len(starts))

    assert (held.rows, held.entries) == (len(starts) - 1, starts[-1])
    assert held.name == kind
    np.testing.assert_array_equal(held.start(rows), starts)
    np.testing.assert_array_equal(held.all(), starts)
    assert held.all().dtype == np.int32
    assert held.has_empty_row == (np.diff(starts) == 0).any()
    assert held.nbytes == held.candidates[kind]
    if kind != "plain":
        for row in rows[:: max(1, len(rows) // 40)]:
            assert start_by_the_law(held, row) == starts[row]
        assert held.bits is not None
        assert held.bits[-2:].tolist() == [0, 0]


@settings(max_examples=100, deadline=None)
@given(row_starts(), st.sampled_from(KINDS))
def test_every_entry_finds_its_row(starts, kind) -> None:
    held = encode_starts(starts, kind)
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    entries = np.random.default_rng(0).permutation(int(starts[-1]))[:500]
    np.testing.assert_array_equal(held.row_of(entries), owners[entries])


@settings(max_examples=100, deadline=None)
@given(row_starts())
def test_the_smallest_candidate_is_taken(starts) -> None:
    held = encode_starts(starts)
    assert held.nbytes == min(held.candidates.values())
    np.testing.assert_array_equal(held.start(np.arange(len(starts))), starts)


def test_one_entry_per_row_costs_nothing() -> None:
    held = encode_starts(np.arange(1001))
    assert (held.kind, held.nbytes) == ("identity", 0)
    assert held.start([[0, 7], [999, 1000]]).tolist() == [[0, 7], [999, 1000]]
    assert held.all().tolist() == list(range(1001))
    assert not held.has_empty_row
    empty_first = np.array([0, 0, 2])  # as many entries as rows, but not one each
    assert "identity" not in start_candidates(empty_first)


def test_a_hub_row_costs_its_own_block_alone() -> None:
    counts = np.full(10_000, 2)
    counts[5000] = 100_000
    held = encode_starts(np.concatenate([[0], np.cumsum(counts)]), "sampled/32")
    assert held.exceptions is not None
    assert len(held.exceptions) == 32


def test_a_block_of_exactly_128_bits_is_no_exception() -> None:
    counts = np.ones(64, np.int64)
    counts[3] = 121  # rows 0 … 7 lie at places 0 … 127
    starts = np.concatenate([[0], np.cumsum(counts)])
    assert starts[7] == 127
    held = encode_starts(starts, "sampled/8")
    assert held.exceptions is not None
    assert len(held.exceptions) == 0
    starts[4:] += 1
    wider = encode_starts(starts, "sampled/8")
    assert wider.exceptions is not None
    assert len(wider.exceptions) == 8
    assert wider.start(np.arange(65)).tolist() == starts.tolist()


def test_parts_of_the_bits_may_be_filled_in_any_order() -> None:
    random = np.random.default_rng(3)
    for low in (0, 1):
        starts = np.concatenate([[0], np.cumsum(random.integers(low, 9, 5000))])
        whole = encode_starts(starts, "sampled/16")
        bits = np.zeros(bit_words(5000, int(starts[-1]), whole.gap), np.uint64)
        for first in random.permutation(np.arange(0, len(bits), 7)).tolist():
            fill_bits(starts, whole.gap, bits, first, first + 7)
        np.testing.assert_array_equal(bits, whole.bits)


def test_positions_beyond_31_bits() -> None:
    """A few rows stand in for billions: everything but the bitmap is as it would be."""
    far = 2**31 + 10
    plain = RowStarts(2, far, plain=np.array([0, 5, far]))
    assert plain.start([0, 1, 2]).tolist() == [0, 5, far]
    candidates = start_candidates(np.array([0, 5, far]))
    assert candidates["plain"] == 3 * 8
    assert candidates["sampled/8"] == 8 * bit_words(2, far, 0) + 8 + 8 * 8
    # The exception holds a start that needs 64 bits; its sample is never a place.
    held = RowStarts(
        2,
        far,
        bits=np.zeros(3, np.uint64),
        samples=np.array([-1]),
        exceptions=np.array([0, 5, *[far] * 6]),
        block=8,
    )
    assert held.start([0, 1, 2]).tolist() == [0, 5, far]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_starts_stay_within_the_table(data) -> None:
    starts = data.draw(row_starts())
    held = encode_starts(starts, data.draw(st.sampled_from(KINDS)))
    for array in held.arrays.values():
        if len(array):
            place = data.draw(st.integers(0, len(array) - 1))
            info = np.iinfo(array.dtype)
            array[place] = data.draw(st.integers(int(info.min), int(info.max)))
    found = held.start(np.arange(len(starts)))
    assert found.min() >= 0
    assert found.max() <= starts[-1]
    assert len(held.all()) == len(starts)


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 128, 512, 2048, 8192, 65536, 65537, 2**24])
@pytest.mark.parametrize("entries", [0, 1, 31, 32, 33, 1000, 70_000])
def test_packed_tokens_come_back(vocabulary, entries) -> None:
    tokens = np.random.default_rng(entries).integers(0, vocabulary, entries)
    tokens[-1:] = vocabulary - 1
    tokens = tokens.astype(token_dtype(vocabulary))
    bits = token_bits(vocabulary)
    packed = np.zeros(packed_words(entries, bits), np.uint32)
    pack_tokens(tokens, bits, packed)

    assert 2**bits >= vocabulary
    assert packed[-1] == 0
    found = unpack_tokens(packed, vocabulary, entries)
    assert found.dtype == tokens.dtype
    np.testing.assert_array_equal(found, tokens)
    entry = np.arange(entries)[::-3]
    np.testing.assert_array_equal(packed_tokens_at(packed, bits, entry), tokens[entry])
    whole = int.from_bytes(packed.tobytes(), "little")
    assert [whole >> (i * bits) & ((1 << bits) - 1) for i in entry[:20].tolist()] == tokens[
        entry[:20]
    ].tolist()


def test_parts_of_packed_tokens_may_be_written_in_any_order() -> None:
    tokens = np.random.default_rng(1).integers(0, 2048, 1000)
    whole = np.zeros(packed_words(1000, 11), np.uint32)
    pack_tokens(tokens, 11, whole)
    parts = np.zeros_like(whole)
    for first in (960, 320, 0, 640):
        pack_tokens(tokens[first : first + 320], 11, parts, first)
    np.testing.assert_array_equal(parts, whole)
    with pytest.raises(ValueError, match="multiple of 32"):
        pack_tokens(tokens, 11, parts, 5)


@settings(max_examples=150, deadline=None)
@given(row_starts(), st.integers(1, 3), st.booleans())
def test_starts_from_their_bits_are_those_from_a_list(
    starts: np.ndarray, threads: int, known: bool
) -> None:
    starts = np.unique(starts)  # no empty rows
    rows, entries = len(starts) - 1, int(starts[-1])
    bits = np.zeros(bit_words(rows, entries, 0), np.uint64)
    fill_bits(starts, 0, bits, 0, len(bits))
    widest = int(np.diff(starts).max(initial=0))
    listing = Listing(bits, rows, entries, widest if known else None)
    parallel.side_by_side([listing.steps()], threads)
    wanted = encode_starts(starts)
    assert listing.widest == widest
    assert listing.starts.candidates == wanted.candidates
    assert listing.starts.name == wanted.name
    assert listing.starts.arrays.keys() == wanted.arrays.keys()
    for name, array in wanted.arrays.items():
        held = listing.starts.arrays[name]
        assert held.dtype == array.dtype
        assert held.tolist() == array.tolist()


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_the_last_start_may_be_the_largest_number_of_its_type(kind: type[np.integer]) -> None:
    starts = np.array([0, 5, np.iinfo(kind).max], kind)
    bits = start_bits(starts, 0)
    assert bits.tolist() == start_bits(starts.astype(np.int64), 0).tolist()
    assert np.bitwise_count(bits).sum() == len(starts)


@pytest.mark.parametrize("starts", [[0, 2, 1 << 40], [0, 3, 2], [0, 1 << 40, 2]])
def test_starts_that_ask_for_more_entries_than_there_are_are_refused(starts: list[int]) -> None:
    with pytest.raises(IndexFileError, match="row starts do not fit"):
        dense_bitmap(64, np.array(starts), np.array([1, 5], np.uint8))
