"""Damaged files get one line, and what they belong to stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from beamsieve.cli import app
from beamsieve.index.files import read_file, write_file
from beamsieve.models import resuming
from beamsieve.models.checkpoint import read_tensors, write_tensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index, histories, a model trained for an epoch, and concepts."""
    found = tmp_path_factory.mktemp("small")
    rows = [f"i{n},{n % 5} {n % 7}" for n in range(35)]
    (found / "catalog.csv").write_text("\n".join(["item,sid", *rows]))
    lines = [{"history": [f"i{(user + n) % 35}" for n in range(4)]} for user in range(12)]
    (found / "histories.jsonl").write_text("\n".join(map(json.dumps, lines)))
    few = ["--epochs", "1", "--threads", "1", "--model-width", "8"]
    for words in (
        ["build", found / "catalog.csv", "-o", found / "index"],
        ["train", found / "histories.jsonl", found / "index", "-o", found / "model", *few],
        [
            "concepts",
            *(found / n for n in ("model", "index", "histories.jsonl")),
            "-o",
            found / "c",
        ],
    ):
        outcome = CliRunner().invoke(app, [str(word) for word in words])
        assert outcome.exit_code == 0, outcome.output
    return found


@pytest.mark.parametrize("missing", ["model", "data", None])
def test_a_training_is_not_resumed_from_a_state_that_lacks_something(run, folder, missing):
    state = folder / "model.state"
    tensors, metadata = read_tensors(state, resuming.FORMAT, resuming.VERSION)
    identity: Any = {name: said for name, said in metadata["identity"].items() if name != missing}
    damaged = {**metadata, "identity": identity if missing else None}
    whole = state.read_bytes()
    write_tensors(state, tensors, damaged)
    before = (state.read_bytes(), (folder / "model").read_bytes())
    words = (folder / "histories.jsonl", folder / "index", "-o", folder / "model", "--resume")
    outcome = run("train", *words, "--epochs", 2, "--threads", 1, "--model-width", 8)
    after = (state.read_bytes(), (folder / "model").read_bytes())
    state.write_bytes(whole)

    assert outcome.code == 1
    assert "model.state" in outcome.complaint
    assert "anew" in outcome.complaint
    assert after == before


@pytest.mark.parametrize("name", ["index", "model", "c"])
def test_a_file_that_was_cut_off_gets_one_line(run, folder, tmp_path, name):
    words = {each: folder / each for each in ("model", "index", "c")}
    for share in (0, 0.01, 0.5, 0.999):
        whole = (folder / name).read_bytes()
        words[name] = tmp_path / name
        words[name].write_bytes(whole[: int(share * len(whole))])
        outcome = run("recommend", words["model"], words["index"], "--concepts", words["c"])
        assert outcome.code == 1
        assert str(tmp_path / name) in outcome.complaint


@pytest.mark.parametrize("field", ["codebooks", "tables", "leaves", "fingerprint"])
def test_an_index_that_lacks_a_field_gets_one_line(run, folder, tmp_path, field):
    held = read_file(folder / "index")
    rest = {name: said for name, said in held.description.items() if name != field}
    write_file(tmp_path / "index", rest, held.arrays)
    outcome = run("inspect", tmp_path / "index")
    assert outcome.code == 1
    assert outcome.complaint.endswith(f"'{field}' is missing; build the index again.")
