"""Checksums of an index file's arrays and of its header; ``files`` says what of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from beamsieve import parallel

_PIECE_BYTES = 16 << 20


def array_checksums(
    arrays: Mapping[str, NDArray[Any]], done: Callable[[int, int], None] | None = None
) -> dict[str, str]:
    """The checksum of every array, in the order of names."""
    names = sorted(arrays)
    pieces = [
        (name, *piece)
        for name in names
        for piece in parallel.pieces(arrays[name].nbytes, _PIECE_BYTES) or [(0, 0)]
    ]

    def digest(piece: tuple[str, int, int]) -> bytes:
        name, first, last = piece
        return bytes(xxhash.xxh3_128_digest(_bytes(arrays[name])[first:last]))

    parts: dict[str, list[bytes]] = {name: [] for name in names}
    for (name, _, _), one in zip(pieces, parallel.run(digest, pieces, None, done), strict=True):
        parts[name].append(one)
    return {
        name: own[0].hex() if len(own) == 1 else xxhash.xxh3_128_hexdigest(b"".join(own))
        for name, own in parts.items()
    }


def header_checksum(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """A checksum of everything in the header but itself, and of the arrays' types and shapes."""
    own = {key: value for key, value in about.items() if key != "checksum"}
    shapes = {name: [str(array.dtype), *array.shape] for name, array in arrays.items()}
    return str(xxhash.xxh3_128_hexdigest(json.dumps([own, shapes], sort_keys=True).encode()))


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
