"""The suite under compute-sanitizer, in parts: with a stand-in, which runs tests if asked."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beamsieve_conformance import records, runner, sanitizer, sanitizer_run

STAND_IN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
tool, log = (words[words.index(option) + 1] for option in ("--tool", "--log-file"))
start = words.index(sys.executable)
with open({calls!r}, "a") as calls:
    print(tool, *words[:start], os.environ.get("CUDA_LAUNCH_BLOCKING"), file=calls)
if os.environ.get("BREAKS") == tool:
    sys.exit("the tool broke")
if "--kernel-name" in words and "CONFUSED" in os.environ:
    with open(log, "w") as report:
        print("========= Internal Sanitizer Error: it failed", file=report)
        print("========= RACECHECK SUMMARY: 1 hazard displayed", file=report)
    sys.exit("= 1 failed =")
code = subprocess.run(words[start:]).returncode if "RUNS" in os.environ else print("= 1 passed =")
with open(log, "w") as report:
    kind = "RACECHECK" if tool == "racecheck" else "ERROR"
    found = int(os.environ.get("FINDS") == tool)
    print(f"========= {{kind}} SUMMARY: {{found}} found", file=report)
sys.exit(code)
"""
KEYWORD = "lower_parent_wins or a_bonus_lifts_live_beams"
"""Two tests of two modules."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the stand-in on the path; it writes here with what it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = tmp_path / "calls"
    program = folder / sanitizer_run.PROGRAM
    program.write_text(STAND_IN.format(python=sys.executable, calls=str(path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return path


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two tests are known, not asked for."""
    found = Counter(
        {
            "test_beams.py::test_a_bonus_lifts_live_beams_over_finished_ones": 1,
            "test_order.py::test_lower_parent_wins_though_its_token_is_higher": 1,
        }
    )
    monkeypatch.setattr(sanitizer_run, "functions_of", lambda suite: found)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of the reference."""
    path = tmp_path_factory.mktemp("records") / "here.json"
    assert runner.run("reference", quick=True, keyword=KEYWORD, record=path) == 0
    return path


@pytest.fixture
def record(recorded: Path, tmp_path: Path) -> Path:
    """One to be written to."""
    return Path(shutil.copy(recorded, tmp_path / "here.json"))


def watch(folder: Path, *more: str) -> int:
    """The command."""
    return sanitizer_run.main(
        ["reference", "--reports", str(folder / "reports"), "-k", KEYWORD, *more]
    )


def noted(record: Path) -> Any:
    return json.loads(record.read_text())["runs"]["reference"]


def test_a_part_s_tests_really_run(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNS", "1")
    assert watch(tmp_path, "--tool", "memcheck", "-k", "lower_parent_wins") == 0
    (output,) = (tmp_path / "reports").glob("*.out")
    assert "backend: reference" in output.read_text()


def test_a_tool_that_fails_beside_kernels_left_out_is_asked_again_with_all(
    listed: None, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer_run, "kernel_names", lambda folder, sources: ["kernel"])
    assert watch(tmp_path, "--tool", "racecheck") == 0
    assert [line.count("kns=kernel") for line in calls.read_text().splitlines()] == [1, 1]
    calls.unlink()
    shutil.rmtree(tmp_path / "reports")
    monkeypatch.setenv("CONFUSED", "1")
    assert watch(tmp_path, "--tool", "racecheck") == 0
    assert [line.count("kns=kernel") for line in calls.read_text().splitlines()] == [1, 0, 1, 0]


def test_every_part_runs_under_every_tool_and_the_record_says_so(
    listed: None, calls: Path, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(tmp_path, "--record", str(record), "--processes", "2") == 0
    assert noted(record)["sanitizer"] == dict.fromkeys(sorted(sanitizer_run.TOOLS), 0)
    assert noted(record)["sanitizer_tests"] == dict.fromkeys(sorted(sanitizer_run.TOOLS), 2)
    assert sorted(line.split()[0] for line in calls.read_text().splitlines()) == [
        *("initcheck",) * 2,
        *("memcheck",) * 2,
        *("racecheck",) * 2,
    ]
    # Launches wait for their ends where threads would else wait for one another.
    words = [line.split() for line in calls.read_text().splitlines()]
    waits = {line[0]: line[-1] for line in words}
    assert waits == {"initcheck": "None", "memcheck": "None", "racecheck": "1"}
    printed = capsys.readouterr().out
    assert "initcheck: 0 found in 2 tests\n" in printed
    assert "test_order.py::test_lower_parent_wins_though_its_token_is_higher: 1 passed" in printed
    # All is there: the same command only reads it.
    calls.unlink()
    assert watch(tmp_path) == 0
    assert not calls.exists()


def test_a_finding_fails_the_run_and_stands_in_the_record(
    calls: Path, listed: None, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FINDS", "racecheck")
    assert watch(tmp_path, "--record", str(record), "--tool", "racecheck") == 1
    assert noted(record)["sanitizer"] == {"racecheck": 2}


def test_the_suite_run_again_keeps_what_was_found_in_the_same_kernels(record: Path) -> None:
    sanitizer.note(record, "reference", {"memcheck": [("ERROR SUMMARY: 0", "= 2 passed =")]})
    assert runner.run("reference", quick=True, keyword=KEYWORD, record=record) == 0
    assert noted(record)["sanitizer"] == {"memcheck": 0}
    assert noted(record)["sanitizer_tests"] == {"memcheck": 2}
    known = json.loads(record.read_text())
    known["runs"]["reference"]["kernels"] = {"gone.cu": "0"}
    record.write_text(json.dumps(known))
    assert runner.run("reference", quick=True, keyword=KEYWORD, record=record) == 0
    assert "sanitizer" not in noted(record)


def test_what_did_not_end_is_said_and_the_same_command_goes_on(
    calls: Path,
    listed: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = ("--tool", "memcheck")
    assert watch(tmp_path, *one, "--seconds", "0") == 1
    assert "memcheck: 0 found in 0 tests; 2 parts are left" in capsys.readouterr().out
    assert not calls.exists()
    monkeypatch.setenv("BREAKS", "memcheck")
    assert watch(tmp_path, *one) == 1
    assert "did not end; see" in capsys.readouterr().out
    monkeypatch.delenv("BREAKS")
    assert watch(tmp_path, *one) == 0
    assert "memcheck: 0 found in 2 tests\n" in capsys.readouterr().out


def test_a_part_is_cut_when_the_time_is_up_with_all_that_runs_under_it(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = tmp_path / "alive"  # whoever reads it waits for the end of all that have it open
    os.mkfifo(alive)
    suite = f"import time\nwith open({str(alive)!r}, 'w'):\n    time.sleep(60)\n"
    (tmp_path / "bin" / sanitizer_run.PROGRAM).write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {suite!r}])\n"
    )
    part = sanitizer_run.Part("memcheck", ("test_order.py",), tmp_path / "memcheck.log")
    began = time.monotonic()
    cut = sanitizer_run.Runner((), (), began + 3)
    watching = threading.Thread(target=cut.run, args=([part], 1))
    watching.start()
    with open(alive) as pipe:
        assert pipe.read() == ""
    watching.join()
    assert time.monotonic() - began < 30


def test_only_a_backend_s_own_kernels_are_watched_for_races(tmp_path: Path) -> None:
    folder, sources = records.installed_kernels()["cupy"]
    names = sanitizer_run.kernel_names(folder, sources)
    assert {"filter_rows", "pool_tiles", "score_rows"} <= set(names)
    assert len(names) == len([name for name in sources if name.endswith(".cu")])


def test_reports_of_another_run_are_left_alone(
    calls: Path, listed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert watch(tmp_path, "--tool", "memcheck") == 2
    assert "name another folder" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--processes", "0"), "at least 1"),
        (("--device", "cuda:7"), "cuda:7"),
        (("-k", "no_such_test"), "No test of the suite"),
        (("--record", "no-such-record.json"), "holds no run of reference"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    calls: Path,
    tmp_path: Path,
    more: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert watch(tmp_path, *more) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not calls.exists()


def test_a_machine_without_the_tool_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert watch(tmp_path) == 2
    assert "compute-sanitizer is not on the path" in capsys.readouterr().err
