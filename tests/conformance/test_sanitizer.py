"""Reports of compute-sanitizer in a record: counted, tied to the kernels, never taken on trust."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beamsieve.errors import InputError
from beamsieve_conformance import records, sanitizer
from beamsieve_conformance.records import check_records, sha256

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACES = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"
PASSED = "======= 61 passed, 1 skipped, 620 deselected in 66.8s ======="
MORE = "==== 191 passed, 491 deselected in 62.1s (0:01:02) ===="


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of one run, of a backend with one kernel."""
    kernel = tmp_path / "k.cu"
    kernel.write_text("__global__ void k() {}\n")
    monkeypatch.setattr(records, "installed_kernels", lambda: {"fast": (tmp_path, ("k.cu",))})
    run = {
        "counts": {"passed": 9, "failed": 0},
        "partial": "",
        "kernels": {"k.cu": sha256(kernel)},
    }
    path = tmp_path / "records" / "gpu.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"format": 1, "runs": {"fast": run}}))
    return path


def noted(path: Path) -> Any:
    return json.loads(path.read_text())["runs"]["fast"]


def test_what_each_tool_found_stands_in_the_record_with_the_tests_it_watched(record: Path) -> None:
    sanitizer.note(record, "fast", {"memcheck": [(CLEAN, PASSED)]})
    sanitizer.note(record, "fast", {"racecheck": [(CLEAN, PASSED), (CLEAN, MORE)]})
    assert noted(record)["sanitizer"] == {"memcheck": 0, "racecheck": 0}
    assert noted(record)["sanitizer_tests"] == {"memcheck": 61, "racecheck": 252}
    assert check_records(record.parent, records.installed_kernels()) == []


def test_a_tool_s_later_runs_stand_in_place_of_its_earlier_ones(record: Path) -> None:
    sanitizer.note(record, "fast", {"racecheck": [(RACES, PASSED), (RACES, MORE)]})
    assert noted(record)["sanitizer"] == {"racecheck": 4}
    (problem,) = check_records(record.parent, records.installed_kernels())
    assert "racecheck found 4" in problem
    sanitizer.note(record, "fast", {"racecheck": [(CLEAN, PASSED)]})
    assert noted(record)["sanitizer"] == {"racecheck": 0}
    assert noted(record)["sanitizer_tests"] == {"racecheck": 61}


@pytest.mark.parametrize("output", ["", "===== 1 failed, 60 passed in 9.0s =====", "61 tests"])
def test_a_suite_that_did_not_pass_is_refused(record: Path, output: str) -> None:
    refused(record, lambda: note(record, CLEAN, output), ValueError, "did not pass")


@pytest.mark.parametrize("report", ["", "========= COMPUTE-SANITIZER\n"])
def test_a_report_without_an_end_is_refused(record: Path, report: str) -> None:
    refused(record, lambda: note(record, report, PASSED), ValueError, "did not come to its end")


def test_other_kernels_than_those_of_the_record_are_refused(record: Path) -> None:
    (record.parent.parent / "k.cu").write_text("__global__ void k() { return; }\n")
    refused(record, lambda: note(record, CLEAN, PASSED), InputError, "other kernel sources")


def test_a_backend_without_a_run_is_refused(record: Path) -> None:
    add = lambda: sanitizer.note(record, "slow", {"memcheck": [(CLEAN, PASSED)]})  # noqa: E731
    refused(record, add, InputError, "holds no run of slow")


def note(record: Path, report: str, output: str) -> None:
    sanitizer.note(record, "fast", {"memcheck": [(report, output)]})


def refused(record: Path, add: Callable[[], None], kind: type[Exception], said: str) -> None:
    """With these words, and with the record as it was."""
    before = record.read_text()
    with pytest.raises(kind, match=said):
        add()
    assert record.read_text() == before
