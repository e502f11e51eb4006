"""``backends``, ``conformance``, ``bench`` and ``demo``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def install(folder: Path, name: str, module: str, source: str, monkeypatch) -> None:
    """Put a package with one backend where Python finds it."""
    (folder / f"{module}.py").write_text(source)
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[beamsieve.backends]\n{name} = {module}:Backend\n")
    monkeypatch.syspath_prepend(folder)


def test_backends_lists_what_is_installed(run):
    outcome = run("backends")
    assert outcome.code == 0
    assert "reference" in outcome.stdout
    assert "torch" in outcome.stdout


def test_backends_as_json_says_what_each_can(run, monkeypatch):
    monkeypatch.setenv("BEAMSIEVE_BACKEND", "reference")
    result = json.loads(run("backends", "--json").stdout)
    assert result["default"] == "reference"
    found = {info["name"]: info for info in result["backends"]}
    assert found["reference"]["devices"] == ["cpu"]
    assert found["reference"]["error"] == ""
    assert found["torch"]["projections"][:2] == ["full", "selective"]


def test_a_broken_backend_is_listed_with_its_error_and_hides_no_other(run, tmp_path, monkeypatch):
    install(tmp_path, "broken", "broken_backend", "import no_such_library", monkeypatch)

    shown = run("backends").stdout
    assert "cannot be used" in shown
    assert "no_such_library" in shown
    assert "reference" in shown
    # Nothing is imported to list names alone.
    assert "no_such_library" not in run("backends", "--no-check").stdout


def test_conformance_of_a_backend_that_cannot_be_imported(run, tmp_path, monkeypatch):
    install(tmp_path, "broken", "broken_backend", "import no_such_library", monkeypatch)

    outcome = run("conformance", "broken")

    assert outcome.code == 2
    assert "no_such_library" in outcome.complaint
    assert "pip install" in outcome.complaint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope"], "'nope' is not installed"),
        (["reference:cuda"], "cuda"),
        (["reference", "--examples", "0"], "--examples"),
        (["reference", "--deviations", "none.toml"], "none.toml"),
        (["reference?speed=9"], "speed"),
        ([], "backend"),
    ],
)
def test_conformance_that_cannot_run(run, words, says):
    outcome = run("conformance", *words)
    assert outcome.code == 2
    assert says.lower() in outcome.complaint.lower()


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-k", "prefix and and"], "prefix and and"),
        (["-k", "no_test_is_called_so"], "no test of the suite matches 'no_test_is_called_so'"),
        (["--deviations", "words.toml"], "words.toml"),
        (["--deviations", "bytes.toml"], "bytes.toml"),
        (["--deviations", "empty.toml", "--record", "empty.toml"], "as well"),
        (["--record", "no/record.json"], "the folder no"),
    ],
)
def test_conformance_asked_for_what_cannot_be_is_one_line(
    run, tmp_path, monkeypatch, words, says, more
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.toml").write_text("these are words")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.toml").write_text("")
    outcome = run("conformance", "reference", *words, *more)
    assert outcome.code == 2
    assert says in outcome.complaint
    assert outcome.stdout == ""


def test_conformance_as_json_is_one_object(run, tmp_path):
    record = tmp_path / "record.json"
    outcome = run(
        *("conformance", "reference", "--quick", "-k", "prefix", "--json", "--record", record)
    )
    assert outcome.code == 0
    result = json.loads(outcome.stdout)
    assert result["conforms"] is True
    assert result["counts"]["passed"] > 0
    assert json.loads(record.read_text())["runs"]["reference"]["counts"] == result["counts"]


def test_conformance_as_json_of_whatever_auto_takes(run, monkeypatch):
    monkeypatch.delenv("BEAMSIEVE_BACKEND", raising=False)
    outcome = run("conformance", "auto", "--quick", "-k", "test_a_prefix_begins", "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["backend"] == "auto"


def test_conformance_of_a_wrong_backend_fails(run, tmp_path, monkeypatch):
    source = """
import numpy as np
from dataclasses import replace
from beamsieve.registry import load_class

class Backend(load_class("reference")):
    name = "wrong"
    def select(self, *arguments):
        kept = super().select(*arguments)
        return replace(kept, scores=kept.scores + np.float32(1))
"""
    install(tmp_path, "wrong", "wrong_backend", source, monkeypatch)
    outcome = run("conformance", "wrong", "--quick", "-k", "one_step", "--json")
    assert outcome.code == 1, outcome.stderr
    assert outcome.stdout, outcome.stderr
    assert json.loads(outcome.stdout)["conforms"] is False


def test_bench_names_its_benchmarks(run):
    assert run("bench").code == 2
    outcome = run("bench", "sprint")
    assert outcome.code == 2
    assert "stage" in outcome.complaint


def test_bench_passes_its_options_on(run):
    outcome = run(
        *("bench", "stage", "--backend", "torch:cpu", "--json", "--threads", 1),
        *("--items", 500, "--vocabulary", 16, "--length", 3),
        *("--batch", 1, "--beams", 4, "--hidden", 8, "--rounds", 1),
    )
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["backend"] == "torch:cpu"


def test_demo_as_json_is_one_object_with_the_promised_keys(run):
    outcome = run("demo", "--quick", "--json")
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    promised = {"legal_share", "overlap", "recall_at_10", "ms_per_request", "index_bytes"}
    assert promised <= set(result)
    assert result["legal_share"]["with_filter"] == 1


def test_demo_with_a_backend_that_is_not_there(run):
    outcome = run("demo", "--quick", "--backend", "nope")
    assert outcome.code == 2
    assert "nope" in outcome.complaint
