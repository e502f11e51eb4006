"""Bloom signatures, bit for bit as ``beamsieve_spec.targeting_bits`` defines them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xxhash
from numpy.typing import NDArray

from beamsieve.targeting.attributes import Value

_PARTS = 4
"""How many bits a value sets."""


def canonical_form(value: Value) -> str:
    """What is hashed: ``s`` and the string, or ``i`` and the integer's decimal digits."""
    return f"s{value}" if isinstance(value, str) else f"i{value}"


def signatures(forms: Iterable[str], width: int) -> NDArray[np.uint64]:
    """uint64 [n, width / 64]: the bits that each canonical form sets in a filter.

    Bit 0 is reserved; the four 16-bit parts of the XXH3-64 hash choose among the others.
    """
    hashes = np.fromiter(
        (xxhash.xxh3_64_intdigest(form.encode("utf-8")) for form in forms), np.uint64
    )
    words = np.zeros((len(hashes), width // 64), np.uint64)
    row = np.arange(len(hashes))
    for part in range(_PARTS):
        chosen = hashes >> np.uint64(16 * part) & np.uint64(0xFFFF)
        bit = 1 + chosen % np.uint64(width - 1)
        words[row, (bit >> np.uint64(6)).astype(np.int64)] |= np.uint64(1) << (bit & np.uint64(63))
    return words
