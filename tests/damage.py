"""Other values at one place of a description, as tests of damaged files put them there."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

DROPPED = object()
"""In place of a value: nothing stands there."""


def places(tree: Any, whole: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything within a description; what is named in ``whole`` is not gone into."""
    entries = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, inner in entries:
        yield (key,)
        if key not in whole:
            yield from ((key, *further) for further in places(inner, whole))


def changed(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    """The same description with another value at one place, or without it."""
    found = node = copy.deepcopy(tree)
    for key in at[:-1]:
        node = node[key]
    if value is DROPPED:
        del node[at[-1]]
    else:
        node[at[-1]] = value
    return found
