"""Going over to another index while searches run, and what becomes of the old one."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import beamsieve as bs
from beamsieve.opening import SPARE_BYTES
from beamsieve.registry import open_backend

CODEBOOKS = (6, 6, 6)


def catalog(seed: int) -> list[tuple[int, ...]]:
    draw = np.random.default_rng(seed)
    return sorted({tuple(sid) for sid in draw.integers(0, 6, (60, 3)).tolist()})


def an_index(sids: list[tuple[int, ...]], name: str) -> bs.Index:
    items = [f"{name}-{'-'.join(map(str, sid))}" for sid in sids]
    return bs.Index.build(bs.Catalog.from_arrays(sids, items=items, codebooks=CODEBOOKS))


class Watched:
    """The torch backend on the CPU, whose tables can be watched, and whose load can fail."""

    def __init__(self) -> None:
        self.backend, _ = open_backend("torch:cpu", lambda opened: None)
        self.loaded: list[weakref.ref[Any]] = []
        self.failure: Exception | None = None
        load = self.backend.load

        def watched(index: bs.Index) -> Any:
            if self.failure is not None:
                raise self.failure
            tables = load(index)
            self.loaded.append(weakref.ref(tables))
            return tables

        self.backend.load = watched  # type: ignore[method-assign]

    @property
    def alive(self) -> int:
        gc.collect()
        return sum(one() is not None for one in self.loaded)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def logits(beams: Any, seed: int) -> np.ndarray:
    shape = (*beams.rows.shape, CODEBOOKS[beams.step])
    return np.random.default_rng([seed, beams.step]).normal(size=shape).astype(np.float32)


def search(engine: bs.Engine, seed: int) -> tuple[str, list[tuple[Any, float]]]:
    beams = engine.begin(2)
    for _ in range(3):
        beams = engine.step(beams, 4, logits=logits(beams, seed))
    hits = engine.results(beams, k=4)
    return beams.fingerprint, [(hit.item, hit.score) for request in hits for hit in request]


def test_eight_threads_through_two_hundred_swaps(watched: Watched) -> None:
    indexes = [an_index(catalog(seed), f"c{seed}") for seed in range(2)]
    engine = bs.Engine(indexes[0], backend=watched.backend)
    expected = {
        index.fingerprint: [
            search(bs.Engine(index, backend="torch:cpu"), seed)[1] for seed in range(5)
        ]
        for index in indexes
    }
    swapped = threading.Event()

    def decode(thread: int) -> set[str]:
        seen, number = set(), 0
        while not swapped.is_set() or number < 5:
            print_, hits = search(engine, number % 5)
            assert hits == expected[print_][number % 5]
            seen.add(print_)
            number += 1
        return seen

    with ThreadPoolExecutor(8) as pool:
        threads = [pool.submit(decode, number) for number in range(8)]
        try:
            for swap in range(200):
                engine.replace(indexes[(swap + 1) % 2])
        finally:
            swapped.set()
        seen = set().union(*(thread.result() for thread in threads))
    assert seen == set(expected)
    assert len(watched.loaded) == 201
    assert watched.alive == 1


def test_the_old_tables_are_freed_with_the_last_search(watched: Watched) -> None:
    engine = bs.Engine(an_index(catalog(0), "old"), backend=watched.backend)
    running = [engine.begin(1), engine.begin(1)]
    engine.replace(an_index(catalog(1), "new"))
    assert watched.alive == 2
    running.pop()
    assert watched.alive == 2
    running.clear()
    assert watched.alive == 1


@pytest.mark.parametrize("end_token", [False, True])
@pytest.mark.parametrize("backend", ["reference", "torch:cpu"])
def test_a_replaced_index_does_not_wait_for_the_garbage_collector(
    backend: str, end_token: bool
) -> None:
    def a_round() -> weakref.ref[bs.Index]:
        given = bs.Catalog.from_arrays(catalog(0), codebooks=CODEBOOKS, end_token=end_token)
        old, new = bs.Index.build(given), bs.Index.build(given)
        engine = bs.Engine(old, backend=backend)
        sizes = old.codebooks
        beams = engine.search(
            lambda step, beams: np.zeros((1, beams.width, sizes[step - 1]), np.float32),
            [4] * old.length,
            batch=1,
            requests=[{"exclude": [0]}],
        )
        assert len(engine.results(beams)[0])
        old.leaf_starts(1)
        engine.replace(new)
        return weakref.ref(old)

    a_round()  # what is imported at first use keeps its frames until a collection
    gc.collect()
    gc.disable()
    try:
        assert a_round()() is None
    finally:
        gc.enable()


def test_going_back_is_a_replace(watched: Watched) -> None:
    old, new = an_index(catalog(0), "old"), an_index(catalog(1), "new")
    engine = bs.Engine(old, backend=watched.backend)
    before = search(engine, 3)
    engine.replace(new)
    assert search(engine, 3) != before
    engine.replace(old)
    assert search(engine, 3) == before
    assert watched.alive == 1


class OutOfMemoryError(RuntimeError):
    """As PyTorch's and CuPy's are called."""


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError("no"),
        OutOfMemoryError("Tried to allocate"),
        RuntimeError("can't allocate memory"),
    ],
)
def test_a_device_without_room_keeps_the_old_index(watched: Watched, failure: Exception) -> None:
    engine = bs.Engine(an_index(catalog(0), "old"), backend=watched.backend)
    new = an_index(catalog(1), "new")
    before = search(engine, 1)
    watched.failure = failure
    watched.backend.free_bytes = lambda: 987_654_321  # type: ignore[method-assign]
    with pytest.raises(bs.BackendError) as refused:
        engine.replace(new)
    message = str(refused.value)
    assert f"{new.device_bytes:,} bytes" in message
    assert "987,654,321 are free" in message
    assert "\n" not in message
    assert refused.value.__context__ is None  # its traceback would hold what was loaded
    assert search(engine, 1) == before
    watched.failure = None
    engine.replace(new)
    assert engine.index is new


def test_a_load_is_not_tried_where_searches_would_find_no_room(watched: Watched) -> None:
    # An allocator that finds no room gives back what it kept for the searches that are running.
    engine = bs.Engine(an_index(catalog(0), "old"), backend=watched.backend)
    new = an_index(catalog(1), "new")
    before = search(engine, 1)
    just_enough = new.device_bytes + SPARE_BYTES
    watched.backend.free_bytes = lambda: just_enough - 1  # type: ignore[method-assign]
    with pytest.raises(bs.BackendError, match=f"{just_enough - 1:,} are free") as refused:
        engine.replace(new)
    assert f"{SPARE_BYTES:,} of them stay so" in str(refused.value)
    assert len(watched.loaded) == 1
    assert search(engine, 1) == before
    watched.backend.free_bytes = lambda: just_enough  # type: ignore[method-assign]
    engine.replace(new)
    assert engine.index is new


def test_any_other_failure_of_a_load_keeps_the_old_index(watched: Watched) -> None:
    engine = bs.Engine(an_index(catalog(0), "old"), backend=watched.backend)
    before = search(engine, 2)
    watched.failure = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        engine.replace(an_index(catalog(1), "new"))
    assert search(engine, 2) == before


def test_a_failed_build_or_load_leaves_the_old_one_serving(watched: Watched, tmp_path: Any) -> None:
    engine = bs.Engine(an_index(catalog(0), "old"), backend=watched.backend)
    before = search(engine, 2)
    damaged = tmp_path / "index.safetensors"
    damaged.write_bytes(b"cut off")
    with pytest.raises(bs.IndexFileError):
        engine.replace(bs.Index.load(damaged))
    with pytest.raises(bs.CatalogError):
        engine.replace(bs.Index.build(bs.Catalog.from_arrays([[9, 9, 9]], codebooks=CODEBOOKS)))
    assert search(engine, 2) == before
