"""Rules for a catalog in which a chosen share of the items is eligible, from all to one in 10 000.

Eligibility is drawn item by item and knows nothing of semantic IDs. Real rules follow the items'
topics to some degree, which helps a filter of prefixes: whole subtrees drop out. Here none does
until it is small, so these worlds are the hard case.

Three kinds of rules:

- ``bit``: one attribute of a bit per value. A request gives one value.
- ``bloom``: one attribute in a Bloom filter of 256 bits, in which every item also accepts two of
  2000 other values. A request gives one value.
- ``three``: a country (bit), an age (bit) and a place (Bloom, as above), drawn independently, each
  accepted by the cube root of the share. A request gives one value of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.targeting import Attribute

SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
KINDS = ("bit", "bloom", "three")
_OTHERS = 2000


@dataclass(frozen=True)
class TargetedItems:
    """Attributes, one rule per item, and per share a request and who is eligible for it."""

    attributes: list[Attribute]
    rules: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    eligible: list[NDArray[np.bool_]]


def targeted_items(kind: str, items: int, seed: int = 0) -> TargetedItems:
    """Rules of one kind for this many items, for every share of :data:`SHARES`."""
    draw = np.random.default_rng([seed, KINDS.index(kind)])
    shares = np.array(SHARES)
    if kind == "three":
        columns = dict.fromkeys(("country", "age", "place"), shares ** (1 / 3))
    else:
        columns = {"audience" if kind == "bit" else "place": shares}
    accepted = {
        name: draw.random((items, len(shares)), dtype=np.float32) < odds
        for name, odds in columns.items()
    }
    rules: list[dict[str, Any]] = [{} for _ in range(items)]
    attributes = []
    for name, matrix in accepted.items():
        values = [f"{name} {place}" for place in range(len(shares))]
        if name == "place":
            attributes.append(Attribute(name, bloom=256))
            others = draw.integers(0, _OTHERS, (items, 2)).tolist()
        else:
            attributes.append(Attribute(name, values))
            others = None
        for rule, accepts in zip(rules, _sets(matrix, values, others), strict=True):
            rule[name] = {"accepts": accepts}
    return TargetedItems(
        attributes,
        rules,
        [{name: f"{name} {place}" for name in accepted} for place in range(len(shares))],
        [
            np.logical_and.reduce([matrix[:, place] for matrix in accepted.values()])
            for place in range(len(shares))
        ],
    )


def _sets(
    matrix: NDArray[np.bool_], values: list[str], others: list[list[int]] | None
) -> Iterable[list[str]]:
    """The accepted values of every item; equal lists are one object where nothing else differs."""
    codes = (matrix << np.arange(matrix.shape[1])).sum(axis=1).tolist()
    lists = {
        code: [value for place, value in enumerate(values) if code >> place & 1]
        for code in set(codes)
    }
    if others is None:
        return (lists[code] for code in codes)
    names = [f"elsewhere {number}" for number in range(_OTHERS)]
    return (
        [*lists[code], *(names[number] for number in more)]
        for code, more in zip(codes, others, strict=True)
    )
