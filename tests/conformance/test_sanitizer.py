"""Reports of compute-sanitizer in a record: counted, tied to the kernels, never taken on trust."""

import json

import pytest

from beamsieve_conformance import sanitizer
from beamsieve_conformance.records import check_records, sha256

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACES = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"


@pytest.fixture
def record(tmp_path, monkeypatch):
    kernel = tmp_path / "k.cu"
    kernel.write_text("__global__ void k() {}\n")
    declared = {"fast": (tmp_path, ("k.cu",))}
    monkeypatch.setattr(sanitizer, "installed_kernels", lambda: declared)
    run = {
        "counts": {"passed": 9, "failed": 0},
        "partial": "",
        "kernels": {"k.cu": sha256(kernel)},
    }
    folder = tmp_path / "records"
    folder.mkdir()
    path = folder / "gpu.json"
    path.write_text(json.dumps({"format": 1, "runs": {"fast": run}}))
    return path, declared


def run(path, **reports):
    logs = []
    for tool, text in reports.items():
        log = path.parent.parent / f"{tool}.log"
        log.write_text(text)
        logs.append(f"{tool}={log}")
    return sanitizer.main([str(path), "fast", *logs])


def test_clean_reports_stand_in_the_record(record):
    path, declared = record
    assert run(path, memcheck=CLEAN) == 0
    assert run(path, racecheck=RACES.replace("2", "0")) == 0
    assert json.loads(path.read_text())["runs"]["fast"]["sanitizer"] == {
        "memcheck": 0,
        "racecheck": 0,
    }
    assert check_records(path.parent, declared) == []


def test_reports_of_one_tool_are_added_up(record):
    path, _ = record
    logs = []
    for n, text in enumerate((CLEAN, RACES, RACES)):
        logs.append(path.parent.parent / f"{n}.log")
        logs[-1].write_text(text)
    assert sanitizer.main([str(path), "fast", *(f"racecheck={log}" for log in logs)]) == 1
    assert json.loads(path.read_text())["runs"]["fast"]["sanitizer"] == {"racecheck": 4}


def with_outputs(path, *outputs):
    pairs = []
    for n, text in enumerate(outputs):
        log, out = (path.parent.parent / f"{n}.{kind}" for kind in ("log", "out"))
        log.write_text(CLEAN)
        out.write_text(text)
        pairs.append(f"memcheck={log},{out}")
    return sanitizer.main([str(path), "fast", *pairs])


def test_the_record_says_how_many_tests_a_tool_watched(record):
    path, _ = record
    part = "======= 61 passed, 1 skipped, 620 deselected in 66.8s ======="
    assert with_outputs(path, part, "==== 191 passed, 491 deselected in 62.1s (0:01:02) ====") == 0
    assert json.loads(path.read_text())["runs"]["fast"]["sanitizer_tests"] == {"memcheck": 252}
    assert run(path, memcheck=CLEAN) == 0  # of runs without their output it says nothing
    assert "sanitizer_tests" not in json.loads(path.read_text())["runs"]["fast"]


@pytest.mark.parametrize("output", ["", "===== 1 failed, 60 passed in 9.0s =====", "61 tests"])
def test_a_suite_that_did_not_pass_is_refused(record, output, capsys):
    path, _ = record
    before = path.read_text()
    assert with_outputs(path, output) == 2
    assert "did not pass" in capsys.readouterr().err
    assert path.read_text() == before


def test_a_finding_fails_the_record(record):
    path, declared = record
    assert run(path, racecheck=RACES) == 1
    (problem,) = check_records(path.parent, declared)
    assert "racecheck found 2" in problem


@pytest.mark.parametrize("report", ["", "========= COMPUTE-SANITIZER\n"])
def test_a_report_without_an_end_is_refused(record, report, capsys):
    path, _ = record
    before = path.read_text()
    assert run(path, memcheck=report) == 2
    assert "did not come to its end" in capsys.readouterr().err
    assert path.read_text() == before


def test_other_kernels_than_those_of_the_record_are_refused(record, capsys):
    path, declared = record
    (declared["fast"][0] / "k.cu").write_text("__global__ void k() { return; }\n")
    assert run(path, memcheck=CLEAN) == 2
    assert "other kernel sources" in capsys.readouterr().err
