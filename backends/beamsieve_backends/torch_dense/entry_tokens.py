"""The tokens of a table's entries on the device, packed as the index stores them, or plain.

A step asks for windows of ``tile`` tokens, one per tile. Tables with wide rows hold plain tokens,
of which a window is one copy; unpacking costs every slot. Tables with short rows, which are the
large ones, stay packed where the index packs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.index import StepTable
from beamsieve_backends.upload import to_device

LARGEST_PACKED_TILE = 8
"""Tables of wider tiles hold plain tokens."""
_MOST_BITS = 25
"""A token of so many bits lies within four bytes, whichever bit of the first it begins at."""
_SMALL_VOCABULARY = 1 << 15


class DeviceTokens(Protocol):
    """The tokens of one table's entries."""

    def at(self, entry: Tensor) -> Tensor:
        """int16 or int32 [n, tile]: the tokens from each entry (int64 [n]) on.

        Behind the last entry of all stands some valid token.
        """
        ...

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        ...


@dataclass(frozen=True)
class PlainTokens:
    """int16 or int32 [entries, tile]: ``windows[e]`` holds the tokens of the entries
    e … e + tile - 1. A view of the token list: its rows overlap and take no memory.
    """

    windows: Tensor

    @cached_property
    def listed(self) -> NDArray[Any]:
        """On the CPU: all tokens, one after the other."""
        entries, tile = self.windows.shape
        listed: NDArray[Any] = self.windows.as_strided((entries + tile - 1,), (1,)).numpy()
        return listed

    def at(self, entry: Tensor) -> Tensor:
        """As ``DeviceTokens`` says."""
        return self.windows.index_select(0, entry)

    @property
    def nbytes(self) -> int:
        """As ``DeviceTokens`` says."""
        return self.windows.untyped_storage().nbytes()


@dataclass(frozen=True)
class HostTokens:
    """Packed tokens on the CPU, unpacked by NumPy.

    Attributes:
        fours: uint32 [bytes - 3], a view of the index's own: ``fours[i]`` are the bytes i … i + 3.
        offsets: int64 [tile]; the bits from a window's first token to each of its tokens.
        bits: b.
    """

    fours: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    bits: int

    def at(self, entry: Tensor) -> Tensor:
        """As ``DeviceTokens`` says."""
        bit = (entry.numpy() * self.bits)[:, None] + self.offsets
        octet = bit >> 3
        np.minimum(octet, len(self.fours) - 1, out=octet)  # behind the last entry
        bit &= 7
        found = self.fours[octet]
        found >>= bit.astype(np.uint32)
        found &= np.uint32((1 << self.bits) - 1)
        return torch.from_numpy(found.view(np.int32))

    @property
    def nbytes(self) -> int:
        """As ``DeviceTokens`` says."""
        return len(self.fours) + 3


@dataclass(frozen=True)
class ByteTokens:
    """Packed tokens on any device, unpacked by PyTorch.

    Attributes:
        octets: uint8 [bytes - 3, 4], a view: ``octets[i]`` are the bytes i … i + 3.
        offsets: int64 [tile]; the bits from a window's first token to each of its tokens.
        bits: b.
    """

    octets: Tensor
    offsets: Tensor
    bits: int

    def at(self, entry: Tensor) -> Tensor:
        """As ``DeviceTokens`` says."""
        place = (entry * self.bits)[:, None] + self.offsets
        four = self.octets.index_select(0, (place >> 3).view(-1)).view(torch.int32)
        shifted = four.view_as(place) >> (place & 7).to(torch.int32)
        return shifted & ((1 << self.bits) - 1)

    @property
    def nbytes(self) -> int:
        """As ``DeviceTokens`` says."""
        return self.octets.untyped_storage().nbytes()


def load_tokens(
    table: StepTable,
    tile: int,
    device: torch.device,
    by_numpy: bool | None = None,
    plain: bool = False,
) -> DeviceTokens:
    """A table's tokens on the device.

    The last entry's window is whole, and a table without entries has one to point at.

    Args:
        table: whose.
        tile: the tokens of a window.
        device: where to.
        by_numpy: who unpacks; NumPy on the CPU when None.
        plain: whether packed tokens are unpacked here.
    """
    bits = table.token_bits
    if plain or table.packed is None or tile > LARGEST_PACKED_TILE or bits > _MOST_BITS:
        dtype = np.int16 if table.vocabulary <= _SMALL_VOCABULARY else np.int32
        entries = max(1, table.entries)
        tokens = np.zeros(entries + tile - 1, dtype)
        tokens[: table.entries] = table.plain_tokens()
        return PlainTokens(to_device(tokens, device).as_strided((entries, tile), (1, 1)))
    if device.type == "cpu" if by_numpy is None else by_numpy:
        fours: NDArray[np.uint32] = np.ndarray(
            (table.packed.nbytes - 3,), np.uint32, table.packed, strides=(1,)
        )
        return HostTokens(fours, np.arange(tile) * bits, bits)
    held = np.zeros(len(table.packed) + -(-tile * bits // 32), np.uint32)
    held[: len(table.packed)] = table.packed
    octets = to_device(held.view(np.uint8), device)
    offsets = torch.arange(0, tile * bits, bits, device=device)
    return ByteTokens(octets.as_strided((len(octets) - 3, 4), (1, 1)), offsets, bits)
