"""Buffers are filled and copied in turns, and none is filled while it is still being copied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from beamsieve_backends.two_buffers import CHUNK_BYTES, chunk_bytes, send


@pytest.mark.parametrize(("size", "fillers"), [(64, 1), (1000, 3), (1 << 20, 4)])
def test_every_byte_arrives_though_copies_are_late(size: int, fillers: int) -> None:
    octets = np.random.default_rng(0).integers(0, 256, 12_345, np.uint8)
    arrived = np.zeros_like(octets)
    buffers = [np.zeros(size, np.uint8) for _ in range(2)]
    late: list[Callable[[], object]] = []

    def copy(number: int, place: int, first: int, count: int) -> Callable[[], object]:
        """Copies when it is waited for the first time, and not before."""
        left = [True]

        def wait() -> None:
            if left:
                left.clear()
                arrived[first : first + count] = buffers[number][place : place + count]

        late.append(wait)
        return wait

    send(octets, buffers, copy, fillers)
    for wait in late:
        wait()
    assert np.array_equal(arrived, octets)


def test_little_is_left_to_copy_when_all_is_filled() -> None:
    octets = np.zeros(70 << 20, np.uint8)
    counts: list[int] = []

    def copy(number: int, place: int, first: int, count: int) -> Callable[[], object]:
        assert first == sum(counts)
        counts.append(count)
        return lambda: None

    send(octets, [np.zeros(16 << 20, np.uint8)] * 2, copy, 1)
    assert sum(counts) == len(octets)
    assert counts[:4] == [16 << 20] * 4
    assert counts[-1] <= 4 << 20


@pytest.mark.parametrize("count", [1 << 20, 30_000_000, 400_000_000, 1 << 33])
def test_an_array_takes_several_turns_unless_it_is_small(count: int) -> None:
    size = chunk_bytes(count)
    assert size <= CHUNK_BYTES
    assert count < 8 << 20 or count >= 4 * size
