"""Targeted searches: rules, requests, and the check that no eligible item is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from beamsieve.interface import Beams
from beamsieve_conformance import model
from beamsieve_conformance.trial import Trial, World

Request = Mapping[str, Any] | None
Attribute = Mapping[str, Any]

COUNTRY: Attribute = {"name": "country", "values": ["US", "CA", "UK"]}
AGE: Attribute = {"name": "age", "values": [18, 25, 35, 45]}
PLACE: Attribute = {"name": "place", "bloom": 128}
PLACES = [f"place-{n}" for n in range(40)]


def accepts(**values: list[Any]) -> dict[str, Any]:
    """Rules that accept these values of these attributes."""
    return {name: {"accepts": listed} for name, listed in values.items()}


def refuses(**values: list[Any]) -> dict[str, Any]:
    """Rules that refuse these values of these attributes."""
    return {name: {"refuses": listed} for name, listed in values.items()}


def search(
    trial: Trial, requests: Sequence[Request], width: int = 200, seed: int | None = None
) -> Beams:
    """Every step, judged, with equal logits or, given a seed, random ones."""
    rng = None if seed is None else np.random.default_rng(seed)
    beams = trial.begin(requests=requests)
    while beams.step < trial.trie.length:
        if rng is None:
            inputs = trial.logits(beams, 0.0)
        else:
            inputs = model.given_logits(rng, trial.shape(beams))
        beams = trial.step(beams, width, inputs)
    return beams


def items_of(trial: Trial, beams: Beams) -> list[list[Any]]:
    """The items of every request, sorted; and no request is shown what it may not see."""
    found = [sorted(hit.item for hit in hits) for hits in trial.engine.results(beams, k=10_000)]
    return found


def check_all_found(trial: Trial, requests: Sequence[Request], width: int = 200) -> None:
    """With room for every leaf, the results are exactly the eligible items."""
    beams = search(trial, requests, width)
    eligible = trial.world.targeting.eligible(requests)
    everything: set[Any] = {item for sid in trial.trie.leaves for item in trial.trie.items[sid]}
    for b, items in enumerate(items_of(trial, beams)):
        wanted = sorted(item for item in everything if eligible(b, item))
        assert items == wanted, f"request {b}: {requests[b]}"


@st.composite
def targeted(draw: st.DrawFn, kinds: Sequence[str]) -> tuple[World, list[Request]]:
    """A small catalog with rules, and a batch of requests, of the kinds that are declared."""
    attributes: list[Attribute] = []
    if "bits" in kinds:
        attributes += [COUNTRY, {"name": "group", "values": list(range(draw(st.integers(1, 70))))}]
    if "bloom" in kinds:
        attributes.append({"name": "place", "bloom": draw(st.sampled_from([64, 128, 256]))})
    values = {
        str(attribute["name"]): list(attribute.get("values", PLACES)) for attribute in attributes
    }

    def some(name: str) -> st.SearchStrategy[list[Any]]:
        return st.lists(st.sampled_from(values[name]), max_size=4, unique=True)

    rule = {
        name: st.one_of(
            st.none(),
            some(name).map(lambda listed: {"accepts": listed}),
            some(name).map(lambda listed: {"refuses": listed}),
        )
        for name in values
    }
    levels = draw(st.integers(1, 3))
    sids = draw(st.lists(st.tuples(*[st.integers(0, 4)] * levels), min_size=1, max_size=40))
    rules = [
        {name: said for name, kind in rule.items() if (said := draw(kind)) is not None}
        for _ in sids
    ]
    items = st.lists(st.integers(0, len(sids) + 1), max_size=6, unique=True)
    parts: dict[str, st.SearchStrategy[Any]] = {name: some(name) for name in values}
    parts |= {name: items for name in ("allow", "exclude") if name in kinds}
    request = st.none() | st.fixed_dictionaries({}, optional=parts)
    partition: dict[str, Any] = draw(
        st.sampled_from([{}, {"static": [3] * levels}, {"dynamic": (0.2, 5)}])
    )
    world = World.of(
        sids, 5, attributes=attributes, rules=rules if attributes else None, **partition
    )
    return world, draw(st.lists(request, min_size=1, max_size=4))
