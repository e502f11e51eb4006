"""The ladder as a figure, and as the tables of its documentation page, from the JSON of its runs.

    python -m beamsieve_bench.wide_figure bench/results/wide docs/figures/wide-ladder.svg \\
        docs/wide-beams.md

Everything between ``<!-- ladder -->`` and ``<!-- end of ladder -->`` in the page is written anew;
so are ``aims``, ``counts``, ``sizes``, ``kernels`` and ``float8``.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from beamsieve_bench.wide_aims import aims_table
from beamsieve_bench.wide_counts import counts, counts_table
from beamsieve_bench.wide_workload import GRACE

PAPER = {
    "generic SDPA": (196.7, 197.7),
    "+ beam as query": (69.3, None),
    "+ coalesced self-attention": (20.3, None),
    "+ fused": (20.4, None),
    "+ paged": (17.8, 17.8),
    "+ dynamic widths": (15.5, 15.8),
    "catalog filter": (16.4, None),
    "bit targeting": (16.6, None),
    "Bloom targeting": (25.0, 27.3),
}
"""GRACE, Table 6: the decoder's P50 and P99 on a GH200, in milliseconds."""


@dataclass(frozen=True)
class Bar:
    """One row of the figure; milliseconds."""

    name: str
    p50: float
    p99: float
    mfu: float
    beams: str
    paper: tuple[float, float | None] | None
    replays: int = 0
    executed: float | None = None
    """``mfu`` of the operations that run and are not looked up."""
    paced: tuple[float, float] | None = None
    """P50 and P99 with a start every so many milliseconds."""
    settled: tuple[float, float, float] | None = None
    """P50, P99 and ``mfu`` of a queue that has settled."""


def bars_of(folder: Path) -> list[Bar]:
    """All rows that were measured, in the ladder's order.

    Raises:
        ValueError: no row at all.
    """
    bars = []
    for file in ("wide_ladder.json", "wide_engine.json"):
        path = folder / file
        if not path.exists():
            continue
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if "failed" in row:
                continue
            name = row["name"]
            shown = name if "backend" not in row else f"+ {name} ({row['backend']})"
            if row.get("products", "own") != "own":
                shown += ", float8"
            widths = "fixed" if row["widths"][0] == row["widths"][1] else "dynamic"
            slow, later = row.get("paced"), row.get("settled")
            paper = PAPER.get(name)
            bars.append(
                Bar(
                    shown, row["p50"], row["p99"], row["mfu"], widths, paper,
                    row["replays"], row.get("executed_mfu"),
                    (slow["p50"], slow["p99"]) if slow else None,
                    (later["p50"], later["p99"], later["mfu"]) if later else None,
                )
            )  # fmt: skip
    if not bars:
        raise ValueError(f"{folder} holds no measured row.")
    return bars


def figure(bars: Sequence[Bar]) -> str:
    """Bars of P50 on a logarithmic scale, a line to P99, a stroke at the P99 of a settled queue, a
    ring at GRACE's own figure."""
    left, width, height, top = 250, 430, 26, 34
    low, high = 8.0, max(220.0, *(bar.p99 for bar in bars))
    span = math.log(high / low)

    def x(value: float) -> float:
        return left + width * math.log(max(value, low) / low) / span

    bottom = top + height * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {bottom + 30}" '
        'role="img" font-family="system-ui, sans-serif" font-size="12">',
        "<title>Milliseconds of one decode, row by row</title>",
        "<style>text{fill:#334}.bar{fill:#3f51b5}.late{stroke:#9aa3dd;stroke-width:3}"
        ".still{stroke:#2b8a3e;stroke-width:2}.paper{fill:none;stroke:#d9480f;stroke-width:2}.grid{stroke:#99a;stroke-opacity:.35}"
        "@media(prefers-color-scheme:dark){text{fill:#dde}.bar{fill:#8c9eff}}</style>",
    ]
    parts += [
        f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 8}" y2="{bottom}"/>'
        f'<text x="{x(tick):.1f}" y="{top - 14}" text-anchor="middle">{tick}</text>'
        for tick in (10, 20, 50, 100, 200)
    ]
    for number, bar in enumerate(bars):
        y = top + number * height
        middle = y + height / 2
        parts.append(
            f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.name)}</text>'
            f'<rect class="bar" x="{left}" y="{y + 5}" width="{x(bar.p50) - left:.1f}" '
            f'height="{height - 10}" rx="2"/>'
            f'<line class="late" x1="{x(bar.p50):.1f}" x2="{x(bar.p99):.1f}" y1="{middle}" '
            f'y2="{middle}"/>'
        )
        if bar.settled:
            at = x(bar.settled[1])
            parts.append(
                f'<line class="still" x1="{at:.1f}" x2="{at:.1f}" y1="{y + 4}" '
                f'y2="{y + height - 4}"/>'
            )
        if bar.paper:
            parts.append(
                f'<circle class="paper" cx="{x(bar.paper[0]):.1f}" cy="{middle}" r="5"/>'
            )  # fmt: skip
        end = max(x(bar.p99), x(bar.paper[0]) if bar.paper else 0.0)
        parts.append(f'<text x="{end + 10:.1f}" y="{middle + 4}">{bar.p50:.1f}</text>')
    parts.append(
        f'<text x="{left}" y="{bottom + 20}">bar: P50, light line: to P99, ring: GRACE on a GH200; '
        "ms, logarithmic</text></svg>"
    )
    return "\n".join(parts) + "\n"


def ladder_table(bars: Sequence[Bar]) -> str:
    """The same as a table, with the settled and the paced runs where there are any."""
    later = any(bar.settled for bar in bars)
    slow = any(bar.paced for bar in bars)
    head = ["row", "beams", "replays", "P50 / P99, ms", "MFU", "executed"]
    head += ["settled", "its MFU"] * later + ["paced"] * slow + ["GRACE, GH200"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for bar in bars:
        cells = [bar.name, bar.beams, str(bar.replays), _both((bar.p50, bar.p99)), f"{bar.mfu:.1%}"]
        cells.append("" if bar.executed is None else f"{bar.executed:.1%}")
        if later:
            cells.append(_both(bar.settled))
            cells.append(f"{bar.settled[2]:.1%}" if bar.settled else "")
        if slow:
            cells.append(_both(bar.paced))
        if bar.paper is None:
            cells.append("")
        else:
            cells.append(f"{bar.paper[0]}" + (f" / {bar.paper[1]}" if bar.paper[1] else ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _both(times: tuple[float, ...] | None) -> str:
    return f"{times[0]:.2f} / {times[1]:.2f}" if times else ""


def sizes_table(folder: Path) -> str:
    """Milliseconds of batches through the captured sizes."""
    found: dict[str, Any] = json.loads(
        (folder / "wide_sizes_cupy.json").read_text(encoding="utf-8")
    )
    lines = ["| requests | P50, ms | P99, ms | P50 per request |", "| --- | --- | --- | --- |"]
    for requests, one in sorted(found["sizes"].items(), key=lambda item: int(item[0])):
        each = one["p50"] / int(requests)
        lines.append(f"| {requests} | {one['p50']:.2f} | {one['p99']:.2f} | {each:.2f} |")
    return "\n".join(lines)


def kernels_table(folder: Path) -> str:
    """Milliseconds of one layer's attention."""
    found: dict[str, Any] = json.loads((folder / "wide_kernels.json").read_text(encoding="utf-8"))
    lines = ["| cross-attention, one layer | ms |", "| --- | --- |"]
    for name, taken in sorted(found["context_ms"].items(), key=lambda one: -_number(one[1])):
        lines.append(f"| {name} | {'does not serve it' if taken != taken else f'{taken:.3f}'} |")
    tokens = list(next(iter(found["own_ms"].values())))
    lines += [
        "",
        f"| self-attention, one layer, ms | {' | '.join(tokens)} |",
        "| --- |" + " --- |" * len(tokens),
    ]
    for name, taken in found["own_ms"].items():
        lines.append(f"| {name} | {' | '.join(f'{taken[t]:.3f}' for t in tokens)} |")
    lines += ["", "| products of one layer, 16 384 rows | ms | TFLOP/s | float8 |"]
    lines.append("|" + " --- |" * 4)
    float8 = found.get("float8_products")
    for name, one in found["products"].items():
        other = f"{float8[name]['ms']:.3f} ms" if isinstance(float8, dict) else "not measured"
        rate = f"{one['tflops']:.0f}" if one["tflops"] else ""
        lines.append(f"| {name} | {one['ms']:.3f} | {rate} | {other} |")
    return "\n".join(lines)


def float8_table(folder: Path) -> str:
    """What float8 changes in a trained model's answers."""
    found: dict[str, Any] = json.loads((folder / "wide_float8.json").read_text(encoding="utf-8"))
    lines = ["| compared | first 1 | first 10 | first 50 |", "| --- | --- | --- | --- |"]
    pairs = sorted({name.rpartition(", ")[0] for name in found["overlap"]})
    for pair in pairs:
        shares = [found["overlap"][f"{pair}, first {k}"] for k in (1, 10, 50)]
        lines.append(f"| {pair} | " + " | ".join(f"{share:.4f}" for share in shares) + " |")
    recalls = ", ".join(f"{name} {value:.4f}" for name, value in found["recall_at_10"].items())
    where = "their law in PyTorch on a CPU" if found["device"] == "cpu" else "the GPU's own"
    said = f"Recall@10 over {found['rows']} histories: {recalls}. Float8 products: {where}."
    return "\n".join([*lines, "", said])


def _number(value: float) -> float:
    return -1.0 if value != value else value


def rewritten(page: str, name: str, text: str) -> str:
    """The page with a part of that name written anew.

    Raises:
        ValueError: the page has no such part.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"The page has no part between '{begin}' and '{end}'.")
    before, _, rest = page.partition(begin)
    return before + begin + "\n" + text + "\n" + end + rest.partition(end)[2]


def main(arguments: list[str] | None = None) -> int:
    """Write the figure and the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args(arguments)
    bars = bars_of(given.results)
    given.figure.write_text(figure(bars), encoding="utf-8")
    page = rewritten(given.page.read_text(encoding="utf-8"), "ladder", ladder_table(bars))
    page = rewritten(page, "aims", aims_table(given.results))
    page = rewritten(page, "counts", counts_table(counts(GRACE, GRACE.dynamic)))
    for name, table, file in (
        ("sizes", sizes_table, "wide_sizes_cupy.json"),
        ("kernels", kernels_table, "wide_kernels.json"),
        ("float8", float8_table, "wide_float8.json"),
    ):
        if (given.results / file).exists():
            page = rewritten(page, name, table(given.results))
    given.page.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
