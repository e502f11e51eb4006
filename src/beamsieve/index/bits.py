"""Finding set bits in a bitmap: select, in the words of succinct data structures.

Within a word, multiplying the bit counts of its bytes by 0x0101… gives each byte the sum up to and
with itself, so that the byte that holds the k-th set bit follows from comparisons, and a table of
256 bytes gives the bit (S. Vigna, Broadword Implementation of Rank/Select Queries, WEA 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _place_table() -> NDArray[np.int64]:
    """At ``8 * v + k``: the bit of byte v that is set and has k set bits from itself on."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    from_itself_on = bits[:, ::-1].cumsum(axis=1, dtype=np.int64)[:, ::-1]
    table = np.zeros(256 * 8 + 1, np.int64)
    octet, place = np.nonzero(bits)
    table[8 * octet + from_itself_on[octet, place]] = place
    return table


PLACE_OF = _place_table()
EVERY_BYTE = np.uint64(0x0101010101010101)
"""Times this, the last byte of a product is the sum of all bytes, and each the sum up to itself."""


def kth_set_bit(
    bits: NDArray[np.uint64], place: NDArray[np.int64], left: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The place of the ``left``-th set bit (from 0) from ``place`` on, within three words."""
    first = np.minimum(np.maximum(place >> 6, 0), len(bits) - 3)  # whatever a damaged sample says
    shift = (place & 63).astype(np.uint64)
    word = bits[first] >> shift << shift
    for _ in range(2):
        count = np.bitwise_count(word)
        behind = left >= count
        if not behind.any():
            break
        word = np.where(behind, bits[first + 1], word)
        first = first + behind
        left = left - count * behind
    # Bits up to and with each byte of the word; then how many bytes lie before the wanted bit.
    total = np.bitwise_count(word.view(np.uint8)).view(np.uint64) * EVERY_BYTE
    before = total.view(np.uint8).reshape(-1, 8) <= left.astype(np.uint8)[:, None]
    shift = before.view(np.uint64).ravel() * EVERY_BYTE >> np.uint64(56) << np.uint64(3)
    octet = (word >> shift & np.uint64(255)).view(np.int64)
    from_it_on = (total >> shift & np.uint64(255)).view(np.int64) - left
    within = PLACE_OF.take((octet << 3) + from_it_on, mode="clip")
    return np.asarray((first << 6) + shift.view(np.int64) + within)


def next_set_bit(bits: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first set bit at or behind each place; one behind the last word where there is none."""
    word = places >> 6
    shift = (places & 63).view(np.uint64)
    held = bits.take(word, mode="clip") >> shift << shift
    left = np.flatnonzero(held == 0)
    while len(left):
        word[left] += 1
        left = left[word[left] < len(bits)]
        held[left] = bits[word[left]]
        left = left[held[left] == 0]
    lowest = held & (~held + np.uint64(1))
    lowest -= np.uint64(1)  # as many ones as there are zeros below the bit
    return np.asarray(np.where(held == 0, len(bits) << 6, (word << 6) + np.bitwise_count(lowest)))
