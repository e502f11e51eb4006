"""The benchmark of swaps: what it reports, and that a wrong answer cannot pass."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import beamsieve as bs
from beamsieve_bench import swap_latency
from beamsieve_bench.swap_server import Question, Served, Server, Side, WrongAnswerError, latencies

TINY = "--items 3000 --width 8 --swaps 2 --seconds 0.3 --gap 0.1 --backend torch:cpu"


def test_a_run_says_what_callers_noticed_and_what_was_refused(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "swap.json"
    assert swap_latency.main([*TINY.split(), "--json", str(path)]) == 0
    found = json.loads(path.read_text("utf-8"))
    for part in found["latency_ms"].values():
        assert 0 < part["p50"] <= part["p99"] <= part["most"]
    assert found["latency_ms"]["before"]["requests"] > 0
    assert found["answered_by"]["old"] > 0
    assert found["swaps"] == 2
    assert "truncated" in found["refusals"]["a file that is cut off"]
    assert "every answer was right" in capsys.readouterr().out


def test_an_answer_that_the_index_would_not_give_ends_the_run() -> None:
    index = bs.Index.build(bs.Catalog.from_arrays([[0, 1], [2, 3], [3, 3]], codebooks=4))
    engine = bs.Engine(index, backend="reference")
    question = Question(index.codebooks, 1, 2, torch.device("cpu"), 0)
    plan = engine.warm_up(1, question.widths, question.heads)
    right = Side(Path(), index.fingerprint, plan, [question.put_to(engine)[1]])
    wrong = replace(right, answers=[[[("another item", 0.0)]]])
    for side, served in ((right, True), (wrong, False)):
        server = Server(engine, [question], {index.fingerprint: side}, 0.001, 2)
        if served:
            last = time.monotonic() + 60
            with server:
                while len(server.served) < 3 and time.monotonic() < last:
                    time.sleep(0.001)
            assert len(server.served) >= 3
        else:
            with pytest.raises(WrongAnswerError, match="not the answer of index"), server:
                pass


def test_a_request_belongs_to_the_part_that_it_met() -> None:
    requests = [Served(0.0, 1.0, ""), Served(1.5, 2.5, ""), Served(3.5, 3.75, "")]
    found = latencies(requests, [(2.0, 3.0)])
    assert {name: part["p50"] for name, part in found.items()} == {
        "before": 1000.0,
        "during": 1000.0,
        "between": 250.0,
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--swaps 0", "--swaps is 0"),
        ("--load nan", "--load is nan"),
        ("--items 100000000000000", "more than the"),
        ("--json nowhere/swap.json", "the folder nowhere does not exist"),
    ],
)
def test_bad_options_are_one_line(words: str, says: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        swap_latency.main(words.split())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
