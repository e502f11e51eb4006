"""The matrix on tiny catalogs: what is measured, what is refused, and what is written."""

from __future__ import annotations

import csv
import json
import shlex
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import beamsieve as bs
from beamsieve.errors import BackendError
from beamsieve_bench import matrix, matrix_gate, matrix_measure, matrix_report
from beamsieve_bench.gate import GateError
from beamsieve_bench.matrix_cells import QUICK, cells
from beamsieve_bench.matrix_contestants import draw_inputs
from beamsieve_bench.matrix_gate import check_not_fallen_back
from beamsieve_bench.matrix_rows import Run
from beamsieve_bench.matrix_work import least_work
from beamsieve_conformance.subject import Subject

RECORDED = Path(__file__).parents[2] / "bench/results/matrix/cpu-flashrec.json"
TINY = (
    "--quick --workloads skewed:300x16x3 --batches 2 --widths 4 --hidden 8 --rounds 3 --budget 0.05"
)


@pytest.fixture
def suite(monkeypatch):
    """The conformance suite, which tests of its own prove: here it passes at once."""
    asked: list[str] = []

    def passes(config: str, *rest: Any) -> tuple[int, str]:
        asked.append(config)
        return 0, "== 1 passed ==\n"

    monkeypatch.setattr(matrix_gate, "run_suite", passes)
    return asked


def run(arguments: str, *more: str) -> int:
    return matrix.main([*arguments.split(), *more])


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr, with nothing on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_every_contestant_of_a_cell_has_a_row_of_the_same_shape(suite, tmp_path, capsys):
    path = tmp_path / "run.json"
    assert run(TINY, "--output", str(path)) == 0
    assert suite == ["torch:cpu"]
    found = Run.read(path)
    names = [row.contestant for row in found.rows]
    assert names[:4] == ["torch:cpu", "unconstrained", "score-first CSR", "naive selective"]
    for row in found.rows:
        assert 0 < row.p20 <= row.p50 <= row.p80
        assert (row.items, row.vocabulary, row.length) == (300, 16, 3)
        assert row.flops > 0
        assert row.bytes_moved > 0
        assert row.timed == "calls"
        assert len(row.filter_ms) == len(row.project_ms) == len(row.select_ms) == 3
    ours = found.rows[0]
    assert ours.contestant == ours.asked
    assert len(ours.step_ms) == 3
    assert ours.index_bytes
    assert {"commit", "torch", "numpy", "device_name"} <= found.machine.keys()
    assert any("1 passed" in line for line in found.gate["torch:cpu"])
    assert any("semantic IDs equal" in line for line in found.gate["torch:cpu"])
    shown = capsys.readouterr().out
    assert "torch:cpu" in shown
    assert "prefix function" in shown


def test_the_line_of_a_row_measures_that_row_again(suite, tmp_path):
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    assert run(TINY, "--output", str(first), "--shares", "0.1") == 0
    row = Run.read(first).rows[0]
    words = shlex.split(row.reproduce)
    assert words[:3] == ["beamsieve", "bench", "matrix"]
    assert matrix.main([*words[3:], "--output", str(again)]) == 0
    assert [other.key for other in Run.read(again).rows] == [row.key]


def test_processor_time_can_be_counted_in_place_of_wall_time(suite, tmp_path):
    path = tmp_path / "run.json"
    words = ("--clock", "processor", "--threads", "1", "--output", str(path))
    assert run(TINY, *words) == 0
    rows = Run.read(path).rows
    assert {row.timed for row in rows} == {"processor"}
    assert all("--threads 1 --clock processor" in row.reproduce for row in rows)


def test_the_table_is_tidy(suite, tmp_path):
    path = tmp_path / "run.csv"
    assert run(TINY, "--output", str(path), "--normalizers", "catalog,all") == 0
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["normalize"] for row in rows} == {"catalog", "all", "own"}
    assert all(row["commit"] and row["device_name"] and row["reproduce"] for row in rows)
    assert all(float(row["p20"]) <= float(row["p50"]) <= float(row["p80"]) for row in rows)


def test_the_report_is_one_file_that_loads_nothing(suite, tmp_path):
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "report.html", tmp_path / "matrix.png"
    both = ("--output", str(path), "--output", str(picture))
    assert run(TINY, *both, "--sweeps", "normalize", "--without", "prefix function") == 0
    page = path.read_text("utf-8")
    for part in ("<svg", "prefers-color-scheme: dark", "Where the time goes", "beamsieve bench"):
        assert part in page
    for reference in ('src="', "<link", "url(http", "@import"):
        assert reference not in page
    assert "#010203" not in page  # markers have become variables
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_report_without_what_draws_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "beamsieve_bench.matrix_figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delattr("beamsieve_bench.matrix_figures", raising=False)
    assert matrix_report.main([str(RECORDED), str(tmp_path / "report.html")]) == 2
    assert "pip install 'beamsieve[bench]'" in complaint(capsys)


def test_a_report_says_what_was_written_as_json(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / "report.html"
    assert matrix_report.main([str(RECORDED), str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"written": str(path), "rows": len(Run.read(RECORDED).rows)}
    assert path.exists()


def test_equal_runs_give_equal_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    run = Run.read(RECORDED)
    pictures = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in pictures:
        matrix_report.picture(run, path)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_red_suite_refuses(monkeypatch, capsys):
    def fails(config: str, *rest: Any) -> tuple[int, str]:
        return 1, "FAILED suite/test_step.py::test_order - 1 != 2"

    monkeypatch.setattr(matrix_gate, "run_suite", fails)
    assert run(TINY) == 1
    assert "test_order" in complaint(capsys)


def test_with_keep_going_only_the_right_ones_are_measured(monkeypatch, tmp_path):
    def reference_fails(config: str, *rest: Any) -> tuple[int, str]:
        return int(config == "reference:cpu"), "FAILED suite/test_step.py::test_order"

    monkeypatch.setattr(matrix_gate, "run_suite", reference_fails)
    path = tmp_path / "run.json"
    words = ("--backends", "torch,reference", "--output", str(path))
    assert run(TINY, *words) == 1
    assert not path.exists()
    assert run(TINY, *words, "--keep-going") == 1
    found = Run.read(path)
    assert {row.contestant for row in found.rows if row.kind == "backend"} == {"torch:cpu"}
    assert any(each["contestant"] == "reference:cpu" for each in found.absent)


def test_with_keep_going_a_cell_that_breaks_costs_itself_alone(suite, monkeypatch, tmp_path):
    real = draw_inputs

    def breaks(source: Any, cell: Any, *rest: Any) -> Any:
        if cell.batch == 2:
            raise RuntimeError("no room on the device")
        return real(source, cell, *rest)

    monkeypatch.setattr(matrix_measure, "draw_inputs", breaks)
    path = tmp_path / "run.json"
    words = f"{TINY.replace('--batches 2', '--batches 1,2')} --keep-going --output"
    assert run(words, str(path)) == 1
    found = Run.read(path)
    assert {row.batch for row in found.rows} == {1}
    assert any("no room on the device" in each["reason"] for each in found.absent)


def test_a_run_that_is_broken_off_leaves_what_it_had(suite, monkeypatch, tmp_path):
    real = matrix_measure.measure_catalog

    def stopped(source: Any, *rest: Any) -> Any:
        if source.name.startswith("uniform"):
            raise KeyboardInterrupt
        return real(source, *rest)

    monkeypatch.setattr(matrix, "measure_catalog", stopped)
    path = tmp_path / "run.json"
    two = TINY.replace("skewed:300x16x3", "skewed:300x16x3,uniform:300x16x3")
    with pytest.raises(KeyboardInterrupt):
        run(two, "--output", str(path))
    assert {row.workload for row in Run.read(path).rows} == {"skewed:300x16x3"}


def test_a_suite_that_does_not_end_in_time_is_not_green(monkeypatch):
    monkeypatch.setattr(matrix_gate, "_SUITE", "import time; time.sleep(60)")
    code, report = matrix_gate.run_suite("reference", 0.5, 1, Event())
    assert code == 124
    assert "not through" in report


def test_a_run_that_is_broken_off_does_not_wait_for_its_suites(monkeypatch):
    real = Subject.open
    monkeypatch.setattr(matrix_gate, "_SUITE", "import time; time.sleep(60)")

    def interrupted(config: str) -> Any:
        if config == "torch:cpu":
            time.sleep(0.3)  # the other suite has begun
            raise KeyboardInterrupt
        return real(config)

    monkeypatch.setattr(Subject, "open", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        matrix_gate.passed_the_suite(["torch:cpu", "reference:cpu"], [], 2, 300.0)
    assert time.monotonic() - began < 30


def test_the_suite_itself_is_what_is_run(monkeypatch):
    monkeypatch.setattr(
        matrix_gate, "_SUITE", matrix_gate._SUITE.replace("True", "True, keyword='test_prefix'")
    )
    code, report = matrix_gate.run_suite("reference", 300.0, 1, Event())
    assert code == 0
    assert " passed" in report
    assert matrix_gate.run_suite("nothing", 300.0, 1, Event())[0] == 2


def test_what_is_kept_is_taken_again_by_the_same_code_alone(suite, tmp_path, monkeypatch):
    kept = ("--keep", str(tmp_path / "kept"))
    assert run(f"{TINY} --limit 0", *kept) == 1
    made = sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file())
    assert made == [".gate", ".json", ".npy", ".safetensors"]
    assert run(TINY, *kept) == 0
    assert suite == ["torch:cpu"]  # once
    package = tmp_path / "package"
    package.mkdir()
    (package / "changed.py").write_text("changed = True")
    monkeypatch.setattr("beamsieve_bench.matrix_sources.package_folder", lambda name: package)
    assert run(TINY, *kept) == 0
    assert suite == ["torch:cpu"] * 2


def test_after_the_limit_no_cell_begins(suite, capsys):
    assert run(f"{TINY} --limit 0") == 1
    assert "--limit" in complaint(capsys)


def test_results_that_a_baseline_does_not_share_refuse(suite, monkeypatch, capsys):
    def other(*given: Any) -> str:
        raise GateError("Semantic IDs differ from the baseline's.")

    monkeypatch.setattr(matrix_gate, "agrees_with_baseline", other)
    assert run(TINY) == 1
    assert "differ" in complaint(capsys)


def test_nothing_measured_is_a_failure(suite, capsys):
    assert run(TINY, "--shares", "0.5") == 1
    assert "no targeting share 0.5" in complaint(capsys)


@pytest.mark.parametrize(
    ("asked", "answered", "device"),
    [("torch:cpu", "reference:cpu", "cpu"), ("torch:cuda", "torch:cpu", "cpu")],
)
def test_a_backend_that_fell_back_is_not_measured(asked, answered, device):
    with pytest.raises(BackendError, match="nothing is measured"):
        check_not_fallen_back(asked, answered, device)


def test_the_engine_of_a_cell_is_compared_with_what_was_asked_for(suite, monkeypatch, capsys):
    real = bs.Engine

    def other(index: bs.Index, backend: str, normalize: Any = "catalog") -> bs.Engine:
        return real(index, "reference" if index.leaf_count == 300 else backend, normalize)

    monkeypatch.setattr(bs, "Engine", other)
    assert run(TINY) == 2
    assert "nothing is measured" in complaint(capsys)


def test_auto_is_refused(capsys):
    assert run(f"{TINY} --backends auto") == 2
    assert "auto is no backend to measure" in complaint(capsys)


def test_an_index_of_the_users_own_with_short_semantic_ids(suite, tmp_path):
    index = tmp_path / "own.safetensors"
    bs.Index.build(bs.Catalog.from_arrays([[0, 1, 2], [0, 2, -1], [3, 0, 0]], codebooks=4)).save(
        index
    )
    out = tmp_path / "run.json"
    words = [
        "--quick",
        "--workloads",
        str(index),
        "--batches",
        "1",
        "--widths",
        "2",
        "--rounds",
        "1",
    ]
    assert matrix.main([*words, "--hidden", "4", "--output", str(out)]) == 0
    found = Run.read(out)
    assert [row.contestant for row in found.rows] == ["torch:cpu"]
    assert "one length" in found.absent[0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--workloads nowhere.json", "no workload 'nowhere.json'"),
        ("--workloads real:Nothing", "no workload 'real:Nothing'"),
        ("--workloads skewed:9x1x1", "at least 1 semantic ID of 2 levels"),
        ("--workloads skewed:100000000000000x30000x4", "100,000,000,000,000 semantic IDs are more"),
        ("--workloads uniform:9x3000000x2", "3,000,000 tokens a level are above the 1,048,576"),
        ("--workloads hub:9x8192x5", "not below 2**63"),
        ("--workloads hub:9x2x999999999999", "not below 2**63"),
        ("--backends nothing", "nothing"),
    ],
)
def test_what_is_not_there_is_a_bad_argument(suite, arguments, says, capsys):
    assert run(arguments) == 2
    assert says in complaint(capsys)
    assert not suite  # which takes a minute, is not waited for


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--batches 0", "--batches"),
        ("--widths many", "--widths"),
        ("--dtypes int8", "'int8' is none of"),
        ("--normalizers some", "'some' is none of"),
        ("--sweeps age", "'age' is none of"),
        ("--shares few", "'few' is no number"),
        ("--shares nan", "nan is no part"),
        ("--shares 2", "2 is no part"),
        ("--without magic", "'magic' is none of"),
        ("--rounds 0", "--rounds is 0"),
        ("--device tpu", "--device is 'tpu'"),
        ("--clock processor --threads 2", "--clock processor is for"),
        ("--output run.xls", "must end in one of"),
        ("--output nowhere/run.json", "the folder nowhere does not exist"),
    ],
)
def test_bad_options_are_one_line(arguments, says, capsys):
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert says in complaint(capsys)


def test_a_sweep_varies_one_thing_and_shared_cells_are_measured_once():
    found = cells(["w"], [1, 8], [4], ["float32"], ["catalog"], [None], ["batch", "width"], QUICK)
    assert [(cell.batch, cell.width) for cell in found if "grid" in cell.sweep] == [(1, 4), (8, 4)]
    swept = [cell for cell in found if cell.workload != "w"]
    middle = [cell for cell in swept if cell.sweep == "batch+width"]
    assert [(cell.batch, cell.width) for cell in middle] == [QUICK.middle]
    assert len(swept) == len(QUICK.batch_sweep) + len(QUICK.width_sweep) - 1


def test_the_least_work_of_a_full_and_of_a_selective_step():
    (cell,) = cells(["w"], [2], [3], ["float32"], ["catalog"], [None], [], QUICK)
    full, _ = least_work(cell, [8, 8], 5, [4, 10], [True, True], True)
    assert full == 2 * 5 * (2 * 8 + 2 * 3 * 8)
    selective, moved = least_work(cell, [8, 8], 5, [4, 10], [False, False], False)
    assert selective == 2 * 5 * (4 + 10)
    head_and_hidden = ((2 + 4) + (6 + 8)) * 5 * 4
    assert moved == head_and_hidden + 1 + 3 + 2 * (2 * 3 * 32)


def test_a_run_of_another_format_or_without_rows_is_refused(tmp_path):
    path = tmp_path / "run.json"
    for content in ("[]", "{}", "[" * 100_000, json.dumps({"format": 99})):
        path.write_text(content, "utf-8")
        with pytest.raises(bs.InputError, match="no run of 'beamsieve bench matrix'"):
            Run.read(path)
    empty = {"format": 1, "machine": {}, "ceilings": {}, "gate": {}, "rows": [], "absent": []}
    path.write_text(json.dumps(empty), "utf-8")
    with pytest.raises(bs.InputError, match="has no rows"):
        Run.read(Path(path))


def test_a_run_that_is_not_there_is_not_called_another_format(tmp_path):
    with pytest.raises(bs.InputError, match=r"missing\.json cannot be read: No such file"):
        Run.read(tmp_path / "missing.json")
