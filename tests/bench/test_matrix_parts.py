"""The catalogs and the baselines of the matrix."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import beamsieve as bs
import beamsieve_spec as spec
from beamsieve_bench.matrix_baselines import FlashrecTrie, NaiveSelective, PrefixFunction
from beamsieve_bench.matrix_cells import Cell
from beamsieve_bench.matrix_contestants import Baselines, draw_inputs
from beamsieve_bench.matrix_sources import (
    SHARES,
    Preparation,
    Source,
    read_source,
    real_catalogs,
)
from beamsieve_bench.matrix_timing import ceilings, timed_phases, timed_rounds

CPU = torch.device("cpu")
WIDTHS = [6, 20, 15]


@pytest.fixture(scope="module")
def source() -> Source:
    return read_source("skewed:400x16x3", None)


@pytest.mark.parametrize("kind", ["skewed", "uniform", "hub"])
def test_made_catalogs_are_sorted_distinct_and_as_large_as_named(kind):
    made = read_source(f"{kind}:400x16x3", None)
    rows = [tuple(row) for row in made.sids.tolist()]
    assert rows == sorted(set(rows))
    assert made.index.leaf_count == len(rows)
    assert len(rows) == 400 if kind != "hub" else len(rows) >= 400
    assert made.codebooks == (16, 16, 16)
    assert made.one_length


def test_a_hub_has_every_token_below_one_prefix_among_thin_ones():
    made = read_source("hub:3000x64x4", None)
    pairs = np.unique(made.sids[:, :3], axis=0)
    children = np.unique(pairs[:, :2], axis=0, return_counts=True)[1]
    assert children.max() == 64
    assert np.median(children) <= 2


def test_a_share_lets_about_that_part_of_the_items_through(source):
    assert source.shares == SHARES
    numbers = np.arange(400)
    for share in SHARES:
        requests = source.requests(share, 2)
        assert requests is not None
        assert len(requests) == 2
        part = source.index.eligible(requests[0], numbers).mean()
        assert part == pytest.approx(share, abs=0.06)
    assert source.requests(None, 2) is None


def test_real_catalogs_are_found_below_a_folder(tmp_path):
    (tmp_path / "one").mkdir()
    content = {"0": ["<a_1>", "<b_2>"], "1": ["<a_0>", "<b_3>"]}
    (tmp_path / "one" / "Toys.index.json").write_text(json.dumps(content), "utf-8")
    assert list(real_catalogs(tmp_path)) == ["real:Toys"]
    made = read_source("real:Toys", tmp_path)
    assert made.sids.tolist() == [[0, 3], [1, 2]]
    assert real_catalogs(None) == {}


def test_catalogs_made_in_processes_of_their_own_are_the_same(source):
    names = ["skewed:400x16x3", "uniform:50x8x2"]
    with Preparation(names, None, 2) as sources:
        first, second = sources
    assert first.index.fingerprint == source.index.fingerprint
    np.testing.assert_array_equal(first.sids, source.sids)
    assert second.name == names[1]


def decoded(
    source: Source, normalize: str
) -> tuple[list[torch.Tensor], list[torch.Tensor], spec.Beams]:
    draw = np.random.default_rng(0)
    places = [1, *WIDTHS[:-1]]
    hidden = [draw.normal(size=(2, m, 8)).astype(np.float32) for m in places]
    heads = [draw.normal(size=(16, 8)).astype(np.float32) for _ in places]
    trie = spec.Trie(source.sids.tolist(), codebooks=[16] * 3)
    expected = spec.search(
        trie, lambda step, beams: (hidden[step - 1], heads[step - 1]), WIDTHS, batch=2,
        normalize=normalize,  # type: ignore[arg-type]
    )  # fmt: skip
    return [torch.from_numpy(h) for h in hidden], [torch.from_numpy(w) for w in heads], expected


@pytest.mark.parametrize("way", ["naive", "function"])
def test_baselines_decode_what_the_specification_does(source, way):
    hidden, heads, expected = decoded(source, "catalog" if way == "naive" else "all")
    baseline = (
        NaiveSelective(source.sids, "cpu")
        if way == "naive"
        else PrefixFunction(source.index.children)
    )
    marks: list[str] = []
    found = baseline.decode(hidden, heads, WIDTHS, marks.append)
    real = np.isfinite(expected.scores)
    np.testing.assert_array_equal(found.tokens.numpy()[real], expected.tokens[real])
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    assert sorted(marks) == sorted(["filter", "project", "select"] * 3)


def test_the_published_trie_finds_valid_semantic_ids(source):
    pytest.importorskip("flashrec")
    hidden, heads, _ = decoded(source, "all")
    found = FlashrecTrie(source.sids, source.codebooks, "cpu").decode(hidden, heads, WIDTHS)
    kept = found.tokens[torch.isfinite(found.scores)].tolist()
    assert kept
    assert all(source.index.contains(sid) for sid in kept)


def test_a_baseline_that_does_not_run_says_why(source):
    cell = Cell(source.name, 2, 4096, "float32")
    inputs = draw_inputs(source, Cell(source.name, 2, 4, "float32"), 8, CPU)
    running, reasons = Baselines(source, CPU, frozenset(["naive selective"])).of(cell, inputs, 100)
    assert "Python calls" in reasons["prefix function"]
    assert reasons["naive selective"] == "left out by request"
    assert {one.name for one in running} | reasons.keys() >= {"unconstrained", "score-first CSR"}
    huge = Baselines(source, CPU, frozenset()).of(cell, inputs, 1 << 40)[1]
    assert "gathered head" in huge["naive selective"]


def test_baselines_with_codebooks_of_different_sizes():
    rng = np.random.default_rng(0)
    sids = np.unique(rng.integers(0, [5, 30, 9], (200, 3)), axis=0)
    index = bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=[5, 30, 9]))
    made = Source("own", index, sids.astype(np.int32))
    inputs = draw_inputs(made, Cell("own", 2, 8, "float32"), 8, CPU)
    running, _ = Baselines(made, CPU, frozenset()).of(Cell("own", 2, 8, "float32"), inputs, 100)
    by_name = {one.name: one.run() for one in running}
    first, second = by_name["score-first CSR"], by_name["prefix function"]
    torch.testing.assert_close(first.scores, second.scores)
    assert torch.equal(first.tokens, second.tokens)


def test_rounds_take_turns_and_the_slow_are_left_out_of_some():
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        sum(range(300_000))

    works = {"quick": lambda: order.append("quick"), "slow": slow}
    taken, timed = timed_rounds(works, 9, CPU, dict.fromkeys(works, False), 0.02)
    assert len(taken["quick"]) == 9
    assert 3 <= len(taken["slow"]) < 9
    assert set(timed.values()) == {"calls"}
    after_warm_up = order[4:]
    assert after_warm_up[:2] == ["quick", "slow"]
    assert "slow" in after_warm_up[3:]


def test_phases_are_the_time_between_marks():
    def work(mark):
        sum(range(200_000))
        mark("long")
        mark("short")

    found = timed_phases(work, CPU)
    assert [name for name, _ in found] == ["long", "short"]
    assert found[0][1] > found[1][1]


def test_ceilings_are_measured_per_dtype():
    found = ceilings(CPU, [torch.float32])
    assert found.keys() == {"bytes_per_s", "flops_per_s:float32"}
    assert all(value > 1e8 for value in found.values())
