"""The suite shared among processes says what one process would say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from beamsieve_conformance import plugin, run
from beamsieve_conformance.outcome import Run
from beamsieve_conformance.subject import Subject

RUN = {"tests": ["test_prefix.py"], "quick": True}
Capture = pytest.CaptureFixture[str]


def test_two_processes_count_as_one_does(tmp_path: Path, capfd: Capture) -> None:
    records = []
    for processes in (1, 2):
        path = tmp_path / f"{processes}.json"
        assert run("reference", record=path, processes=processes, **RUN) == 0  # type: ignore[arg-type]
        records.append(json.loads(path.read_text()))
    assert records[0] == records[1]
    assert records[0]["runs"]["reference"]["counts"]["passed"] >= 10
    assert "dtype: float16" in capfd.readouterr().out


def test_the_folder_it_is_run_from_stays_as_it_was(tmp_path: Path) -> None:
    suite = [sys.executable, "-m", "beamsieve", "conformance", "reference", "--quick"]
    subprocess.run([*suite, "-k", "any_search_is_right"], cwd=tmp_path, check=True)
    assert not list(tmp_path.iterdir())


def test_two_processes_fail_where_one_does(tmp_path: Path, capfd: Capture) -> None:
    known = tmp_path / "deviations.toml"
    known.write_text(
        '[[deviation]]\ntest = "test_none.py::test_none"\nkind = "never"\n'
        'raises = "AssertionError"\nreason = "names no test"\n'
    )
    assert run("reference", deviations=known, processes=2, **RUN) == 1  # type: ignore[arg-type]
    assert "matches no test" in capfd.readouterr().out


def test_a_lost_process_is_a_failure() -> None:
    outcome = Run(Subject.open("reference", None), True, 12, [])
    config = SimpleNamespace(stash={plugin.KEY: outcome})
    node = SimpleNamespace(config=config, gateway=SimpleNamespace(id="gw1"))
    plugin.pytest_testnodedown(node, "crashed")
    assert outcome.lost == ["gw1: crashed"]
