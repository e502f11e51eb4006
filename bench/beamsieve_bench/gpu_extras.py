"""Beside the stage's cells: growing codebooks, a hub row, and selective projection done naively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.index.build import make_table
from beamsieve_bench.catalogs import Workload
from beamsieve_bench.gpu_check import check_step
from beamsieve_bench.gpu_others import naive_selective_step
from beamsieve_bench.gpu_stage import TOLERANCE, Stage, checkable
from beamsieve_bench.gpu_timing import kernel_times, measured_ms
from beamsieve_bench.gpu_workloads import StepCase, step_case, tables_of

SWEEP = (2048, 4096, 8192, 16384)
SWEPT_ITEMS = 1_000_000


def codebook_sweep(
    device: torch.device, kept: Path | None, timed: bool = True, profile: bool = False
) -> Iterator[dict[str, Any]]:
    """The same number of semantic IDs under growing codebooks, batch 32, planned."""
    for vocabulary in SWEEP:
        stage = Stage(tables_of(Workload(SWEPT_ITEMS, vocabulary, 4), kept), device)
        stage.planned(stage.cases(32, 512, torch.bfloat16), 512, timed)
        row = stage.measured(32, 512, torch.bfloat16, timed, profile=profile)
        plan = {str(step): projection for step, projection in stage.plan.items()}
        yield {"case": "codebook", "vocabulary": vocabulary, "plan": plan, **row}


def hub_row(
    device: torch.device,
    timed: bool = True,
    profile: bool = False,
    vocabulary: int = 8192,
    rows: int = 50_000,
) -> Iterator[dict[str, Any]]:
    """One row with every token among rows with one child, against the same table without it.

    Once with rows drawn as everywhere, where the hub is met by chance, and once with the hub among
    the beams of every request. A request's rows differ, as those of a search do.
    """
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
            check_step(
                table, one, 512, checkable(stage.step(one, 512, distinct=True)), TOLERANCE, 2
            )
            row: dict[str, Any] = {"case": "hub", "hub": hub, "in_every_request": chosen}
            work = partial(stage.step, one, 512, distinct=True)
            if timed:
                row["step_ms"] = round(measured_ms(work), 4)
            if profile:
                row["kernels_us"] = kernel_times(work)
            yield row


def naive_selective(stage: Stage, timed: bool = True) -> Iterator[dict[str, Any]]:
    """Sparse steps by padded slots and by a compact list with a gathered matrix, each in a graph.

    The list's length is counted beforehand, as a graph cannot wait for it: that is in its favour.
    """
    for host, table, case in zip(
        stage.host, stage.tables.tables, stage.cases(32, 512, torch.bfloat16), strict=True
    ):
        if table.dense:
            continue
        starts = torch.from_numpy(host.plain_starts().astype(np.int64)).to(stage.device)
        tokens = torch.from_numpy(host.plain_tokens().astype(np.int32)).to(stage.device)
        rows = case.rows.flatten()
        length = int((starts[rows + 1] - starts[rows]).sum())
        naive = partial(naive_selective_step, case, starts, tokens, table.widest, 512, length)
        slots = partial(stage.step, case, 512)
        found = naive()[0]
        largest = (found - slots().scores[:, : found.shape[1]]).nan_to_num(0).abs().max()
        if not largest <= 0.03:  # the list's products are rounded to bfloat16
            raise AssertionError(f"step {table.step}: the two ways differ by {float(largest)}")
        ways: dict[str, Callable[[], object]] = {"slots": slots, "naive": naive}
        row: dict[str, Any] = {"case": "naive selective", "step": table.step, "slots": length}
        if timed:
            row |= {f"{name}_ms": round(measured_ms(way), 4) for name, way in ways.items()}
        yield row
