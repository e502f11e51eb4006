"""``train`` and ``recommend``, on a catalog and histories small enough to take seconds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beamsieve.cli import app

BEAMSIEVE = Path(sys.executable).with_name("beamsieve")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a catalog, its index, another index, histories and a model trained on them."""
    folder = tmp_path_factory.mktemp("trained")
    for name, step in (("", 1), ("other-", 3)):
        rows = [f"i{n},{n % 5} {n * step % 7},Title {n}" for n in range(35)]
        (folder / f"{name}catalog.csv").write_text("\n".join(["item,sid,title", *rows]))
    lines = [
        {"user": user, "history": [f"i{(user + n) % 35}" for n in range(4)], "target": f"i{user}"}
        for user in range(30)
    ]
    (folder / "histories.jsonl").write_text("\n".join(map(json.dumps, lines)))
    short = ["--epochs", "1", "--threads", "1"]
    for words in (
        ["build", folder / "catalog.csv", "-o", folder / "index"],
        ["build", folder / "other-catalog.csv", "-o", folder / "other-index"],
        ["train", folder / "histories.jsonl", folder / "index", "-o", folder / "model", *short],
    ):
        outcome = CliRunner().invoke(app, [str(word) for word in words])
        assert outcome.exit_code == 0, outcome.output
    return folder


def test_train_reports_and_goes_on_from_where_it_stopped(run, trained):
    words = ("train", trained / "histories.jsonl", trained / "index", "-o", trained / "again")
    first = json.loads(run(*words, "--epochs", 1, "--threads", 1, "--json").stdout)
    second = json.loads(run(*words, "--epochs", 2, "--threads", 1, "--resume", "--json").stdout)

    assert (first["epochs"], second["epochs"]) == (1, 2)
    assert second["steps"] == 2 * first["steps"]
    assert second["stopped"] == "epochs"


def test_recommend_writes_one_line_of_json_per_history(run, trained):
    words = ("recommend", trained / "model", trained / "index", trained / "histories.jsonl")
    outcome = run(*words, "-k", 4, "--width", 8, "--backend", "torch:cpu", "--json")

    assert outcome.code == 0, outcome.stderr
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [line["user"] for line in lines] == list(range(30))
    for line in lines:
        assert len({item["item"] for item in line["items"]}) == 4
        scores = [item["score"] for item in line["items"]]
        assert scores == sorted(scores, reverse=True)
        assert all(item["title"] == f"Title {item['item'][1:]}" for item in line["items"])


def test_recommend_writes_a_file_and_measures(run, trained, tmp_path):
    output = tmp_path / "recommendations.jsonl"
    words = ("recommend", trained / "model", trained / "index", trained / "histories.jsonl")

    outcome = run(
        *(*words, "-k", 35, "--width", 35, "--backend", "torch:cpu", "-o", output),
        *("--metrics", "--free-beams", "--json"),
    )

    assert outcome.code == 0, outcome.stderr
    assert len(output.read_text().splitlines()) == 30
    measured = json.loads(outcome.stdout)["metrics"]
    assert measured["rows"] == 30
    # Every item is recommended, so every target is among them.
    assert measured["recall_at_35"] == 1
    assert measured["recall_at_5"] <= measured["recall_at_10"]
    assert measured["illegal_free_share"] >= 0


def test_recommend_shows_a_table_with_titles(run, trained):
    words = ("recommend", trained / "model", trained / "index", trained / "histories.jsonl")
    shown = run(*words, "-k", 2, "--backend", "torch:cpu").stdout
    assert "user 29" in shown
    assert shown.count("Title ") == 60


def test_histories_may_call_their_columns_otherwise(run, trained, tmp_path):
    histories = tmp_path / "sessions.csv"
    histories.write_text('who,bought\n7,"[""i1"", ""i2""]"\n')
    words = ("recommend", trained / "model", trained / "index", histories)

    assert "--column" in run(*words).complaint
    outcome = run(
        *(*words, "--column", "history=bought", "--column", "user=who"),
        *("--backend", "torch:cpu", "--json"),
    )
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["user"] == "7"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["recommend", "index", "index", "histories.jsonl"], 1, "index"),
        (["recommend", "model", "model", "histories.jsonl"], 1, "no beamsieve index"),
        (["recommend", "model", "other-index", "histories.jsonl"], 1, "--other-catalog"),
        (["recommend", "model", "index", "catalog.csv"], 1, "history"),
        (["recommend", "model", "index", "histories.jsonl", "-k", "0"], 2, "-k"),
        (["recommend", "model", "index", "histories.jsonl", "--width", "0"], 2, "--width"),
        (["recommend", "model", "index", "histories.jsonl", "--batch", "0"], 2, "--batch"),
        (["recommend", "model", "index", "histories.jsonl", "--normalize", "l2"], 2, "l2"),
        (["recommend", "model", "index", "histories.jsonl", "--backend", "nope"], 2, "nope"),
        (["recommend", "model", "index", "histories.jsonl", "-o", "no/r"], 2, "no"),
        (["recommend", "model", "index", "histories.jsonl", "--free-beams"], 2, "--metrics"),
        (["train", "catalog.csv", "index", "-o", "new"], 1, "history"),
        (["train", "histories.jsonl", "index", "-o", "new", "--from-teacher"], 2, "no --teacher"),
        (["train", "histories.jsonl", "catalog.csv", "-o", "new"], 1, "no beamsieve index"),
        (["train", "histories.jsonl", "index", "-o", "no/new"], 2, "the folder no"),
        (["train", "histories.jsonl", "index", "-o", "new", "--minutes", "0"], 2, "minutes"),
        (["train", "histories.jsonl", "index", "-o", "new", "--device", "abacus"], 2, "abacus"),
        (["train", "histories.jsonl", "index", "-o", "new", "--column", "x=y"], 2, "--column"),
    ],
)
def test_what_a_model_cannot_be_used_with(run, trained, monkeypatch, words, code, says):
    monkeypatch.chdir(trained)
    before = sorted(trained.iterdir())

    outcome = run(*words)

    assert outcome.code == code
    assert says in outcome.complaint
    assert outcome.stdout == ""
    assert sorted(trained.iterdir()) == before


def test_an_interrupted_training_resumes(run, trained, tmp_path):
    model = tmp_path / "model"
    words = ["train", trained / "histories.jsonl", trained / "index", "-o", model]
    words += ["--threads", "1"]
    endless = [BEAMSIEVE, *words, "--epochs", "100000"]
    with subprocess.Popen(endless, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "model.state").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"beamsieve: interrupted")
        assert process.wait(30) == 130
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "model.state"}

    resumed = run(*words, "--resume", "--epochs", "2", "--json")
    assert resumed.code == 0, resumed.stderr
    assert json.loads(resumed.stdout)["epochs"] >= 2


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--seed", "99999999999999999999", "--seed"),
        ("--threads", "99999999999", "--threads"),
        ("--device", "meta", "torch cannot use 'meta'"),
        ("--device", "hpu", "torch cannot use 'hpu'"),
        ("--learning-rate", "inf", "learning_rate is inf"),
        ("--dropout", "2", "dropout is 2.0"),
        ("--teacher-share", "0.3", "no --teacher"),
        ("--validity-floor", "0.3", "no --validity"),
        ("--model-width", "7", "must divide by heads"),
    ],
)
def test_a_value_that_training_cannot_use_is_a_bad_argument(
    run, trained, tmp_path, option, value, says
):
    words = ["train", trained / "histories.jsonl", trained / "index", "-o", tmp_path / "x"]
    outcome = run(*words, option, value)
    assert outcome.code == 2
    assert says in outcome.complaint
    assert list(tmp_path.iterdir()) == []
