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
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beamsieve_bench.console import OneLineParser
from beamsieve_bench.matrix_contestants import SCORE_FIRST, UNCONSTRAINED
from beamsieve_bench.matrix_report import more_pictures, pictures
from beamsieve_bench.matrix_rows import Row, Run
from beamsieve_bench.pages_stage import (
    ROOT,
    line,
    name_of,
    rows_of,
    stage_files,
    stage_table,
    torch_cells,
)

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
WORTH_A_COLUMN = 4
"""Cells of the torch backend below which the stage's table has no column for it."""


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
    captured = {row.contestant for row in rows if row.timed == "graph"}
    head = [
        name if not captured or name in captured else f"{name}, without a graph" for name in names
    ]
    lines = [line(["cell", *head]), line(["---"] + ["---:"] * len(names))]
    for (workload, batch, width, dtype), found in by_cell.items():
        yard = found.get(SCORE_FIRST) or found.get(UNCONSTRAINED)
        cells = [f"`{workload}` {batch} × {width}, {dtype}"]
        for name in names:
            here = found.get(name)
            ratio = f" ({yard.p50 / here.p50:.2g} ×)" if here and yard and here is not yard else ""
            cells.append(f"{here.p50:.3g}{ratio}" if here else "–")
        lines.append(line(cells))
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
        + variants(run)
        + "".join(
            f"\n\n{shown}:\n\n![{shown}](figures/matrix-{path.stem}{ending}.svg)"
            for ending, shown in more_pictures(run)
        )
    )


def variants(run: Run) -> str:
    """Normalizers and targeting, which only backends have, as a table; empty without a sweep."""
    rows = [
        row
        for row in run.rows
        if row.kind == "backend" and {"normalize", "share"} & set(row.sweeps)
    ]
    if not rows:
        return ""
    names = list(dict.fromkeys(row.contestant for row in rows))
    times = {((row.normalize, row.share), row.contestant): row.p50 for row in rows}
    lines = [line(["normalize", "eligible", *names]), line(["---"] + ["---:"] * (len(names) + 1))]
    for normalize, share in dict.fromkeys(way for way, _ in times):
        found = [times.get(((normalize, share), name)) for name in names]
        eligible = "no targeting" if share is None else f"{share:.0%}"
        cells = ["–" if time is None else f"{time:.3g}" for time in found]
        lines.append(line([normalize, eligible, *cells]))
    one = rows[0]
    where = f"`{one.workload}` {one.batch} × {one.width}, {one.dtype}"
    return f"\n\nNormalizers, and targeting by bits, {where}:\n\n" + "\n".join(lines)


def torch_section(path: Path) -> str:
    """The stage benchmark of the torch backend on a GPU, in a sentence."""
    found = json.loads(path.read_text("utf-8"))
    ours, *others = found["times"]
    beside = "; ".join(f"{one['name']} {one['median']:.2f}" for one in others)
    return (
        f"The torch backend by `beamsieve bench stage`, host included, on {found['items']:,} "
        f"semantic IDs of {found['length']} levels, V {found['vocabulary']}, {found['batch']} × "
        f"{found['beams']} beams, {found['dtype']}, {found['device']}, commit {found['commit']}: "
        f"{ours['median']:.2f} ms (p20 {ours['p20']:.2f}, p80 {ours['p80']:.2f}); {beside}."
    )


def targeting_section(folder: Path) -> str:
    """What full targeting adds to a search on the GPU."""
    lines = [
        line(["file", "without", "bits alone", "all of it", "added", "matchers"]),
        line(["---"] + ["---:"] * 5),
    ]
    for path in sorted(folder.rglob("g1*.json")):
        found = json.loads(path.read_text("utf-8"))
        if "full_ms" not in found:
            continue
        lines.append(
            line(
                [
                    f"`{name_of(path)}`",
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
    lines = [line(head), line(["---"] + ["---:"] * 5)]
    for path in sorted(folder.rglob("index_size*.jsonl")):
        for row in rows_of(path):
            if row.get("case") != "bytes":
                continue
            peer = peers.get(row["catalog"])
            sizes = [row[f"{name}bytes_per_sid"] for name in ("", "plain_", "torch_")]
            cells = [row["catalog"], f"{row['sids']:,}", *(f"{size:.2f}" for size in sizes)]
            lines.append(line([*cells, "–" if peer is None else f"{peer:.2f}"]))
    return "\n".join(lines)


def runs() -> list[tuple[Path, Run]]:
    """The runs of the matrix that the repository holds."""
    found = [(path, Run.read(path)) for path in sorted((RESULTS / "matrix").glob("*.json"))]
    return sorted(found, key=lambda one: one[1].machine["device"] == "cpu")  # GPUs first


def page() -> str:
    """The whole page."""
    text = (Path(__file__).parent / "benchmarks_page.md").read_text("utf-8")
    torchs = [one for one in torch_cells(runs()) if len(one.cells) >= WORTH_A_COLUMN]
    sections = "\n\n".join(matrix_section(path, run) for path, run in runs())
    for marker, made in (
        ("{stage}", stage_table([*stage_files(RESULTS), *torchs])),
        ("{torch}", torch_section(RESULTS / "stage" / "torch-h200.json")),
        ("{matrix}", sections or "No run is in the repository yet."),
        ("{targeting}", targeting_section(RESULTS)),
        ("{index}", index_section(RESULTS)),
    ):
        text = text.replace(marker, made)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or with --check say whether it is up to date."""
    asked = OneLineParser(prog="python -m beamsieve_bench.pages", description=__doc__)
    asked.add_argument("--check", action="store_true", help="write nothing")
    options = asked.parse_args(arguments)
    made = page()
    if options.check:
        same = PAGE.read_text("utf-8") == made
        print(f"{PAGE.relative_to(ROOT)} is {'up to date' if same else 'not up to date'}")
        return 0 if same else 1
    PAGE.write_text(made, "utf-8")
    for path, run in runs():
        pictures(run, PAGE.parent / "figures", f"matrix-{path.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
