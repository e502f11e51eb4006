"""What an index's tables take per semantic ID, and whether look-ups in them cost decoding time.

    python -m beamsieve_bench.index_size --cells Z1,Z2,Z3 --rows DIRECTORY
    python -m beamsieve_bench.index_size --stage --cells S1

The first form counts bytes: of the tables as the index holds them, and as
``torch:cpu?tables=index`` does. With ``--rows`` the catalogs are sorted int32 rows in
``DIRECTORY/Z1.npy`` …; without, they are drawn.

The second form runs the stage of ``beamsieve_bench.stage`` (filter, projection and selection of
whole searches, no model) over the same tables twice, as they are and with plain row starts and
tokens, in turns, round by round, on one thread. Processor time is counted, so that what else the
machine does hardly matters. The results of both must be equal, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import beamsieve as bs
from beamsieve.catalog.items import ItemIds
from beamsieve.index import StepTable
from beamsieve.index.layouts import make_table
from beamsieve.index.parts import IndexParts
from beamsieve.registry import open_backend
from beamsieve_bench.catalogs import WORKLOADS, Workload, skewed_sids
from beamsieve_bench.gpu_workloads import step_tables
from beamsieve_bench.stage_search import Inputs, search


def index_of(tables: Sequence[StepTable], workload: Workload) -> bs.Index:
    """An index of these tables, its items numbered as its leaves are."""
    parts = IndexParts(
        tables=tuple(tables),
        codebooks=(workload.vocabulary,) * workload.length,
        end_token=False,
        items=ItemIds(pa.array(np.arange(tables[-1].entries))),
        leaf_starts=None,
        leaf_numbers=None,
        titles=None,
        item_rules=None,
        matchers=None,
    )
    return bs.Index(parts)


def plain(table: StepTable) -> StepTable:
    """The same table with plain row starts and tokens, in the same layout."""
    starts, tokens = table.plain_starts(), table.plain_tokens()
    return make_table(table.step, table.vocabulary, starts, tokens, table.layout, compress=False)


def sizes(name: str, tables: Sequence[StepTable], workload: Workload) -> dict[str, Any]:
    """Bytes per semantic ID, of the whole and of every table."""
    sids = tables[-1].entries
    index = index_of(tables, workload)
    backend, _ = open_backend("torch:cpu?tables=index")
    return {
        "case": "bytes",
        "catalog": name,
        "sids": sids,
        "bytes_per_sid": round(index.device_bytes / sids, 4),
        "plain_bytes_per_sid": round(sum(plain(table).nbytes for table in tables) / sids, 4),
        "torch_bytes_per_sid": round(backend.device_bytes(backend.load(index)) / sids, 4),
        "tables": [
            {
                "step": table.step,
                "rows": table.rows,
                "entries": table.entries,
                "starts": table.starts.name,
                "tokens": table.token_kind,
                "bytes_per_sid": round(table.nbytes / sids, 4),
                "starts_bytes_per_sid": round(table.starts.nbytes / sids, 4),
            }
            for table in tables
        ],
    }


def stage_times(
    name: str, tables: Sequence[StepTable], workload: Workload, options: argparse.Namespace
) -> dict[str, Any]:
    """Milliseconds of processor time per search over both forms of the tables."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    inputs = Inputs.draw(workload, options.batch, options.beams, 256, torch.float32, device)
    forms = {"plain": [plain(table) for table in tables], "compressed": list(tables)}
    engines = {
        form: bs.Engine(index_of(held, workload), backend="torch:cpu?tables=index")
        for form, held in forms.items()
    }
    taken: dict[str, list[float]] = {form: [] for form in engines}
    found = {form: search(engine, inputs) for form, engine in engines.items()}
    for part in ("tokens", "scores", "rows", "parents", "count"):
        if not torch.equal(getattr(found["plain"], part), getattr(found["compressed"], part)):
            raise SystemExit(f"{name}: {part} differ between plain and compressed tables.")
    for turn in range(options.rounds):
        for form in sorted(engines, reverse=bool(turn % 2)):
            began = time.process_time()
            search(engines[form], inputs)
            taken[form].append((time.process_time() - began) * 1e3)
    ratio = np.array(taken["compressed"]) / np.array(taken["plain"])
    return {
        "case": "stage",
        "catalog": name,
        "batch": options.batch,
        "beams": options.beams,
        "rounds": options.rounds,
        "median_ms": {form: round(float(np.median(times)), 3) for form, times in taken.items()},
        "least_ms": {form: round(min(times), 3) for form, times in taken.items()},
        "median_ratio_of_a_round": round(float(np.median(ratio)), 4),
    }


def main() -> None:
    """Measure, and print one JSON line per catalog."""
    parser = argparse.ArgumentParser(description="Bytes of tables, and the time they cost")
    parser.add_argument("--cells", default="Z1,Z2,Z3", help="catalogs")
    parser.add_argument("--rows", type=Path, help="a folder of sorted rows, one .npy per catalog")
    parser.add_argument("--out", type=Path, help="a file to add the lines to")
    parser.add_argument("--stage", action="store_true", help="measure time in place of bytes")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--beams", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args()
    for name in options.cells.split(","):
        workload = WORKLOADS[name]
        rows = np.load(options.rows / f"{name}.npy") if options.rows else skewed_sids(workload)
        tables = step_tables(rows, [workload.vocabulary] * workload.length)
        if options.stage:
            line = stage_times(name, tables, workload, options)
        else:
            line = sizes(name, tables, workload)
        print(json.dumps(line), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
