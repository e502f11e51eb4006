"""The decode stage on a GPU: filter, projection and selection of whole searches.

    python -m beamsieve_bench.gpu_stage --out DIRECTORY [--cells Z1,Z2,Z3] [--extras]

Every cell (catalog, batch, beams, dtype) passes the gate in ``gpu_check`` before it is timed; a
cell that fails is reported as failed and not timed, and no cell at all is an error. Three times are
given, all medians of CUDA-graph replays between two events, model excluded: ``steps_ms``, each step
in a graph of its own; ``sum_ms``, their sum, which is how the published baseline was taken; and
``whole_ms``, all steps in one graph, which is how a search runs. ``unconstrained_ms`` repeats the
baseline's own unconstrained measurement, as a sum, on the same device in the same run.

``--extras`` adds the codebook sweep, the hub row, and selective projection done naively.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.index.build import make_table
from beamsieve.index.tables import StepTable
from beamsieve.interface import StepInputs
from beamsieve_backends.triton_slots.step import NewBeams, StepArrays, run_step
from beamsieve_backends.triton_slots.tables import DeviceTables, load_table
from beamsieve_bench.catalogs import WORKLOADS, Workload, skewed_sids
from beamsieve_bench.gpu_check import check_step
from beamsieve_bench.gpu_others import naive_selective_step, unconstrained_step
from beamsieve_bench.gpu_timing import measured_ms
from beamsieve_bench.gpu_workloads import StepCase, step_case, step_tables

BATCHES = (1, 8, 32)
BEAMS = (128, 512)
DTYPES = (torch.bfloat16, torch.float32)
TOLERANCE = 1e-5
SWEEP = (2048, 4096, 8192, 16384)
SWEPT_ITEMS = 1_000_000


class Stage:
    """A catalog's tables on a device, and searches over them."""

    def __init__(self, tables: tuple[StepTable, ...], device: torch.device) -> None:
        self.host = tables
        self.device = device
        self.tables = DeviceTables(
            tuple(load_table(table, None, device) for table in tables), ragged=False
        )

    def cases(self, batch: int, beams: int, dtype: torch.dtype) -> list[StepCase]:
        """Random inputs for every step."""
        return [
            step_case(table.rows, table.step, batch, beams, table.vocabulary, dtype, self.device)
            for table in self.host
        ]

    def step(self, case: StepCase, width: int) -> NewBeams:
        """One step over the catalog's normalizer."""
        # Rows are drawn with repetition, so the beams are not distinct.
        arrays = StepArrays(case.scores, case.rows, case.finished, case.tokens, distinct=False)
        inputs = StepInputs(width, hidden=case.hidden, head=case.head)
        return run_step(self.tables, arrays, case.step, inputs, "catalog")

    def checked(self, cases: list[StepCase], width: int) -> float:
        """The gate: every step against float64; returns the largest difference."""
        worst = 0.0
        for case, table in zip(cases, self.host, strict=True):
            new = self.step(case, width)
            result = (new.tokens, new.scores, new.rows, new.parents, new.count)
            worst = max(worst, check_step(table, case, width, result, TOLERANCE, requests=2))
        return worst

    def measured(self, batch: int, beams: int, dtype: torch.dtype) -> dict[str, Any]:
        """One cell, gate first."""
        cases = self.cases(batch, beams, dtype)
        row: dict[str, Any] = {"batch": batch, "beams": beams, "dtype": str(dtype)[6:]}
        try:
            row["worst_difference"] = self.checked(cases, beams)
        except AssertionError as failure:
            return row | {"failed": str(failure)}
        steps = [measured_ms(partial(self.step, case, beams)) for case in cases]
        free = [measured_ms(partial(unconstrained_step, case, beams)) for case in cases]
        return row | {
            "steps_ms": [round(value, 4) for value in steps],
            "sum_ms": round(sum(steps), 4),
            "whole_ms": round(measured_ms(lambda: [self.step(c, beams) for c in cases]), 4),
            "unconstrained_ms": round(sum(free), 4),
        }


def tables_of(workload: Workload) -> tuple[StepTable, ...]:
    """A catalog's tables on the host."""
    return step_tables(skewed_sids(workload), [workload.vocabulary] * workload.length)


def codebook_sweep(device: torch.device) -> list[dict[str, Any]]:
    """The same number of semantic IDs under growing codebooks, batch 32."""
    rows = []
    for vocabulary in SWEEP:
        stage = Stage(tables_of(Workload(SWEPT_ITEMS, vocabulary, 4)), device)
        row = stage.measured(32, 512, torch.bfloat16)
        rows.append({"case": "codebook", "vocabulary": vocabulary, **row})
    return rows


def hub_row(device: torch.device, vocabulary: int = 8192, rows: int = 50_000) -> list[Any]:
    """One row with every token among rows with one child, against the same table without it."""
    found = []
    for hub in (False, True):
        degrees = np.ones(rows, np.int64)
        if hub:
            degrees[rows // 2] = vocabulary
        starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
        tokens = np.arange(starts[-1]) * 31 % vocabulary
        if hub:
            tokens[starts[rows // 2] : starts[rows // 2 + 1]] = np.arange(vocabulary)
        table = make_table(1, vocabulary, starts, tokens.astype(np.uint16), "sparse")
        stage = Stage((table,), device)
        case = step_case(rows, 2, 32, 512, vocabulary, torch.bfloat16, device)
        case.rows[:, 7] = rows // 2  # the hub is in play in every request
        case = StepCase(1, case.scores, case.rows, case.finished, case.tokens[:, :, :0],
                        case.hidden, case.head)  # fmt: skip
        taken = measured_ms(partial(stage.step, case, 512))
        found.append({"case": "hub", "hub": hub, "step_ms": round(taken, 4)})
    return found


def naive_selective(stage: Stage) -> list[dict[str, Any]]:
    """Sparse steps by padded slots and by a compact list; the list cannot be captured, as it waits
    for the device, so both are timed as plain calls."""
    found = []
    for table, case in zip(stage.tables.tables, stage.cases(32, 512, torch.bfloat16), strict=True):
        if table.tokens is None:
            continue
        ways: dict[str, Callable[[], object]] = {
            "slots": partial(stage.step, case, 512),
            "naive": partial(naive_selective_step, case, table, table.widest, 512),
        }
        row: dict[str, Any] = {"case": "naive selective", "step": table.step}
        found.append(row | {f"{name}_ms": round(_called_ms(way), 4) for name, way in ways.items()})
    return found


def _called_ms(work: Callable[[], object], calls: int = 20) -> float:
    for _ in range(3):
        work()
    taken = []
    for _ in range(calls):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[calls // 2] * 1e3


def main() -> None:
    """Measure, and write one JSON line per row."""
    parser = argparse.ArgumentParser(description="The decode stage on a GPU")
    parser.add_argument("--out", type=Path, required=True, help="where gpu_stage.jsonl goes")
    parser.add_argument("--cells", default="Z1,Z2,Z3", help="catalogs to measure")
    parser.add_argument("--extras", action="store_true", help="codebook sweep, hub row, naive list")
    options = parser.parse_args()
    names = options.cells.split(",")
    with multiprocessing.get_context("spawn").Pool(len(names)) as pool:
        built = pool.map(tables_of, [WORKLOADS[name] for name in names])
    device = torch.device("cuda", torch.cuda.current_device())
    torch.zeros(1, device=device)
    options.out.mkdir(parents=True, exist_ok=True)
    timed = 0
    with (options.out / "gpu_stage.jsonl").open("w") as sink:

        def report(row: dict[str, Any]) -> None:
            line = json.dumps({"device": torch.cuda.get_device_name(device), **row})
            print(line, flush=True)
            sink.write(line + "\n")
            sink.flush()

        for name, tables in zip(names, built, strict=True):
            stage = Stage(tables, device)
            for dtype in DTYPES:
                for batch in BATCHES:
                    for beams in BEAMS:
                        row = stage.measured(batch, beams, dtype)
                        timed += "sum_ms" in row
                        report({"case": "stage", "catalog": name, **row})
            if options.extras:
                for row in naive_selective(stage):
                    report({"catalog": name, **row})
            del stage
        if options.extras:
            for row in hub_row(device) + codebook_sweep(device):
                report(row)
    if not timed:
        raise SystemExit("No cell passed its gate, so nothing was measured.")


if __name__ == "__main__":
    main()
