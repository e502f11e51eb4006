"""Where rows begin, on the device, read from the forms that ``beamsieve.index.starts`` stores.

The look-ups run once per step, on one number per beam, so what counts is how few operations they
take and how soon each begins. On the CPU the sampled kind is looked up by NumPy, which counts bits
and whose operations begin sooner than PyTorch's, in the index's own arrays. PyTorch counts no bits,
so elsewhere tables of 256 say how many bits a byte has set, and where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.index.bits import EVERY_BYTE, PLACE_OF
from beamsieve.index.starts import SPAN, RowStarts
from beamsieve_backends.upload import to_device

_WINDOW = SPAN // 8 + 1
"""So many bytes hold ``SPAN`` bits from any bit of the first one on."""


class DeviceStarts(Protocol):
    """Where each row of one table begins."""

    def bounds(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """int32 or int64 [n]: the first entry of each row (int64 [n]), and one behind its last."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes on the device; tables that all indexes share are left out."""
        ...


@dataclass(frozen=True)
class PlainStarts:
    """The plain kind: int32 or int64 [rows + 1]."""

    starts: Tensor

    @cached_property
    def listed(self) -> NDArray[Any]:
        """On the CPU: the same as NumPy's."""
        listed: NDArray[Any] = self.starts.numpy()
        return listed

    def bounds(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """As ``DeviceStarts`` says."""
        return self.starts.index_select(0, row), self.starts.index_select(0, row + 1)

    @property
    def nbytes(self) -> int:
        """As ``DeviceStarts`` says."""
        return self.starts.nbytes


@dataclass(frozen=True)
class IdentityStarts:
    """The identity kind: row r owns the entry r."""

    nbytes: int = 0

    def bounds(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """As ``DeviceStarts`` says."""
        return row, row + 1


class HostStarts:
    """The sampled kind on the CPU: the index's own arrays, and two small ones beside them.

    ``words``, of the samples' type, [blocks]: the word that holds the bit of a block's first row;
    of an exception, its negative number, as in the index. ``counts``, int8 [words]: how many bits
    are set in all words up to and with each, modulo 256. The bit of row r is the r-th of all (from
    0), so it lies in the first word whose count less r is above zero, and that many bits of the
    word are set from it on. A block's rows span three words at most.
    """

    def __init__(self, starts: RowStarts) -> None:
        assert starts.bits is not None
        assert starts.samples is not None
        assert starts.exceptions is not None
        self.bits, self.exceptions = starts.bits, starts.exceptions
        self.words = np.where(starts.samples < 0, starts.samples, starts.samples >> 6)
        counts = np.bitwise_count(starts.bits)
        self.counts = np.add.accumulate(counts, out=counts).view(np.int8)
        self.block, self.gap = starts.block, starts.gap

    def bounds(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """As ``DeviceStarts`` says."""
        rows = row.numpy()
        found = torch.from_numpy(self._starts(np.concatenate([rows, rows + 1])))
        return found[: len(row)], found[len(row) :]

    def _starts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        sample = self.words.take(rows >> (self.block.bit_length() - 1))
        word = np.maximum(sample, 0) if len(self.exceptions) else sample
        row = rows.astype(np.int8)
        for _ in range(2):
            word = word + (self.counts.take(word) - row <= 0)
        from_it_on = self.counts.take(word) - row
        octets = self.bits.take(word)
        # Bits up to and with each byte of the word; then how many bytes lie before the row's bit.
        total = np.bitwise_count(octets.view(np.uint8)).view(np.uint64)
        total *= EVERY_BYTE
        before = total >> np.uint64(56)
        before -= from_it_on.view(np.uint8)
        shift = before * EVERY_BYTE
        shift |= _TOP_BITS
        shift -= total
        shift &= _TOP_BITS  # of every byte whose total is not above ``before``
        shift >>= np.uint64(7)
        shift *= EVERY_BYTE
        shift >>= np.uint64(56)
        shift <<= np.uint64(3)
        octets >>= shift
        octets &= _BYTE
        total >>= shift
        total &= _BYTE
        total -= before
        octets <<= np.uint64(3)
        octets += total
        found = PLACE_OF.take(octets.view(np.int64), mode="clip")
        found += shift.view(np.int64)
        found += word.astype(np.int64) << 6
        if self.gap:
            found -= rows
        if len(self.exceptions):
            listed = np.flatnonzero(sample < 0)
            number = ~sample.take(listed) * self.block + (rows.take(listed) & (self.block - 1))
            found[listed] = self.exceptions.take(number)
        return found

    @property
    def nbytes(self) -> int:
        """As ``DeviceStarts`` says."""
        arrays = (self.bits, self.exceptions, self.words, self.counts)
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True)
class ByteStarts:
    """The sampled kind on any device, in PyTorch.

    Attributes:
        octets: uint8 [bytes - 16, 17], a view of the bits: ``octets[i]`` are the bytes i … i + 16.
            Its rows overlap and take no memory.
        samples: int32 or int64 [blocks]: of a block whose first row is at place p, the first bit of
            p's byte, plus how many bits are set in that byte before p; so a row's bit is found by
            counting whole bytes. Of an exception, its negative number, as in the index.
        exceptions: int32 or int64 [exceptions * K]; None where there are none.
        block: K.
        gap: z.
        bits_set: uint8 [256]; how many bits of a byte are set.
        place_of: int64 [2049]; at ``8 * v + k``, the bit of byte v that is set and has k set bits
            from itself on.
    """

    octets: Tensor
    samples: Tensor
    exceptions: Tensor | None
    block: int
    gap: int
    bits_set: Tensor
    place_of: Tensor

    @classmethod
    def load(cls, starts: RowStarts, device: torch.device) -> ByteStarts:
        """Copy a table's sampled starts to the device."""
        assert starts.bits is not None
        assert starts.samples is not None
        assert starts.exceptions is not None
        bits = starts.bits.view(np.uint8)
        place = np.maximum(starts.samples, 0)
        below = bits[place >> 3] & ((1 << (place & 7)) - 1).astype(np.uint8)
        in_bytes = (place & ~7) + np.bitwise_count(below)
        samples = np.where(starts.samples < 0, starts.samples, in_bytes)
        octets = to_device(bits, device)
        bits_set, place_of = _byte_tables(device)
        return cls(
            octets=octets.as_strided((len(octets) - _WINDOW + 1, _WINDOW), (1, 1)),
            samples=to_device(samples.astype(starts.samples.dtype), device),
            exceptions=to_device(starts.exceptions, device) if len(starts.exceptions) else None,
            block=starts.block,
            gap=starts.gap,
            bits_set=bits_set,
            place_of=place_of,
        )

    def bounds(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """As ``DeviceStarts`` says."""
        rows = torch.cat([row, row + 1])
        sample = self.samples.index_select(0, rows >> (self.block.bit_length() - 1))
        inner = rows & (self.block - 1)
        if self.exceptions is None:
            found = self._place(sample, inner)
            if self.gap:
                found -= rows
        else:
            listed = sample < 0
            # The first bit of all stands in where there is none to look for.
            found = self._place(sample.clamp(min=0), inner.masked_fill(listed, 0))
            if self.gap:
                found -= rows
            number = torch.where(listed, (-1 - sample) * self.block + inner, 0)
            found = torch.where(listed, self.exceptions.index_select(0, number), found)
        return found[: len(row)], found[len(row) :]

    def _place(self, sample: Tensor, inner: Tensor) -> Tensor:
        """The place of the ``inner``-th set bit (from 0) from each sample's place on."""
        first = sample >> 3
        before = (sample & 7) + inner
        octets = self.octets.index_select(0, first).to(torch.int32)
        total = self.bits_set.index_select(0, octets.view(-1)).view_as(octets).cumsum(1)
        at = torch.searchsorted(total, before[:, None], right=True)
        left = total.gather(1, at).squeeze(1) - before
        octet = octets.gather(1, at).squeeze(1)
        place = self.place_of.index_select(0, left.add_(octet, alpha=8))
        return place.add_(first + at.squeeze(1), alpha=8)

    @property
    def nbytes(self) -> int:
        """As ``DeviceStarts`` says."""
        arrays = (self.octets, self.samples, self.exceptions)
        return sum(array.untyped_storage().nbytes() for array in arrays if array is not None)


def load_starts(
    starts: RowStarts, device: torch.device, by_numpy: bool | None = None, plain: bool = False
) -> DeviceStarts:
    """A table's starts on the device.

    Args:
        starts: the table's.
        device: where to.
        by_numpy: who looks the sampled kind up; NumPy on the CPU when None.
        plain: whether the sampled kind becomes the plain one here.
    """
    if starts.kind == "identity" or not starts.rows:
        return IdentityStarts()  # in a table without rows, what stands in for a beam finds row 0
    if plain or starts.plain is not None:
        return PlainStarts(to_device(starts.all(), device))
    if device.type == "cpu" if by_numpy is None else by_numpy:
        return HostStarts(starts)
    return ByteStarts.load(starts, device)


_BYTE = np.uint64(0xFF)
_TOP_BITS = np.uint64(0x8080808080808080)


@cache
def _byte_tables(device: torch.device) -> tuple[Tensor, Tensor]:
    bits_set = np.bitwise_count(np.arange(256, dtype=np.uint8))
    return to_device(bits_set, device), to_device(PLACE_OF, device)
