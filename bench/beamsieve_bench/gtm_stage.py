"""Steps and selection of the CuPy backend on a GPU, as CUDA-graph replays.

    python -m beamsieve_bench.gtm_stage [--workloads Z1,Z2,Z3] [--peers FILE.jsonl] [--json FILE]
        [--tables DIRECTORY] [--plain-heads]

Every step of every cell is measured alone, with beams that stand on rows drawn uniformly, by the
full, the selective and the fused projection, where each is worth it; the fastest counts, by the
clock that ``warm_up`` goes by. ``sum_ms`` adds the steps' own graphs up, as ``--peers`` figures are
made; ``whole_ms`` is one graph that holds all steps. A step is timed only after its result has been
compared with float64 arithmetic on the device. Heads are prepared (``Engine.prepare_head``), as
those of a model that serves are, unless ``--plain-heads`` says no. ``--tables`` keeps the catalogs'
tables in a directory, and takes them from there the next time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from beamsieve.index.tables import StepTable
from beamsieve.interface import Beams, Projection, Search, StepInputs
from beamsieve_bench.catalogs import WORKLOADS
from beamsieve_bench.gpu_check import check_step
from beamsieve_bench.gpu_timing import captured, replay_ms
from beamsieve_bench.gpu_workloads import StepCase, step_case, tables_of

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
TOLERANCE = 2e-5
OUTCOME = ("tokens", "scores", "rows", "parents", "count")


def top_k(backend: Any, rows: int = 16, n: int = 1 << 19, k: int = 1024) -> dict[str, list[float]]:
    """Milliseconds of the ordered top-k and of torch.topk, per kind of values.

    Raises:
        AssertionError: the values differ from torch's.
    """
    values = torch.randn(rows, n, device="cuda")
    kinds = {
        "random": values,
        "ascending": torch.sort(values, 1).values.contiguous(),
        "equal": torch.ones_like(values),
    }
    found = {}
    kept: list[Any] = []
    for name, given in kinds.items():
        array, work = backend.asarray(given, what="values"), backend.workspace()
        best, _ = backend.top(array, k, work)
        assert torch.equal(from_dlpack(best), torch.topk(given, k).values), name
        ours = captured(partial(_keep, kept, partial(backend.top, array, k, work)))
        torchs = captured(partial(torch.topk, given, k))
        found[name] = [replay_ms(ours), replay_ms(torchs)]
    return found


def _keep(kept: list[Any], work: Callable[[], Any]) -> None:
    kept.append(work())  # a graph's results live as long as the graph is replayed


def beams_of(backend: Any, index: Any, tables: Any, case: StepCase) -> Beams:
    """The beams that a case describes, in the backend's own arrays."""
    batch, places = case.scores.shape
    nothing = np.zeros(batch)
    begun = backend.begin(
        Search(index, tables, batch, None),
        np.empty((batch, 0), np.int32),
        nothing.astype(np.int64),
        nothing.astype(np.bool_),
    )
    if case.step == 1:
        beams: Beams = begun
        return beams

    def put(tensor: torch.Tensor) -> Any:
        return backend.asarray(tensor, what="beams")

    scores = put(case.scores)
    return Beams(
        step=case.step - 1,
        tokens=put(case.tokens),
        scores=scores,
        keys=scores,
        rows=put(case.rows),
        parents=put(torch.full_like(case.rows, -1)),
        finished=put(case.finished),
        count=put(torch.full((batch,), places, dtype=torch.int64, device="cuda")),
        search=begun.search,
    )


def projections(table: StepTable, step: int) -> Sequence[Projection]:
    """Those worth measuring: far from the break-even, one of them is out of the question."""
    mean = table.entries / table.rows
    if step > 1 and mean < table.vocabulary / 64:
        return ("selective",)
    if step > 1 and mean > table.vocabulary / 4:
        return ("full",)
    return ("full", "selective")


def cell(
    backend: Any, index: Any, tables: Any, batch: int, beams: int, dtype: str, prepares: bool
) -> dict[str, Any]:
    """One cell: every step's faster projection, their sum, and all of them in one graph."""
    steps, works, worst = [], [], 0.0
    for step, table in enumerate(index.tables, 1):
        case = step_case(
            table.rows, step, batch, beams, table.vocabulary, DTYPES[dtype], torch.device("cuda")
        )
        before = beams_of(backend, index, tables, case)
        hidden = backend.asarray(case.hidden, what="hidden")
        head = backend.asarray(case.head, what="head")
        timed = []
        prepared = backend.prepare_head(head) if prepares else None
        plain = StepInputs(beams, hidden=hidden, head=head, prepared=prepared)
        possible = backend.projections_for(before, plain, "catalog")
        fused: tuple[Projection, ...] = ("fused",) if "fused" in possible else ()
        for projection in (*projections(table, step), *fused):
            inputs = replace(plain, projection=projection)
            after = backend.step(before, inputs, "catalog")
            result = tuple(from_dlpack(getattr(after, name)) for name in OUTCOME)
            assert len(result) == 5
            worst = max(worst, check_step(table, case, beams, result, TOLERANCE, requests=2))
            work = partial(_keep, [], partial(backend.step, before, inputs, "catalog"))
            taken = statistics.median(backend.seconds(work) for _ in range(5))
            timed.append((taken, projection, work))
        _, projection, work = min(timed, key=lambda one: one[0])
        steps.append((replay_ms(captured(work), 30, 5), projection))
        works.append(work)
    return {
        "batch": batch,
        "beams": beams,
        "dtype": dtype,
        "steps": steps,
        "sum_ms": sum(ms for ms, _ in steps),
        "whole_ms": replay_ms(captured(partial(_all, works)), 30, 5),
        "worst": worst,
    }


def _all(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print one line of JSON per cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default="Z1,Z2,Z3")
    parser.add_argument("--peers", help="JSON lines with static_ms and unconstrained_ms per cell")
    parser.add_argument("--json", help="where to write everything, too")
    parser.add_argument("--tables", type=Path, help="where tables are kept between runs")
    parser.add_argument("--plain-heads", action="store_true", help="heads that are not prepared")
    given = parser.parse_args(arguments)
    from beamsieve_backends.cupy_raw import CupyBackend

    backend = CupyBackend()
    peers = read_peers(given.peers)
    everything: dict[str, Any] = {
        "device": backend.device_name,
        "prepared_heads": not given.plain_heads,
        "top_k": top_k(backend),
    }
    print(json.dumps(everything), flush=True)
    everything["cells"] = []
    for name in given.workloads.split(","):
        workload = WORKLOADS[name]
        tables = tables_of(workload, given.tables)
        index: Any = SimpleNamespace(tables=tables, length=len(tables), fingerprint=name)
        loaded = backend.load(index)
        for batch in (1, 8, 32):
            for beams in (128, 512):
                for dtype in DTYPES:
                    shape = (batch, beams, dtype, not given.plain_heads)
                    found = {"workload": name, **cell(backend, index, loaded, *shape)}
                    found |= peers.get((workload.vocabulary, batch, beams, dtype), {})
                    everything["cells"].append(found)
                    print(json.dumps(found), flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)
    return 0


def read_peers(path: str | None) -> dict[tuple[int, int, int, str], dict[str, float]]:
    """Peers' milliseconds by codebook size, batch, beams and dtype; nothing without a file."""
    found = {}
    if path:
        with open(path, encoding="utf-8") as file:
            for row in map(json.loads, file):
                if row["case"] == "stage":
                    place = (row["V"], row["B"], row["M"], row["dtype"])
                    found[place] = {k: row[k] for k in ("static_ms", "unconstrained_ms")}
    return found


if __name__ == "__main__":
    raise SystemExit(main())
