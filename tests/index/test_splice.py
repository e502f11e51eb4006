"""Streams of small numbers after a change, against lists that are changed entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve import parallel
from beamsieve.index import splice
from beamsieve.index.merge import Merge
from beamsieve.index.splice import splice_jobs
from beamsieve.index.tokens import pack_tokens, packed_tokens_at, packed_words


def spliced(
    source: np.ndarray, bits: int, merge: Merge, new: np.ndarray, size: int, threads: int
) -> np.ndarray:
    out = np.full(size, 12345, np.uint64)
    parallel.run(lambda job: job(), splice_jobs(source, bits, merge, new, out), threads)
    return out


@st.composite
def merges(draw: st.DrawFn) -> tuple[Merge, int]:
    old = draw(st.integers(0, 300))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    deleted = np.flatnonzero(random.random(old) < draw(st.sampled_from([0, 0.02, 0.5, 1])))
    inserted = draw(st.integers(0, 80))
    spread = draw(st.sampled_from([1, 10, old + 1]))
    at = np.sort(random.integers(0, min(spread, old + 1), inserted))
    return Merge(old, deleted, at), draw(st.integers(0, 2**32))


def changed(merge: Merge, old: np.ndarray, new: np.ndarray) -> list[int]:
    """Entry by entry."""
    found: list[int] = []
    for place in range(merge.old + 1):
        found += new[merge.at == place].tolist()
        if place < merge.old and place not in merge.deleted:
            found.append(int(old[place]))
    return found


def unaligned(array: np.ndarray) -> np.ndarray:
    """As it lies in a file that is mapped into memory."""
    octets = np.zeros(array.nbytes + 4, np.uint8)
    octets[4:] = array.view(np.uint8)
    return octets[4:].view(array.dtype)


@settings(max_examples=200, deadline=None)
@given(merges(), st.integers(1, 32), st.integers(1, 3), st.booleans())
def test_a_spliced_stream_is_the_changed_list(
    drawn: tuple[Merge, int], bits: int, threads: int, odd: bool
) -> None:
    merge, seed = drawn
    random = np.random.default_rng(seed)
    old = random.integers(0, 2**bits, merge.old)
    new = random.integers(0, 2**bits, len(merge.at))
    packed = np.zeros(packed_words(len(old), bits), np.uint32)
    pack_tokens(old, bits, packed)
    wanted = np.zeros(packed_words(merge.size, bits), np.uint32)
    pack_tokens(np.array(changed(merge, old, new), np.int64), bits, wanted)
    size = -(-len(wanted) // 2) + 1
    source = unaligned(packed) if odd else packed
    made = spliced(source, bits, merge, new, size, threads).view(np.uint32)
    assert made[: len(wanted)].tolist() == wanted.tolist()
    assert not made[len(wanted) :].any()


@settings(max_examples=100, deadline=None)
@given(merges())
def test_an_array_is_taken_as_the_changed_list(drawn: tuple[Merge, int]) -> None:
    merge, seed = drawn
    random = np.random.default_rng(seed)
    old, new = random.integers(0, 99, merge.old), random.integers(0, 99, len(merge.at))
    assert merge.changed(old, new).tolist() == changed(merge, old, new)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_parts_of_a_stream_meet_within_entries(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "_WORDS", words)
    merge = Merge(500, np.arange(3, 500, 9), np.arange(1, 500, 20))
    old, new = np.arange(500), np.arange(len(merge.at)) + 1000
    packed = np.zeros(packed_words(500, 11), np.uint32)
    pack_tokens(old, 11, packed)
    made = spliced(packed, 11, merge, new, packed_words(merge.size, 11), 4).view(np.uint32)
    found = packed_tokens_at(made, 11, np.arange(merge.size))
    assert found.tolist() == changed(merge, old, new)


@settings(max_examples=100, deadline=None)
@given(merges(), st.sampled_from([np.uint8, np.uint16, np.uint32]))
def test_plain_tokens_are_a_stream_too(
    drawn: tuple[Merge, int], kind: type[np.unsignedinteger]
) -> None:
    merge, seed = drawn
    random = np.random.default_rng(seed)
    old = random.integers(0, 256, merge.old).astype(kind)
    new = random.integers(0, 256, len(merge.at)).astype(kind)
    width = 8 * old.itemsize
    made = spliced(old, width, merge, new, -(-merge.size * width // 64), 2).view(kind)
    assert made[: merge.size].tolist() == changed(merge, old, new)
