"""Sets of places as ascending arrays. (Sorting beats the hashing of ``numpy.unique`` by far.)"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


def ascending(values: Places) -> Places:
    """Each value once, ascending."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def counted(values: Places) -> tuple[Places, Places]:
    """Each of ascending values once, and how often it is there."""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    first = np.flatnonzero(new)
    return values[first], np.diff(np.append(first, len(values)))


def rank(members: Places, values: Places, right: bool = False, compiled: bool = False) -> Places:
    """int64, of the shape of ``values`` [n]: how many of ascending ``members`` lie below each.

    Args:
        members: [m].
        values: best ascending, too: a compiled loop goes through both side by side.
        right: count those that are equal, too.
        compiled: whether to work in a compiled loop.
    """
    if not compiled:
        return np.searchsorted(members, values, side="right" if right else "left")
    from beamsieve.compiled.streams import ranks

    values = np.ascontiguousarray(values)
    found = np.empty_like(values)
    ranks(members, values, right, found)
    return found


def among(values: Places, members: Places, compiled: bool = False) -> NDArray[np.bool_]:
    """bool, of the shape of ``values``: whether each is one of ascending ``members``."""
    if not len(members):
        return np.zeros(values.shape, np.bool_)
    place = np.minimum(rank(members, values, compiled=compiled), len(members) - 1)
    return np.asarray(members[place] == values)
