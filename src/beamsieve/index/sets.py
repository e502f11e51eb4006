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


def among(values: Places, members: Places) -> NDArray[np.bool_]:
    """bool, of the shape of ``values``: whether each is one of ascending ``members``."""
    if not len(members):
        return np.zeros(values.shape, np.bool_)
    place = np.minimum(np.searchsorted(members, values), len(members) - 1)
    return np.asarray(members[place] == values)
