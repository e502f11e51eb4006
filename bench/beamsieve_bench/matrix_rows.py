"""The rows of a matrix, tidy: one per cell and contestant; JSON and CSV, written and read."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.errors import InputError
from beamsieve_backends.processor import processor_name
from beamsieve_bench.matrix_cells import Cell

FORMAT = 1


@dataclass(frozen=True)
class Row:
    """One contestant in one cell.

    Attributes:
        contestant: the config string of what ran, or the baseline's name.
        asked: what was asked for; for a backend it must open the same.
        kind: "backend" or "baseline".
        device: "cpu", "cuda:0", …
        workload: the catalog, as ``--workloads`` takes it.
        items: N, distinct semantic IDs.
        vocabulary: the largest codebook.
        length: L.
        batch: requests.
        width: beams per request.
        hidden: size of hidden states.
        dtype: of hidden states and heads.
        normalize: the normalizer; a baseline's own.
        share: the part of the items that targeting lets through; None without targeting.
        sweep: "grid", or what varied; several joined by "+".
        timed: "graph" (replays of a CUDA graph), "calls", or "processor" (calls, by the time that
            the process spent on them).
        rounds: how many times are behind the quantiles.
        p20: milliseconds per search of the batch; one in five was quicker.
        p50: the median.
        p80: one in five was slower.
        index_bytes: tables on the device.
        flops: floating-point operations that this way needs at least: 2 · d for every logit.
        bytes_moved: bytes that this way reads and writes at least.
        flop_share: ``flops`` per second, over what a matrix product of this dtype reached here.
        bandwidth_share: ``bytes_moved`` per second, over what a copy reached here.
        filter_ms: per step, looking up; of a backend, its first half with logits given.
        project_ms: per step, the product; of a backend, what its first half takes longer with it.
        select_ms: per step, keeping the best.
        step_ms: per step, a backend's fused step, all in one.
        note: what else a reader must know.
        reproduce: the command that measures this cell again.
    """

    contestant: str
    asked: str
    kind: str
    device: str
    workload: str
    items: int
    vocabulary: int
    length: int
    batch: int
    width: int
    hidden: int
    dtype: str
    normalize: str
    share: float | None
    sweep: str
    timed: str
    rounds: int
    p20: float
    p50: float
    p80: float
    index_bytes: int | None
    flops: int
    bytes_moved: int
    flop_share: float
    bandwidth_share: float
    filter_ms: list[float] = field(default_factory=list)
    project_ms: list[float] = field(default_factory=list)
    select_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    note: str = ""
    reproduce: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What two runs have in common where they measured the same."""
        return (
            *(self.contestant, self.workload, self.batch, self.width, self.hidden),
            *(self.dtype, self.normalize, self.share),
        )

    @property
    def cell(self) -> tuple[str, str, int, int]:
        """Workload, dtype, batch and width: what makes two rows of one cell of a figure."""
        return self.workload, self.dtype, self.batch, self.width

    @property
    def sweeps(self) -> list[str]:
        """What the row belongs to."""
        return self.sweep.split("+")


@dataclass(frozen=True)
class Run:
    """A whole matrix.

    Attributes:
        machine: device, its name, versions, commit, threads; what all rows share.
        ceilings: of :func:`beamsieve_bench.matrix_timing.ceilings`.
        gate: per backend, how it was found right.
        rows: what was measured.
        absent: what was not, and why: contestant, workload and reason.
    """

    machine: dict[str, Any]
    ceilings: dict[str, float]
    gate: dict[str, list[str]]
    rows: list[Row]
    absent: list[dict[str, str]]

    def as_dict(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return {"format": FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write JSON or CSV, as the name ends. In the CSV every row carries the machine."""
        if path.suffix == ".json":
            path.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")
            return
        machine = {name: self.machine[name] for name in sorted(self.machine)}
        names = [*(each.name for each in fields(Row)), *machine]
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            for row in self.rows:
                flat = {name: _flat(value) for name, value in asdict(row).items()}
                writer.writerow(flat | machine)

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read the JSON file.

        Raises:
            InputError: it is no run of a matrix, of another format, or without rows.
        """
        try:
            values = json.loads(path.read_text("utf-8"))
            if not isinstance(values, dict) or "format" not in values:
                raise ValueError("it names no format")
            if values.pop("format") != FORMAT:
                raise ValueError("another format")
            values["rows"] = [Row(**row) for row in values["rows"]]
            run = cls(**values)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{path} is no run of 'beamsieve bench matrix' in JSON ({error}); measure again "
                f"with --output NAME.json."
            ) from error
        if not run.rows:
            raise InputError(f"{path} has no rows; measure again.")
        return run


def _flat(value: Any) -> Any:
    return ";".join(f"{part:.6g}" for part in value) if isinstance(value, list) else value


def quantiles(milliseconds: Sequence[float]) -> tuple[float, float, float]:
    """p20, p50, p80, to five digits."""
    found = np.quantile(milliseconds, (0.2, 0.5, 0.8)).tolist()
    p20, p50, p80 = (float(f"{value:.5g}") for value in found)
    return p20, p50, p80


def machine(device: torch.device, commit: str | None = None) -> dict[str, Any]:
    """What all rows of a run share."""
    cuda = device.type == "cuda"
    found = {
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if cuda else processor_name(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "beamsieve": importlib.metadata.version("beamsieve"),
        "commit": commit or source_commit(),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }
    for name in ("triton", "cupy", "numba"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return found


def source_commit() -> str:
    """The commit of the checkout that this runs from, "+" behind it where files have changed."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        if not commit:
            return "unknown"
        return commit + (
            "+"
            if git(
                "status",
                "--porcelain",
                "--untracked-files=no",
                "--",
                "..",
                "../../src",
                "../../backends",
                "../../spec",
            )
            else ""
        )
    except OSError:
        return "unknown"


def reproduce_line(
    asked: str, cell: Cell, device: str, hidden: int, rounds: int, more: Mapping[str, object]
) -> str:
    """The command that measures this row's cell again; ``more`` are further options.

    The folder of real catalogs is left to BEAMSIEVE_BENCH_DATA: it is each machine's own.
    """
    words = ["beamsieve", "bench", "matrix", "--backends", asked]
    shares = "none" if cell.share is None else f"{cell.share:g}"
    for name, value in (
        ("workloads", cell.workload),
        ("batches", cell.batch),
        ("widths", cell.width),
        ("dtypes", cell.dtype),
        ("normalizers", cell.normalize),
        ("shares", shares),
        ("sweeps", "none"),
        ("hidden", hidden),
        ("rounds", rounds),
        ("device", device),
        *more.items(),
    ):
        words += [f"--{name}", str(value)]
    return shlex.join(words)
