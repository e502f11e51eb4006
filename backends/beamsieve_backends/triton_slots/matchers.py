"""Targeting on the device: an index's matchers, and a batch's requests."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.index import Index
from beamsieve.interface import RequestFilters
from beamsieve_backends.triton_slots.graph import StaticArrays
from beamsieve_backends.triton_slots.launch import cdiv, launch
from beamsieve_backends.triton_slots.targeting import rule_out


@dataclass(frozen=True)
class StepMatchers:
    """One step's matchers. All segments (the bit attributes, then each Bloom attribute) lie in one
    array each, as ``targeting`` says.

    Attributes:
        part_starts: int32 or int64 [entries + 1], or one element where each entry has one part.
        segment_numbers: int64 [segments, 4]; index: int32; rows: int64.
    """

    part_starts: torch.Tensor
    has_parts: bool
    segment_numbers: torch.Tensor
    segments: int
    index: torch.Tensor
    rows: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        held = (self.part_starts, self.segment_numbers, self.index, self.rows)
        return sum(array.nbytes for array in held)


class DeviceTargeting:
    """What the tests need of an index. Leaf intervals are copied when a request first needs them.

    Args:
        index: the index.
        device: where the arrays go.
    """

    def __init__(self, index: Index, device: torch.device) -> None:
        self._index = index
        self._device = device
        self._lock = threading.Lock()
        self._bounds: tuple[tuple[torch.Tensor, torch.Tensor], ...] | None = None
        self._nothing = torch.zeros(1, dtype=torch.int32, device=device)
        self._no_words = torch.zeros(1, dtype=torch.int64, device=device)
        steps = () if index.matchers is None else index.matchers.steps
        self.steps = tuple(self._step(step) for step in steps)

    def _step(self, step: Any) -> StepMatchers:
        numbers, index, rows = [], [], []
        rows_at = index_at = 0
        segments = [(-1, step.bits)] if step.bits.words else []
        segments += list(enumerate(step.blooms))
        for attribute, segment in segments:
            numbers.append((segment.words, rows_at, index_at, attribute))
            index.append(segment.index)
            rows.append(segment.rows.reshape(-1))
            rows_at += segment.rows.size
            index_at += segment.index.size
        return StepMatchers(
            self._nothing if step.part_starts is None else self._put(step.part_starts),
            step.part_starts is not None,
            self._put(np.array(numbers or [(0, 0, 0, -1)], np.int64)),
            len(segments),
            self._put(np.concatenate(index)) if index else self._nothing,
            self._put(np.concatenate(rows).view(np.int64)) if rows else self._no_words,
        )

    def _put(self, array: NDArray[Any]) -> torch.Tensor:
        whole = np.array(array) if array.size else np.zeros(1, array.dtype)
        return torch.from_numpy(whole).to(self._device)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        bounds = self._bounds or ()
        return sum(step.nbytes for step in self.steps) + sum(
            array.nbytes for pair in bounds for array in pair
        )

    def leaf_bounds(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first leaf below each entry of a table, and one behind the last: integers."""
        with self._lock:
            if self._bounds is None:
                kind = np.int32 if self._index.leaf_count < 2**31 else np.int64
                self._bounds = tuple(
                    (
                        self._put(self._index.leaf_starts(depth)[:-1].astype(kind)),
                        self._put(self._index.leaf_ends(depth).astype(kind)),
                    )
                    for depth in range(1, self._index.length + 1)
                )
            return self._bounds[step - 1]


class DeviceRequests:
    """A batch's targeting, in buffers that a graph may keep.

    Args:
        filters: the requests.
        targeting: of the index that they search.
        device: where the buffers are.
    """

    def __init__(
        self, filters: RequestFilters, targeting: DeviceTargeting, device: torch.device
    ) -> None:
        self._targeting = targeting
        self.batch = len(filters.leaf_mode)
        self.bit_words = filters.bits.shape[1]
        self.has_sets = bool(filters.leaf_mode.any())
        if self.has_sets:
            targeting.leaf_bounds(1)  # here, as a step must not wait for the copies
        starts, size = [], 0
        for signed in filters.bloom:
            _, number, words = signed.shape
            own = cdiv(number, 64) * words * 8 * 256
            starts.append((size, own))
            size += own * self.batch
        self._shapes = [signed.shape for signed in filters.bloom]
        self._table_starts = np.array(starts or [(0, 0)], np.int64)
        self._held = StaticArrays(self._arrays(filters), device)
        self._tables = torch.empty(max(1, size), dtype=torch.int64, device=device)
        self._starts = starts

    def _arrays(self, filters: RequestFilters) -> dict[str, NDArray[Any]]:
        asks = (filters.leaf_mode != 0) | filters.bits.any(1)
        for count in filters.bloom_count:
            asks |= count > 0
        counts = [count.astype(np.int32) for count in filters.bloom_count]
        arrays: dict[str, NDArray[Any]] = {
            "asks": asks.astype(np.int8),
            "bits": filters.bits if filters.bits.size else np.zeros((self.batch, 1), np.uint64),
            "counts": np.stack(counts) if counts else np.zeros((1, self.batch), np.int32),
            "table_starts": self._table_starts,
            "mode": filters.leaf_mode,
            "leaf_starts": filters.leaf_starts.astype(np.int64),
            "leaves": filters.leaves if filters.leaves.size else np.zeros(1, np.int64),
        }
        for number, signed in enumerate(filters.bloom):
            arrays[f"signed {number}"] = signed
        return arrays

    def fill(self, filters: RequestFilters) -> None:
        """Copy the requests of another search of the same shapes into the buffers."""
        self._held.fill(self._arrays(filters))

    def prepare(self) -> None:
        """What is worked out once per search, on the current stream."""
        for number, (_, signatures, words) in enumerate(self._shapes):
            if not signatures * words:
                continue
            begin, size = self._starts[number]
            launch(
                rule_out, (self.batch, cdiv(signatures, 64) * words * 8),
                self._held.views[f"signed {number}"],
                self._tables[begin : begin + size * self.batch], signatures, words,
            )  # fmt: skip

    def of_step(self, step: int) -> tuple[Any, ...]:
        """The arguments that ``targeting.permitted`` takes of a step's table, from 1."""
        own, views = self._targeting, self._held.views
        nothing = self._targeting._nothing
        bounds = own.leaf_bounds(step) if self.has_sets else (nothing, nothing)
        if own.steps:
            matchers = own.steps[step - 1]
            of_table = (
                matchers.part_starts, int(matchers.has_parts), matchers.segment_numbers,
                matchers.segments, matchers.index, matchers.rows,
            )  # fmt: skip
        else:
            of_table = (nothing, 0, own._no_words, 0, nothing, own._no_words)
        return (
            *of_table, views["asks"], views["bits"], self.bit_words, views["counts"],
            views["table_starts"], self._tables, views["mode"], views["leaf_starts"],
            views["leaves"], *bounds, int(self.has_sets), self.batch,
        )  # fmt: skip
