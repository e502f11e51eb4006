"""The stage benchmark on a tiny catalog: its inputs, its baselines, its gate and its report."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import beamsieve as bs
import beamsieve_spec as spec
from beamsieve_backends.torch_dense import TorchBackend
from beamsieve_bench import gate, stage
from beamsieve_bench.baselines import ScoreFirstTrie, Unconstrained
from beamsieve_bench.catalogs import WORKLOADS, Workload, skewed_sids
from beamsieve_bench.published_trie import PublishedTrie

TINY = Workload(2000, 40, 4)


def test_a_skewed_catalog_is_sorted_distinct_complete_and_repeatable():
    sids = skewed_sids(TINY)
    assert sids.shape == (2000, 4)
    assert sids.dtype == np.int32
    assert sids.min() == 0
    assert sids.max() == 39
    rows = [tuple(row) for row in sids.tolist()]
    assert rows == sorted(set(rows))
    assert skewed_sids(TINY).tobytes() == sids.tobytes()
    assert skewed_sids(TINY, seed=1).tobytes() != sids.tobytes()


def test_a_skewed_catalog_has_popular_tokens_that_differ_from_prefix_to_prefix():
    sids = skewed_sids(Workload(50_000, 40, 4))
    level_two = np.bincount(sids[:, 0] * 40 + sids[:, 1], minlength=1600).reshape(40, 40)
    popular = level_two.argmax(1)
    assert len(set(popular.tolist())) > 20
    assert (level_two.max(1) > 2 * np.median(level_two, axis=1)).all()


def test_the_named_workloads():
    assert WORKLOADS["Z1"] == (10_000_000, 2048, 4)
    assert WORKLOADS["Z2"] == (10_000_000, 512, 4)
    assert WORKLOADS["Z3"] == (10_000_000, 8192, 3)
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        skewed_sids(Workload(10, 2**16, 4))


@pytest.mark.parametrize(("limit", "published"), [(None, False), (30, False), (30, True)])
@pytest.mark.parametrize("widths", [[30, 30, 30, 30], [5, 30, 1, 20]])
def test_the_baseline_decodes_what_the_specification_does(limit, published, widths):
    sids = skewed_sids(TINY)
    trie = spec.Trie(sids.tolist(), codebooks=[40] * 4)
    draw = np.random.default_rng(0)
    places = [1, *widths[:-1]]
    hidden = [draw.normal(size=(2, m, 8)).astype(np.float32) for m in places]
    heads = [draw.normal(size=(40, 8)).astype(np.float32) for _ in places]
    contestant = ScoreFirstTrie(sids, 40, "cpu", limit)
    found = (PublishedTrie(contestant) if published else contestant).decode(
        [torch.from_numpy(h) for h in hidden], [torch.from_numpy(w) for w in heads], widths
    )
    expected = spec.search(
        trie,
        lambda step, beams: (hidden[step - 1], heads[step - 1]),
        widths,
        batch=2,
        normalize="all",
    )
    real = np.isfinite(expected.scores)
    np.testing.assert_array_equal(found.tokens.numpy()[real], expected.tokens[real])
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


def test_unconstrained_keeps_the_best_of_all_tokens():
    hidden = [torch.randn(1, 1, 4), torch.randn(1, 6, 4)]
    heads = [torch.randn(7, 4), torch.randn(7, 4)]
    found = Unconstrained().decode(hidden, heads, [6, 5])
    first = torch.log_softmax(hidden[0][0, 0] @ heads[0].T, 0).topk(6)
    second = first.values[:, None] + torch.log_softmax(hidden[1][0] @ heads[1].T, 1)
    best = second.flatten().topk(5)
    assert torch.allclose(found.scores[0], best.values)
    assert found.tokens[0, :, 1].tolist() == (best.indices % 7).tolist()
    assert found.tokens[0, :, 0].tolist() == first.indices[best.indices // 7].tolist()


def run(arguments: str) -> int:
    return stage.main(["--hidden", "8", *arguments.split()])


def test_one_json_object_with_gate_times_and_ratios(capsys):
    code = run("--items 2000 --vocabulary 40 --length 4 --batch 2 --beams 8 --rounds 2 --json")
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert result["backend"] == "torch:cpu"
    assert [one["name"] for one in result["times"]] == [
        "beamsieve",
        "score-first trie",
        "score-first trie, in place",
        "score-first trie, flat",
        "unconstrained",
    ]
    assert all(
        0 < one["least"] <= one["p20"] <= one["median"] <= one["p80"] for one in result["times"]
    )
    assert set(result["gate"]) == {"specification", "baseline"}
    assert len(result["projections"]) == 4


def test_the_table_names_every_contestant(capsys):
    code = run("--items 500 --vocabulary 20 --length 2 --batch 1 --beams 4 --rounds 1")
    shown = capsys.readouterr().out
    assert code == 0
    for name in ("beamsieve", "score-first trie", "unconstrained", "median ms"):
        assert name in shown


class Careless(TorchBackend):
    """Right, but for the scores' last step."""

    name = "careless"

    def step(self, beams, inputs, normalize):
        found = super().step(beams, inputs, normalize)
        return replace(found, scores=found.scores - 1e-2)


def test_a_wrong_backend_is_not_measured(monkeypatch, capsys):
    real = bs.Engine

    def engine(index, backend, normalize: Any = "catalog"):
        return real(index, backend=Careless("cpu"), normalize=normalize)

    monkeypatch.setattr(bs, "Engine", engine)
    with pytest.raises(gate.GateError, match="differ from the specification"):
        gate.agrees_with_specification("careless", "catalog", torch.device("cpu"))
    assert run("--items 500 --vocabulary 20 --length 2 --rounds 1") == 1
    captured = capsys.readouterr()
    assert "differ" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--batch 0", "--batch is 0; it must be at least 1"),
        ("--rounds 0", "--rounds is 0"),
        ("--items -1", "--items is -1"),
        ("--items 0", "--items is 0"),
        ("--vocabulary 0", "--vocabulary is 0"),
        ("--threads 0", "--threads is 0"),
        ("--length 0", "--length is 0; it must be at least 2"),
        ("--vocabulary 1 --length 1 --items 100", "--length is 1"),
        ("--vocabulary 8192 --length 5", "not below 2**63"),
        ("--items 100000000000000 --vocabulary 30000", "100,000,000,000,000 semantic IDs are"),
        ("--dtype int8", "--dtype"),
        ("--no-such-option", "--no-such-option"),
        ("--batch many", "--batch"),
    ],
)
def test_bad_arguments_are_one_line(arguments, says, capsys):
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert says in complaint(capsys)


@pytest.mark.parametrize("backend", ["nothing", "torch:nowhere", "torch?speed=9", "?"])
def test_a_backend_that_is_not_there_is_a_bad_argument(backend, capsys):
    code = run(f"--backend {backend} --items 500 --vocabulary 20 --length 2 --rounds 1")
    assert code == 2
    assert backend.rpartition(":")[2][:5] in complaint(capsys)


def test_more_beams_than_candidates_are_measured(capsys):
    assert run("--items 9 --vocabulary 3 --length 2 --batch 1 --beams 16 --rounds 1 --json") == 0
    assert json.loads(capsys.readouterr().out)["beams"] == 16


def test_a_trie_of_one_level_is_refused():
    with pytest.raises(ValueError, match="pair of levels"):
        ScoreFirstTrie(np.zeros((1, 1), np.int32), 1, "cpu")
    with pytest.raises(ValueError, match="needs tokens_per_beam"):
        PublishedTrie(ScoreFirstTrie(np.zeros((1, 2), np.int32), 1, "cpu"))


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("beamsieve: ")
    assert captured.out == ""
    return lines[0]


def test_help_shows_the_description_as_it_is_written(capsys):
    with pytest.raises(SystemExit):
        stage.main(["--help"])
    assert f"\n{(stage.__doc__ or '').strip()}\n" in capsys.readouterr().out


def test_options_are_read_before_pytorch_is_imported():
    code = "import sys, beamsieve_bench.stage; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
