"""Advice for an index, two runs compared, and the micro-benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import beamsieve as bs
from beamsieve_bench import advise, compare
from beamsieve_bench.matrix_contestants import UNCONSTRAINED
from beamsieve_bench.matrix_rows import Row, Run

ROOT = Path(__file__).parents[2]


def row(contestant: str, p50: float, spread: float = 0.1, **changed: Any) -> Row:
    """A row whose quantiles lie so far apart, as a part of the median."""
    kind = "baseline" if contestant == UNCONSTRAINED else "backend"
    made = Row(
        contestant=contestant, asked=contestant, kind=kind, device="cpu", workload="S1", items=9,
        vocabulary=4, length=2, batch=1, width=2, hidden=8, dtype="float32", normalize="catalog",
        share=None, sweep="grid", timed="calls", rounds=3, p20=p50 * (1 - spread), p50=p50,
        p80=p50 * (1 + spread), index_bytes=1, flops=1, bytes_moved=1, flop_share=0.1,
        bandwidth_share=0.1,
    )  # fmt: skip
    return replace(made, **changed)


def saved(path: Path, *rows: Row, **machine: Any) -> Path:
    facts = {"commit": path.stem, "device_name": "one", "threads": 2, "cores": 2} | machine
    Run(facts, {}, {}, list(rows), []).write(path)
    return path


def test_what_lies_outside_the_spread_is_faster_or_slower(tmp_path, capsys):
    old = saved(tmp_path / "old.json", row("a", 1.0), row("b", 1.0), row("c", 1.0), row("d", 1.0))
    new = saved(tmp_path / "new.json", row("a", 0.5), row("b", 2.0), row("c", 1.1), row("e", 1.0))
    assert compare.main([str(old), str(new), "--json"]) == 0
    found = {one["contestant"]: one for one in json.loads(capsys.readouterr().out)["changes"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "a": "faster",
        "b": "slower",
        "c": "same",
    }
    assert found["a"]["ratio"] == pytest.approx(0.5)
    assert found["a"]["low"] == pytest.approx(0.45 / 1.1)
    assert found["a"]["high"] == pytest.approx(0.55 / 0.9)


def test_a_slower_machine_cancels_out_against_a_baseline(tmp_path, capsys):
    old = saved(tmp_path / "old.json", row("a", 1.0), row(UNCONSTRAINED, 2.0))
    new = saved(
        tmp_path / "new.json", row("a", 3.0), row(UNCONSTRAINED, 6.0), device_name="another"
    )
    assert compare.main([str(old), str(new)]) == 0
    shown = capsys.readouterr().out
    assert "device_name was one and is another" in shown
    assert "2 slower" in shown
    assert compare.main([str(old), str(new), "--against", UNCONSTRAINED]) == 0
    shown = capsys.readouterr().out
    assert "0 faster, 1 same, 0 slower" in shown


def test_runs_that_share_nothing_are_refused(tmp_path, capsys):
    old = saved(tmp_path / "old.json", row("a", 1.0))
    new = saved(tmp_path / "new.json", row("a", 1.0, batch=2))
    assert compare.main([str(old), str(new)]) == 2
    assert "share no row" in capsys.readouterr().err
    assert compare.main([str(old), str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize("name", ["own.safetensors", "own.index"])
def test_advice_names_a_config_string_that_opens_an_engine(tmp_path, capsys, name):
    path = tmp_path / name
    index = bs.Index.build(bs.Catalog.from_arrays([[0, 1], [0, 2], [3, 0]], codebooks=4))
    index.save(path)
    words = "--batch 2 --width 2 --hidden 4 --rounds 3 --backends torch:cpu,reference --json"
    assert advise.main([str(path), *words.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["config"] for one in found["measured"]} == {"torch:cpu", "reference:cpu"}
    times = {one["config"]: one["batch"][1] for one in found["measured"]}
    assert found["config"] == min(times, key=lambda name: times[name])
    assert "times as fast as" in found["why"]
    assert bs.Engine(index, found["config"]).backend == found["config"]


def test_without_names_it_tries_what_is_installed_and_says_what_cannot_run(tmp_path, capsys):
    path = tmp_path / "own.safetensors"
    bs.Index.build(bs.Catalog.from_arrays([[0, 1], [3, 0]], codebooks=4)).save(path)
    words = "--batch 1 --width 2 --hidden 4 --rounds 3"
    assert advise.main([str(path), *words.split()]) == 0
    shown = capsys.readouterr().out
    assert 'Use backend="' in shown
    assert "reference" not in shown


RULES = [{"country": {"accepts": [name]}} for name in ("US", "CA", "US")]


@pytest.fixture
def with_rules(tmp_path):
    """An index whose items have rules."""
    path = tmp_path / "own.safetensors"
    catalog = bs.Catalog.from_arrays(
        [[0, 1], [0, 2], [3, 0]],
        codebooks=4,
        attributes=[bs.Attribute("country", ["US", "CA"])],
        rules=RULES,
    )
    bs.Index.build(catalog).save(path)
    return path


def test_advice_for_targeted_searches(with_rules, monkeypatch, capsys):
    begun = []
    begin = bs.Engine.begin

    def noted(engine, *given, **named):
        begun.append(given)
        return begin(engine, *given, **named)

    monkeypatch.setattr(bs.Engine, "begin", noted)
    words = "--batch 2 --width 2 --hidden 4 --rounds 3 --backends torch:cpu --json"
    asked = ["--request", '{"country": "US"}']
    assert advise.main([str(with_rules), *words.split(), *asked]) == 0
    assert (2, [{"country": "US"}] * 2) in begun
    assert 'each asking for {"country": "US"}' in json.loads(capsys.readouterr().out)["why"]


@pytest.mark.parametrize(
    ("asked", "says"), [("{", "no JSON"), ("[1]", "no object"), ('{"age": 3}', "'age'")]
)
def test_a_request_that_cannot_be_read(with_rules, asked, says, capsys):
    words = [str(with_rules), "--request", asked]
    if says.startswith("no"):
        with pytest.raises(SystemExit, match="2"):
            advise.main(words)
    else:
        assert advise.main(words) == 2
    (complaint,) = capsys.readouterr().err.splitlines()
    assert says in complaint


@pytest.mark.parametrize(
    ("words", "code"),
    [("nowhere.safetensors", 2), ("S1 --backends nothing", 2), ("S1 --backends auto", 2)],
)
def test_what_is_not_there_is_one_line(words, code, capsys):
    assert advise.main(words.split()) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_micro_benchmarks_run():
    words = "-m pytest -q --benchmark-disable -p no:cacheprovider bench/micro"
    done = subprocess.run(
        [sys.executable, *words.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
