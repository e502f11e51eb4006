"""What it takes to make an index: unsorted semantic IDs to tables, with targeting rules on request.

    python -m beamsieve_bench.build --workload S1 --rounds 3
    python -m beamsieve_bench.build --workload Z1 --threads 1 2 --update
    python -m beamsieve_bench.build --workload M1 --keep /tmp/m1.npy --rounds 0
    python -m beamsieve_bench.build --sids /tmp/m1.npy --rounds 1
    python -m beamsieve_bench.build --workload S1 --rules

Rows are shuffled first. Seconds are wall time and processor time of this process; the median, and
the least, over the rounds, each on fresh objects. ``total`` is from the rows in memory to the
index. The peak of memory is that of the whole process, its libraries included; with ``--sids`` it
has read the rows from a file (int32, so that they are not copied) and made no catalog of its own.

With ``--update`` one item in two hundred is removed and as many are added, by ``Index.update``, and
compared with a full build of the changed catalog (the items have ids then): first, that both
indexes hold the same bytes, at which compiled loops are loaded, too; then, their seconds. With
``--rules`` every item has rules on seven bit attributes of 63 values (64 bits each, with the
reserved one) and on a Bloom attribute of 256 bits, six in ten times each; the rules are Python
dicts, so reading them is most of the time of a build (an update reads those of what is added).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from beamsieve import parallel
from beamsieve.catalog import Catalog
from beamsieve.index import Index
from beamsieve.index.storage import host_arrays
from beamsieve_bench.catalogs import MANY, WORKLOADS, many_sids, skewed_sids
from beamsieve_bench.made_rules import ATTRIBUTES, make_rules

Result = TypeVar("Result")


def rows_of(workload: str, items: int | None = None) -> tuple[NDArray[np.int32], int]:
    """A workload's rows, unsorted, and its codebook size."""
    if workload == "M1":
        size = MANY if items is None else MANY._replace(items=items)
        return many_sids(size), size.vocabulary
    named = WORKLOADS[workload]
    size = named if items is None else named._replace(items=items)
    return np.random.default_rng(0).permutation(skewed_sids(size)), size.vocabulary


class Laps:
    """Wall and processor seconds, by name."""

    def __init__(self) -> None:
        self.spent: dict[str, list[tuple[float, float]]] = {}

    def timed(self, what: str, make: Callable[[], Result]) -> Result:
        """Do it and note how long it took."""
        wall, processor = time.perf_counter(), time.process_time()
        made = make()
        lap = time.perf_counter() - wall, time.process_time() - processor
        self.spent.setdefault(what, []).append(lap)
        return made

    def summary(self) -> dict[str, dict[str, float]]:
        """Per name: the median and the least."""
        found = {}
        for what, laps in self.spent.items():
            walls, processors = zip(*laps, strict=True)
            found[what] = {
                "wall": statistics.median(walls),
                "least_wall": min(walls),
                "processor": statistics.median(processors),
                "least_processor": min(processors),
            }
        return found


def measure(
    rows: NDArray[np.int32],
    vocabulary: int,
    *,
    rules: bool = False,
    rounds: int = 3,
    threads: int | None = None,
) -> dict[str, Any]:
    """Seconds of reading and of building, and what came out."""
    given = make_rules(len(rows), np.random.default_rng(0)) if rules else None
    laps = Laps()
    index: Index | None = None

    def build() -> Index:
        catalog = laps.timed(
            "catalog",
            lambda: Catalog.from_arrays(
                rows,
                codebooks=vocabulary,
                attributes=ATTRIBUTES if rules else (),
                rules=given,
                threads=threads,
            ),
        )
        return laps.timed("index", lambda: Index.build(catalog, threads=threads))

    for _ in range(rounds):
        index = None  # the one before would count in the peak
        index = laps.timed("total", build)
    assert index is not None, "rounds is at least 1"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = laps.summary()
    return {
        "sids": index.leaf_count,
        "rules": rules,
        "rounds": rounds,
        "threads": parallel.thread_count(threads),
        "load_average": os.getloadavg()[0],
        "fingerprint": index.fingerprint,
        "device_bytes": index.device_bytes,
        "peak_bytes": peak,
        "raw_bytes": rows.nbytes,
        "peak_per_raw": peak / rows.nbytes,
        "sids_per_second": index.leaf_count / seconds["total"]["wall"],
        "seconds": seconds,
    }


def measure_update(
    rows: NDArray[np.int32],
    vocabulary: int,
    *,
    rules: bool = False,
    rounds: int = 3,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[str, Any]:
    """Seconds of an update and of the full build that it stands for."""
    random = np.random.default_rng(1)
    count, share = len(rows), max(1, len(rows) // 200)
    ids = random.permutation(count) * 2
    gone = random.choice(count, share, replace=False)
    # New semantic IDs share most of their levels with old ones, as new items do.
    more = rows[random.integers(0, count, share)].copy()
    half = rows.shape[1] // 2
    more[:, half:] = random.integers(0, vocabulary, (share, rows.shape[1] - half))
    new_ids = np.arange(share) * 2 + 1
    kept = np.delete(np.arange(count), gone)
    changed = np.concatenate([rows[kept], more])
    changed_ids = np.concatenate([ids[kept], new_ids])
    old_rules, new_rules, changed_rules = None, None, None
    if rules:
        old_rules, new_rules = make_rules(count, random), make_rules(share, random)
        changed_rules = [old_rules[row] for row in kept.tolist()] + new_rules

    def catalog(sids: NDArray[np.int32], items: NDArray[np.int64], own: Any) -> Catalog:
        attributes = ATTRIBUTES if rules else ()
        return Catalog.from_arrays(
            sids,
            items=items,
            codebooks=vocabulary,
            attributes=attributes,
            rules=own,
            threads=threads,
        )

    old = Index.build(catalog(rows, ids, old_rules), threads=threads)
    laps = Laps()

    def full() -> Index:
        return Index.build(catalog(changed, changed_ids, changed_rules), threads=threads)

    def update() -> Index:
        return old.update(
            catalog(more, new_ids, new_rules), ids[gone], threads=threads, compiled=compiled
        )

    differing = differing_array(full(), update())  # and what is compiled is there from now on
    if differing is not None:
        raise SystemExit(f"{differing} of both indexes differ")
    for _ in range(rounds):
        laps.timed("full build", full)
        laps.timed("update", update)
    seconds = laps.summary()
    return {
        "sids": count,
        "rules": rules,
        "removed": share,
        "added": share,
        "rounds": rounds,
        "threads": parallel.thread_count(threads),
        "compiled": compiled,
        "load_average": os.getloadavg()[0],
        "seconds": seconds,
        "times_faster": {
            what: seconds["full build"][what] / seconds["update"][what]
            for what in ("wall", "processor")
        },
    }


def differing_array(one: Index, other: Index) -> str | None:
    """The name of the first stored array that two indexes do not share; None if they are equal."""
    held, wanted = (
        host_arrays(index.parts)
        | ({} if index.matchers is None else index.matchers.arrays())
        | {
            f"table.{table.step}.{name}": array
            for table in index.tables
            for name, array in table.arrays.items()
        }
        for index in (one, other)
    )
    names: list[str] = sorted(held.keys() | wanted.keys())
    for name in names:
        if name not in held or name not in wanted or not np.array_equal(held[name], wanted[name]):
            return name
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m beamsieve_bench.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workload", choices=[*sorted(WORKLOADS), "M1"], default="S1")
    parser.add_argument("--items", type=int, help="in place of the workload's own number")
    parser.add_argument("--sids", help="a .npy file of rows, in place of a workload")
    parser.add_argument("--keep", help="write the workload's rows to this .npy file")
    parser.add_argument("--rules", action="store_true", help="with targeting rules")
    parser.add_argument("--update", action="store_true", help="an update, beside a full build")
    parser.add_argument("--threads", type=int, nargs="+", help="one measurement for each number")
    parser.add_argument(
        "--compiled",
        action=argparse.BooleanOptionalAction,
        help="update in compiled loops, or not; as the library chooses when left out",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    least = 0 if options.keep else 1
    if options.rounds < least or (options.items is not None and options.items < 1):
        parser.error("--rounds and --items must be at least 1")
    if options.compiled is not None and not options.update:
        parser.error("--compiled and --no-compiled are of an --update")
    if options.sids:
        rows = np.load(options.sids)
        vocabulary, name = int(rows.max()) + 1, options.sids
    else:
        rows, vocabulary = rows_of(options.workload, options.items)
        name = options.workload
    if options.keep:
        np.save(options.keep, rows)
    for threads in (options.threads or [None]) if options.rounds else []:
        if options.update:
            found = measure_update(
                rows,
                vocabulary,
                rules=options.rules,
                rounds=options.rounds,
                threads=threads,
                compiled=options.compiled,
            )
        else:
            found = measure(
                rows, vocabulary, rules=options.rules, rounds=options.rounds, threads=threads
            )
        _show({"workload": name} | found, options.json)
    return 0


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found), flush=True)
        return
    print(
        f"{found['sids']:,} semantic IDs of {found['workload']}"
        f"{', with rules' if found.get('rules') else ''}: median of {found['rounds']}, "
        f"{found['threads']} threads, load {found['load_average']:.1f}"
    )
    for what, seconds in found["seconds"].items():
        print(f"{what:10} {seconds['wall']:8.3f} s {seconds['processor']:8.3f} s of processor")
    if "times_faster" in found:
        print(f"update: {found['times_faster']['wall']:.1f} times faster")
    else:
        print(
            f"{found['sids_per_second'] / 1e6:.1f}M semantic IDs per second; peak of memory "
            f"{found['peak_per_raw']:.2f} times the rows"
        )


if __name__ == "__main__":
    sys.exit(main())
