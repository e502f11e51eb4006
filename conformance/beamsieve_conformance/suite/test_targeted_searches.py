"""Exact sets, and targeting together with everything else: no eligible item is ever lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamsieve.interface import Normalize
from beamsieve_conformance import compare, features, model
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.targeted import (
    COUNTRY,
    PLACE,
    PLACES,
    Request,
    accepts,
    check_all_found,
    items_of,
    search,
    targeted,
)
from beamsieve_conformance.trial import Trial, World

BITS = pytest.mark.needs("targeting: bits")
BLOOM = pytest.mark.needs("targeting: bloom")
ALLOW = pytest.mark.needs("targeting: allow")
EXCLUDE = pytest.mark.needs("targeting: exclude")


# Exact sets


@EXCLUDE
def test_excluding_all_below_a_prefix_prunes_the_prefix(subject: Subject) -> None:
    # The dead end would take the only place; the prefix that leads there must not be kept.
    trial = Trial(subject, World.of([(1, 2, 3), (1, 2, 4), (1, 5, 6)], 7))
    beams = trial.begin(requests=[{"exclude": [0, 1]}])
    beams = trial.step(beams, 1, trial.logits(beams, 0.0))
    beams = trial.step(beams, 1, trial.logits(beams, [0, 0, 9, 0, 0, 0, 0]))
    assert trial.host(beams).tokens.tolist() == [[[1, 5]]]
    beams = trial.step(beams, 1, trial.logits(beams, 0.0))
    assert items_of(trial, beams) == [[2]]


@EXCLUDE
def test_excluded_items_are_never_returned(subject: Subject) -> None:
    trial = Trial(subject, World.of([(n // 8, n % 8) for n in range(40)], 8))
    check_all_found(
        trial,
        [{"exclude": list(range(n))} for n in (0, 1, 8, 31, 39, 40)] + [{"exclude": [7, 900]}],
    )


@EXCLUDE
def test_excluding_one_item_leaves_the_others_of_its_semantic_id(subject: Subject) -> None:
    sids = [(0, 1), (0, 1), (0, 2), (1, 0)]
    trial = Trial(subject, World.of(sids, items=["a", "b", "c", "d"]))
    check_all_found(trial, [{"exclude": ["a"]}, {"exclude": ["a", "b"]}, {"exclude": ["d", "a"]}])


@ALLOW
def test_only_allowed_items_are_returned(subject: Subject) -> None:
    trial = Trial(subject, World.of([(n // 8, n % 8) for n in range(40)], 8))
    requests: list[Request] = [{"allow": allow} for allow in ([39], [0, 17, 31], [], [900])]
    check_all_found(trial, [*requests, None, {"allow": None}])


@ALLOW
def test_an_allowed_item_is_found_however_unlikely(subject: Subject) -> None:
    # One place, and everything else scores higher: only what leads there may be kept.
    trial = Trial(subject, World.of([tuple(sid) for sid in np.ndindex(4, 4, 2)]))
    beams = trial.begin(requests=[{"allow": [31]}, {"allow": [12]}])
    for _ in range(3):
        size = trial.trie.codebooks[beams.step]
        beams = trial.step(beams, 1, trial.logits(beams, np.linspace(5, -5, size)))
    assert items_of(trial, beams) == [[31], [12]]


@ALLOW
@EXCLUDE
def test_allow_and_exclude_may_come_together(subject: Subject) -> None:
    trial = Trial(subject, World.of([(n // 8, n % 8) for n in range(40)], 8))
    check_all_found(trial, [{"allow": [1, 2, 30], "exclude": [2]}, {"allow": [5], "exclude": [5]}])


@BITS
@ALLOW
@EXCLUDE
def test_rules_and_exact_sets_hold_together(subject: Subject) -> None:
    rules = [accepts(country=[("US", "CA", "UK")[n % 3]]) if n % 4 else {} for n in range(40)]
    sids = [(n // 8, n % 8) for n in range(40)]
    trial = Trial(subject, World.of(sids, 8, attributes=[COUNTRY], rules=rules))
    check_all_found(
        trial,
        [
            {"country": "US", "exclude": [0, 3, 8]},
            {"country": "CA", "allow": list(range(20))},
            {"exclude": list(range(30))},
            {"allow": [4, 5, 6]},
        ],
    )


@BITS
@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
@pytest.mark.parametrize("projection", features.KNOWN["projection"])
def test_many_beams_of_long_rows_are_targeted(
    subject: Subject, projection: str, normalize: Normalize
) -> None:
    # So many that a backend may test entries apart from what scores them, a piece of a row at once.
    rng = np.random.default_rng(12)
    rows = [(a, b) for a in range(80) for b in rng.permutation(320)[: 10 + 4 * a].tolist()]
    rules = [accepts(country=[("US", "CA", "UK")[n]]) for n in rng.integers(3, size=len(rows))]
    world = World.of(rows, [80, 320], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world, normalize)
    beams = trial.begin(requests=[{"country": "US"}, {"country": "CA"}, None])
    for width in (80, 100):
        inputs = model.given_hidden(rng, trial.shape(beams))
        beams = trial.step(beams, width, inputs, projection)  # type: ignore[arg-type]


@BITS
def test_of_colliding_items_only_the_eligible_one_is_returned(subject: Subject) -> None:
    rules = [accepts(country=["US"]), accepts(country=["CA"]), accepts(country=["UK"])]
    world = World.of([(1, 2, 3)] * 3, items=["a", "b", "c"], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world)
    beams = search(trial, [{"country": "CA"}])
    (hits,) = trial.engine.results(beams, k=2)
    assert [hit.item for hit in hits] == ["b"]
    assert hits[0].score == float(trial.host(beams).scores[0, 0])
    assert hits.generated_items == 3
    assert hits.removed_items == 2


# With everything else


@BITS
@pytest.mark.parametrize("normalize", ["all", "catalog", "eligible"])
def test_each_normalizer_counts_what_it_says(subject: Subject, normalize: Normalize) -> None:
    rules = [accepts(country=[("US", "CA", "UK")[n % 3]]) for n in range(30)]
    sids = [(n // 6, n % 6) for n in range(30)]
    world = World.of(sids, [5, 9], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world, normalize)
    search(trial, [{"country": "US"}, None, {"country": ["US", "CA"]}], width=9, seed=1)
    beams = trial.begin(requests=[{"country": "US"}])
    beams = trial.step(beams, 1, trial.logits(beams, 0.0))
    found = trial.host(trial.step(beams, 9, trial.logits(beams, 0.0)))
    mass = {"all": 9, "catalog": 6, "eligible": 2}[normalize]
    gained = found.scores[0, 0] - trial.host(beams).scores[0, 0]
    assert abs(gained + np.log(mass)) < 1e-3


@BITS
def test_a_given_prefix_is_not_tested_only_what_follows(subject: Subject) -> None:
    rules = [accepts(country=["US"]), accepts(country=["CA"]), {}]
    world = World.of([(0, 0), (0, 1), (1, 0)], attributes=[COUNTRY], rules=rules)
    trial = Trial(subject, world)
    requests: list[Request] = [{"country": "UK"}, {"country": "US"}, {"country": "US"}]
    beams = trial.begin(prefix=[(0,), (0,), (1,)], requests=requests)
    assert trial.host(beams).count.tolist() == [1, 1, 1]
    beams = trial.step(beams, 3, trial.logits(beams, 0.0))
    assert items_of(trial, beams) == [[], [0], [2]]


@BITS
@pytest.mark.needs("variable length")
def test_semantic_ids_of_several_lengths_are_targeted_at_their_end(subject: Subject) -> None:
    sids = [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0)]
    rules = [accepts(country=[("US", "CA")[n % 2]]) for n in range(6)]
    trial = Trial(subject, World.of(sids, attributes=[COUNTRY], rules=rules))
    check_all_found(trial, [{"country": "US"}, {"country": "CA"}, None, {}])


@BLOOM
@pytest.mark.needs("variable length")
@pytest.mark.parametrize("number", [1, 9, 70])
def test_a_level_where_no_semantic_id_goes_on_is_targeted(subject: Subject, number: int) -> None:
    # Every one ends at level 1, so the table behind it has no entry to test.
    rules = [accepts(place=["a"]), {}, accepts(place=["b"])]
    world = World.of([(0,), (1,), (4,)], [5, 40], attributes=[PLACE], rules=rules)
    trial = Trial(subject, world)
    beams = search(trial, [{"place": ["a", *PLACES[: number - 1]]}, None])
    assert [sorted(found) for found in items_of(trial, beams)] == [[0, 1], [0, 1, 2]]


@BITS
@pytest.mark.needs("variable length")
def test_a_finished_beam_is_not_tested(subject: Subject) -> None:
    # Its row is a leaf, beyond the entries of the next table and of other rules than those there.
    rules = [accepts(country=[name]) for name in ("US", "CA", "US", "CA", "US")]
    sids = [(0, 0), (0, 1), (1,), (2,), (3,)]
    trial = Trial(subject, World.of(sids, 4, attributes=[COUNTRY], rules=rules))
    requests: list[Request] = [{"country": "US"}, {"country": "CA"}, None]
    check_all_found(trial, requests)
    beams = trial.begin(prefix=[(1,), (1,), (1,)], requests=requests)
    if "candidates" in subject.capabilities.guidance:
        found = trial.engine.candidates(beams, **subject.arguments(trial.logits(beams, 0.0)))
        rows = np.array(subject.backend.to_host(found.rows))
        assert rows[:, 0, 0].tolist() == [2, 2, 2]
    beams = trial.step(beams, 2, trial.logits(beams, 0.0))
    assert trial.host(beams).count.tolist() == [1, 1, 1]
    assert items_of(trial, beams) == [[2], [], [2]]


@BITS
def test_one_eligible_item_beside_many(subject: Subject) -> None:
    rules = [accepts(country=["US"]), *[accepts(country=["CA"])] * 15]
    sids = [(n // 4, n % 4) for n in range(16)]
    trial = Trial(subject, World.of(sids, attributes=[COUNTRY], rules=rules))
    batch = trial.host(search(trial, [{"country": "US"}, {"country": "CA"}], width=3))
    assert batch.count.tolist() == [1, 3]
    alone = trial.host(search(trial, [{"country": "CA"}], width=3))
    assert batch.bits(1) == alone.bits(0)


@BITS
@BLOOM
@pytest.mark.needs("deterministic")
@pytest.mark.parametrize("neighbours", [1, 7, 64])
def test_a_targeted_request_depends_on_nothing_else(subject: Subject, neighbours: int) -> None:
    rng = np.random.default_rng(0)
    rules = [
        accepts(country=[("US", "CA", "UK")[n % 3]], place=[PLACES[int(rng.integers(40))]])
        for n in range(120)
    ]
    sids = [(n // 12, n % 12) for n in range(120)]
    world = World.of(sids, attributes=[COUNTRY, PLACE], rules=rules)
    mine: Request = {"country": "US", "place": PLACES[:25]}
    crowd: list[Request] = [
        (None, {}, {"country": "CA", "place": PLACES[: n % 41]}, {"country": "US"})[n % 4]
        for n in range(neighbours)
    ]
    logits = [rng.standard_normal((1, size)).astype(np.float32) for size in world.trie.codebooks]

    def decode(requests: Sequence[Request], place: int) -> compare.HostBeams:
        trial = Trial(subject, world)
        beams = trial.begin(requests=requests)
        for said in logits:
            values = np.zeros(trial.shape(beams), np.float32)
            values[place] = said
            beams = trial.take(beams, 7, trial.logits(beams, values))
        return trial.host(beams)

    alone = decode([mine], 0)
    assert int(alone.count[0]) > 0
    for place in (0, neighbours // 2, neighbours):
        found = decode([*crowd[:place], mine, *crowd[place:]], place)
        assert found.bits(place) == alone.bits(0), f"request {place} of {neighbours + 1}"


@pytest.mark.needs("targeting: bits")
@given(data=st.data())
def test_no_eligible_item_is_ever_lost(subject: Subject, data: st.DataObject) -> None:
    world, requests = data.draw(targeted(subject.capabilities.targeting))
    check_all_found(Trial(subject, world), requests, width=60)


@pytest.mark.needs("targeting: bits")
@given(data=st.data())
def test_any_targeted_step_is_right(subject: Subject, data: st.DataObject) -> None:
    can = subject.capabilities
    world, requests = data.draw(targeted(can.targeting))
    normalize = data.draw(st.sampled_from(can.normalizers))
    trial = Trial(subject, world, normalize)
    search(trial, requests, data.draw(st.integers(1, 6)), seed=data.draw(st.integers(0, 999)))
