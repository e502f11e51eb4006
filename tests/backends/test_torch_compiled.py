"""The compiled projection: its loops one by one, and where it can and cannot be had."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import beamsieve as bs
from beamsieve import toolchain
from beamsieve_backends.torch_dense import TorchBackend
from beamsieve_backends.torch_dense import backend as torch_backend
from beamsieve_backends.torch_dense.compiled import choice, logits, step, threads

HERE = Path(__file__).parent


def compiled_engine(index, options="") -> bs.Engine:
    return bs.Engine(index, backend=f"torch:cpu?projection=compiled{options}")


class TestLoops:
    def test_exponentials_are_right_to_float32_and_end_in_zero(self):
        powers = np.linspace(-87, 0, 100_001, dtype=np.float32)
        found = np.array([logits.exponential(power) for power in powers[::50]])
        np.testing.assert_allclose(found, np.exp(powers[::50].astype(float)), rtol=2e-7)
        assert [logits.exponential(np.float32(x)) for x in (0, -88, -1e30, -np.inf)] == [1, 0, 0, 0]

    def product(self, size, degrees, block, cuts):
        """Logits of beams with these degrees, computed in blocks and in parts."""
        draw = np.random.default_rng(size)
        vocabulary = 60
        degree = np.array(degrees)
        rows = [np.sort(draw.permutation(vocabulary)[:count]) for count in degrees]
        tokens = np.concatenate(rows).astype(np.int16)
        start = np.concatenate([[0], np.cumsum(degree)])
        hidden = draw.normal(size=(len(degree), size)).astype(np.float32)
        head = draw.normal(size=(vocabulary, size)).astype(np.float32)
        found = np.full(start[-1], np.nan, np.float32)
        own = np.zeros(len(degree), np.bool_)
        for begin, end in pairwise(cuts):
            logits.multiply(
                tokens, start[:-1], degree, start, own, hidden.ravel(), head.ravel(), size, block,
                vocabulary, begin, end, found,
            )  # fmt: skip
        expected = [
            head[row].astype(float) @ state for row, state in zip(rows, hidden, strict=True)
        ]
        return found, np.concatenate(expected)

    @pytest.mark.parametrize("size", [1, 15, 16, 17, 48, 100])
    def test_a_dot_product_has_the_same_bits_however_the_work_is_cut(self, size):
        degrees = [0, 1, 7, 8, 9, 31, 60, 3]
        found, expected = self.product(size, degrees, 60, [0, 8])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        for block, cuts in ((7, [0, 8]), (16, [0, 3, 6, 8]), (1, [0, 1, 2, 3, 4, 5, 6, 7, 8])):
            again, _ = self.product(size, degrees, block, cuts)
            assert again.tobytes() == found.tobytes(), (block, cuts)

    @pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 300])
    def test_sorting_and_the_nth_smallest(self, count):
        values = np.random.default_rng(count).permutation(count) - 7
        ordered, scratch = values.copy(), np.empty_like(values)
        choice._sort(ordered, count)
        assert ordered.tolist() == sorted(values)
        for nth in {0, count // 2, count - 1} if count else ():
            assert choice._nth(values, scratch, count, nth) == nth - 7


class TestChoice:
    """More candidates than are ever held at once, in the orders that are hard."""

    size, width = 5000, 20

    def chosen(self, scores):
        first = np.arange(2)
        sids = np.stack([np.repeat(first, self.size), np.tile(np.arange(self.size), 2)], 1)
        index = bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=(2, self.size)))
        engine = compiled_engine(index)
        beams = engine.step(engine.begin(1), 2, logits=torch.zeros(1, 1, 2))
        beams = engine.step(beams, self.width, logits=torch.tensor(scores)[None])
        return list(zip(beams.parents[0].tolist(), beams.tokens[0, :, 1].tolist(), strict=True))

    def expected(self, scores):
        shares = torch.log_softmax(torch.tensor(scores), 1).numpy()
        cells = [(-shares[m, v], m, v) for m in range(2) for v in range(self.size)]
        return [(m, v) for _, m, v in sorted(cells)[: self.width]]

    def test_equal_keys_keep_their_order(self):
        scores = np.zeros((2, self.size), np.float32)
        assert self.chosen(scores) == [(0, v) for v in range(self.width)]
        scores[:, 1::2] = 1  # the threshold is met by thousands
        assert self.chosen(scores) == [(0, v) for v in range(1, 2 * self.width, 2)]

    def test_zeros_of_either_sign_are_equal_and_minus_infinity_is_no_threshold(self):
        # The best scores are 0.0 and -0.0; and but for a few, no part has a best at all.
        best = choice._just_below(np.array([-0.0, 0.0, -1.0], np.float32), 3, 2)
        assert best < 0
        assert best > -1e-30
        assert choice._just_below(np.array([1.0, -np.inf], np.float32), 2, 2) == -np.inf
        assert choice._just_below(np.array([1.0], np.float32), 1, 2) == -np.inf
        assert choice._just_below(np.array([3.0, 1.0, 2.0], np.float32), 3, 2) == np.nextafter(
            np.float32(2), np.float32(0)
        )
        scores = np.full((2, self.size), -np.inf, np.float32)
        scores[:, [5, 4000]] = 0
        assert self.chosen(scores)[:4] == [(0, 5), (0, 4000), (1, 5), (1, 4000)]

    @pytest.mark.parametrize("order", ["ascending", "descending", "random", "negative"])
    def test_the_best_are_found_in_any_order(self, order):
        # Whole steps of 1/256, so that no rounding turns two of them round.
        values = np.arange(self.size, dtype=np.float32) / 256
        scores = np.stack([values, values + np.float32(0.001953125)])
        if order == "descending":
            scores = scores[:, ::-1].copy()
        elif order == "random":
            scores = np.random.default_rng(0).permuted(scores, axis=1)
        elif order == "negative":
            scores = -scores
        assert self.chosen(scores) == self.expected(scores)


@pytest.fixture(scope="module")
def index():
    draw = np.random.default_rng(5)
    sids = np.stack([(draw.random(3000) ** 2 * size).astype(int) for size in (30, 80, 40)], 1)
    return bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=(30, 80, 40)))


def search(engine, batch=6, size=20):
    draw = torch.Generator().manual_seed(1)
    beams = engine.begin(batch)
    for width, vocabulary in zip((9, 50, 30), (30, 80, 40), strict=True):
        hidden = torch.randn(batch, beams.width, size, generator=draw)
        head = torch.randn(vocabulary, size, generator=draw)
        beams = engine.step(beams, width, hidden=hidden, head=head)
    return beams


@pytest.mark.parametrize("number", [2, 3, 16])
def test_threads_change_no_bit(index, number, monkeypatch):
    expected = search(compiled_engine(index))
    monkeypatch.setattr(step, "_WORTH_SHARING", 1)
    shares = []
    shared = threads.shared

    def spy(work, weights, count):
        shares.append(count)
        shared(work, weights, count)

    monkeypatch.setattr(step, "shared", spy)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number)
        found = search(compiled_engine(index))
    finally:
        torch.set_num_threads(before)
    assert set(shares) == {number}
    for name in ("tokens", "scores", "rows", "parents", "count"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize(("given", "number"), [("hidden", 2), ("logits", 1)])
def test_a_given_logit_is_less_work_than_a_product(index, given, number, monkeypatch):
    monkeypatch.setattr(step, "_WORTH_SHARING", 3000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    shares = []
    monkeypatch.setattr(step, "shared", lambda work, weights, count: shares.append(count))
    inputs = {
        "hidden": {"hidden": torch.zeros(6, 1, 20), "head": torch.zeros(30, 20)},
        "logits": {"logits": torch.zeros(6, 1, 30)},
    }
    engine = compiled_engine(index)
    engine.step(engine.begin(6), 5, **inputs[given])
    assert set(shares) == {number}


class TestThreads:
    @pytest.mark.parametrize("weights", [[0, 0], [0, 5], [0, 0, 9, 9], list(range(0, 90, 7))])
    @pytest.mark.parametrize("number", [1, 2, 5])
    def test_every_part_is_done_once(self, weights, number):
        done = np.zeros(len(weights) - 1, np.int64)

        def work(begin, end):
            done[begin:end] += 1

        threads.shared(work, np.array(weights), number)
        assert (done == 1).all()

    def test_parts_are_as_equal_as_they_can_be(self):
        parts = []
        weights = np.cumsum([0, 10, 9, 10, 10, 11, 10, 10, 10])
        threads.shared(lambda begin, end: parts.append((begin, end)), weights, 2)
        assert sorted(parts) == [(0, 4), (4, 8)]

    def test_an_error_in_another_thread_is_raised(self):
        def work(begin, end):
            if begin:
                raise ValueError("not here")

        with pytest.raises(ValueError, match="not here"):
            threads.shared(work, np.arange(9), 2)

    def test_an_error_is_raised_when_no_thread_is_at_work_any_more(self):
        done = []

        def work(begin, end):
            if begin < 6:
                raise ValueError(f"not at {begin}")
            time.sleep(0.05)
            done.append(begin)

        with pytest.raises(ValueError, match="not at 0"):
            threads.shared(work, np.arange(10), 3)
        assert done == [6]

    def test_a_larger_pool_takes_over_while_the_smaller_one_is_in_use(self):
        def work(begin, end):
            if begin == 0:
                threads.shared(lambda begin, end: None, np.arange(99), threads._size + 3)

        threads.shared(work, np.arange(9), 2)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    def test_a_child_process_has_threads_of_its_own_and_numba_is_not_imported_unasked(self):
        code = (
            "import os, sys, numpy as np\n"
            "from beamsieve_backends.torch_dense.compiled import threads\n"
            "assert 'beamsieve_backends.torch_dense.backend' in sys.modules\n"
            "assert 'numba' not in sys.modules\n"
            "work = lambda begin, end: None\n"
            "threads.shared(work, np.arange(9), 3)\n"
            "child = os.fork()\n"
            "threads.shared(work, np.arange(9), 3)\n"
            "if not child: os._exit(7)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class TestWhereItIs:
    def test_a_plan_measures_it_and_says_where_it_is_taken(self, index):
        engine = bs.Engine(index, backend="torch:cpu")
        heads = [torch.randn(size, 8) for size in (30, 80, 40)]
        plan = engine.warm_up(2, [5, 5, 5], heads, repeats=1)
        assert [set(times) for times in plan.milliseconds] == [
            {"full", "selective", "compiled"}
        ] * 3
        engine.use_plan(replace(plan, steps=("compiled",) * 3))
        forced = search(engine, size=8)
        assert torch.equal(forced.tokens, search(compiled_engine(index), size=8).tokens)

    def test_no_step_takes_it_unasked(self, index, monkeypatch):
        monkeypatch.setattr(step, "step", None)
        assert search(bs.Engine(index, backend="torch:cpu")).count.tolist() == [30] * 6

    def test_without_numba_it_is_refused_with_what_brings_it(self, index, monkeypatch):
        engine = bs.Engine(index, backend="torch:cpu")
        plan = engine.warm_up(1, [2, 2, 2], [torch.randn(v, 4) for v in (30, 80, 40)], repeats=1)
        plan = replace(plan, steps=("full", "compiled", "full"))
        monkeypatch.setattr(torch_backend, "has_numba", lambda: False)
        assert TorchBackend("cpu").capabilities.projections == ("full", "selective")
        assert TorchBackend("cpu").first_use() is None
        with pytest.raises(bs.InputError, match=r"install what it needs with pip install 'beams"):
            bs.Engine(index, backend="torch:cpu", plan=plan)
        with pytest.raises(bs.BackendError, match=r"needs Numba; install it with: pip install"):
            TorchBackend("cpu", {"projection": "compiled"})

    def test_it_needs_plain_tables(self):
        with pytest.raises(bs.BackendError, match="needs tables=plain"):
            TorchBackend("cpu", {"projection": "compiled", "tables": "index"})
        assert "compiled" not in TorchBackend("cpu", {"tables": "index"}).capabilities.projections
        assert not TorchBackend("cpu", {"tables": "index"}).missing_projections()
        with pytest.raises(bs.BackendError, match="must be one of full, selective, compiled"):
            TorchBackend("cpu", {"projection": "quick"})

    def test_a_numba_that_cannot_be_imported_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "numba", None)
        toolchain.imported.cache_clear()
        try:
            with pytest.raises(bs.BackendError, match="Numba cannot be imported"):
                toolchain.compiled(HERE)(lambda: None)
        finally:
            toolchain.imported.cache_clear()


class TestKept:
    @pytest.fixture(autouse=True)
    def anew(self):
        toolchain.writable_folder.cache_clear()
        yield
        toolchain.writable_folder.cache_clear()

    def test_machine_code_is_kept_among_the_users_caches(self, monkeypatch, tmp_path):
        import numba

        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(sys, "platform", "linux")
        before = numba.config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
        assert toolchain.compiled(HERE)(_one_more)(3) == 4
        folder = toolchain.cache_folder(HERE)
        assert folder.parent == tmp_path / "beamsieve"
        assert list(folder.rglob("*_one_more*.nbc"))
        assert before == numba.config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]

    def test_a_folder_that_is_named_comes_first(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
        assert toolchain.cache_folder(HERE).parent == tmp_path / "beamsieve"

    def test_a_folder_that_cannot_be_written_is_said_once(self, monkeypatch, tmp_path, caplog):
        (tmp_path / "file").touch()
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
        with caplog.at_level(logging.WARNING, "beamsieve"):
            assert toolchain.compiled(HERE)(_one_more)(4) == 5
            assert toolchain.compiled(HERE)(_one_more)(5) == 6
        assert len(caplog.records) == 1
        assert "set NUMBA_CACHE_DIR to a folder that can be written" in caplog.text


def _one_more(value):
    return value + 1
