"""The figures of the report: Matplotlib draws them, as SVG that follows the page's colours.

Text and lines are drawn in marker colours that no data uses; in the SVG these become CSS variables,
so that one drawing serves light and dark pages.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator

from beamsieve_bench.matrix_contestants import BASELINES, SCORE_FIRST, UNCONSTRAINED
from beamsieve_bench.matrix_rows import Row

INK, LINE, FAINT = "#010203", "#010204", "#010205"
CSS = {INK: "var(--ink)", LINE: "var(--line)", FAINT: "var(--faint)"}
ON_PAPER = {INK: "#1d2430", LINE: "#5b6675", FAINT: "#d9dee6"}
PHASE_COLORS = {"filter": "#2a78d6", "project": "#e8a33d", "select": "#c2527a"}
COLORS = {
    "torch": "#2a78d6",
    "triton": "#e8590c",
    "cupy": "#1a9e6c",
    "reference": "#8e5cc7",
    UNCONSTRAINED: "#8a929e",
    SCORE_FIRST: "#c2255c",
    "naive selective": "#a67c00",
    "prefix function": "#5d7f95",
    "flashrec trie": "#7d6b5d",
}
MARKERS: dict[str, str] = dict(zip(BASELINES, "sDv^P", strict=True))
STYLE: Any = {  # Matplotlib types its keys one by one
    "svg.fonttype": "none",
    "svg.hashsalt": "beamsieve",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


def styled(draw: Callable[..., Figure], *arguments: Any, paper: bool = False) -> Figure:
    """``draw`` under the common style; on paper with real colours in place of markers."""
    style: Any = dict(STYLE)
    if paper:
        style = {key: ON_PAPER.get(value, value) for key, value in style.items()}
        style |= {"savefig.facecolor": "white", "figure.facecolor": "white"}
    with mpl.rc_context(style):
        return draw(*arguments)


def svg(figure: Figure) -> str:
    """An inline SVG element whose text and lines follow the page."""
    with mpl.rc_context(STYLE):
        written = io.BytesIO()
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = written.getvalue().decode()
    text = text[text.index("<svg") :]
    for marker, variable in CSS.items():
        text = text.replace(marker, variable)
    return text


def save(figure: Figure, path: Path) -> None:
    """Write a figure on white, as its name ends; equal figures give equal bytes."""
    with mpl.rc_context(STYLE | {"savefig.facecolor": "white"}):
        figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)


def color(contestant: str) -> str:
    """A contestant's colour, the same in every figure."""
    return COLORS.get(contestant, COLORS.get(contestant.partition(":")[0], "#444b57"))


def by_contestant(rows: Sequence[Row]) -> list[str]:
    """Backends first, then baselines in their own order."""
    names = dict.fromkeys(row.contestant for row in rows)
    backends = [name for name in names if name not in BASELINES]
    return [*backends, *(name for name in BASELINES if name in names)]


def heat_map(rows: Sequence[Row]) -> Figure:
    """Milliseconds of every contestant in every cell, coloured by how they stand to score-first."""
    names = by_contestant(rows)
    shapes = list(dict.fromkeys(row.cell for row in rows))
    times = {(row.cell, row.contestant): row.p50 for row in rows}
    figure = Figure(
        figsize=(2.6 + 1.15 * len(names), 1.1 + 0.27 * len(shapes)), layout="constrained"
    )
    axes = figure.add_subplot()
    norm = TwoSlopeNorm(0.0, -4.0, 4.0)
    colors = mpl.colormaps["RdBu"]
    for y, cell in enumerate(shapes):
        yard = times.get((cell, SCORE_FIRST), times.get((cell, UNCONSTRAINED)))
        for x, name in enumerate(names):
            taken = times.get((cell, name))
            if taken is None:
                axes.text(x, y, "–", ha="center", va="center")
                continue
            ratio = 1.0 if yard is None else yard / taken
            fill = colors(norm(max(-4.0, min(4.0, math.log2(ratio)))))
            axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=fill))
            bright = 0.3 * fill[0] + 0.59 * fill[1] + 0.11 * fill[2] > 0.55
            text = f"{taken:.3g} ms" if yard is None else f"{taken:.3g} ms  {ratio:.2g}×"
            axes.text(x, y, text, ha="center", va="center", fontsize=7.5,
                      color="#10141b" if bright else "#ffffff")  # fmt: skip
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(shapes) - 0.5, -0.5)
    axes.set_xticks(range(len(names)), names)
    axes.xaxis.tick_top()
    axes.set_yticks(
        range(len(shapes)),
        [f"{workload} {dtype} {batch}×{width}" for workload, dtype, batch, width in shapes],
        fontsize=8,
    )
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def step_bars(rows: Sequence[Row]) -> Figure:
    """Filter, project and select of every step, side by side for the contestants of one cell."""
    names = by_contestant(rows)
    found = {row.contestant: row for row in rows}
    steps = rows[0].length
    figure = Figure(figsize=(2.2 + 1.7 * steps, 2.7), layout="constrained")
    panels = figure.subplots(1, steps, squeeze=False)[0]
    for step, axes in enumerate(panels):
        for place, name in enumerate(names):
            row, base = found[name], 0.0
            for phase, fill in PHASE_COLORS.items():
                height = getattr(row, f"{phase}_ms")[step]
                axes.barh(place, height, left=base, color=fill, height=0.7)
                base += height
            if row.step_ms:
                axes.plot([row.step_ms[step]] * 2, [place - 0.42, place + 0.42], color=INK, lw=1.6)
        axes.set_title(f"step {step + 1}")
        axes.set_yticks(range(len(names)), names if not step else [""] * len(names))
        axes.invert_yaxis()
        axes.set_xlabel("ms")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
    handles: list[Any] = [Patch(color=fill, label=phase) for phase, fill in PHASE_COLORS.items()]
    handles.append(Line2D([], [], color=INK, lw=1.6, label="the fused step"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


AXES = {
    "V": ("tokens per level, V", lambda row: row.vocabulary),
    "N": ("semantic IDs, N", lambda row: row.items),
    "batch": ("requests in the batch", lambda row: row.batch),
    "width": ("beams per request", lambda row: row.width),
}


def scaling(rows: Sequence[Row]) -> Figure:
    """p50 with the band from p20 to p80 over V, N, batch and width, all axes logarithmic."""
    places = {
        sweep: {value(row) for row in rows if sweep in row.sweeps}  # type: ignore[no-untyped-call]
        for sweep, (_, value) in AXES.items()
    }
    measured = [sweep for sweep in AXES if places[sweep]]
    # One point is no line; what else there is of a sweep may have been left for want of time.
    sweeps = [sweep for sweep in measured if len(places[sweep]) > 1] or measured
    figure = Figure(figsize=(9.2, 3.0 * math.ceil(len(sweeps) / 2) + 0.5), layout="constrained")
    panels = figure.subplots(math.ceil(len(sweeps) / 2), 2, squeeze=False).flatten()
    for axes in panels[len(sweeps) :]:
        axes.set_visible(False)
    for sweep, axes in zip(sweeps, panels, strict=False):
        label, value = AXES[sweep]
        mine = [row for row in rows if sweep in row.sweeps]
        for name in by_contestant(mine):
            points = sorted((value(row), row) for row in mine if row.contestant == name)  # type: ignore[no-untyped-call]
            x = [place for place, _ in points]
            baseline = name in BASELINES
            axes.plot(x, [row.p50 for _, row in points], color=color(name), label=name,
                      marker=MARKERS.get(name, "o"), ms=4, lw=1.2 if baseline else 2,
                      ls="--" if baseline else "-")  # fmt: skip
            axes.fill_between(x, [row.p20 for _, row in points], [row.p80 for _, row in points],
                              color=color(name), alpha=0.15, lw=0)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("ms")
        ticks = sorted({value(row) for row in mine})  # type: ignore[no-untyped-call]
        axes.set_xticks(ticks, [_short(tick) for tick in ticks])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    found = [
        pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    ]
    named = {label: handle for handle, label in reversed(found)}
    labels = [name for name in by_contestant(rows) if name in named]
    handles = [named[name] for name in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def index_bytes(rows: Sequence[Row]) -> Figure:
    """Bytes per semantic ID of everyone's tables, by catalog."""
    held = [row for row in rows if row.index_bytes]
    names, workloads = by_contestant(held), list(dict.fromkeys(row.workload for row in held))
    sizes = {
        (row.workload, row.contestant): row.index_bytes / row.items
        for row in held
        if row.index_bytes
    }
    figure = Figure(figsize=(8.6, 0.9 + 0.2 * len(names) * len(workloads)), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        for place, workload in enumerate(workloads):
            size = sizes.get((workload, name))
            if size is None:
                continue
            at = place - 0.4 + (number + 0.5) * height
            axes.barh(at, size, height=height * 0.9, color=color(name),
                      label=name if workload == workloads[0] else None)  # fmt: skip
            axes.text(size, at, f" {size:.3g}", va="center", fontsize=7.5)
    axes.set_yticks(range(len(workloads)), workloads)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("bytes per semantic ID on the device")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=len(names))
    return figure


def _short(value: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size and value % (size / 10) == 0:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
