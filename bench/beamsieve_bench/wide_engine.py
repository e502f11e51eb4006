"""The ladder's last rows: the decoder with the catalog's filter and targeting, in one CUDA graph.

    python -m beamsieve_bench.wide_engine --out FOLDER [--backends cupy,triton] [--replays 300] \\
        [--settle 8]

A backend that is run by itself keeps the rows of the others in the file.

Catalog and requests are those of ``gtm_catalog``: 30 million semantic IDs, 448 bits and 256 Bloom
bits a row, 64 places a request. A row is timed only after every returned semantic ID passed the
matchers by their definition (zero compared is a failure) and its graph gave, bit for bit, what the
same search gives step by step. ``--settle`` is as in ``wide_ladder``.
"""

from __future__ import annotations

import argparse
import json
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.errors import BackendError
from beamsieve.graphs import SearchGraphs
from beamsieve.interface import Beams, RequestFilters, Search, StepInputs
from beamsieve.models.wide.products import ProductKind
from beamsieve.models.wide.scorer import WideScorer
from beamsieve_bench.catalogs import Workload
from beamsieve_bench.gpu_timing import captured
from beamsieve_bench.gtm_bench import make_index
from beamsieve_bench.gtm_catalog import G1, make_requests
from beamsieve_bench.wide_check import GateError
from beamsieve_bench.wide_ladder import SETTLE, executed_by, figures
from beamsieve_bench.wide_timing import paced, timed
from beamsieve_bench.wide_workload import GRACE, SMALL, WideWorkload, contexts, weights

EVERY = "time the row with full targeting once more, with a start every so many milliseconds"
OUTCOME = ("tokens", "scores", "rows", "parents", "count")


def index_of(workload: Workload, kept: Path | None = None) -> Any:
    """The catalog with targeting, as every backend reads it.

    Args:
        workload: its size.
        kept: a file of an earlier call on this machine; written where it is absent.
    """
    if kept is not None and kept.exists():
        return pickle.loads(kept.read_bytes())
    index = make_index(workload)
    index.leaf_count = index.tables[-1].entries
    if kept is not None:
        aside = kept.with_suffix(".part")
        with aside.open("wb") as file:
            pickle.dump(index, file, protocol=5)
        aside.rename(kept)
    return index


class Decode:
    """One search over one index on one backend, again and again."""

    def __init__(
        self, backend: Any, index: Any, tables: Any, score: WideScorer, filters: Any
    ) -> None:
        self.backend, self.score = backend, score
        batch = score.batch
        self._search = Search(index, tables, batch, filters, backend=backend)
        self._first = (
            np.empty((batch, 0), np.int32),
            np.zeros(batch, np.int64),
            np.zeros(batch, np.bool_),
        )
        self._graphs = SearchGraphs(backend)

    def loop(self, beams: Beams) -> Beams:
        """All steps."""
        for width in self.score.widths:
            hidden, head = self.score(beams.step + 1, beams)
            inputs = StepInputs(
                width,
                hidden=self.backend.asarray(hidden, what="hidden"),
                head=self.backend.asarray(head, what="head"),
            )
            beams = self.backend.step(beams, inputs, "catalog")
        return beams

    def steps(self) -> Beams:
        """Without a graph."""
        return self.loop(self.backend.begin(self._search, *self._first))

    def graph(self) -> Beams:
        """In one graph, as ``engine.search(…, graph=True)`` does it."""
        return self._graphs.search(
            self._search, *self._first, self.score.widths, self.score, self.loop
        )

    def own_capture(self) -> tuple[Callable[[], None], Beams]:
        """The same in a capture of one's own, for a search that the backend cannot capture."""
        first = self.backend.begin(self._search, *self._first)
        kept: list[Beams] = []
        graph = captured(lambda: kept.append(self.loop(first)), 2)
        graph.replay()
        return graph.replay, kept[-1]


def stopped(index: Any, own: Any, filters: RequestFilters, b: int) -> bool:
    """Whether a matcher stops one of request b's leaves, by the definition."""
    last = index.matchers.steps[-1]
    asked = filters.bits[b]
    rows = last.bits.rows[last.bits.index[own]]
    if not ((rows & asked) == asked).all():
        return True
    signed = filters.bloom[0][b, : filters.bloom_count[0][b]]
    places = last.blooms[0].rows[last.blooms[0].index[own]]
    found = ((places[:, None] & signed) == signed).all(axis=2).any(axis=1)
    return bool(len(signed)) and not found.all()


def check_rows(backend: Any, index: Any, beams: Beams, filters: RequestFilters | None) -> int:
    """How many final beams were compared with the matchers.

    Raises:
        GateError: one that its matcher would have stopped, or none at all.
    """
    rows, count = backend.to_host(beams.rows), backend.to_host(beams.count)
    compared = 0
    for b in range(len(rows)):
        own = rows[b, : count[b]]
        if not (own >= 0).all() or len(np.unique(own)) != len(own):
            raise GateError(f"request {b}: a beam without a leaf, or one twice")
        if filters is not None and stopped(index, own, filters, b):
            raise GateError(f"request {b}: a semantic ID that its matcher stops")
        compared += len(own)
    if not compared:
        raise GateError("nothing was compared")
    return compared


def equal(backend: Any, one: Beams, other: Beams) -> bool:
    """Whether two searches' last beams are the same, bit for bit."""
    return all(
        np.array_equal(
            backend.to_host(getattr(one, name)), backend.to_host(getattr(other, name))
        )
        for name in OUTCOME
    )  # fmt: skip


def run_row(
    workload: WideWorkload,
    decode: Decode,
    index: Any,
    filters: Any,
    replays: int,
    every: float = 0.0,
    settle: float = 0.0,
) -> dict[str, Any]:
    """Gate and times; in a capture of one's own, and said so, where the engine's is not right."""
    run: Callable[[], object] = decode.graph
    how = "engine"
    try:
        last = decode.graph()
        found = _gate(decode, index, filters, last)
    except (BackendError, GateError) as error:
        how = f"by hand, as the engine's: {str(error).splitlines()[0]}"
        run, last = decode.own_capture()
        found = _gate(decode, index, filters, last)
    times, settled = timed(run, replays, settle)
    executed = executed_by(workload, decode.score)
    return {
        "captured": how,
        **found,
        **figures(workload, decode.score.widths, times, executed, settled),
        **paced(run, every),
    }


def _gate(decode: Decode, index: Any, filters: Any, last: Beams) -> dict[str, Any]:
    """What was compared.

    Raises:
        GateError: beams that should not be, or other ones than step by step.
    """
    backend = decode.backend
    backend.synchronize()
    compared = check_rows(backend, index, last, filters)
    if not equal(backend, decode.steps(), last):
        raise GateError("the beams of the graph and of the steps differ")
    backend.synchronize()
    beams = [int(n) for n in backend.to_host(last.count)]
    return {"compared": compared, "graph_equals_steps": True, "beams": beams}


def open_backend(name: str, device: str = "cuda") -> Any:
    """A backend by its short name."""
    if name == "cupy":
        from beamsieve_backends.cupy_raw import CupyBackend

        return CupyBackend(device)
    if name == "torch":
        from beamsieve_backends.torch_dense import TorchBackend

        return TorchBackend(device)
    from beamsieve_backends.triton_slots import TritonBackend

    return TritonBackend(device)


def filters_of(batch: int) -> dict[str, RequestFilters | None]:
    """The rows' requests."""
    full = make_requests(batch)
    bits = replace(full, bloom_count=(np.zeros_like(full.bloom_count[0]),))
    return {"catalog filter": None, "bit targeting": bits, "Bloom targeting": full}


def main(arguments: list[str] | None = None) -> int:
    """Row by row; one JSON file, rewritten after every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="folder for wide_engine.json")
    parser.add_argument("--backends", default="cupy,triton")
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--every", type=float, default=0.0, help=EVERY)
    parser.add_argument("--settle", type=float, default=0.0, help=SETTLE)
    parser.add_argument("--products", default="own", help="own, or own,float8")
    parser.add_argument("--index", type=Path, help="file that keeps the index between runs")
    parser.add_argument("--only-index", action="store_true", help="make that file, measure nothing")
    parser.add_argument("--small", action="store_true", help="a tiny size, to try the script")
    given = parser.parse_args(arguments)
    workload: WideWorkload = GRACE
    catalog = G1
    if given.small:
        catalog = Workload(30_000, 64, 4)
        workload = replace(SMALL, codebooks=(64,) * 4)
    index = index_of(catalog, given.index)
    if given.only_index:
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "wide_engine.json"
    names = given.backends.split(",")
    rows = _rows_of_others(path, names)
    wanted: list[ProductKind] = ["own"]
    if "float8" in given.products:
        wanted.append("float8")
    for products in wanted:
        made = weights(workload, "cuda", products=products)
        score = WideScorer(made, workload.batch, workload.dynamic, workload.columns, lengths=False)
        score.load(contexts(workload, "cuda"))
        for name in names:
            backend = open_backend(name)
            tables = backend.load(index)
            for kind, filters in filters_of(workload.batch).items():
                row: dict[str, Any] = {"name": kind, "backend": name, "products": products}
                try:
                    decode = Decode(backend, index, tables, score, filters)
                    every = given.every if kind == "Bloom targeting" else 0.0
                    row |= {"taken": score.taken}
                    row |= run_row(
                        workload, decode, index, filters, given.replays, every, given.settle
                    )
                except Exception as error:  # whatever it was, the rows behind it are still wanted
                    traceback.print_exc()
                    row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
                rows.append(row)
                print(json.dumps(row), flush=True)
                outcome = {"device": torch.cuda.get_device_name(), "rows": rows}
                text = json.dumps(outcome, indent=1)
                path.write_text(text + "\n", encoding="utf-8")
            del tables
            torch.cuda.empty_cache()
    return 0


def _rows_of_others(path: Path, names: list[str]) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["backend"] not in names]


if __name__ == "__main__":
    raise SystemExit(main())
