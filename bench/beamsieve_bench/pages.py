"""docs/benchmarks.md, from the results in the repository.

    python -m beamsieve_bench.pages            # writes docs/benchmarks.md and its pictures
    python -m beamsieve_bench.pages --check    # says whether they are up to date

Read are: ``bench/results/matrix/*.json`` (runs of ``beamsieve bench matrix``), every file below
``bench/results`` with cells of the stage on a GPU (of several files with as many cells for one
backend, the one that was committed last counts), every ``g1*.json`` and every
``index_size*.jsonl`` there.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamsieve_bench.matrix_contestants import SCORE_FIRST, UNCONSTRAINED
from beamsieve_bench.matrix_report import more_pictures, pictures
from beamsieve_bench.matrix_rows import Row, Run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
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
        for row in _rows(path):
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


def _rows(path: Path) -> Iterator[dict[str, Any]]:
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
    chosen = latest([one for one in files if one.backend != "torch"])
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
    lines = [_line(head), _line(["---"] * 3 + ["---:"] * (len(head) - 3))]
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
            cells += [f"{whole:.3f}", f"{ratios[name][-1]:.1f}"]
        lines.append(_line(cells))
    sums = "; ".join(
        f"{name} {math.exp(sum(map(math.log, values)) / len(values)):.1f} times (least "
        f"{min(values):.1f}, {len(values)} cells, `{_name(chosen[name].path)}`)"
        for name, values in ratios.items()
        if values
    )
    return "\n".join([f"Geometric mean over the score-first decode: {sums}.", "", *lines])


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _order(shape: Shape) -> tuple[str, str, int, int]:
    workload, batch, beams, dtype = shape
    return workload, dtype, batch, beams


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def matrix_section(path: Path, run: Run) -> str:
    """One run of the matrix: where, and its grid as a table."""
    machine = run.machine
    rows = [row for row in run.rows if "grid" in row.sweeps and row.share is None]
    rows = rows or run.rows
    names = list(dict.fromkeys(row.contestant for row in rows))
    by_cell: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.normalize in ("catalog", "own"):
            cell = (row.workload, row.batch, row.width, row.dtype)
            by_cell.setdefault(cell, {})[row.contestant] = row
    lines = [_line(["cell", *names]), _line(["---"] + ["---:"] * len(names))]
    for (workload, batch, width, dtype), found in by_cell.items():
        yard = found.get(SCORE_FIRST) or found.get(UNCONSTRAINED)
        cells = [f"`{workload}` {batch} × {width}, {dtype}"]
        for name in names:
            here = found.get(name)
            ratio = f" ({yard.p50 / here.p50:.2g} ×)" if here and yard and here is not yard else ""
            cells.append(f"{here.p50:.3g}{ratio}" if here else "–")
        lines.append(_line(cells))
    timed = sorted({row.timed for row in rows})
    example = next(row.reproduce for row in rows if row.kind == "backend")
    return (
        f"### {machine['device_name']}, `{path.name}`\n\n"
        f"Commit {machine['commit']}, torch {machine['torch']}, {machine['threads']} threads on "
        f"{machine['cores']} cores, load {machine['load']}; timed as {' and '.join(timed)}. "
        f"Median milliseconds of a search, and in brackets how many times faster than the "
        f"score-first decode. A dash was not measured. `beamsieve bench report "
        f"bench/results/matrix/{path.name} report.html` draws all of it; the first cell again:\n\n"
        f"```text\n{example}\n```\n\n"
        f"![The matrix of {path.stem}](figures/matrix-{path.stem}.svg)\n\n"
        + "\n".join(lines)
        + "".join(
            f"\n\n{shown}:\n\n![{shown}](figures/matrix-{path.stem}{ending}.svg)"
            for ending, shown in more_pictures(run)
        )
    )


def targeting_section(folder: Path) -> str:
    """What full targeting adds to a search on the GPU."""
    lines = [
        _line(["file", "without", "bits alone", "all of it", "added", "matchers"]),
        _line(["---"] + ["---:"] * 5),
    ]
    for path in sorted(folder.rglob("g1*.json")):
        found = json.loads(path.read_text("utf-8"))
        if "full_ms" not in found:
            continue
        lines.append(
            _line(
                [
                    f"`{_name(path)}`",
                    *(
                        f"{found[name]:.3f}"
                        for name in ("without_ms", "bits alone_ms", "full_ms", "added_ms")
                    ),
                    f"{found['matcher_bytes'] / 1e6:.1f} MB",
                ]
            )
        )
    return "\n".join(lines)


def index_section(folder: Path) -> str:
    """Bytes per semantic ID: of the index's tables, plain, on torch's device, and of a baseline."""
    peers = {
        row.workload: row.index_bytes / row.items
        for _, run in runs()
        for row in run.rows
        if row.contestant == SCORE_FIRST and row.index_bytes
    }
    head = ["catalog", "semantic IDs", "tables", "plain", "on torch's device", "score-first CSR"]
    lines = [_line(head), _line(["---"] + ["---:"] * 5)]
    for path in sorted(folder.rglob("index_size*.jsonl")):
        for row in _rows(path):
            if row.get("case") != "bytes":
                continue
            peer = peers.get(row["catalog"])
            sizes = [row[f"{name}bytes_per_sid"] for name in ("", "plain_", "torch_")]
            cells = [row["catalog"], f"{row['sids']:,}", *(f"{size:.2f}" for size in sizes)]
            lines.append(_line([*cells, "–" if peer is None else f"{peer:.2f}"]))
    return "\n".join(lines)


def runs() -> list[tuple[Path, Run]]:
    """The runs of the matrix that the repository holds."""
    return [(path, Run.read(path)) for path in sorted((RESULTS / "matrix").glob("*.json"))]


def page() -> str:
    """The whole page."""
    text = (Path(__file__).parent / "benchmarks_page.md").read_text("utf-8")
    sections = "\n\n".join(matrix_section(path, run) for path, run in runs())
    for marker, made in (
        ("{stage}", stage_table(stage_files(RESULTS))),
        ("{matrix}", sections or "No run is in the repository yet."),
        ("{targeting}", targeting_section(RESULTS)),
        ("{index}", index_section(RESULTS)),
    ):
        text = text.replace(marker, made)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or with --check say whether it is up to date."""
    made = page()
    if "--check" in (sys.argv[1:] if arguments is None else arguments):
        same = PAGE.read_text("utf-8") == made
        print(f"{PAGE.relative_to(ROOT)} is {'up to date' if same else 'not up to date'}")
        return 0 if same else 1
    PAGE.write_text(made, "utf-8")
    for path, run in runs():
        pictures(run, PAGE.parent / "figures", f"matrix-{path.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
