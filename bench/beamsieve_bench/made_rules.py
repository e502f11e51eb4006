"""Made targeting rules: attributes with bits, one with a Bloom filter, and items' rules on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve.targeting import Attribute

BITS = 7
VALUES = [f"v{value}" for value in range(63)]
PLACES = [f"place-{place}" for place in range(50_000)]
ATTRIBUTES = [
    *(Attribute(f"a{number}", VALUES) for number in range(BITS)),
    Attribute("place", bloom=256),
]


def make_rules(items: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """One dict of rules per item: one to three values of a bit attribute, one to five places."""
    ruled = (rng.random((items, BITS + 1)) < 0.6).tolist()
    first = rng.integers(0, 60, (items, BITS)).tolist()
    many = rng.integers(1, 4, (items, BITS)).tolist()
    places = rng.integers(0, len(PLACES), (items, 5)).tolist()
    number = rng.integers(1, 6, items).tolist()
    rules = []
    for item in range(items):
        mine: dict[str, Any] = {
            f"a{a}": {"accepts": VALUES[first[item][a] : first[item][a] + many[item][a]]}
            for a in range(BITS)
            if ruled[item][a]
        }
        if ruled[item][BITS]:
            mine["place"] = {"accepts": [PLACES[p] for p in places[item][: number[item]]]}
        rules.append(mine)
    return rules
