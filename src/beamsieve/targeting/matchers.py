"""Edge matchers: for every entry of every table, the union of the rows of the items below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.targeting.attributes import RowLayout
from beamsieve.targeting.partitions import Partitions, deal, deal_to_target
from beamsieve.targeting.row_table import RowTable, distinct_rows

if TYPE_CHECKING:
    from beamsieve.index.tables import StepTable

Bounds = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Per depth, the first leaf of each prefix, and one behind its last."""


@dataclass(frozen=True)
class StepMatchers:
    """The matchers of one table's entries.

    Each entry has one part, or several; a request goes on to the entry when any one of its parts
    passes: has all bits that the request asks for in ``bits``, and at least one of its signatures
    in each of ``blooms``.

    Attributes:
        part_starts: int32 or int64 [entries + 1], where each entry's parts begin; None where every
            entry e has the one part e.
        bits: the parts' rows for the bit attributes; rows of 0 words if there are none.
        blooms: the parts' rows for each Bloom attribute.
    """

    part_starts: NDArray[np.integer] | None
    bits: RowTable
    blooms: tuple[RowTable, ...]

    @property
    def parts(self) -> int:
        """How many parts all entries have."""
        return len(self.bits.index)

    @property
    def segments(self) -> tuple[RowTable, ...]:
        """The bit attributes' rows, then each Bloom attribute's."""
        return (self.bits, *self.blooms)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        starts = 0 if self.part_starts is None else self.part_starts.nbytes
        return starts + sum(table.nbytes for table in self.segments if table.words)

    @property
    def nbytes_undivided(self) -> int:
        """Bytes if every part stored its own rows."""
        starts = 0 if self.part_starts is None else self.part_starts.nbytes
        return starts + 8 * self.parts * sum(table.words for table in self.segments)


@dataclass(frozen=True)
class Matchers:
    """The matchers of an index: one :class:`StepMatchers` per table, dealt as it was asked for."""

    layout: RowLayout
    steps: tuple[StepMatchers, ...]
    partitions: Partitions = field(default_factory=Partitions)

    @property
    def nbytes(self) -> int:
        """Bytes of all steps."""
        return sum(step.nbytes for step in self.steps)

    def stats(self) -> list[dict[str, Any]]:
        """Per step: parts, distinct rows, fill rates, and bytes before and after sharing rows.

        The fill is the mean share of bits set, over all parts; bits that only fill up a word are
        left out.
        """
        names = ["bits", *(attribute.name for attribute in self.layout.blooms)]
        widths = [self.layout.bit_count, *(attribute.bits for attribute in self.layout.blooms)]
        found = []
        for number, step in enumerate(self.steps, 1):
            named = [
                (name, table, width)
                for name, table, width in zip(names, step.segments, widths, strict=True)
                if width
            ]
            set_bits = {name: _bits_set(table) for name, table, _ in named}
            whole = sum(set_bits.values()) / max(1, step.parts * self.layout.row_bits)
            found.append(
                {
                    "step": number,
                    "parts": step.parts,
                    "distinct_rows": {name: len(table.rows) for name, table, _ in named},
                    "fill": {
                        "all": whole,
                        **{
                            name: set_bits[name] / max(1, step.parts * width)
                            for name, _, width in named
                        },
                    },
                    "bytes_before": step.nbytes_undivided,
                    "bytes": step.nbytes,
                }
            )
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything, under the names that it has in a file."""
        found: dict[str, NDArray[Any]] = {}
        for number, step in enumerate(self.steps, 1):
            if step.part_starts is not None:
                found[f"matcher.{number}.part_starts"] = step.part_starts
            for place, table in enumerate(step.segments):
                found[f"matcher.{number}.{place}.rows"] = table.rows
                found[f"matcher.{number}.{place}.index"] = table.index
        return found

    @classmethod
    def from_arrays(
        cls,
        layout: RowLayout,
        arrays: Mapping[str, NDArray[Any]],
        length: int,
        partitions: Partitions,
    ) -> Matchers:
        """The reverse of :meth:`arrays`."""
        steps = []
        for number in range(1, length + 1):
            tables = [
                RowTable(
                    arrays[f"matcher.{number}.{place}.rows"],
                    arrays[f"matcher.{number}.{place}.index"],
                )
                for place in range(len(layout.segment_words))
            ]
            starts = arrays.get(f"matcher.{number}.part_starts")
            steps.append(StepMatchers(starts, tables[0], tuple(tables[1:])))
        return cls(layout, tuple(steps), partitions)


def build_matchers(
    layout: RowLayout,
    item_segments: Sequence[RowTable],
    leaf_items: tuple[NDArray[np.integer] | None, NDArray[np.integer] | None],
    tables: Sequence[StepTable],
    bounds: Bounds,
    partitions: Partitions,
) -> Matchers:
    """Unite rows from the leaves up.

    Args:
        layout: the attributes and their bits.
        item_segments: the items' rows, segment by segment.
        leaf_items: where each leaf's items begin, and their numbers; None as in the index.
        tables: the step tables.
        bounds: the leaves below each prefix, for every depth.
        partitions: into how many parts each prefix is dealt.
    """
    leaves = [_unite_items(segment, *leaf_items) for segment in item_segments]
    if all(partitions.at(level)[0] == 1 for level in range(1, len(tables) + 1)):
        columns = [_one_part_each(rows, tables, bounds) for rows in leaves]
        steps = [
            StepMatchers(None, segments[0], tuple(segments[1:]))
            for segments in zip(*columns, strict=True)
        ]
        return Matchers(layout, tuple(steps), partitions)

    joint = np.concatenate(leaves, axis=1)
    cuts = np.cumsum(layout.segment_words)[:-1]
    steps = []
    for level in range(1, len(tables) + 1):
        starts, ends = bounds[level]
        most, target = partitions.at(level)
        if target is None:
            part_starts, rows = deal(joint, starts[:-1], ends, most)
        else:
            part_starts, rows = deal_to_target(
                joint, starts[:-1], ends, target, most, layout.row_bits
            )
        segments = [distinct_rows(part) for part in np.split(rows, cuts, axis=1)]
        kept: NDArray[np.integer] | None = None
        if len(rows) != len(ends):
            kept = part_starts.astype(np.int32 if len(rows) < 2**31 else np.int64)
        steps.append(StepMatchers(kept, segments[0], tuple(segments[1:])))
    return Matchers(layout, tuple(steps), partitions)


def _unite_items(
    segment: RowTable, starts: NDArray[np.integer] | None, numbers: NDArray[np.integer] | None
) -> NDArray[np.uint64]:
    """uint64 [leaves, words]: the union of the rows of each leaf's items."""
    index = segment.index if numbers is None else segment.index[numbers]
    rows = segment.rows[index]
    if starts is None or not segment.words:
        return rows if starts is None else rows[starts[:-1]]
    return np.bitwise_or.reduceat(rows, starts[:-1], axis=0)


def _one_part_each(
    leaf_rows: NDArray[np.uint64], tables: Sequence[StepTable], bounds: Bounds
) -> list[RowTable]:
    """Per step, one row for each entry."""
    found: list[RowTable] = []
    rows = leaf_rows[bounds[len(tables)][0][:-1]] if len(tables) else leaf_rows
    for depth in range(len(tables), 0, -1):
        found.insert(0, distinct_rows(rows))
        if depth > 1:
            rows = _unite_children(rows, tables[depth - 1], leaf_rows, bounds[depth - 1][0])
    return found


def _unite_children(
    rows: NDArray[np.uint64],
    table: StepTable,
    leaf_rows: NDArray[np.uint64],
    leaf_starts: NDArray[np.int64],
) -> NDArray[np.uint64]:
    """One row for each of a table's rows; one without entries is a leaf itself."""
    bounds = table.plain_starts()
    starts = bounds[:-1]
    if not rows.shape[1]:
        return np.zeros((table.rows, 0), np.uint64)
    goes_on = bounds[1:] > starts
    if goes_on.all():
        return np.bitwise_or.reduceat(rows, starts, axis=0)
    united = leaf_rows[leaf_starts[:-1]]
    if goes_on.any():
        united[goes_on] = np.bitwise_or.reduceat(rows, starts[goes_on], axis=0)
    return united


def _bits_set(table: RowTable) -> int:
    counts = np.bitwise_count(table.rows).sum(axis=1, dtype=np.int64)
    return int(counts[table.index].sum())
