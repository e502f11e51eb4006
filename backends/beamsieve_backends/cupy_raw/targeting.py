"""Targeting on the device: the index's matchers, a batch's requests, and the bits that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError
from beamsieve.interface import RequestFilters
from beamsieve.targeting.row_table import distinct_rows
from beamsieve_backends.cupy_raw import arguments

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.targeting import StepMatchers

MOST_BLOOMS = 8
STAGED_BYTES = 96 << 10
"""Bloom tables of one request up to this size are kept in shared memory."""

WHOLE_ROW_WORDS = 512
"""Bitmap rows up to so many words of 32 tokens are filtered by one warp each."""


@dataclass(frozen=True)
class DeviceMatchers:
    """One step's matchers on the device: the arrays, and what ``Filter`` says of them."""

    arrays: tuple[Any, ...]
    fields: dict[str, int]
    blooms: tuple[dict[str, int], ...]

    @property
    def nbytes(self) -> int:
        """Bytes on the device, without the rows, which all steps share."""
        return sum(array.nbytes for array in self.arrays)


def load_matchers(
    device: Any, matchers: Sequence[StepMatchers]
) -> tuple[tuple[DeviceMatchers, ...], Any]:
    """Copy all steps' matchers to the device, and the rows that they share.

    A part's bits and Bloom words become one row, and equal rows are stored once in the whole index:
    most leaves repeat the row of the prefix above them.

    Raises:
        BackendError: more Bloom attributes than the kernel takes.
    """
    blooms = len(matchers[0].blooms)
    if blooms > MOST_BLOOMS:
        raise BackendError(
            f"The backend 'cupy' tests {MOST_BLOOMS} Bloom attributes at most, and this index has "
            f"{blooms}."
        )
    joint = [_joint_rows(step) for step in matchers]
    if not joint[0][0].shape[1]:  # no attribute at all, only exact sets
        return tuple(DeviceMatchers((), {"blooms": 0}, ()) for _ in matchers), None
    shared = distinct_rows(np.concatenate([rows for rows, _ in joint]))
    rows = device.upload(shared.rows)
    kind = _smallest(len(shared.rows))
    words = [table.words for table in matchers[0].segments]
    offsets = np.cumsum([0, *words])
    common = {
        "rows": device.address(rows),
        "row_words": int(offsets[-1]),
        "bit_words": words[0],
        "index_bytes": kind.itemsize,
        "blooms": blooms,
    }
    places = tuple({"words": words[i + 1], "offset": int(offsets[i + 1])} for i in range(blooms))
    found, begin = [], 0
    for step, (own, index) in zip(matchers, joint, strict=True):
        place = shared.index[begin : begin + len(own)].astype(kind)
        begin += len(own)
        arrays = [device.upload(whole_words(place[index]))]
        fields = {**common, "index": int(device.address(arrays[0]))}
        if step.part_starts is not None:
            arrays.append(device.upload(whole_words(step.part_starts)))
            fields["part_starts"] = int(device.address(arrays[1]))
            fields["part_bytes"] = step.part_starts.dtype.itemsize
        found.append(DeviceMatchers(tuple(arrays), fields, places))
    return tuple(found), rows


def _joint_rows(step: StepMatchers) -> tuple[NDArray[np.uint64], NDArray[np.integer]]:
    """uint64 [distinct, words], bits and Bloom words side by side, and each part's row in it."""
    tables = [table for table in step.segments if table.words]
    if not tables:
        return np.zeros((1, 0), np.uint64), np.zeros(step.parts, np.int32)
    index = tables[0].index
    picks = [np.arange(len(tables[0].rows))]
    for table in tables[1:]:
        if np.array_equal(index, table.index):
            picks.append(np.arange(len(table.rows)))
            continue
        pair = index.astype(np.int64) * len(table.rows) + table.index
        distinct, inverse = np.unique(pair, return_inverse=True)
        own, other = np.divmod(distinct, len(table.rows))
        picks = [pick[own] for pick in picks] + [other]
        index = inverse.astype(np.int32)
    rows = [table.rows[pick] for table, pick in zip(tables, picks, strict=True)]
    return np.concatenate(rows, axis=1), index


def whole_words(array: NDArray[Any]) -> NDArray[Any]:
    """The array's bytes, and zeros up to a whole number of 4: kernels read short integers so."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.pad(flat, (0, -flat.size % 4)) if flat.size % 4 else array


def _smallest(count: int) -> np.dtype[Any]:
    """The smallest unsigned type that numbers ``count`` rows."""
    return np.dtype(
        next(kind for kind in (np.uint8, np.uint16, np.uint32) if count <= np.iinfo(kind).max + 1)
    )


def load_leaves(device: Any, index: Index, depth: int) -> tuple[Any, Any] | None:
    """The leaf intervals of all prefixes of ``depth`` tokens; None where each is its own leaf."""
    starts, ends = index.leaf_starts(depth), index.leaf_ends(depth)
    if len(ends) == index.leaf_count and depth == index.length:
        return None
    kind = np.uint32 if index.leaf_count < 1 << 32 else np.int64
    return device.upload(starts.astype(kind)), device.upload(ends.astype(kind))


def request_arrays(filters: RequestFilters) -> dict[str, NDArray[Any]]:
    """What the device must know of a batch's targeting, by name."""
    arrays: dict[str, NDArray[Any]] = {
        "asked": filters.bits,
        "leaf_mode": filters.leaf_mode,
        "set_starts": filters.leaf_starts,
        "leaves": filters.leaves,
    }
    for i, (signed, count) in enumerate(zip(filters.bloom, filters.bloom_count, strict=True)):
        arrays[f"signatures {i}"], arrays[f"count {i}"] = signed, count
    return arrays


class DeviceRequests:
    """A batch's targeting on the device.

    Args:
        device: where.
        filters: the same on the host; what is read of it is its shapes, and whether it asks for
            exact sets at all.
        arrays: on the device, as ``request_arrays`` names them.
    """

    def __init__(self, device: Any, filters: RequestFilters, arrays: Mapping[str, Any]) -> None:
        self._arrays: list[Any] = list(arrays.values())
        self.uses_sets = bool(filters.leaf_mode.any())
        self.fields = {
            name: int(device.address(arrays[name]))
            for name in ("asked", "leaf_mode", "set_starts", "leaves")
        }
        self.blooms = []
        self.staged_bytes = 0
        self._signatures = []
        for i, signatures in enumerate(filters.bloom):
            batch, places, words = signatures.shape
            groups = max(1, -(-places // 64))
            ruled_out = device.empty((batch, groups, words * 16, 16), np.uint64)
            self._arrays.append(ruled_out)
            count = device.address(arrays[f"count {i}"])
            address = device.address(ruled_out)
            self._signatures.append(
                arguments.structure(
                    arguments.SIGNATURES,
                    signatures=device.address(arrays[f"signatures {i}"]),
                    count=count,
                    ruled_out=address,
                    total=ruled_out.size,
                    places=places,
                    words=words,
                    groups=groups,
                )
            )
            self.blooms.append({"ruled_out": address, "count": count, "groups": groups})
            self.staged_bytes += groups * words * 256 * 8
        self.prepare(device)

    def prepare(self, device: Any) -> None:
        """rule_out: the tables of the Bloom attributes, from the arrays as they are now."""
        for values in self._signatures:
            blocks = max(1, min(-(-int(values["total"]) // 512), device.multiprocessors * 8))
            device.launch("rule_out", (blocks,), 0, values)


def launch_filter(
    device: Any,
    step: dict[str, Any],
    matchers: DeviceMatchers | None,
    requests: DeviceRequests,
    leaves: tuple[Any, Any] | None,
    out: Any,
    shape: tuple[int, int, int],
    expected: float,
    listed: bool,
) -> None:
    """filter_rows: bits for every position of every beam, into ``out`` uint32 [B, M, words].

    Args:
        step: the fields of ``Step``.
        matchers: of the table; None when the index has no attributes.
        requests: of the batch.
        leaves: of the table's entries, where exact sets are in use and entries are no leaves.
        out: where the bits go.
        shape: B, M and words per beam.
        expected: how many words per request are likely.
        listed: whether the table is in the list layout.
    """
    B, M, words = shape
    staged = requests.staged_bytes <= STAGED_BYTES
    whole_rows = not listed and words <= WHOLE_ROW_WORDS
    fields: dict[str, Any] = {
        **requests.fields,
        "staged": int(staged),
        "whole_rows": int(whole_rows),
    }
    bloom = np.zeros(MOST_BLOOMS, arguments.BLOOM)
    bit_words = 0
    if matchers is not None:
        fields.update(matchers.fields)
        bit_words = matchers.fields.get("bit_words", 0)
        for i, (table, asked) in enumerate(zip(matchers.blooms, requests.blooms, strict=True)):
            for name, value in {**table, **asked}.items():
                bloom[i][name] = value
    if leaves is not None:
        fields["leaf_starts"], fields["leaf_ends"] = map(device.address, leaves)
        fields["leaf_bytes"] = leaves[0].dtype.itemsize
    values = arguments.structure(
        arguments.FILTER,
        step=arguments.structure(arguments.STEP, **step),
        bloom=bloom,
        **fields,
        out=device.address(out),
        out_words=words,
    )
    shared = 4 * 64 + _padded(4 * (M + 1)) + _padded(8 * bit_words) + _padded(4 * bit_words)
    shared += requests.staged_bytes if staged else 0
    shared += _padded(4 * 16 * (words + 2)) if whole_rows else 0
    most = max(1, device.multiprocessors * 4 // B)
    blocks = max(1, min(most, int(-(-(M if whole_rows else expected) // 16))))
    device.launch("filter_rows", (blocks, B), shared, values)


def _padded(size: int) -> int:
    return -(-size // 16) * 16
