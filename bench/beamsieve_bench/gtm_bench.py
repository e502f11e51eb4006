"""What full targeting adds to a search: G1, with and without requests, as CUDA-graph replays.

    python -m beamsieve_bench.gtm_bench [--small] [--json FILE]

First the gate: on a sample of beams of every step, the bits that the device finds are compared with
the matchers in NumPy, and every final semantic ID must pass. Zero compared positions is a failure.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from beamsieve.interface import Beams, RequestFilters, Search, StepInputs
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.gtm_catalog import (
    BATCH,
    G1,
    WIDTHS,
    fill_rates,
    make_matchers,
    make_requests,
)

HIDDEN = 256


def passes(
    matchers: Any, entries: np.ndarray[Any, Any], requests: RequestFilters, b: int
) -> np.ndarray[Any, Any]:
    """bool [n]: whether request b goes on to these entries, by the definition."""
    rows = matchers.bits.rows[matchers.bits.index[entries]]
    asked = requests.bits[b]
    found = ((rows & asked) == asked).all(axis=1)
    own = matchers.blooms[0].rows[matchers.blooms[0].index[entries]]
    signatures = requests.bloom[0][b, : requests.bloom_count[0][b]]
    within = ((own[:, None] & signatures) == signatures).all(axis=2).any(axis=1)
    return np.asarray(found & within)


def make_index(workload: Workload) -> Any:
    """Tables and matchers, as a backend reads them off an index."""
    from beamsieve_bench.gpu_workloads import step_tables

    sids = skewed_sids(workload)
    tables = step_tables(sids, [workload.vocabulary] * workload.length)
    matchers = make_matchers(tables)
    return SimpleNamespace(
        tables=tables,
        matchers=SimpleNamespace(steps=matchers),
        length=workload.length,
        codebooks=(workload.vocabulary,) * workload.length,
        fingerprint="g1",
    )


class Runner:
    """Searches over one index, with inputs that stay the same."""

    def __init__(self, backend: Any, index: Any, widths: tuple[int, ...], batch: int) -> None:
        import torch

        self.backend, self.index, self.batch, self.widths = backend, index, batch, widths
        self.tables = backend.load(index)
        draw = torch.Generator(device="cpu").manual_seed(0)
        vocabulary = index.codebooks[0]
        places = (1, *widths[:-1])
        self.inputs = []
        for width, m in zip(widths, places, strict=True):
            hidden = torch.randn((batch, m, HIDDEN), generator=draw).bfloat16().cuda()
            head = (torch.randn((vocabulary, HIDDEN), generator=draw) / HIDDEN**0.5).bfloat16()
            self.inputs.append(
                StepInputs(
                    width,
                    hidden=backend.asarray(hidden, what="hidden"),
                    head=backend.asarray(head.cuda(), what="head"),
                )
            )

    def begin(self, requests: RequestFilters | None) -> Beams:
        """The beams before step 1."""
        nothing = np.zeros(self.batch)
        beams: Beams = self.backend.begin(
            Search(self.index, self.tables, self.batch, requests),
            np.empty((self.batch, 0), np.int32),
            nothing.astype(np.int64),
            nothing.astype(np.bool_),
        )
        return beams

    def search(self, beams: Beams) -> list[Beams]:
        """All steps; the beams after each."""
        found = []
        for inputs in self.inputs:
            beams = self.backend.step(beams, inputs, "catalog")
            found.append(beams)
        return found


def check(runner: Runner, requests: RequestFilters) -> int:
    """The gate; how many positions and beams were compared.

    Raises:
        AssertionError: a beam that its matcher would have stopped, or one that should be there.
    """
    compared = 0
    before = runner.begin(requests)
    for number, after in enumerate(runner.search(before)):
        rows = runner.backend.to_host(after.rows)
        count = runner.backend.to_host(after.count)
        matchers = runner.index.matchers.steps[number]
        for b in range(0, runner.batch, 5):
            if (
                number + 1 == runner.index.length
            ):  # a finished beam's row is its leaf, the entry itself
                assert (rows[b, : count[b]] >= 0).all()
            own = rows[b, : count[b]]
            assert passes(matchers, own, requests, b).all(), f"step {number + 1}, request {b}"
            compared += len(own)
        # The candidates of the first half are exactly the entries that pass.
        if number < 3:
            found = runner.backend.candidates(before, runner.inputs[number], "catalog")
            listed = runner.backend.to_host(found.rows)[:: max(1, runner.batch // 2), :40]
            heads = runner.backend.to_host(before.rows)[:: max(1, runner.batch // 2), :40]
            live = runner.backend.to_host(before.count)[:: max(1, runner.batch // 2)]
            starts = runner.index.tables[number].plain_starts()
            for i, b in enumerate(range(0, runner.batch, max(1, runner.batch // 2))):
                for m in range(min(40, live[i], heads.shape[1])):
                    entries = np.arange(starts[heads[i, m]], starts[heads[i, m] + 1])
                    wanted = entries[passes(matchers, entries, requests, b)]
                    kept = listed[i, m][listed[i, m] >= 0]
                    assert kept.tolist() == wanted.tolist(), f"step {number + 1}, {b}, {m}"
                    compared += len(entries)
        before = after
    assert compared > 0, "nothing was compared"
    return compared


def main(arguments: list[str] | None = None) -> int:
    """Build, check, time, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a thousandth of the size")
    parser.add_argument("--json", help="where to write the outcome, too")
    given = parser.parse_args(arguments)
    from beamsieve_backends.cupy_raw import CupyBackend
    from beamsieve_bench.gpu_timing import captured, replay_ms

    workload = Workload(30_000, 64, 4) if given.small else G1
    began = time.time()
    index = make_index(workload)
    built = time.time()
    backend = CupyBackend()
    runner = Runner(backend, index, WIDTHS, BATCH)
    requests = make_requests()
    loaded = time.time()
    compared = check(runner, requests)
    outcome: dict[str, Any] = {
        "case": "G1 small" if given.small else "G1",
        "device": backend.device_name,
        "compared": compared,
        "fill (bits, bloom)": fill_rates(index.matchers.steps),
        "entries": [table.entries for table in index.tables],
        "matcher_bytes": runner.tables.matcher_bytes,
        "build_s": round(built - began, 1),
        "load_s": round(loaded - built, 1),
    }
    kept: list[Any] = []
    for name, filters in (
        ("without", None),
        ("bits alone", _only_bits(requests)),
        ("full", requests),
        ("without again", None),
    ):
        first = runner.begin(filters)
        outcome[f"{name}_ms"] = replay_ms(captured(partial(_keep_search, runner, first, kept)))
    begin = []
    for _ in range(9):
        backend.synchronize()
        start = time.perf_counter()
        runner.begin(requests)
        backend.synchronize()
        begin.append(time.perf_counter() - start)
    outcome["begin_with_requests_ms"] = 1e3 * float(np.median(begin))
    outcome["added_ms"] = outcome["full_ms"] - outcome["without_ms"]
    print(json.dumps(outcome))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(outcome, file)
    return 0


def _keep_search(runner: Runner, beams: Beams, kept: list[Any]) -> None:
    kept.append(runner.search(beams))  # a graph's results live as long as the graph is replayed


def _only_bits(requests: RequestFilters) -> RequestFilters:
    return replace(requests, bloom_count=(np.zeros_like(requests.bloom_count[0]),))


if __name__ == "__main__":
    raise SystemExit(main())
