"""The exact rules of an index's items, and their rows of bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.targeting.attributes import RowLayout
from beamsieve.targeting.bloom import signatures
from beamsieve.targeting.row_table import RowTable, distinct_rows
from beamsieve.targeting.rules import (
    ACCEPTS,
    NO_RULE,
    REFUSES,
    BitSet,
    CatalogRules,
    ValueSet,
)


@dataclass(frozen=True)
class BloomRules:
    """The rules on one Bloom attribute.

    Attributes:
        set_of_item: int32 [items].
        kinds: int8 [sets]; no rule, accepts these values, or refuses these values.
        starts: int64 [sets + 1] into ``codes``.
        codes: int32; the values of each set, as places in ``forms``.
        forms: Arrow large_string; the canonical form of every value that occurs.
    """

    set_of_item: NDArray[np.int32]
    kinds: NDArray[np.int8]
    starts: NDArray[np.int64]
    codes: NDArray[np.int32]
    forms: pa.Array

    def rows(self, width: int) -> NDArray[np.uint64]:
        """uint64 [sets, width / 64]: each set's segment of a row."""
        ones = np.iinfo(np.uint64).max
        rows = np.full((len(self.kinds), width // 64), ones, np.uint64)
        rows[self.kinds == REFUSES, 0] -= np.uint64(1)
        rows[self.kinds == ACCEPTS] = 0
        some = np.flatnonzero((self.kinds == ACCEPTS) & (np.diff(self.starts) > 0))
        if len(some):
            members, counts = take_runs(self.starts, some)
            bits = signatures(self.forms.to_pylist(), width)[self.codes[members]]
            rows[some] = np.bitwise_or.reduceat(bits, np.cumsum(counts) - counts, axis=0)
        return rows

    def accepts(self, items: NDArray[np.int64], forms: set[str]) -> NDArray[np.bool_]:
        """Whether each item accepts at least one of these values (given in canonical form)."""
        sets, place = np.unique(self.set_of_item[items], return_inverse=True)
        kinds = self.kinds[sets]
        members, counts = take_runs(self.starts, sets)
        given = [self._places[form] for form in forms if form in self._places]
        known = np.isin(self.codes[members], np.array(given, np.int32))
        owner = np.repeat(np.arange(len(sets)), counts)
        hits = np.bincount(owner[known], minlength=len(sets))
        accepted: NDArray[np.bool_] = kinds == NO_RULE
        accepted |= (kinds == ACCEPTS) & (hits > 0)
        accepted |= (kinds == REFUSES) & (hits < len(forms))
        return np.asarray(accepted[place])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {form: place for place, form in enumerate(self.forms.to_pylist())}


@dataclass(frozen=True)
class ItemRules:
    """The rules of every item, by item number.

    Attributes:
        layout: the attributes and their bits.
        bits: the items' segments of the bit attributes; on these, the test of a row is exact.
        blooms: the rules on each Bloom attribute.
    """

    layout: RowLayout
    bits: RowTable
    blooms: tuple[BloomRules, ...]

    @classmethod
    def build(cls, rules: CatalogRules, items: NDArray[np.int64]) -> ItemRules:
        """From a catalog's rules; ``items`` are its items in the order of their new numbers."""
        layout = rules.layout
        bits = np.zeros((len(items), layout.bit_words), np.uint64)
        blooms = []
        for column, (attribute, sets) in enumerate(zip(layout.attributes, rules.sets, strict=True)):
            mine = rules.item_sets[:, column][items]
            if attribute.bloom is not None:
                blooms.append(_bloom_rules(cast("Sequence[ValueSet]", sets), mine))
            else:
                shift = layout.offsets[attribute.name]
                _add_bits(bits, cast("Sequence[BitSet]", sets), shift, attribute.bits, mine)
        return cls(layout, distinct_rows(bits), tuple(blooms))

    def segments(self) -> list[RowTable]:
        """The items' rows, segment by segment: the bit attributes', then each Bloom attribute's."""
        found = [self.bits]
        for rules, attribute in zip(self.blooms, self.layout.blooms, strict=True):
            found.append(RowTable(rules.rows(attribute.bits), rules.set_of_item))
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the forms, under the names that it has in a file."""
        found: dict[str, NDArray[Any]] = {
            "rules.bits.rows": self.bits.rows,
            "rules.bits.index": self.bits.index,
        }
        for place, rules in enumerate(self.blooms):
            for part in ("set_of_item", "kinds", "starts", "codes"):
                found[f"rules.bloom.{place}.{part}"] = getattr(rules, part)
        return found

    @classmethod
    def from_arrays(
        cls, layout: RowLayout, arrays: Mapping[str, NDArray[Any]], forms: Sequence[pa.Array]
    ) -> ItemRules:
        """The reverse of :meth:`arrays`."""
        blooms = tuple(
            BloomRules(
                arrays[f"rules.bloom.{place}.set_of_item"],
                arrays[f"rules.bloom.{place}.kinds"],
                arrays[f"rules.bloom.{place}.starts"],
                arrays[f"rules.bloom.{place}.codes"],
                own,
            )
            for place, own in enumerate(forms)
        )
        bits = RowTable(arrays["rules.bits.rows"], arrays["rules.bits.index"])
        return cls(layout, bits, blooms)


def take_runs(
    starts: NDArray[np.integer], chosen: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The members of some runs of a CSR array, one run after another, and how many each has."""
    first = starts[chosen].astype(np.int64)
    counts = starts[np.asarray(chosen) + 1].astype(np.int64) - first
    ends = np.cumsum(counts)
    members = np.repeat(first - ends + counts, counts) + np.arange(int(counts.sum()))
    return members, counts


def _add_bits(
    bits: NDArray[np.uint64],
    sets: Sequence[BitSet],
    shift: int,
    width: int,
    set_of_item: NDArray[np.int32],
) -> None:
    """Put one attribute's bits of every item into ``bits``, from bit ``shift`` on."""
    first = shift // 64
    words = (shift + width - 1) // 64 + 1 - first
    table = np.array(
        [
            [(one.mask << shift % 64) >> 64 * word & (2**64 - 1) for word in range(words)]
            for one in sets
        ],
        np.uint64,
    )
    for word in range(words):
        bits[:, first + word] |= table[set_of_item, word]


def _bloom_rules(sets: Sequence[ValueSet], set_of_item: NDArray[np.int32]) -> BloomRules:
    """Number sets and values in the order of the items, so that equal rules give equal arrays."""
    used, first, place = np.unique(set_of_item, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first, kind="stable")
    number = np.empty(len(used), np.int32)
    number[by_appearance] = np.arange(len(used), dtype=np.int32)
    chosen = [sets[old] for old in used[by_appearance].tolist()]
    flat = pa.array([form for one in chosen for form in one.forms], pa.large_string())
    encoded = flat.dictionary_encode()
    lengths = np.array([len(one.forms) for one in chosen], np.int64)
    return BloomRules(
        number[place],
        np.array([one.kind for one in chosen], np.int8),
        np.concatenate([[0], np.cumsum(lengths)]),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32),
        encoded.dictionary,
    )
