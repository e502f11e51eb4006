"""The stage on a GPU, as the benchmarks page shows it: all backends' cells beside the baselines'.

Read is every file below a folder with whole searches of the stage; of several runs with as many
cells for one backend, the one that was committed last counts. The torch backend, which no stage
benchmark replays in a graph, has its cells from runs of the matrix.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamsieve_bench.catalogs import WORKLOADS
from beamsieve_bench.matrix_rows import Run

ROOT = Path(__file__).parents[2]
NAMES = {
    "workload": ("workload", "catalog", "name"),
    "batch": ("batch", "B"),
    "beams": ("beams", "M"),
    "sum": ("sum_ms", "sum"),
    "whole": ("whole_ms", "whole"),
    "score_first": ("static_ms", "static"),
    "unconstrained": ("unconstrained_ms", "unconstrained"),
}
GPU_BACKENDS = ("torch", "triton", "cupy")
DTYPES = {"bf16": "bfloat16", "fp32": "float32", "f32": "float32", "bf": "bfloat16"}

WHOLE = "stage"
"""The case of rows that are whole searches, where a file's rows say what they are of."""

Shape = tuple[str, int, int, str]


@dataclass(frozen=True)
class StageCells:
    """One run's cells of the stage: backend, its (last) file, and by shape what was measured."""

    backend: str
    path: Path
    cells: dict[Shape, dict[str, float]]


def stage_files(folder: Path) -> list[StageCells]:
    """All runs with whole searches of the stage, cells without a time left out."""
    found: dict[tuple[str, str], StageCells] = {}
    for path in sorted([*folder.rglob("*.json"), *folder.rglob("*.jsonl")]):
        place = str(path.relative_to(folder))
        backend = next((name for name in GPU_BACKENDS if name in place), "")
        cells: dict[Shape, dict[str, float]] = {}
        for row in rows_of(path):
            if row.get("case", WHOLE) != WHOLE:
                continue
            values = {name: _first(row, names) for name, names in NAMES.items()}
            if None in (values["workload"], values["batch"], values["beams"], values["whole"]):
                continue
            dtype = str(row.get("dtype", ""))
            shape = (
                str(values.pop("workload")).upper(),
                int(values.pop("batch")),
                int(values.pop("beams")),
                DTYPES.get(dtype, dtype),
            )
            cells[shape] = {name: value for name, value in values.items() if value is not None}
        if backend and cells:
            # A run may have a file for each catalog.
            run = (backend, re.sub(r"[Zz]\d", "", place))
            earlier = found.get(run)
            merged = cells if earlier is None else earlier.cells | cells
            found[run] = StageCells(backend, path, merged)
    return list(found.values())


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file: of JSON lines each, of JSON those of its list "cells"."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        whole = json.loads(text)
        values = whole.get("cells", []) if isinstance(whole, dict) else []
    yield from (value for value in values if isinstance(value, dict))


def _first(row: dict[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def latest(files: Sequence[StageCells]) -> dict[str, StageCells]:
    """Per backend, the file with the most cells; of equals the one that was committed last."""
    chosen: dict[str, StageCells] = {}
    for one in files:
        other = chosen.get(one.backend)
        if other is None or _rank(one) > _rank(other):
            chosen[one.backend] = one
    return chosen


def _rank(one: StageCells) -> tuple[int, float, str]:
    done = subprocess.run(
        ["git", "-C", str(one.path.parent), "log", "-1", "--format=%ct", "--", one.path.name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    when = float(done.stdout.strip() or one.path.stat().st_mtime)
    return len(one.cells), when, str(one.path)


def stage_table(files: Sequence[StageCells]) -> str:
    """The stage on an H200: every cell beside the score-first decode and the unconstrained one."""
    peers = {
        shape: values
        for one in files
        for shape, values in one.cells.items()
        if "score_first" in values
    }
    chosen = latest(files)
    shapes = [
        shape
        for shape in sorted(peers, key=_order)
        if any(shape in c.cells for c in chosen.values())
    ]
    if not shapes:
        return "No results are in the repository yet."
    names = sorted(chosen)
    head = ["catalog", "batch × beams", "dtype", "score-first", "unconstrained"]
    head += [cell for name in names for cell in (name, "times faster")]
    lines = [line(head), line(["---"] * 3 + ["---:"] * (len(head) - 3))]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for shape in shapes:
        workload, batch, beams, dtype = shape
        peer = peers[shape]
        cells = [
            workload,
            f"{batch} × {beams}",
            dtype,
            f"{peer['score_first']:.3f}",
            f"{peer['unconstrained']:.3f}",
        ]
        for name in names:
            whole = chosen[name].cells.get(shape, {}).get("whole")
            if whole is None:
                cells += ["–", ""]
                continue
            ratios[name].append(peer["score_first"] / whole)
            cells += [f"{whole:.3f}", _times(ratios[name][-1])]
        lines.append(line(cells))
    sums = "; ".join(
        f"{name} {_times(math.exp(sum(map(math.log, values)) / len(values)))} times (least "
        f"{_times(min(values))}, {len(values)} cells, `{name_of(chosen[name].path)}`)"
        for name, values in ratios.items()
        if values
    )
    return "\n".join([f"Geometric mean over the score-first decode: {sums}.", "", *lines])


def torch_cells(found: Sequence[tuple[Path, Run]]) -> list[StageCells]:
    """The torch backend's cells of the stage, as runs of the matrix on a GPU have them."""
    cells: list[StageCells] = []
    for path, run in found:
        whole = {
            (row.workload, row.batch, row.width, row.dtype): {"whole": row.p50}
            for row in run.rows
            if row.contestant.startswith("torch:cuda") and row.workload in WORKLOADS
            if row.normalize == "catalog" and row.share is None and row.hidden == 256
        }
        if whole:
            cells.append(StageCells("torch", path, whole))
    return cells


def name_of(path: Path) -> str:
    """A file's name from the repository's root."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _order(shape: Shape) -> tuple[str, str, int, int]:
    workload, batch, beams, dtype = shape
    return workload, dtype, batch, beams


def line(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2g}"
