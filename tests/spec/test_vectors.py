"""The golden vectors are what the specification answers, and can be read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import beamsieve_spec as spec
from beamsieve_conformance import make_vectors
from beamsieve_conformance.vectors import NAMES, floats, read


def test_making_them_again_gives_the_same_files() -> None:
    assert make_vectors.differing() == []


def test_a_changed_answer_is_noticed() -> None:
    document = make_vectors.document("searches")
    for path in (("steps", 0, "beams", "tokens"), ("steps", 1, "beams", "scores")):
        changed = make_vectors.document("searches")
        place: Any = changed["cases"][0]
        for key in path:
            place = place[key]
        place[0][0] = [9] if path[-1] == "tokens" else place[0][0] - 1e-6
        assert not make_vectors.same(document, changed)


def test_together_they_are_below_one_megabyte() -> None:
    files = list(make_vectors.FOLDER.glob("*.json"))
    assert {path.stem for path in files} == set(NAMES) == set(make_vectors.FILES)
    assert sum(path.stat().st_size for path in files) < 1_000_000


def trie_of(given: dict[str, Any]) -> spec.Trie:
    return spec.Trie(given["sids"], given["items"], given["codebooks"], given["end_token"])


@pytest.mark.parametrize("case", read("searches"), ids=lambda case: case["about"])
def test_a_search_replays_from_the_file_alone(case: dict[str, Any]) -> None:
    trie = trie_of(case["catalog"])
    beams = spec.begin(trie, case["batch"], case["prefix"])
    for taken in case["steps"]:
        given = {name: floats(values) for name, values in taken["inputs"].items()}
        guidance: dict[str, Any] = {
            name: given.pop(name) for name in ("bonus", "nudge") if name in given
        }
        logits = given["logits"] if "logits" in given else spec.project(**given)
        beams = spec.step(trie, beams, taken["width"], logits, case["normalize"], **guidance)
        for name, expected in taken["beams"].items():
            np.testing.assert_allclose(getattr(beams, name), floats(expected), atol=1e-9)
    found = [[[hit.item, list(hit.sid)] for hit in hits] for hits in spec.results(trie, beams, 5)]
    assert [hits[: case["k"]] for hits in found] == [
        [[item, sid] for item, sid, _ in hits] for hits in case["results"]
    ]


@pytest.mark.parametrize("case", read("catalogs"), ids=lambda case: case["about"])
def test_a_catalog_is_accepted_or_refused_as_the_file_says(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(spec.CatalogError):
            trie_of(case["catalog"])
    else:
        assert trie_of(case["catalog"]).leaves == [tuple(sid) for sid in case["expected"]["leaves"]]


def test_targeting_vectors_tell_requests_apart() -> None:
    """Some requests see nothing, some a part, one everything; parts change what is let through."""
    cases = {case["about"]: case for case in read("targeting")}
    none, static = cases["no partition"], cases["a static partition"]
    sizes = {len(asked["items"]) for asked in none["asked"]}
    assert len(sizes) >= 5
    assert 0 in sizes
    assert len(none["catalog"]["items"]) in sizes
    assert [a["prefixes"] for a in none["asked"]] != [a["prefixes"] for a in static["asked"]]
    assert [a["items"] for a in none["asked"]] == [a["items"] for a in static["asked"]]
