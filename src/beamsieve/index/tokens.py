"""The tokens of a sparse table, side by side in as few bits as the codebook needs.

A token below V takes b = ceil(log2 V) bits, and at least one. *Plain* tokens are unsigned
integers of 8, 16 or 32 bits. *Packed* ones are uint32 words, little-endian: token i is the bits
``i * b : (i + 1) * b``, where bit p is bit ``p % 32`` (0 = least significant) of word ``p // 32``,
followed by one word of zeros so that two words can be read anywhere. The look-up::

    def token(i):
        p = i * b
        two = packed[p // 32] | packed[p // 32 + 1] << 32
        return two >> (p % 32) & ((1 << b) - 1)

A table may be packed where b is at most three quarters of a plain token's bits: unpacking costs
time, and less is not worth it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve import parallel
from beamsieve.index.starts import WORD

_CHUNK = 1 << 16
_BLOCKS = 8
_GROUP = 32
"""So many tokens fill whole words, whatever their bits."""


def token_bits(vocabulary: int) -> int:
    """b: the bits of a packed token."""
    return max(1, (vocabulary - 1).bit_length())


def token_dtype(vocabulary: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type that holds every token of the codebook."""
    for kind in (np.uint8, np.uint16):
        if vocabulary - 1 <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.uint32)


def packed_words(entries: int, bits: int) -> int:
    """How many uint32 words so many packed tokens take, padding included."""
    return -(-entries * bits // 32) + 1


def pack_tokens(
    tokens: NDArray[np.integer], bits: int, out: NDArray[np.uint32], first_entry: int = 0
) -> None:
    """Write tokens into their places in the packed words ``out``, and no other word.

    Threads may fill different parts of one ``out`` at once.

    Args:
        tokens: integers [n], each below ``2**bits``.
        bits: b.
        out: uint32 [packed_words(entries, bits)].
        first_entry: the entry of the first token, a multiple of 32, so that it begins a word. Only
            the part that holds the table's last entry may have a length that is no multiple of 32.
    """
    if first_entry % _GROUP:
        raise ValueError(f"first_entry is {first_entry}; it must be a multiple of {_GROUP}.")
    for begin, end in parallel.blocks(0, len(tokens), _BLOCKS * parallel.block_rows()):
        place = (first_entry + begin) // _GROUP * bits
        words = -(-(end - begin) * bits // 32)
        out[place : place + words] = _pack(tokens[begin:end], bits)[:words]


def _pack(tokens: NDArray[np.integer], bits: int) -> NDArray[np.uint32]:
    """The words that hold these tokens, and perhaps some of zeros.

    Neighbours are joined into units of up to 64 bits first, so that few columns are left: the c-th
    unit of every 64 tokens, whose place in their words is always the same.
    """
    count = -(-len(tokens) // WORD) * WORD
    unit: NDArray[Any] = np.zeros(count, np.uint32 if bits <= 16 else np.uint64)
    unit[: len(tokens)] = tokens
    width = bits
    while 2 * width <= WORD:
        if width > 16:
            unit = unit.astype(np.uint64, copy=False)
        pairs = unit.reshape(-1, 2)
        unit = pairs[:, 1] << unit.dtype.type(width)
        unit |= pairs[:, 0]
        width *= 2
    columns = np.ascontiguousarray(unit.reshape(count // WORD, -1).T.astype(np.uint64, copy=False))
    # Every word has a column that begins in it, as no column is longer than a word, perhaps a
    # second one, and perhaps the end of one that began in the word before.
    word, shift = np.divmod(np.arange(len(columns)) * width, WORD)
    second = np.flatnonzero(np.diff(word, prepend=-1) == 0)
    over = np.flatnonzero(shift + width > WORD)
    ends = columns[over] >> (WORD - shift[over]).astype(np.uint64)[:, None]
    columns <<= shift.astype(np.uint64)[:, None]
    if len(second):
        columns[second - 1] |= columns[second]
        columns = np.delete(columns, second, axis=0)
    if len(over):
        columns[word[over] + 1] |= ends
    return columns.T.ravel().view(np.uint32)


def packed_tokens_at(
    packed: NDArray[np.uint32], bits: int, entries: ArrayLike
) -> NDArray[np.uint64]:
    """uint64, of the shape of ``entries`` (integers): the tokens of these entries."""
    place = np.asarray(entries, np.int64) * bits
    word = place >> 5
    two = packed[word].astype(np.uint64)
    two |= packed[word + 1].astype(np.uint64) << np.uint64(32)
    return np.asarray((two >> (place & 31).astype(np.uint64)) & np.uint64((1 << bits) - 1))


def unpack_tokens(
    packed: NDArray[np.uint32], vocabulary: int, entries: int
) -> NDArray[np.unsignedinteger]:
    """Unsigned integers [entries]: all tokens, plain."""
    bits = token_bits(vocabulary)
    found = np.empty(entries, token_dtype(vocabulary))
    for begin in range(0, entries, _CHUNK):
        part = found[begin : begin + _CHUNK]
        part[...] = packed_tokens_at(packed, bits, np.arange(begin, begin + len(part)))
    return found
