"""Whole searches, from the root to items, against the specification's whole search."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import beamsieve_spec as spec
from beamsieve.interface import Beams, Normalize
from beamsieve_conformance.compare import HostBeams, allowed
from beamsieve_conformance.oracle import Inputs
from beamsieve_conformance.subject import Subject
from beamsieve_conformance.trial import Trial, World

NORMALIZERS = ("all", "catalog", "eligible")
CODEBOOKS = (12, 33, 7)
DEPTH = 6


def catalog() -> list[tuple[int, ...]]:
    """Some 250 semantic IDs, some of them shared by several items."""
    rng = np.random.default_rng(0)
    return [tuple(int(rng.integers(0, size)) for size in CODEBOOKS) for _ in range(300)]


def state(prefix: tuple[int, ...]) -> NDArray[np.float32]:
    """A hidden state that depends on nothing but the prefix, as a model's would."""
    seed = int.from_bytes(hashlib.sha256(repr(prefix).encode()).digest()[:4], "little")
    return np.random.default_rng(seed).standard_normal(DEPTH).astype(np.float32)


def states(tokens: Any) -> NDArray[np.float32]:
    """Hidden states [B, M, d] of prefixes [B, M, t]."""
    return np.array([[state(tuple(p)) for p in beams] for beams in tokens.tolist()], np.float32)


def heads() -> list[NDArray[np.float32]]:
    """One head per level."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal((size, DEPTH)).astype(np.float32) for size in CODEBOOKS]


def biases() -> list[NDArray[np.float32]]:
    """One bias per level."""
    rng = np.random.default_rng(2)
    return [rng.standard_normal(size).astype(np.float32) for size in CODEBOOKS]


def check_same_search(found: HostBeams, true: spec.Beams, tolerance: float) -> None:
    """The same semantic IDs in the same order, each score within the steps' tolerance."""
    assert found.tokens.tolist() == true.tokens.tolist()
    assert found.rows.tolist() == true.rows.tolist()
    assert found.parents.tolist() == true.parents.tolist()
    assert found.count.tolist() == true.count.tolist()
    for left, right in zip(
        found.scores.ravel().tolist(), true.scores.ravel().tolist(), strict=True
    ):
        assert left == right or abs(left - right) <= found.step * allowed(tolerance, right)


@pytest.mark.parametrize("widths", [(1, 1, 1), (4, 9, 9), (12, 300, 300), (300, 2, 40)])
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_a_search_is_the_specifications(
    subject: Subject, normalize: Normalize, widths: tuple[int, ...]
) -> None:
    trial = Trial(subject, World.of(catalog(), CODEBOOKS), normalize)
    head, bias = heads(), biases()

    def score(step: int, beams: Beams) -> Any:
        hidden = subject.put(states(trial.host(beams).tokens))
        return hidden, subject.put(head[step - 1]), subject.put(bias[step - 1])

    def true_score(step: int, beams: spec.Beams) -> Any:
        return states(beams.tokens), head[step - 1], bias[step - 1]

    found = trial.host(trial.search(score, list(widths), batch=2))
    true = spec.search(trial.trie, true_score, widths, batch=2, normalize=normalize)
    check_same_search(found, true, subject.capabilities.tolerance["float32"])


def test_a_search_may_be_given_hidden_states_or_logits(subject: Subject) -> None:
    trial = Trial(subject, World.of(catalog(), CODEBOOKS))
    head = heads()

    def multiplied(step: int, beams: Beams) -> Any:
        return subject.put(states(trial.host(beams).tokens)), subject.put(head[step - 1])

    def given(step: int, beams: Beams) -> Any:
        return subject.put(states(trial.host(beams).tokens) @ head[step - 1].T)

    left = trial.host(trial.search(multiplied, [7, 9, 11], batch=1))
    right = trial.host(trial.search(given, [7, 9, 11], batch=1))
    assert left.tokens.tolist() == right.tokens.tolist()


def test_a_search_wide_enough_finds_every_item(subject: Subject) -> None:
    sids = catalog()
    trial = Trial(subject, World.of(sids, CODEBOOKS))
    beams = trial.search(
        lambda step, beams: subject.put(np.zeros(trial.shape(beams), np.float32)),
        [400, 400, 400],
        batch=1,
    )
    hits = trial.engine.results(beams, k=1000)[0]
    assert sorted(hit.item for hit in hits) == list(range(len(sids)))


def test_a_search_says_which_index_it_ran_on(subject: Subject) -> None:
    trial = Trial(subject, World.of(catalog(), CODEBOOKS))
    beams = trial.walk([3, 3])
    assert beams.fingerprint == trial.engine.index.fingerprint


def test_a_search_ends_on_the_index_that_it_began_on(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 1, 2), (0, 2, 1)], 3))
    before = trial.engine.index.fingerprint
    beams = trial.walk([3])
    trial.engine.replace(World.of([(1, 0, 0), (2, 2, 2)], 3).index)
    for width in (3, 3):
        beams = trial.step(beams, width, trial.logits(beams, 0.0))
    assert beams.fingerprint == before != trial.engine.index.fingerprint
    assert [hit.sid for hit in trial.engine.results(beams)[0]] == [(0, 1, 2), (0, 2, 1)]
    fresh = trial.engine.begin(batch=1)
    assert fresh.fingerprint == trial.engine.index.fingerprint


def test_parents_say_how_to_reorder_a_cache(subject: Subject) -> None:
    # A cache row per beam, reordered by parents at each step, always holds the beam's own prefix.
    trial = Trial(subject, World.of(catalog(), CODEBOOKS))
    head = heads()
    beams = trial.begin(2)
    cache = np.zeros((2, 1, 0), np.int64)
    for level, width in enumerate((9, 40, 25)):
        hidden = subject.put(states(trial.host(beams).tokens))
        beams = trial.call(beams, width, {"hidden": hidden, "head": subject.put(head[level])})
        held = trial.host(beams)
        parents = np.maximum(held.parents, 0)
        cache = np.take_along_axis(cache, parents[..., None], axis=1)
        cache = np.concatenate([cache, held.tokens[..., -1:]], axis=2)
        real = np.arange(width) < held.count[:, None]
        assert cache[real].tolist() == held.tokens[real].tolist()


def test_a_plan_changes_nothing_but_the_time(subject: Subject) -> None:
    trial = Trial(subject, World.of(catalog(), CODEBOOKS))
    head, rng = heads(), np.random.default_rng(3)
    for width in (6, 9):
        subject.require(width=width)
    plan = trial.engine.warm_up(2, [6, 9, 9], [subject.put(each) for each in head], repeats=1)
    assert set(plan.steps) <= set(subject.capabilities.projections)
    beams = trial.begin(2)
    for level, width in enumerate((6, 9, 9)):
        _, places, _ = trial.shape(beams)
        hidden = rng.standard_normal((2, places, DEPTH)).astype(np.float32)
        beams = trial.step(beams, width, Inputs(hidden=hidden, head=head[level]))


def test_the_index_may_be_swapped_under_running_searches(subject: Subject) -> None:
    # Whatever index a search began on, its results are that index's.
    low, high = ([(a + 4 * n, b) for a in range(4) for b in range(3)] for n in (0, 1))
    worlds = [World.of(sids, 8) for sids in (low, high)]
    trial = Trial(subject, worlds[0])
    allowed_sids = {
        world.index.fingerprint: set(sids) for world, sids in zip(worlds, (low, high), strict=True)
    }

    def decode(_: int) -> None:
        beams = trial.begin(2)
        while beams.step < 2:
            values = np.zeros((2, beams.width, beams.search.index.codebooks[beams.step]))
            arguments = {"logits": subject.put(values.astype(np.float32))}
            beams = trial.call(beams, 12, arguments)
        for hits in trial.engine.results(beams, k=12):
            assert {hit.sid for hit in hits} == allowed_sids[beams.fingerprint]

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(decode, n) for n in range(40)]
        for turn in range(20):
            trial.engine.replace(worlds[turn % 2].index)
        for search in running:
            search.result()


# From beams to items


def items_of(trial: Trial, beams: Beams, k: int) -> list[list[Any]]:
    """The items of every request."""
    return [[hit.item for hit in hits] for hits in trial.engine.results(beams, k=k)]


def test_items_of_one_semantic_id_come_in_input_order_under_one_score(subject: Subject) -> None:
    sids = [(1, 2, 3), (0, 0, 0), (1, 2, 3), (1, 2, 3)]
    trial = Trial(subject, World.of(sids, 4, items=["b", "x", "a", "c"]))
    beams = trial.walk([4, 4, 4], [0.0, 1.0, 0.0, 0.0])
    hits = trial.engine.results(beams, k=10)[0]
    assert [hit.item for hit in hits] == ["b", "a", "c", "x"]
    assert len({hit.score for hit in hits[:3]}) == 1
    assert [hit.sid for hit in hits] == [(1, 2, 3)] * 3 + [(0, 0, 0)]


def test_an_item_of_two_semantic_ids_counts_once_at_its_best(subject: Subject) -> None:
    sids = [(0, 1), (1, 1), (1, 0)]
    trial = Trial(subject, World.of(sids, 2, items=["twice", "once", "twice"]))
    first = trial.begin()
    beams = trial.step(first, 2, trial.logits(first, [0.0, 2.0]))
    beams = trial.step(beams, 4, trial.logits(beams, [1.0, 0.0]))
    hits = trial.engine.results(beams, k=10)[0]
    assert [hit.item for hit in hits] == ["twice", "once"]
    assert hits[0].sid == (1, 0)
    assert hits[0].score == float(trial.host(beams).scores[0, 0])


@pytest.mark.parametrize("k", [1, 2, 3, 100])
def test_k_beyond_what_exists_gives_what_exists(subject: Subject, k: int) -> None:
    trial = Trial(subject, World.of([(1, 2, 3), (1, 2, 4), (5, 6, 7)], 10))
    beams = trial.walk([4, 4, 4], batch=2)
    assert [len(items) for items in items_of(trial, beams, k)] == [min(k, 3)] * 2


@pytest.mark.needs("guidance: nudge")
def test_items_are_ranked_by_score_not_by_the_last_key(subject: Subject) -> None:
    trial = Trial(subject, World.of([(v,) for v in range(4)], [4]))
    beams = trial.begin()
    nudge = [9.0, 0.0, 0.0, 0.0]
    beams = trial.step(beams, 3, trial.logits(beams, [0.0, 1.0, 2.0, 3.0], nudge=nudge))
    assert items_of(trial, beams, 3) == [[3, 2, 0]]


def test_an_empty_result_has_a_reason(subject: Subject) -> None:
    trial = Trial(subject, World.of([(0, 0), (1, 1)], 2))
    beams = trial.begin()
    beams = trial.step(beams, 2, trial.logits(beams, np.nan))
    beams = trial.step(beams, 2, trial.logits(beams, 0.0))
    hits = trial.engine.results(beams, k=2)[0]
    assert list(hits) == []
    assert hits.reason


@pytest.mark.needs("variable length")
def test_semantic_ids_are_shown_without_end_token_and_padding(subject: Subject) -> None:
    trial = Trial(subject, World.of([(1, 2), (1, 2, 3), (4,)], 5, end_token=True))
    beams = trial.walk([5] * trial.trie.length)
    hits = trial.engine.results(beams, k=5)[0]
    assert sorted(hit.sid for hit in hits) == [(1, 2), (1, 2, 3), (4,)]


def test_results_are_the_specifications(subject: Subject) -> None:
    sids = catalog()
    items = [f"item-{n % 200}" for n in range(len(sids))]
    trial = Trial(subject, World.of(sids, CODEBOOKS, items=items))
    head = heads()
    beams = trial.search(
        lambda step, beams: (
            subject.put(states(trial.host(beams).tokens)),
            subject.put(head[step - 1]),
        ),
        [12, 60, 120],
        batch=2,
    )
    true = spec.search(
        trial.trie,
        lambda step, beams: (states(beams.tokens), head[step - 1]),
        [12, 60, 120],
        batch=2,
    )
    expected = spec.results(trial.trie, true, k=50)
    found = trial.engine.results(beams, k=50)
    assert [[hit.item for hit in hits] for hits in found] == [
        [hit.item for hit in hits] for hits in expected
    ]
    assert [[hit.sid for hit in hits] for hits in found] == [
        [tuple(hit.sid) for hit in hits] for hits in expected
    ]
