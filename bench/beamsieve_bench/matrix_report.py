"""The report of a matrix: one HTML file with everything in it, and a picture for a talk.

python -m beamsieve_bench.matrix_report run.json report.html
python -m beamsieve_bench.matrix_report run.json matrix.png
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from beamsieve.errors import BeamsieveError, InputError
from beamsieve_bench.console import BAD_ARGUMENTS, OneLineParser, complain
from beamsieve_bench.matrix_rows import Row, Run

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --line: #5b6675; --faint: #d9dee6;
  --page: #fbfcfe; --card: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --line: #93a0b3; --faint: #2c3442;
  --page: #12161d; --card: #191f29; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.2rem 4rem; max-width: 68rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; }
p { max-width: 46rem; } svg { max-width: 100%; height: auto; display: block; }
figure { margin: .8rem 0; padding: .8rem; background: var(--card); border: 1px solid var(--faint);
  border-radius: 8px; overflow-x: auto; }
figcaption { font-size: .85rem; color: var(--line); margin-top: .4rem; }
table { border-collapse: collapse; font-size: .78rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .55rem; border-bottom: 1px solid var(--faint);
  white-space: nowrap; } td.n { text-align: right; }
code { font-size: .92em; } details { overflow-x: auto; margin: .6rem 0; }
summary { cursor: pointer; }
"""


MOST_BARS = 2
"""Cells that :func:`pictures` takes apart; the report has all."""


def report(run: Run) -> str:
    """The whole page."""
    figures = _figures()
    grid, swept, taken_apart = _grid(run), _swept(run), _taken_apart(run)
    parts = [_head(run)]
    if grid:
        parts.append(
            _section(
                "The matrix",
                "Median milliseconds of a search of the whole batch, and how many times faster it "
                "is than the score-first decode with a CSR trie: blue is faster, red is slower. "
                "A dash was not measured; why stands at the end.",
                [(figures.styled(figures.heat_map, grid), "")],
                figures.svg,
            )
        )
    if taken_apart:
        drawn = [
            (figures.styled(figures.step_bars, rows), _cell_name(cell))
            for cell, rows in taken_apart.items()
        ]
        parts.append(
            _section(
                "Where the time goes",
                "Filter, project and select of each step. A backend is taken apart into its two "
                "halves; the line is its step in one, which is what it runs. All these are plain "
                "calls: where a half waits for the device, as torch's and Triton's do, the host's "
                "time is in the bars and in the line, and more than in the matrix, whose times are "
                "replays.",
                drawn,
                figures.svg,
            )
        )
    if swept:
        parts.append(
            _section(
                "Scaling",
                "One thing varies, the rest stands still. The band is from p20 to p80; baselines "
                "are dashed.",
                [(figures.styled(figures.scaling, swept), "")],
                figures.svg,
            )
        )
    if any(row.index_bytes for row in grid):
        drawn = [(figures.styled(figures.index_bytes, grid), "")]
        parts.append(_section("Index size", "What lies on the device.", drawn, figures.svg))
    parts += [_variants(run), _table(run), _absent(run)]
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>beamsieve bench matrix</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def picture(run: Run, path: Path) -> None:
    """The matrix alone, on white, as SVG or PNG."""
    figures = _figures()
    grid = _grid(run) or [row for row in run.rows if row.share is None and _first(row)]
    figures.save(figures.styled(figures.heat_map, grid, paper=True), path)


def pictures(run: Run, folder: Path, name: str) -> None:
    """All of a run's figures on white: ``NAME.svg``, the matrix, and what :func:`more_pictures`
    lists."""
    figures = _figures()
    picture(run, folder / f"{name}.svg")
    for (ending, _), rows in zip(_bars(run), _taken_apart(run).values(), strict=False):
        figures.save(
            figures.styled(figures.step_bars, rows, paper=True), folder / f"{name}{ending}.svg"
        )
    if _swept(run):
        drawn = figures.styled(figures.scaling, _swept(run), paper=True)
        figures.save(drawn, folder / f"{name}-scaling.svg")


def more_pictures(run: Run) -> list[tuple[str, str]]:
    """Which figures a run has beside the matrix: the ending of the name, and what it shows."""
    scaling = "What one thing costs when it grows, the rest standing still; the band is p20 to p80"
    return [*_bars(run), *([("-scaling", scaling)] if _swept(run) else [])]


def _bars(run: Run) -> list[tuple[str, str]]:
    return [
        (f"-steps-{number}", f"Where the time goes: {_cell_name(cell)}")
        for number, cell in enumerate([*_taken_apart(run)][:MOST_BARS], 1)
    ]


def _cell_name(cell: tuple[Any, ...]) -> str:
    workload, dtype, batch, width = cell
    return f"{workload}, {dtype}, {batch} requests × {width} beams"


def _grid(run: Run) -> list[Row]:
    return [row for row in run.rows if "grid" in row.sweeps and row.share is None and _first(row)]


def _swept(run: Run) -> list[Row]:
    """Rows of the sweeps that are drawn over an axis."""
    return [
        row
        for row in run.rows
        if {"V", "N", "batch", "width"} & set(row.sweeps) and row.share is None and _first(row)
    ]


def _taken_apart(run: Run) -> dict[tuple[Any, ...], list[Row]]:
    """By cell, the rows that say where the time of a step goes."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in run.rows:
        if row.filter_ms or row.select_ms:
            found.setdefault(row.cell, []).append(row)
    return found


def _figures() -> Any:
    try:
        from beamsieve_bench import matrix_figures
    except ModuleNotFoundError as error:
        raise InputError(
            f"Reports need {error.name}, which is not installed; run: pip install "
            f"'beamsieve[bench]', or write JSON here and the report elsewhere with "
            f"'beamsieve bench report'."
        ) from error
    return matrix_figures


def _first(row: Row) -> bool:
    return row.normalize in ("catalog", "own")


def _head(run: Run) -> str:
    facts = ", ".join(f"{name} {escape(str(value))}" for name, value in run.machine.items())
    limits = ", ".join(
        f"{escape(name.replace('_per_s', '/s'))} {value:.3g}"
        for name, value in run.ceilings.items()
    )
    gate = "".join(
        f"<details><summary>{escape(name)} is right here</summary><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in lines)
        + "</ul></details>"
        for name, lines in run.gate.items()
    )
    return (
        f"<h1>Which backend, for which catalog?</h1>\n<p>{facts}.</p>\n"
        f"<p>Ceilings measured in the same run: {limits}.</p>\n{gate}"
    )


def _section(
    title: str, text: str, drawn: Sequence[tuple[Any, str]], svg: Callable[[Any], str]
) -> str:
    figures = "\n".join(
        f"<figure>{svg(figure)}"
        + (f"<figcaption>{escape(caption)}</figcaption>" if caption else "")
        + "</figure>"
        for figure, caption in drawn
    )
    return f"<h2>{title}</h2>\n<p>{text}</p>\n{figures}"


def _variants(run: Run) -> str:
    """Normalizers and targeting, which only the backends have."""
    rows = [row for row in run.rows if {"normalize", "share"} & set(row.sweeps)]
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td>{escape(row.contestant)}</td><td>{row.normalize}</td>"
        f'<td class="n">{"no targeting" if row.share is None else f"{row.share:.0%}"}</td>'
        f'<td class="n">{row.p50:.4g}</td><td class="n">{row.p20:.4g}</td>'
        f'<td class="n">{row.p80:.4g}</td></tr>'
        for row in rows
        if row.kind == "backend"
    )
    where = rows[0]
    return (
        f"<h2>Normalizers and targeting</h2>\n<p>{escape(where.workload)}, {where.batch} × "
        f"{where.width}, {where.dtype}; the part of the items that each request lets through.</p>\n"
        f"<figure><table><tr><th>backend</th><th>normalize</th><th>eligible</th><th>p50 ms</th>"
        f"<th>p20</th><th>p80</th></tr>{cells}</table></figure>"
    )


def _table(run: Run) -> str:
    names = ("contestant", "workload", "batch", "width", "dtype", "normalize", "share", "timed",
             "p20", "p50", "p80", "index_bytes", "flop_share", "bandwidth_share")  # fmt: skip
    lines = []
    for row in run.rows:
        values = [getattr(row, name) for name in names]
        cells = "".join(
            f'<td class="n">{value:,}</td>' if isinstance(value, int | float)
            else f"<td>{escape('' if value is None else str(value))}</td>"
            for value in values
        )  # fmt: skip
        lines.append(f"<tr>{cells}<td><code>{escape(row.reproduce)}</code></td></tr>")
    head = "".join(f"<th>{name}</th>" for name in (*names, "reproduce"))
    return (
        f"<h2>All rows</h2>\n<details><summary>{len(lines)} rows</summary>"
        f"<table><tr>{head}</tr>{''.join(lines)}</table></details>"
    )


def _absent(run: Run) -> str:
    if not run.absent:
        return ""
    lines = "".join(
        f"<li>{', '.join(escape(each[name]) for name in ('contestant', 'workload', 'reason'))}</li>"
        for each in run.absent
    )
    return (
        f"<h2>Not measured</h2>\n<details><summary>{len(run.absent)}</summary>"
        f"<ul>{lines}</ul></details>"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Turn a run into a page or a picture; 2 where the run cannot be read."""
    asked = OneLineParser(
        prog="beamsieve bench report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked.add_argument("run", type=Path, help="JSON of 'beamsieve bench matrix'")
    asked.add_argument("output", type=Path, help=".html, .svg or .png")
    asked.add_argument("--json", action="store_true", help="print what was written as JSON")
    options = asked.parse_args(arguments)
    if options.output.suffix not in (".html", ".svg", ".png"):
        asked.error(f"{options.output} must end in .html, .svg or .png")
    try:
        run = Run.read(options.run)
        if options.output.suffix == ".html":
            options.output.write_text(report(run), encoding="utf-8")
        else:
            picture(run, options.output)
    except BeamsieveError as error:
        complain(str(error))
        return BAD_ARGUMENTS
    if options.json:
        print(json.dumps({"written": str(options.output), "rows": len(run.rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
