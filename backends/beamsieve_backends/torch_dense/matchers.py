"""Matchers and requests on the device, for the tests of targeting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.index import Index
from beamsieve.interface import RequestFilters
from beamsieve.targeting import RowTable
from beamsieve_backends.upload import to_device


@dataclass(frozen=True)
class Rows:
    """The matcher rows of one segment.

    Attributes:
        rows: int64 [distinct, words]; the same bits as the index's uint64.
        index: int32 [parts]; which row each part has.
    """

    rows: Tensor
    index: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return int(self.rows.nbytes + self.index.nbytes)


@dataclass(frozen=True)
class StepRows:
    """One step's matchers: parts of entries, and their rows.

    Attributes:
        part_starts: int32 or int64 [entries + 1]; None where entry e has the one part e.
        bits: the bit attributes' rows; None without any.
        blooms: each Bloom attribute's.
    """

    part_starts: Tensor | None
    bits: Rows | None
    blooms: tuple[Rows, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        segments = list(self.blooms)
        if self.bits is not None:
            segments.append(self.bits)
        starts = 0 if self.part_starts is None else int(self.part_starts.nbytes)
        return starts + sum(segment.nbytes for segment in segments)


@dataclass(frozen=True)
class DeviceRequests:
    """A batch's targeting on the device. B requests.

    Attributes:
        asks: bool [B]; whether the request has any test to pass.
        bits: int64 [B, words], and which of the words any request asks something in.
        bit_words: on the host.
        signatures: per Bloom attribute, int64 [B, n, words]; None where no request tests it.
        counts: per Bloom attribute, int64 [B]; how many signatures are real, 0 for no test.
        mode: int8 [B]; of the exact set: none, only the listed leaves, all but those.
        leaves: int64, ascending: ``request * (leaves of the index + 1) + leaf``.
        has_sets: on the host: whether any request has an exact set.
    """

    asks: Tensor
    bits: Tensor
    bit_words: tuple[int, ...]
    signatures: tuple[Tensor | None, ...]
    counts: tuple[Tensor, ...]
    mode: Tensor
    leaves: Tensor
    has_sets: bool


class DeviceTargeting:
    """What the tests need of an index. Leaf intervals are copied when a request first needs them.

    Args:
        index: the index.
        device: where the arrays go.

    Attributes:
        leaf_count: the number of leaves of the index.
        steps: each step's matchers; none where no attributes are declared.
    """

    def __init__(self, index: Index, device: torch.device) -> None:
        self._index = index
        self._device = device
        self.leaf_count: int = index.leaf_count
        steps = () if index.matchers is None else index.matchers.steps
        self.steps = tuple(
            StepRows(
                None if step.part_starts is None else self._put(step.part_starts),
                self._rows(step.bits) if step.bits.words else None,
                tuple(self._rows(table) for table in step.blooms),
            )
            for step in steps
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the matchers."""
        return sum(step.nbytes for step in self.steps)

    @cached_property
    def leaf_bounds(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Per step, the first leaf below each entry and one behind the last: integers [entries]."""
        kind = np.int32 if self.leaf_count < 2**31 else np.int64
        return tuple(
            (
                self._put(self._index.leaf_starts(step)[:-1].astype(kind)),
                self._put(self._index.leaf_ends(step).astype(kind)),
            )
            for step in range(1, self._index.length + 1)
        )

    def encode(self, filters: RequestFilters) -> DeviceRequests:
        """A batch's requests on the device."""
        batch = len(filters.leaf_mode)
        asks = (filters.leaf_mode != 0) | filters.bits.any(1)
        for count in filters.bloom_count:
            asks |= count > 0
        owner = np.repeat(np.arange(batch), np.diff(filters.leaf_starts))
        return DeviceRequests(
            asks=self._put(asks),
            bits=self._put(filters.bits.view(np.int64)),
            bit_words=tuple(np.flatnonzero(filters.bits.any(0)).tolist()),
            signatures=tuple(
                self._put(signed.view(np.int64)) if count.any() else None
                for signed, count in zip(filters.bloom, filters.bloom_count, strict=True)
            ),
            counts=tuple(self._put(count.astype(np.int64)) for count in filters.bloom_count),
            mode=self._put(filters.leaf_mode),
            leaves=self._put(owner * (self.leaf_count + 1) + filters.leaves),
            has_sets=bool(filters.leaf_mode.any()),
        )

    def _put(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self._device)

    def _rows(self, table: RowTable) -> Rows:
        return Rows(
            to_device(table.rows.view(np.int64), self._device),
            to_device(table.index, self._device),
        )
