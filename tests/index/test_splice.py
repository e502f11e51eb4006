"""Streams of small numbers after a change, against lists that are changed entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsieve.index import splice
from beamsieve.index.merge import Merge
from beamsieve.index.splice import spliced
from beamsieve.index.tokens import pack_tokens, packed_words


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


@settings(max_examples=200, deadline=None)
@given(merges(), st.integers(1, 31), st.integers(1, 3))
def test_a_spliced_stream_is_the_changed_list(
    drawn: tuple[Merge, int], bits: int, threads: int
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
    made = spliced(packed, bits, merge, new, size, threads).view(np.uint32)
    assert made[: len(wanted)].tolist() == wanted.tolist()
    assert not made[len(wanted) :].any()


@settings(max_examples=100, deadline=None)
@given(merges())
def test_an_array_is_taken_as_the_changed_list(drawn: tuple[Merge, int]) -> None:
    merge, seed = drawn
    random = np.random.default_rng(seed)
    old, new = random.integers(0, 99, merge.old), random.integers(0, 99, len(merge.at))
    assert merge.take(old, new, 2).tolist() == changed(merge, old, new)


def test_groups_of_runs_meet_within_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "_RUNS", 3)
    merge = Merge(500, np.arange(3, 500, 9), np.arange(1, 500, 20))
    old, new = np.arange(500) % 2, np.ones(len(merge.at), np.int64)
    bits = np.packbits(old.astype(np.uint8), bitorder="little")
    made = spliced(bits, 1, merge, new, -(-merge.size // 64), 4).view(np.uint8)
    found = np.unpackbits(made, bitorder="little")[: merge.size]
    assert found.tolist() == changed(merge, old, new)
