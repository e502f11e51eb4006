"""The rules of two lots of items in one, without reading them again.

Rows of bits, sets and values are numbered in order of first appearance among the items, so a choice
of the joined items gives the very arrays that reading their rules would give.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import pc
from beamsieve.targeting.attributes import RowLayout
from beamsieve.targeting.item_rules import BloomRules, ItemRules, take_runs
from beamsieve.targeting.row_table import RowTable, distinct_rows, numbered_by_appearance

Numbers = NDArray[np.int64]


class JoinedRules:
    """The rules of some items and of some more, numbered one behind the other.

    Args:
        one: the rules of some items.
        more: the rules of some more, on the same attributes; None for no more items.
    """

    def __init__(self, one: ItemRules, more: ItemRules | None) -> None:
        more = more or _of_no_items(one)
        self._layout: RowLayout = one.layout
        same = distinct_rows(np.concatenate([one.bits.rows, more.bits.rows]))
        rows = np.concatenate([one.bits.index, more.bits.index + len(one.bits.rows)])
        self._rows, self._row = same.rows, same.index[rows]
        self._blooms = [_join(a, b) for a, b in zip(one.blooms, more.blooms, strict=True)]

    def differ(self, items: Numbers, others: Numbers) -> NDArray[np.bool_]:
        """Whether the rules of items differ from those of others, one by one."""
        found = self._row[items] != self._row[others]
        for joined in self._blooms:
            found |= joined.set_of_item[items] != joined.set_of_item[others]
        return np.asarray(found)

    def take(self, items: Numbers) -> ItemRules:
        """The rules of these items, renumbered in this order."""
        order, index = _numbered(self._row[items])
        bits = RowTable(self._rows[order], index)
        return ItemRules(self._layout, bits, tuple(_take(one, items) for one in self._blooms))


def _of_no_items(like: ItemRules) -> ItemRules:
    none, start = np.zeros(0, np.int32), np.zeros(1, np.int64)
    blooms = tuple(
        BloomRules(none, one.kinds[:0], start, none, one.forms.slice(0, 0)) for one in like.blooms
    )
    return ItemRules(like.layout, RowTable(like.bits.rows[:0], none), blooms)


def _numbered(values: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The values in the order in which they first appear; and where in it each place's value is."""
    order, number = numbered_by_appearance(values)
    return order, (np.arange(len(values)) if number is None else number).astype(np.int32)


def _join(one: BloomRules, more: BloomRules) -> BloomRules:
    known = pc.index_in(more.forms, one.forms)
    is_new = np.asarray(known.is_null())
    code = known.fill_null(0).to_numpy().astype(np.int32)
    code[is_new] = len(one.forms) + np.arange(int(is_new.sum()))
    forms = pa.concat_arrays([one.forms, more.forms.filter(pa.array(is_new))])
    codes = np.concatenate([one.codes, code[more.codes]])
    starts = np.concatenate([one.starts, more.starts[1:] + one.starts[-1]])
    kinds = np.concatenate([one.kinds, more.kinds])
    number = _equal_sets(kinds, starts, codes, len(one.kinds))
    set_of_item = np.concatenate([one.set_of_item, number[more.set_of_item]])
    return BloomRules(set_of_item, kinds, starts, codes, forms)


def _equal_sets(
    kinds: NDArray[np.int8], starts: Numbers, codes: NDArray[np.int32], count: int
) -> NDArray[np.int32]:
    """For each set from ``count`` on: the equal one before that, or itself. Both lots are distinct.

    The values of a set stand in one order, so equal sets have equal runs of codes.
    """
    mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * mixed, dtype=np.uint64)])
    keys = before[starts[1:]] - before[starts[:-1]] + kinds.astype(np.uint64)
    order = np.argsort(keys[:count], kind="stable")
    ordered = keys[:count][order]
    first = np.searchsorted(ordered, keys[count:])
    last = np.searchsorted(ordered, keys[count:], side="right")
    number = np.arange(count, len(kinds), dtype=np.int32)
    for place in np.flatnonzero(first < last).tolist():
        own = count + place
        for other in order[first[place] : last[place]].tolist():
            if kinds[own] == kinds[other] and np.array_equal(
                codes[starts[own] : starts[own + 1]], codes[starts[other] : starts[other + 1]]
            ):
                number[place] = other
    return number


def _take(joined: BloomRules, items: Numbers) -> BloomRules:
    sets, set_of_item = _numbered(joined.set_of_item[items])
    members, lengths = take_runs(joined.starts, sets)
    forms, codes = _numbered(joined.codes[members])
    return BloomRules(
        set_of_item,
        joined.kinds[sets],
        np.concatenate([[0], np.cumsum(lengths)]),
        codes,
        joined.forms.take(pa.array(forms)),
    )
