"""Compiled loops make, byte for byte, what NumPy's passes make."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamsieve import BackendError, Catalog, Index, IndexFileError, InputError
from beamsieve.catalog.items import ItemIds
from beamsieve.compiled import choice
from beamsieve.index.encode import encode_starts
from beamsieve.index.layouts import make_table
from beamsieve.index.listing import Listing
from beamsieve.index.merge import Merge
from beamsieve.index.reader import TableReader
from beamsieve.index.sets import rank
from beamsieve.index.splice import splice_jobs
from beamsieve.index.starts import SPAN
from beamsieve.index.storage import host_arrays
from beamsieve.index.tokens import token_dtype

pytest.importorskip("numba", reason="compiled loops need Numba")


def arrays_of(index: Index) -> dict[str, Any]:
    tables = {
        f"{table.step} {name}": array
        for table in index.tables
        for name, array in table.arrays.items()
    }
    facts = {f"{table.step}": np.array([table.widest]) for table in index.tables}
    return host_arrays(index.parts) | tables | facts


def assert_same(one: Index, other: Index) -> None:
    assert one.fingerprint == other.fingerprint
    held, wanted = arrays_of(one), arrays_of(other)
    assert held.keys() == wanted.keys()
    for name, array in held.items():
        assert array.dtype == wanted[name].dtype, name
        np.testing.assert_array_equal(array, wanted[name], name)


def some_change(draw: np.random.Generator, old: int) -> Merge:
    deleted = np.flatnonzero(draw.random(old) < draw.choice([0, 0.02, 0.5, 1]))
    return Merge(old, deleted, np.sort(draw.integers(0, old + 1, draw.integers(0, 40))))


class TestStreams:
    @pytest.mark.parametrize("bits", [1, 3, 8, 11, 13, 16, 31, 32])
    def test_words_are_those_of_numpy(self, bits):
        draw = np.random.default_rng(bits)
        for _ in range(12):
            merge = some_change(draw, int(draw.choice([0, 1, 63, 64, 700, 5000])))
            source = draw.integers(0, 256, -(-merge.old * bits // 8) + 5, np.uint8)[1:]
            values = draw.integers(0, 1 << bits, len(merge.at))
            made = []
            for compiled in (True, False):
                out = np.full(-(-merge.size * bits // 64) + 2, 7, np.uint64)
                for job in splice_jobs(
                    source, bits, replace(merge, compiled=compiled), values, out
                ):
                    job()
                made.append(out)
            np.testing.assert_array_equal(made[0], made[1])

    def test_parts_meet_wherever_they_are_cut(self):
        from beamsieve.compiled.streams import change, splice

        draw = np.random.default_rng(0)
        merge = some_change(draw, 3000)
        words = draw.integers(0, 2**63, 3000 * 11 // 64 + 1, np.uint64)
        values = draw.integers(0, 2048, len(merge.at)).astype(np.uint64)
        changes = merge.deleted, merge.inserted
        whole = np.zeros(-(-merge.size * 11 // 64), np.uint64)
        splice(words, np.uint64(0), 11, *changes, values, whole, 0, merge.size)
        parted = np.zeros_like(whole)
        for first in range(0, merge.size, 64):
            last = min(merge.size, first + 64)
            splice(words, np.uint64(0), 11, *changes, values, parted, first, last)
        np.testing.assert_array_equal(parted, whole)
        old, new = draw.integers(0, 99, merge.old), np.arange(len(merge.at))
        found = np.empty(merge.size, np.int64)
        for first in range(merge.size):
            change(old, *changes, new, found, first, first + 1)
        np.testing.assert_array_equal(found, merge.changed(old, new))

    def test_nothing_outside_is_read_where_changes_make_no_sense(self):
        from beamsieve.compiled.streams import change

        outside = np.full(100, -7)
        around = np.concatenate([outside, np.arange(100), outside])
        old, none = around[100:200], np.zeros(0, np.int64)
        for deleted in (none, np.array([-5, -5, -5])):
            out = np.full(150, -1)
            change(old, deleted, none, none, out, 0, 150)
            assert -7 not in out
        out = np.full(150, -1)
        change(old, none, np.array([-3, -2, 500]), np.arange(3), out, 1, 150)
        assert -7 not in out


class TestLookups:
    def test_ranks_are_counted_in_any_order(self):
        draw = np.random.default_rng(0)
        for most in (0, 3, 2000):
            members = np.sort(draw.integers(0, 500, most))
            for values in (draw.integers(-9, 600, 300), np.arange(-5, 700), members[::-2]):
                for right in (False, True):
                    found, wanted = (rank(members, values, right, loops) for loops in (True, False))
                    np.testing.assert_array_equal(found, wanted)

    def test_ids_are_found_in_any_company(self):
        draw = np.random.default_rng(0)
        ends = np.array([0, -1, 2**63 - 1, -(2**63), 1 << 40])
        own = np.concatenate([ends, draw.permutation(70_000) + 5])
        items = ItemIds.numbered(own)
        asked = [own[::-3], [2**63 - 1, "x", None, 3.5, -9, -1, -1], np.arange(80_000), []]
        found, wanted = (items.find(asked, 2, compiled) for compiled in (True, False))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("vocabulary", [2, 40, 256, 2048, 70_000])
    @pytest.mark.parametrize("layout", ["sparse", "dense"])
    def test_tokens_stand_where_numpy_finds_them(self, vocabulary, layout):
        draw = np.random.default_rng(vocabulary)
        for rows, most in ((1, 30), (900, 1), (500, 3), (70, 300)):
            degrees = draw.integers(1, min(most, vocabulary) + 1, rows)
            starts = np.concatenate([[0], np.cumsum(degrees)])
            kinds = [np.sort(draw.choice(vocabulary, n, replace=False)) for n in degrees]
            tokens = np.concatenate(kinds).astype(token_dtype(vocabulary))
            table = make_table(1, vocabulary, starts, tokens, layout)
            asked = draw.integers(0, rows, 300)
            sought = np.where(
                draw.random(300) < 0.5, tokens[starts[asked]], draw.integers(0, vocabulary, 300)
            )
            known = draw.random(300) < 0.9
            asked[~known] = draw.integers(0, rows + 1, int((~known).sum()))
            one, other = (TableReader(table, compiled) for compiled in (True, False))
            for held, wanted in zip(
                one.find(asked, sought, known), other.find(asked, sought, known), strict=True
            ):
                np.testing.assert_array_equal(held, wanted)

    @pytest.mark.parametrize("most", [1, 2, 9, 60, 400])
    def test_row_starts_are_listed_from_their_bits(self, most):
        draw = np.random.default_rng(most)
        for rows in (1, 7, 8, 9, 64, 3000):
            degrees = np.where(draw.random(rows) < 0.1, draw.integers(1, most + 1, rows), 1)
            starts = np.concatenate([[0], np.cumsum(degrees)])
            wanted = encode_starts(starts)
            bits = encode_starts(starts, "sampled/8").bits
            assert bits is not None
            listing = Listing(bits, rows, int(starts[-1]), None, compiled=True)
            for jobs in listing.steps():
                for job in jobs:
                    job()
            assert listing.widest == degrees.max()
            assert listing.starts.candidates == wanted.candidates
            assert listing.starts.name == wanted.name
            for name, array in wanted.arrays.items():
                np.testing.assert_array_equal(listing.starts.arrays[name], array)
        assert most < SPAN or wanted.exceptions is None or len(wanted.exceptions)


def random_rows(draw: np.random.Generator, count: int, sizes: list[int]) -> np.ndarray:
    rows = np.stack([draw.integers(0, size, count) for size in sizes], axis=1)
    if draw.random() < 0.5:
        rows[:, :-1] //= 5
    return rows


class TestUpdates:
    @pytest.mark.parametrize("seed", range(12))
    def test_an_update_is_that_of_numpy(self, seed):
        draw = np.random.default_rng(seed)
        sizes = draw.choice([1, 2, 7, 64, 300, 2048, 5000], draw.integers(1, 5)).tolist()
        count, more = int(draw.choice([1, 10, 900, 20_000])), int(draw.choice([0, 1, 300]))
        spelled = (lambda ids: [f"i{number}" for number in ids]) if seed % 3 == 0 else np.asarray
        ids = draw.integers(0, count // 2 + 1, count) if seed % 4 == 0 else draw.permutation(count)
        rows = random_rows(draw, count, sizes)
        old = Index.build(Catalog.from_arrays(rows, items=spelled(ids), codebooks=sizes))
        gone = np.unique(ids)[draw.random(len(np.unique(ids))) < draw.choice([0, 0.02, 0.6])]
        add = None
        if more:
            added = random_rows(draw, more, sizes)
            added[: more // 2] = rows[draw.integers(0, count, more // 2)]
            new = draw.integers(0, 2 * count + 9, more)
            add = Catalog.from_arrays(added, items=spelled(new), codebooks=sizes)
        elif len(gone) == len(np.unique(ids)):
            gone = gone[1:]
        change = {"add": add, "remove": spelled(gone), "threads": 1 + seed % 2}
        assert_same(old.update(**change, compiled=True), old.update(**change, compiled=False))

    def test_a_damaged_index_is_refused_or_updated_without_a_crash(self, tmp_path: Path):
        draw = np.random.default_rng(0)
        rows = random_rows(draw, 5000, [40, 300, 300])
        Index.build(Catalog.from_arrays(rows, codebooks=300)).save(tmp_path / "a.index")
        content = np.fromfile(tmp_path / "a.index", np.uint8)
        start = 8 + int(content[:8].view(np.uint64)[0])
        add = Catalog.from_arrays(
            random_rows(draw, 200, [40, 300, 300]), items=np.arange(200) - 200, codebooks=300
        )
        for _ in range(60):
            altered = content.copy()
            places = draw.integers(start, len(content), 30)
            altered[places] = draw.integers(0, 256, 30)
            altered.tofile(tmp_path / "b.index")
            try:
                index = Index.load(tmp_path / "b.index", mmap=False, verify=False)
                index.update(add, np.arange(0, 5000, 50), on_missing="skip", compiled=True)
            except IndexFileError:
                continue

    @pytest.mark.parametrize("compiled", [True, False])
    def test_what_fails_on_a_sound_index_is_not_called_damage(self, compiled):
        draw = np.random.default_rng(0)
        rows = random_rows(draw, 5000, [40, 300, 300])
        for layout in ("dense", "sparse"):
            index = Index.build(Catalog.from_arrays(rows, codebooks=300), layout=layout)

            def progress(what: str, done: int, total: int) -> None:
                raise IndexError("mine")

            with pytest.raises(IndexError, match="mine"):
                index.update(remove=[1], compiled=compiled, progress=progress)


class TestChoice:
    def test_it_follows_the_rows_and_whether_numba_is_there(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "numba", raising=False)
        assert not choice.compiles(None, choice.MANY_ROWS - 1)
        assert choice.compiles(None, choice.MANY_ROWS)
        monkeypatch.setitem(sys.modules, "numba", np)
        assert choice.compiles(None, choice.FEW_ROWS)
        assert not choice.compiles(None, choice.FEW_ROWS - 1)
        monkeypatch.setattr(choice, "has_numba", lambda: False)
        assert not choice.compiles(None, choice.MANY_ROWS)
        assert not choice.compiles(False, choice.MANY_ROWS)

    def test_a_numba_that_cannot_be_imported_is_said(self, monkeypatch, caplog):
        def broken() -> None:
            raise BackendError("Numba cannot be imported (it fits another NumPy).")

        monkeypatch.setattr(choice, "imported", broken)
        assert not choice.compiles(None, choice.MANY_ROWS)
        assert "NumPy does the work in place of compiled loops" in caplog.text
        assert not choice.compiles(None, choice.FEW_ROWS - 1)
        with pytest.raises(BackendError, match="cannot be imported"):
            choice.compiles(True, 1)

    def test_what_cannot_be_had_is_refused(self, monkeypatch):
        index = Index.build(Catalog.from_arrays([[0], [1]]))
        with pytest.raises(InputError, match="compiled is 'yes'; give True, False or None"):
            index.update(remove=[0], compiled="yes")  # type: ignore[arg-type]
        monkeypatch.setattr(choice, "has_numba", lambda: False)
        with pytest.raises(InputError, match=r"needs Numba; install it with: pip install 'beams"):
            index.update(remove=[0], compiled=True)
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
        with pytest.raises(InputError, match="NUMBA_DISABLE_JIT keeps it from compiling, unset"):
            index.update(remove=[0], compiled=True)
