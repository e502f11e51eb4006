"""The rules of two lots of items in one, without reading them again.

Rows of bits, sets and values are numbered in order of first appearance among the items, so a choice
of the joined items gives the very arrays that reading their rules would give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import pc
from beamsieve.targeting.attributes import RowLayout
from beamsieve.targeting.item_rules import BloomRules, ItemRules, take_runs
from beamsieve.targeting.row_table import RowTable, distinct_rows

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
        rows = np.concatenate([one.bits.rows, more.bits.rows])
        # Whether two rows are equal; each has words, or none has.
        same = distinct_rows(rows).index.astype(np.int64)
        self._rows = rows
        self._row = np.concatenate(
            [same[one.bits.index], same[more.bits.index + len(one.bits.rows)]]
        )
        self._first_row = np.unique(same, return_index=True)[1]
        self._blooms = [_join(a, b) for a, b in zip(one.blooms, more.blooms, strict=True)]

    def differ(self, items: Numbers, others: Numbers) -> NDArray[np.bool_]:
        """Whether the rules of items differ from those of others, one by one."""
        found = self._row[items] != self._row[others]
        for joined in self._blooms:
            found |= joined.set_of_item[items] != joined.set_of_item[others]
        return np.asarray(found)

    def take(self, items: Numbers) -> ItemRules:
        """The rules of these items, renumbered in this order."""
        if self._rows.shape[1]:
            order, index = numbered_by_appearance(self._row[items], len(self._first_row))
            bits = RowTable(self._rows[self._first_row[order]], index)
        else:
            bits = RowTable(self._rows[:1], np.zeros(len(items), np.int32))
        return ItemRules(self._layout, bits, tuple(_take(one, items) for one in self._blooms))


def _of_no_items(like: ItemRules) -> ItemRules:
    none, start = np.zeros(0, np.int32), np.zeros(1, np.int64)
    blooms = tuple(
        BloomRules(none, one.kinds[:0], start, none, one.forms.slice(0, 0)) for one in like.blooms
    )
    return ItemRules(like.layout, RowTable(like.bits.rows[:0], none), blooms)


@dataclass(frozen=True)
class _Joined:
    """The rules on one Bloom attribute; see :class:`BloomRules`."""

    set_of_item: Numbers
    kinds: NDArray[np.int8]
    starts: NDArray[np.int64]
    codes: NDArray[np.int64]
    forms: pa.Array


def numbered_by_appearance(
    values: NDArray[np.integer], count: int
) -> tuple[Numbers, NDArray[np.int32]]:
    """The values (below ``count``) in the order in which they first appear; and for each place of
    ``values``, where its value is in that order.
    """
    first = np.full(count, len(values), np.int64)
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    used = np.flatnonzero(first < len(values))
    order = used[np.argsort(first[used])]
    number = np.empty(count, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return order, number[values]


def _join(one: BloomRules, more: BloomRules) -> _Joined:
    known = pc.index_in(more.forms, one.forms)
    is_new = np.asarray(known.is_null())
    code = known.fill_null(0).to_numpy().astype(np.int64)
    code[is_new] = len(one.forms) + np.arange(int(is_new.sum()))
    forms = pa.concat_arrays([one.forms, more.forms.filter(pa.array(is_new))])
    codes = np.concatenate([one.codes.astype(np.int64), code[more.codes]])
    starts = np.concatenate([one.starts, more.starts[1:] + one.starts[-1]])
    kinds = np.concatenate([one.kinds, more.kinds])
    number = _equal_sets(kinds, starts, codes, len(one.kinds))
    more_sets = number[more.set_of_item]
    return _Joined(
        np.concatenate([one.set_of_item.astype(np.int64), more_sets]), kinds, starts, codes, forms
    )


def _equal_sets(kinds: NDArray[np.int8], starts: Numbers, codes: Numbers, count: int) -> Numbers:
    """For each set from ``count`` on: the equal one before that, or itself. Both lots are distinct.

    The values of a set stand in one order, so equal sets have equal runs of codes.
    """
    mixed = (codes + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * mixed, dtype=np.uint64)])
    keys = before[starts[1:]] - before[starts[:-1]] + kinds.astype(np.uint64)
    order = np.argsort(keys[:count], kind="stable")
    ordered = keys[:count][order]
    first = np.searchsorted(ordered, keys[count:])
    last = np.searchsorted(ordered, keys[count:], side="right")
    number = np.arange(count, len(kinds))
    for place in np.flatnonzero(first < last).tolist():
        own = count + place
        for other in order[first[place] : last[place]].tolist():
            if kinds[own] == kinds[other] and np.array_equal(
                codes[starts[own] : starts[own + 1]], codes[starts[other] : starts[other + 1]]
            ):
                number[place] = other
    return number


def _take(joined: _Joined, items: Numbers) -> BloomRules:
    sets, set_of_item = numbered_by_appearance(joined.set_of_item[items], len(joined.kinds))
    members, lengths = take_runs(joined.starts, sets)
    forms, codes = numbered_by_appearance(joined.codes[members], len(joined.forms))
    return BloomRules(
        set_of_item,
        joined.kinds[sets],
        np.concatenate([[0], np.cumsum(lengths)]),
        codes,
        joined.forms.take(pa.array(forms)),
    )
