"""The decode stage on a GPU: filter, projection and selection of whole searches.

    python -m beamsieve_bench.gpu_stage --out DIRECTORY [--cells Z1,Z2,Z3] [--extras]
        [--beams 128,512] [--dtypes bfloat16,float32] [--tables DIRECTORY] [--check]

Every cell (catalog, batch, beams, dtype) passes the gate in ``gpu_check`` before it is timed; a
cell that fails is reported as failed and not timed, and no cell at all is an error. Three times are
given, all medians of CUDA-graph replays between two events, model excluded: ``steps_ms``, each step
in a graph of its own; ``sum_ms``, their sum, which is how the published baseline was taken; and
``whole_ms``, all steps in one graph, which is how a search runs. ``unconstrained_ms`` repeats the
baseline's own unconstrained measurement, as a sum, on the same device in the same run.

``--extras`` adds the codebook sweep, the hub row, and selective projection done naively.
``--tables`` keeps the catalogs' tables in a directory, and takes them from there the next time.
``--check`` passes every cell through its gate and times none; it also leaves every kernel compiled,
so that several catalogs may be prepared side by side before they are measured one by one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.index.build import make_table
from beamsieve.index.tables import StepTable
from beamsieve.interface import Projection, StepInputs
from beamsieve_backends.triton_slots.step import NewBeams, StepArrays, run_step
from beamsieve_backends.triton_slots.tables import DeviceTables, load_table
from beamsieve_bench.catalogs import WORKLOADS, Workload, skewed_sids
from beamsieve_bench.gpu_check import check_step
from beamsieve_bench.gpu_others import naive_selective_step, unconstrained_step
from beamsieve_bench.gpu_timing import measured_ms
from beamsieve_bench.gpu_workloads import StepCase, step_case, step_tables

BATCHES = (1, 8, 32)
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
        self.plan: dict[int, Projection] = {}
        """The projection of each step, as ``planned`` chose it; else as the backend does."""

    def cases(self, batch: int, beams: int, dtype: torch.dtype) -> list[StepCase]:
        """Random inputs for every step."""
        return [
            step_case(table.rows, table.step, batch, beams, table.vocabulary, dtype, self.device)
            for table in self.host
        ]

    def step(self, case: StepCase, width: int, distinct: bool = False) -> NewBeams:
        """One step over the catalog's normalizer. Rows are drawn with repetition, so the beams are
        mostly not ``distinct``."""
        arrays = StepArrays(case.scores, case.rows, case.finished, case.tokens, distinct)
        projection = self.plan.get(case.step)
        inputs = StepInputs(width, hidden=case.hidden, head=case.head, projection=projection)
        return run_step(self.tables, arrays, case.step, inputs, "catalog")

    def planned(self, cases: list[StepCase], width: int, timed: bool = True) -> None:
        """Take the faster projection for every step of a sparse table, as ``warm_up`` does."""
        for case, table in zip(cases, self.tables.tables, strict=True):
            if table.dense:
                continue
            taken: dict[Projection, float] = {}
            for projection in ("full", "selective"):
                self.plan[case.step] = projection
                work = partial(self.step, case, width)
                if not timed:
                    work()
                taken[projection] = measured_ms(work) if timed else 0.0
            self.plan[case.step] = min(taken, key=taken.__getitem__)

    def checked(self, cases: list[StepCase], width: int) -> float:
        """The gate: every step against float64; returns the largest difference."""
        worst = 0.0
        for case, table in zip(cases, self.host, strict=True):
            result = _result(self.step(case, width))
            worst = max(worst, check_step(table, case, width, result, TOLERANCE, requests=2))
        return worst

    def measured(
        self, batch: int, beams: int, dtype: torch.dtype, timed: bool = True, free: bool = True
    ) -> dict[str, Any]:
        """One cell, gate first; ``free`` to measure the unconstrained decode beside it."""
        cases = self.cases(batch, beams, dtype)
        row: dict[str, Any] = {"batch": batch, "beams": beams, "dtype": str(dtype)[6:]}
        try:
            row["worst_difference"] = self.checked(cases, beams)
        except AssertionError as failure:
            return row | {"failed": str(failure)}
        if not timed:
            return row
        steps = [measured_ms(partial(self.step, case, beams)) for case in cases]
        row |= {
            "steps_ms": [round(value, 4) for value in steps],
            "sum_ms": round(sum(steps), 4),
            "whole_ms": round(measured_ms(lambda: [self.step(c, beams) for c in cases]), 4),
        }
        if free:
            unconstrained = [measured_ms(partial(unconstrained_step, c, beams)) for c in cases]
            row["unconstrained_ms"] = round(sum(unconstrained), 4)
        return row


def tables_of(workload: Workload, kept: Path | None = None) -> tuple[StepTable, ...]:
    """A catalog's tables on the host; from the directory ``kept`` or put there, if it is given."""
    name = "-".join(map(str, workload)) + ".pickle"
    if kept is not None and (kept / name).exists():
        # Written by the line below, on this machine.
        tables: tuple[StepTable, ...] = pickle.loads((kept / name).read_bytes())
        return tables
    tables = step_tables(skewed_sids(workload), [workload.vocabulary] * workload.length)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / name).write_bytes(pickle.dumps(tables))
    return tables


def codebook_sweep(
    device: torch.device, kept: Path | None, timed: bool = True
) -> list[dict[str, Any]]:
    """The same number of semantic IDs under growing codebooks, batch 32, planned."""
    rows = []
    for vocabulary in SWEEP:
        stage = Stage(tables_of(Workload(SWEPT_ITEMS, vocabulary, 4), kept), device)
        stage.planned(stage.cases(32, 512, torch.bfloat16), 512, timed)
        row = stage.measured(32, 512, torch.bfloat16, timed)
        plan = {str(step): projection for step, projection in stage.plan.items()}
        rows.append({"case": "codebook", "vocabulary": vocabulary, "plan": plan, **row})
    return rows


def hub_row(device: torch.device, vocabulary: int = 8192, rows: int = 50_000) -> list[Any]:
    """One row with every token among rows with one child, against the same table without it.

    Once with rows drawn as everywhere, where the hub is met by chance, and once with the hub among
    the beams of every request. A request's rows differ, as those of a search do.
    """
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
        case = StepCase(1, case.scores, case.rows, case.finished, case.tokens[:, :, :0],
                        case.hidden, case.head)  # fmt: skip
        draw = torch.Generator().manual_seed(0)
        for b in range(32):
            drawn = torch.randperm(rows - 1, generator=draw)[:512]
            case.rows[b] = (drawn + (drawn >= rows // 2)).to(device)
        for chosen in (False, True):
            met = case.rows.clone()
            if chosen:
                met[:, 7] = rows // 2
            else:
                met[: 32 * 512 // rows + 1, 7] = rows // 2
            one = replace(case, rows=met)
            check_step(table, one, 512, _result(stage.step(one, 512, distinct=True)), TOLERANCE, 2)
            taken = measured_ms(partial(stage.step, one, 512, distinct=True))
            row = {"case": "hub", "hub": hub, "in_every_request": chosen}
            found.append(row | {"step_ms": round(taken, 4)})
    return found


def _result(
    new: NewBeams,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return new.tokens, new.scores, new.rows, new.parents, new.count


def naive_selective(stage: Stage) -> list[dict[str, Any]]:
    """Sparse steps by padded slots and by a compact list; the list cannot be captured, as it waits
    for the device, so both are timed as plain calls."""
    found = []
    cases = stage.cases(32, 512, torch.bfloat16)
    for host, table, case in zip(stage.host, stage.tables.tables, cases, strict=True):
        if table.dense:
            continue
        starts = torch.from_numpy(host.plain_starts().astype(np.int64)).to(stage.device)
        tokens = torch.from_numpy(host.plain_tokens().astype(np.int32)).to(stage.device)
        ways: dict[str, Callable[[], object]] = {
            "slots": partial(stage.step, case, 512),
            "naive": partial(naive_selective_step, case, starts, tokens, table.widest, 512),
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
    parser.add_argument("--beams", default="128,512", help="beams of a request")
    parser.add_argument("--dtypes", default="bfloat16,float32", help="dtypes of hidden and head")
    parser.add_argument("--extras", action="store_true", help="codebook sweep, hub row, naive list")
    parser.add_argument("--tables", type=Path, help="where tables are kept between runs")
    parser.add_argument("--check", action="store_true", help="only the gates")
    options = parser.parse_args()
    names = [name for name in options.cells.split(",") if name]
    with multiprocessing.get_context("spawn").Pool(max(1, len(names))) as pool:
        built = pool.map(partial(tables_of, kept=options.tables), [WORKLOADS[n] for n in names])
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
            for dtype in options.dtypes.split(","):
                for batch in BATCHES:
                    for beams in map(int, options.beams.split(",")):
                        row = stage.measured(batch, beams, getattr(torch, dtype), not options.check)
                        timed += "failed" not in row
                        report({"case": "stage", "catalog": name, **row})
            if options.extras and not options.check:
                for row in naive_selective(stage):
                    report({"catalog": name, **row})
            del stage
        if options.extras:
            for row in codebook_sweep(device, options.tables, not options.check):
                timed += "failed" not in row
                report(row)
            for row in hub_row(device):
                report(row)
    if not timed:
        raise SystemExit("No cell passed its gate, so nothing was measured.")


if __name__ == "__main__":
    main()
