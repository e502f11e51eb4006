"""Which cells the matrix measures: a grid, and sweeps of one thing at a time around its middle.

A cell is one shape of work on one catalog. All contestants of a cell get the same inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

NORMALIZERS = ("catalog", "eligible", "all")
SWEEPS = ("V", "N", "batch", "width", "normalize", "share")


@dataclass(frozen=True)
class Cell:
    """One shape of work.

    Attributes:
        workload: a catalog, as :mod:`beamsieve_bench.matrix_sources` names it.
        batch: requests.
        width: beams that every step keeps per request.
        dtype: of hidden states and heads.
        normalize: the backends' normalizer; baselines have their own way.
        share: the part of the items that each request's targeting lets through; None is a search
            without targeting.
        sweep: "grid", or what varies while the rest stands still; several joined by "+", as one
            measurement serves them all.
    """

    workload: str
    batch: int
    width: int
    dtype: str
    normalize: str = "catalog"
    share: float | None = None
    sweep: str = "grid"

    @property
    def with_baselines(self) -> bool:
        """Baselines know neither targeting nor another normalizer: once per shape is enough."""
        return self.share is None and not {"normalize", "share"}.issuperset(self.sweep.split("+"))


@dataclass(frozen=True)
class Preset:
    """What is measured where nothing else is said.

    Attributes:
        workloads: of the grid.
        batches: of the grid.
        widths: of the grid.
        dtypes: of the grid; the first is the sweeps' own.
        middle: batch and width of the sweeps, where they do not vary.
        vocabularies: what V goes through, at ``sizes[len(sizes) // 2]`` semantic IDs of 3 levels.
        sizes: what N goes through, at ``vocabularies[len(vocabularies) // 2]``.
        batch_sweep: what the batch goes through.
        width_sweep: what the width goes through.
        hidden: size of hidden states.
        rounds: how often every contestant is timed.
    """

    workloads: tuple[str, ...]
    batches: tuple[int, ...]
    widths: tuple[int, ...]
    dtypes: tuple[str, ...]
    middle: tuple[int, int]
    vocabularies: tuple[int, ...]
    sizes: tuple[int, ...]
    batch_sweep: tuple[int, ...]
    width_sweep: tuple[int, ...]
    hidden: int
    rounds: int

    @property
    def sweep_workload(self) -> str:
        """The catalog of the sweeps in which the catalog stands still."""
        return self.skewed(self._middle(self.sizes), self._middle(self.vocabularies))

    def skewed(self, items: int, vocabulary: int) -> str:
        """The name of a skewed catalog of three levels."""
        return f"skewed:{items}x{vocabulary}x3"

    def across(self, sweep: str) -> list[str]:
        """The catalogs of the sweep over V or N."""
        if sweep == "V":
            return [self.skewed(self._middle(self.sizes), v) for v in self.vocabularies]
        return [self.skewed(n, self._middle(self.vocabularies)) for n in self.sizes]

    @staticmethod
    def _middle(values: Sequence[int]) -> int:
        return values[len(values) // 2]


QUICK = Preset(
    workloads=("skewed:50000x1024x4", "hub:50000x1024x4", "uniform:50000x1024x4"),
    batches=(1, 8),
    widths=(16, 64),
    dtypes=("float32",),
    middle=(4, 32),
    vocabularies=(64, 256, 1024),
    sizes=(2_000, 20_000, 200_000),
    batch_sweep=(1, 4, 16),
    width_sweep=(8, 32, 128),
    hidden=64,
    rounds=5,
)
CPU = Preset(
    workloads=("S1", "hub:1000000x2048x4", "uniform:1000000x2048x4"),
    batches=(1, 8, 32),
    widths=(128, 512),
    dtypes=("float32", "bfloat16"),
    middle=(8, 128),
    vocabularies=(256, 512, 1024, 2048, 4096, 8192),
    sizes=(10_000, 100_000, 1_000_000, 10_000_000),
    batch_sweep=(1, 4, 16, 64),
    width_sweep=(16, 64, 256, 1024),
    hidden=256,
    rounds=21,
)
CUDA = replace(
    CPU,
    workloads=("Z1", "Z2", "Z3", "hub:10000000x2048x4", "uniform:10000000x2048x4"),
    dtypes=("bfloat16", "float32"),
    middle=(32, 512),
    batch_sweep=(1, 2, 4, 8, 16, 32, 64),
    width_sweep=(64, 128, 256, 512),
)


def preset(quick: bool, device: str) -> Preset:
    """What is measured on this device where nothing else is said."""
    if quick:
        return QUICK
    return CUDA if device.startswith("cuda") else CPU


def cells(
    workloads: Sequence[str],
    batches: Sequence[int],
    widths: Sequence[int],
    dtypes: Sequence[str],
    normalizers: Sequence[str],
    shares: Sequence[float | None],
    sweeps: Sequence[str],
    around: Preset,
) -> list[Cell]:
    """The grid of everything named, and the sweeps; each cell once."""
    grid = (
        Cell(*shape)
        for shape in itertools.product(workloads, batches, widths, dtypes, normalizers, shares)
    )
    swept = (cell for sweep in sweeps for cell in sweep_cells(sweep, around, dtypes[0]))
    merged: dict[Cell, list[str]] = {}
    for cell in [*grid, *swept]:
        names = merged.setdefault(replace(cell, sweep=""), [])
        if cell.sweep not in names:
            names.append(cell.sweep)
    return [replace(cell, sweep="+".join(names)) for cell, names in merged.items()]


def sweep_cells(sweep: str, around: Preset, dtype: str) -> Iterator[Cell]:
    """The cells of one sweep, in which nothing else varies."""
    middle = Cell(around.sweep_workload, *around.middle, dtype, sweep=sweep)
    if sweep in ("V", "N"):
        for workload in around.across(sweep):
            yield replace(middle, workload=workload)
    elif sweep == "batch":
        for batch in around.batch_sweep:
            yield replace(middle, batch=batch)
    elif sweep == "width":
        for width in around.width_sweep:
            yield replace(middle, width=width)
    elif sweep == "normalize":
        for normalize in NORMALIZERS:
            yield replace(middle, normalize=normalize)
    else:
        for share in (None, 1.0, 0.1, 0.01):
            yield replace(middle, share=share)
