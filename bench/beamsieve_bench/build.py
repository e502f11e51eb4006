"""What it takes to make an index: unsorted semantic IDs to tables, with targeting rules on request.

    python -m beamsieve_bench.build --workload S1 --rounds 3
    python -m beamsieve_bench.build --workload S1 --rules

Rows are shuffled before each round. With ``--rules`` every item has rules on seven bit attributes
of 63 values (64 bits each, with the reserved one) and on a Bloom attribute of 256 bits, six in ten
times each; the rules are Python dicts, so reading them is most of the time. Seconds are wall time
and processor time of this process; a median over the rounds, each on fresh objects.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.targeting import Attribute
from beamsieve_bench.catalogs import WORKLOADS, skewed_sids

BITS = 7
VALUES = [f"v{value}" for value in range(63)]
PLACES = [f"place-{place}" for place in range(50_000)]
ATTRIBUTES = [
    *(Attribute(f"a{number}", VALUES) for number in range(BITS)),
    Attribute("place", bloom=256),
]

Result = TypeVar("Result")


def make_rules(items: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """One dict of rules per item: one to three values of a bit attribute, one to five places."""
    ruled = (rng.random((items, BITS + 1)) < 0.6).tolist()
    first = rng.integers(0, 60, (items, BITS)).tolist()
    many = rng.integers(1, 4, (items, BITS)).tolist()
    places = rng.integers(0, len(PLACES), (items, 5)).tolist()
    number = rng.integers(1, 6, items).tolist()
    rules = []
    for item in range(items):
        mine: dict[str, Any] = {
            f"a{a}": {"accepts": VALUES[first[item][a] : first[item][a] + many[item][a]]}
            for a in range(BITS)
            if ruled[item][a]
        }
        if ruled[item][BITS]:
            mine["place"] = {"accepts": [PLACES[p] for p in places[item][: number[item]]]}
        rules.append(mine)
    return rules


def measure(
    workload: str, *, items: int | None = None, rules: bool = False, rounds: int = 3
) -> dict[str, Any]:
    """Median seconds of reading and of building, and what came out."""
    named = WORKLOADS[workload]
    size = named if items is None else named._replace(items=items)
    sids = skewed_sids(size)
    rng = np.random.default_rng(0)
    given = make_rules(len(sids), rng) if rules else None
    spent: dict[str, list[tuple[float, float]]] = {"catalog": [], "index": []}

    def timed(what: str, make: Callable[[], Result]) -> Result:
        wall, processor = time.perf_counter(), time.process_time()
        made = make()
        spent[what].append((time.perf_counter() - wall, time.process_time() - processor))
        return made

    index: Index | None = None
    for _ in range(rounds):
        shuffled = rng.permutation(sids)
        catalog = timed(
            "catalog",
            lambda rows=shuffled: Catalog.from_arrays(  # type: ignore[misc]
                rows,
                codebooks=size.vocabulary,
                attributes=ATTRIBUTES if rules else (),
                rules=given,
            ),
        )
        index = timed("index", lambda source=catalog: Index.build(source))  # type: ignore[misc]
    assert index is not None, "rounds is at least 1"
    return {
        "workload": workload,
        "sids": index.leaf_count,
        "rules": rules,
        "rounds": rounds,
        "device_bytes": index.device_bytes,
        "seconds": {
            what: {
                "wall": statistics.median(wall for wall, _ in laps),
                "processor": statistics.median(processor for _, processor in laps),
            }
            for what, laps in spent.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m beamsieve_bench.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="S1")
    parser.add_argument("--items", type=int, help="in place of the workload's own number")
    parser.add_argument("--rules", action="store_true", help="with targeting rules")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or (options.items is not None and options.items < 1):
        parser.error("--rounds and --items must be at least 1")
    found = measure(
        options.workload, items=options.items, rules=options.rules, rounds=options.rounds
    )
    if options.json:
        print(json.dumps(found))
        return 0
    print(
        f"{found['sids']:,} semantic IDs of {options.workload}"
        f"{', with rules' if options.rules else ''}: median of {options.rounds}"
    )
    for what, seconds in found["seconds"].items():
        print(f"{what:8} {seconds['wall']:8.3f} s {seconds['processor']:8.3f} s of processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
