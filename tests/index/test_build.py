"""A build in many small parts: the same bytes with any threads, and nothing left behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamsieve import Catalog, Index, parallel
from beamsieve.catalog import sorting
from beamsieve.errors import InputError
from beamsieve.index import fill
from beamsieve.index.layouts import make_table
from beamsieve.index.levels import make_levels

LENGTHS = pytest.mark.parametrize("end_token", [False, True])


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on a few rows as if they were many."""
    monkeypatch.setattr(sorting, "_SAMPLE", 64)
    monkeypatch.setattr(sorting, "_DEAL_ROWS", 300)
    monkeypatch.setattr(sorting, "_PIECE_ROWS", 100)
    monkeypatch.setattr(sorting, "_PART_ROWS", 250)
    monkeypatch.setattr(fill, "_CHUNK", 128)
    monkeypatch.setattr(fill, "_DENSE_CELLS", 1024)
    monkeypatch.setattr(parallel.blocks, "__defaults__", (64,))


def catalog(end_token: bool, threads: int | None = None) -> Catalog:
    random = np.random.default_rng(end_token)
    sids = (random.random((3000, 4)) ** 2 * [6, 300, 40, 70]).astype(np.int32)
    if end_token:
        ends = random.integers(1, 5, len(sids))
        sids[np.arange(4) >= ends[:, None]] = -1
    items = random.integers(0, 2500, len(sids))
    return Catalog.from_arrays(
        sids, items, codebooks=(6, 300, 40, 70), end_token=end_token, threads=threads
    )


@LENGTHS
def test_any_number_of_threads_gives_the_same_bytes(
    end_token: bool, tmp_path: Path, small_parts: None
) -> None:
    for threads in (1, 2, 5):
        index = Index.build(catalog(end_token, threads), threads=threads)
        index.save(tmp_path / f"{threads}.safetensors")
    first = (tmp_path / "1.safetensors").read_bytes()
    for threads in (2, 5):
        assert (tmp_path / f"{threads}.safetensors").read_bytes() == first


@LENGTHS
def test_parts_give_what_the_whole_gives(end_token: bool, request: pytest.FixtureRequest) -> None:
    whole = Index.build(catalog(end_token), threads=1)
    request.getfixturevalue("small_parts")
    parts = Index.build(catalog(end_token), threads=3)
    assert parts.fingerprint == whole.fingerprint
    for one, other in zip(whole.tables, parts.tables, strict=True):
        assert one.arrays.keys() == other.arrays.keys()
        assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
        assert (one.widest, one.starts.candidates) == (other.widest, other.starts.candidates)


@LENGTHS
@pytest.mark.parametrize("layout", [None, "dense", "sparse"])
def test_tables_filled_in_parts_are_those_made_at_once(
    end_token: bool, layout: Any, small_parts: None
) -> None:
    source = catalog(end_token)
    levels = make_levels(source.order, source.coded_codebooks, 2).tables
    for step, (level, table) in enumerate(
        zip(levels, fill.make_tables(levels, [layout] * len(levels), 2), strict=True), 1
    ):
        once = make_table(step, level.vocabulary, level.row_starts, level.tokens, layout)
        assert table.arrays.keys() == once.arrays.keys()
        assert all(np.array_equal(table.arrays[name], once.arrays[name]) for name in once.arrays)
        assert table.starts.candidates == once.starts.candidates
        assert table.widest == once.widest


class CancelledError(Exception):
    """What a caller's progress raises."""


@pytest.mark.parametrize("stop_at", ["sorting", "building tables", "writing the index"])
def test_a_cancelled_build_leaves_nothing_behind(
    stop_at: str, tmp_path: Path, small_parts: None
) -> None:
    def progress(what: str, done: int, total: int) -> None:
        if what == stop_at and done * 2 >= total:
            raise CancelledError

    path = tmp_path / "index.safetensors"
    path.write_bytes(b"the old one")
    before = threading.active_count()
    rows = catalog(False).sids

    def build() -> None:
        source = Catalog.from_arrays(rows, codebooks=300, threads=3, progress=progress)
        Index.build(source, threads=3, progress=progress).save(path, progress=progress)

    with pytest.raises(CancelledError):
        build()
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"the old one"
    assert threading.active_count() == before


def test_a_task_that_fails_ends_the_others() -> None:
    done = []

    def work(task: int) -> None:
        if task == 3:
            raise ValueError("broken")
        time.sleep(0.001)  # many are still to come when it fails
        done.append(task)

    before = threading.active_count()
    with pytest.raises(ValueError, match="broken"):
        parallel.run(work, range(10_000), 2)
    assert len(done) < 5_000
    done.clear()
    with pytest.raises(ValueError, match="broken"), parallel.team(2):
        parallel.run(work, range(10_000))
    assert len(done) < 5_000
    assert threading.active_count() == before


def test_within_a_team_all_runs_share_its_threads() -> None:
    before = threading.active_count()

    def who(_: int) -> int:
        return threading.get_ident()

    with parallel.team(3), parallel.team(2):
        seen = {ident for _ in range(20) for ident in parallel.run(who, range(9), 3)}
        assert threading.active_count() <= before + 3
    assert len(seen) <= 3
    assert threading.get_ident() not in seen
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 3, 16])
@pytest.mark.parametrize("count", [0, 1, 99, 1000, 12_345])
def test_shares_cover_all_rows_and_are_as_many_for_each_thread(count: int, threads: int) -> None:
    runs = parallel.shares(count, 100, threads, multiple=8)
    assert [row for run in runs for row in range(*run)] == list(range(count))
    assert all((last - first) % 8 == 0 for first, last in runs[:-1])
    if count > 200 * threads:
        assert len(parallel.shares(count, 100, threads)) % threads in (0, threads - 1)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_threads_are_a_whole_number(threads: Any) -> None:
    with pytest.raises(InputError, match="threads is"):
        Index.build(catalog(False), threads=threads)
