"""The benchmarks page: what it reads of result files, and which of several it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from beamsieve_bench import pages, pages_stage
from beamsieve_bench.matrix_rows import Run

CELL = {"B": 1, "M": 128, "dtype": "bfloat16"}


def test_help_writes_nothing(monkeypatch):
    monkeypatch.setattr(pages, "page", lambda: pytest.fail("made a page"))
    with pytest.raises(SystemExit) as ended:
        pages.main(["--help"])
    assert ended.value.code == 0


def test_cells_of_any_stage_file_are_found(tmp_path):
    for name in ("h200-triton", "cupy", "targeting"):
        (tmp_path / name).mkdir()
    lines = [
        {"name": "z1", **CELL, "sum": 0.2, "whole": 0.1},
        {"case": "stage", "catalog": "Z2", "batch": 8, "beams": 128, "dtype": "float32",
         "whole_ms": 0.3, "sum_ms": 0.4, "unconstrained_ms": 0.9},
        {"profile": "z1", **CELL, "kernels": []},
        {"case": "full steps", "catalog": "Z1", **CELL, "whole_ms": 0.01},  # a part of a search
        {"case": "stage", "catalog": "Z3", **CELL, "failed": "scores differ"},
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "h200-triton" / "run.jsonl").write_text(text, "utf-8")
    cells = [{"workload": "Z1", **CELL, "whole_ms": 0.05, "static": 0.5, "unconstrained": 0.4}]
    (tmp_path / "cupy" / "stage.json").write_text(json.dumps({"cells": cells}), "utf-8")
    (tmp_path / "targeting" / "sweep.json").write_text("[]", "utf-8")
    found = {one.backend: one for one in pages_stage.stage_files(tmp_path)}
    assert found.keys() == {"triton", "cupy"}
    assert found["triton"].cells.keys() == {
        ("Z1", 1, 128, "bfloat16"),
        ("Z2", 8, 128, "float32"),
    }
    table = pages_stage.stage_table(list(found.values()))
    assert "cupy 10.0 times" in table
    assert "triton 5.0 times" in table
    assert "| Z1 | 1 × 128 | bfloat16 | 0.500 | 0.400 | 0.050 | 10.0 | 0.100 | 5.0 |" in table


def test_of_two_files_the_one_with_more_cells_counts(tmp_path):
    cell = {"workload": "Z1", **CELL, "whole_ms": 0.05}
    (tmp_path / "cupy-a.json").write_text(json.dumps({"cells": [cell, cell | {"B": 8}]}), "utf-8")
    (tmp_path / "cupy-b.json").write_text(json.dumps({"cells": [cell]}), "utf-8")
    chosen = pages_stage.latest(pages_stage.stage_files(tmp_path))
    assert chosen["cupy"].path.name == "cupy-a.json"


def test_a_run_with_a_file_for_each_catalog_is_one(tmp_path):
    for name in ("Z1", "Z2"):
        cell = {"name": name, **CELL, "whole_ms": 0.05}
        (tmp_path / f"cupy-{name}.jsonl").write_text(json.dumps(cell), "utf-8")
    (run,) = pages_stage.stage_files(tmp_path)
    assert [shape[0] for shape in run.cells] == ["Z1", "Z2"]


def test_the_torch_backend_has_its_cells_from_runs_of_the_matrix(tmp_path):
    recorded = pages_stage.ROOT / "bench/results/matrix/cpu-flashrec.json"
    run = Run.read(recorded)
    assert pages_stage.torch_cells([(recorded, run)]) == []  # not on a GPU
    ours = next(row for row in run.rows if row.kind == "backend")
    shape: dict[str, Any] = {
        "workload": "Z1",
        "batch": 1,
        "width": 128,
        "dtype": "bfloat16",
        "hidden": 256,
    }
    there = replace(ours, contestant="torch:cuda:0", p50=2.0, **shape)
    changes: list[dict[str, Any]] = [
        {},
        {"share": 0.1},
        {"normalize": "all"},
        {"workload": "skewed:9x9x3"},
    ]
    for changed in changes:
        run.rows.append(replace(there, **{**changed, "p50": 2.0 + len(changed)}))
    (found,) = pages_stage.torch_cells([(tmp_path / "h200.json", run)])
    assert found.cells == {("Z1", 1, 128, "bfloat16"): {"whole": 2.0}}


def test_without_results_the_table_says_so():
    assert "No results" in pages_stage.stage_table([])


def test_the_page_of_the_repository_can_be_made():
    made = pages.page()
    assert "{stage}" not in made
    assert "Geometric mean" in made
