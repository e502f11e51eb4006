"""The decode stage on a GPU: filter, projection and selection of whole searches.

    python -m beamsieve_bench.gpu_stage --out DIRECTORY [--parts cells,sweep,hub,naive]
        [--cells Z1,Z2,Z3] [--batches 1,8,32] [--beams 128,512] [--dtypes bfloat16,float32]
        [--alone] [--profile] [--tables DIRECTORY] [--plain-heads] [--check]

Every cell (catalog, batch, beams, dtype) passes the gate in ``gpu_check`` before it is timed; a
cell that fails is reported as failed and not timed, and no cell at all is an error. Three times are
given, all medians of CUDA-graph replays between two events, model excluded: ``steps_ms``, each step
in a graph of its own; ``sum_ms``, their sum, which is how the published baseline was taken; and
``whole_ms``, all steps in one graph, which is how a search runs. ``unconstrained_ms`` repeats the
baseline's own unconstrained measurement, as a sum, on the same device in the same run.

``--parts`` names what is measured: these cells, a sweep over the codebook's size, a table with a
hub row, and selective projection done naively. ``--profile`` adds the microseconds of every kernel.
Heads are prepared (``Engine.prepare_head``), as those of a model that serves are, unless
``--plain-heads`` says no. ``--tables`` keeps the catalogs' tables in a directory, and takes them
from there the next time.
``--check`` passes everything through its gate and times nothing; it also leaves every kernel
compiled, so that catalogs may be prepared side by side before they are measured one by one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from beamsieve.index.tables import StepTable
from beamsieve.interface import Projection, StepInputs
from beamsieve_backends.triton_slots.halves import head_parts
from beamsieve_backends.triton_slots.step import NewBeams, StepArrays, run_step
from beamsieve_backends.triton_slots.tables import DeviceTables, load_table
from beamsieve_bench.catalogs import WORKLOADS
from beamsieve_bench.gpu_check import check_step
from beamsieve_bench.gpu_others import unconstrained_step
from beamsieve_bench.gpu_timing import kernel_times, measured_ms
from beamsieve_bench.gpu_workloads import StepCase, step_case, tables_of
from beamsieve_bench.stage_search import DTYPES

TOLERANCE = 1e-5
PARTS = ("cells", "sweep", "hub", "naive")


class Stage:
    """A catalog's tables on a device, and searches over them, with heads prepared or plain."""

    def __init__(
        self, tables: tuple[StepTable, ...], device: torch.device, prepares: bool = True
    ) -> None:
        self.host = tables
        self.device = device
        self.prepares = prepares
        self.tables = DeviceTables(
            tuple(load_table(table, None, device) for table in tables), ragged=False
        )
        self.plan: dict[int, Projection] = {}
        """The projection of each step, as ``planned`` chose it; else as the backend does."""

    def cases(self, batch: int, beams: int, dtype: torch.dtype) -> list[StepCase]:
        """Random inputs for every step."""
        cases = [
            step_case(table.rows, table.step, batch, beams, table.vocabulary, dtype, self.device)
            for table in self.host
        ]
        if not self.prepares:
            return cases
        return [replace(case, prepared=head_parts(case.head)) for case in cases]

    def step(self, case: StepCase, width: int, distinct: bool = False) -> NewBeams:
        """One step over the catalog's normalizer. Rows are drawn with repetition, so the beams are
        mostly not ``distinct``."""
        arrays = StepArrays(case.scores, case.rows, case.finished, case.tokens, distinct)
        projection = self.plan.get(case.step)
        inputs = StepInputs(
            width,
            hidden=case.hidden,
            head=case.head,
            projection=projection,
            prepared=case.prepared,
        )
        return run_step(self.tables, arrays, case.step, inputs, "catalog")

    def planned(self, cases: list[StepCase], width: int, timed: bool = True) -> None:
        """Take the faster projection for every step, as ``warm_up`` does."""
        for case in cases:
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
            result = checkable(self.step(case, width))
            worst = max(worst, check_step(table, case, width, result, TOLERANCE, requests=2))
        return worst

    def profiled(self, cases: list[StepCase], width: int) -> list[list[tuple[str, float]]]:
        """Each step's kernels and their microseconds, one after the other without overlap."""
        return [kernel_times(partial(self.step, case, width)) for case in cases]

    def measured(
        self,
        batch: int,
        beams: int,
        dtype: torch.dtype,
        timed: bool = True,
        free: bool = True,
        profile: bool = False,
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
        if profile:
            row["kernels_us"] = self.profiled(cases, beams)
        return row


def checkable(
    new: NewBeams,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """What ``gpu_check.check_step`` takes of a step's result."""
    return new.tokens, new.scores, new.rows, new.parents, new.count


def main() -> None:
    """Measure, and write one JSON line per row."""
    parser = argparse.ArgumentParser(description="The decode stage on a GPU")
    parser.add_argument("--out", type=Path, required=True, help="where gpu_stage.jsonl goes")
    parser.add_argument("--cells", default="Z1,Z2,Z3", help="catalogs to measure")
    parser.add_argument("--beams", default="128,512", help="beams of a request")
    parser.add_argument("--dtypes", default="bfloat16,float32", help="dtypes of hidden and head")
    parser.add_argument("--batches", default="1,8,32", help="requests of a batch")
    parser.add_argument("--parts", default="cells", help=f"what to measure, of {','.join(PARTS)}")
    parser.add_argument("--profile", action="store_true", help="times of single kernels too")
    parser.add_argument("--alone", action="store_true", help="no unconstrained decode beside cells")
    parser.add_argument("--tables", type=Path, help="where tables are kept between runs")
    parser.add_argument("--plain-heads", action="store_true", help="heads that are not prepared")
    parser.add_argument("--check", action="store_true", help="only the gates")
    options = parser.parse_args()
    parts, dtypes = options.parts.split(","), options.dtypes.split(",")
    names = options.cells.split(",") if "cells" in parts else []
    for option, given, known in (
        ("parts", parts, PARTS),
        ("cells", names, WORKLOADS),
        ("dtypes", dtypes, DTYPES),
    ):
        if unknown := set(given) - set(known):
            parser.error(f"--{option}: {unknown.pop()!r} is none of {', '.join(known)}")
    device = torch.device("cuda", torch.cuda.current_device())
    timed = not options.check
    options.out.mkdir(parents=True, exist_ok=True)
    done = 0
    with (options.out / "gpu_stage.jsonl").open("w") as sink:

        def report(row: dict[str, Any]) -> None:
            nonlocal done
            done += "failed" not in row
            line = json.dumps({"device": torch.cuda.get_device_name(device), **row})
            print(line, flush=True)
            sink.write(line + "\n")
            sink.flush()

        # Imported here, as it is built on this module.
        from beamsieve_bench import gpu_extras

        if "hub" in parts:
            for row in gpu_extras.hub_row(device, timed, options.profile):
                report(row)
        if "sweep" in parts:
            for row in gpu_extras.codebook_sweep(device, options.tables, timed, options.profile):
                report(row)
        if "naive" in parts:
            for name in ("Z1", "Z3"):
                stage = Stage(tables_of(WORKLOADS[name], options.tables), device)
                for row in gpu_extras.naive_selective(stage, timed):
                    report({"catalog": name, **row})
        for name, tables in zip(names, _built(names, options.tables), strict=True):
            stage = Stage(tables, device, not options.plain_heads)
            for dtype in dtypes:
                for batch in map(int, options.batches.split(",")):
                    for beams in map(int, options.beams.split(",")):
                        cell = batch, beams, DTYPES[dtype], timed
                        row = stage.measured(*cell, not options.alone, options.profile)
                        report({"case": "stage", "catalog": name, **row})
            del stage
    if not done:
        raise SystemExit("Nothing passed its gate, so nothing was measured.")


def _built(names: list[str], kept: Path | None) -> list[tuple[StepTable, ...]]:
    if not names:
        return []
    with multiprocessing.get_context("spawn").Pool(len(names)) as pool:
        return pool.map(partial(tables_of, kept=kept), [WORKLOADS[name] for name in names])


if __name__ == "__main__":
    main()
