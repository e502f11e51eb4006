"""What callers notice of a swapped index: their latency before, during and after it.

    python -m beamsieve_bench.swap_latency --items 1000000 --json swap.json
    python -m beamsieve_bench.swap_latency --items 10000000 --backend triton:cuda --batch 8

Threads serve requests from one engine. Requests fall due at fixed times, at a part (``--load``) of
what one thread can do alone, and wait where every thread is busy; latency counts from the time at
which a request fell due to its items, so a server that stands still is not forgiven. Then another
index is loaded from its file, checked, and swapped in with the plan that was measured for it, and
back again (a rollback), ``--swaps`` times in turns. ``before`` are the requests of the time before
the first swap, ``during`` those that were open while a file was loaded or swapped in, ``between``
those that met no swap. Every answer is compared, item by item and score by score, with that of an
engine which serves that index alone; one that differs, or that belongs to neither index, ends the
run.

While requests go on the server is then offered what it must refuse: a file that is cut off and, on
a GPU whose memory is filled for the occasion, but for what a load leaves to searches, an index (of
ten million, say) that has no room.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

import beamsieve as bs
from beamsieve_bench.catalogs import MANY
from beamsieve_bench.console import BAD_ARGUMENTS, FAILED, OneLineParser, complain, say
from beamsieve_bench.matrix_rows import machine
from beamsieve_bench.swap_server import Question, Server, Side, WrongAnswerError, latencies
from beamsieve_bench.swaps import Memory, an_index

QUESTIONS = 8
"""Different ones, in turns."""
SURELY_NO_ROOM = 24 << 20
"""Bytes of an index that what is left on a filled GPU, some 8 MiB beside what searches keep, cannot
hold."""


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole run.

    Raises:
        WrongAnswerError: an answer was not right, or something was not refused.
    """
    say("building two indexes")
    indexes = [an_index(options.items, seed) for seed in range(2)]
    device = torch.device(bs.Engine(indexes[0], options.backend).device)
    codebooks = indexes[0].codebooks
    questions = [
        Question(codebooks, options.batch, options.width, device, seed) for seed in range(QUESTIONS)
    ]
    sides = [
        _side(index, options, questions, folder / f"{name}.safetensors")
        for name, index in zip(("old", "new"), indexes, strict=True)
    ]
    cut = folder / "cut.safetensors"
    cut.write_bytes(sides[1].path.read_bytes()[:-1])
    engine = bs.Engine(bs.Index.load(sides[0].path), options.backend, plan=sides[0].plan)
    device_bytes = indexes[0].device_bytes
    del indexes
    alone = _median_seconds(lambda: questions[0].put_to(engine), 15)
    interval = alone / options.load
    by_print = {side.fingerprint: side for side in sides}
    windows: list[tuple[float, float]] = []
    laps: dict[str, list[float]] = {"load": [], "replace": []}
    with Server(engine, questions, by_print, interval, options.threads) as server:
        say("serving")
        time.sleep(options.seconds)
        for swap in range(options.swaps):
            say(f"swap {swap + 1} of {options.swaps}")
            began = time.perf_counter()
            side = sides[(swap + 1) % 2]
            index = bs.Index.load(side.path)
            loaded = time.perf_counter()
            engine.replace(index, plan=side.plan)
            del index
            ended = time.perf_counter()
            windows.append((began, ended))
            laps["load"].append(loaded - began)
            laps["replace"].append(ended - loaded)
            time.sleep(options.gap)
        refusals = {"a file that is cut off": _refused(engine, cut)}
        time.sleep(options.gap)
    say("")
    found = {
        "machine": machine(device, options.commit),
        "backend": engine.backend,
        "items": options.items,
        "device_bytes": device_bytes,
        "batch": options.batch,
        "width": options.width,
        "threads": options.threads,
        "alone_ms": alone * 1e3,
        "requests_per_second": 1 / interval,
        "swaps": options.swaps,
        "load_ms": median(laps["load"]) * 1e3,
        "replace_ms": median(laps["replace"]) * 1e3,
        "latency_ms": latencies(server.served, windows),
        "answered_by": {
            side.path.stem: sum(one.fingerprint == side.fingerprint for one in server.served)
            for side in sides
        },
        "refusals": refusals,
    }
    if device.type == "cuda" and device_bytes > SURELY_NO_ROOM:
        # Last, and in a server of its own: what goes wrong there takes nothing else along.
        memory = Memory(device, "cupy" in options.backend)
        try:
            with Server(engine, questions, by_print, interval, options.threads):
                time.sleep(options.gap)  # until the last search on the index before has ended
                memory.give_back()
                time.sleep(options.gap)  # what searches need is kept for the next ones
                filler = memory.filled(engine._backend.free_bytes)
                refusals["no room on the device"] = _refused(engine, sides[1].path)
                time.sleep(options.gap)
                del filler
        except (RuntimeError, MemoryError, WrongAnswerError) as error:
            found["failed"] = f"no room on the device: {' '.join(str(error).split())[:200]}"
    return found


def _side(
    index: bs.Index, options: argparse.Namespace, questions: Sequence[Question], path: Path
) -> Side:
    index.save(path)
    engine = bs.Engine(index, options.backend)
    plan = engine.warm_up(options.batch, questions[0].widths, questions[0].heads)
    answers = [question.put_to(engine)[1] for question in questions]
    return Side(path, index.fingerprint, plan, answers)


def _median_seconds(work: Callable[[], object], times: int) -> float:
    laps = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        laps.append(time.perf_counter() - began)
    return median(laps)


def _refused(engine: bs.Engine, path: Path) -> str:
    """What is said of an index that cannot be swapped in.

    Raises:
        WrongAnswerError: it can be, or another index serves afterwards.
    """
    serving = engine.index
    said = ""
    try:
        engine.replace(bs.Index.load(path))
    except bs.BeamsieveError as error:
        said = str(error)
    if not said or engine.index is not serving:
        raise WrongAnswerError(f"{path.name} was not refused.")
    return said


def show(found: dict[str, Any]) -> str:
    """The result as a table."""
    lines = [
        f"{found['items']:,} semantic IDs ({found['device_bytes']:,} bytes), {found['backend']} on "
        f"{found['machine']['device_name']}, {found['batch']} × {found['width']} beams, "
        f"{found['threads']} threads, {found['requests_per_second']:.1f} requests a second",
        f"{'milliseconds':12}{'requests':>10}{'p50':>10}{'p95':>10}{'p99':>10}{'most':>10}",
    ]
    for name, one in found["latency_ms"].items():
        numbers = "".join(f"{one[each]:10.2f}" for each in ("p50", "p95", "p99", "most"))
        lines.append(f"{name:12}{one['requests']:10}{numbers}")
    lines.append(
        f"{found['swaps']} swaps, each {found['load_ms']:.1f} ms of loading and checking and "
        f"{found['replace_ms']:.1f} of replacing; every answer was right"
    )
    lines += [f"refused, {what}: {why}" for what, why in found["refusals"].items()]
    return "\n".join([*lines, *([f"failed: {found['failed']}"] if "failed" in found else [])])


def parser() -> OneLineParser:
    """The options."""
    made = OneLineParser(prog="python -m beamsieve_bench.swap_latency", description=__doc__)
    add = made.add_argument
    add("--backend", default="torch:cpu", help="config string (default: %(default)s)")
    add("--items", type=int, default=MANY.items // 100, help="semantic IDs (default: %(default)s)")
    add("--batch", type=int, default=1, help="requests answered at once (default: %(default)s)")
    add("--width", type=int, default=64, help="beams per request (default: %(default)s)")
    add("--threads", type=int, default=2, help="that serve (default: %(default)s)")
    add("--load", type=float, default=0.5, metavar="PART",
        help="requests due, of what one thread does alone (default: %(default)s)")  # fmt: skip
    add("--swaps", type=int, default=10, help="there and back in turns (default: %(default)s)")
    add("--seconds", type=float, default=5.0, help="before the first swap (%(default)s)")
    add("--gap", type=float, default=0.5, help="seconds between swaps (default: %(default)s)")
    add("--commit", help="what to call the measured code, where it is no checkout")
    add("--json", type=Path, metavar="FILE", help="write the result there too")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where an answer was wrong, 2 for bad arguments."""
    asked = parser()
    options = asked.parse_args(arguments)
    for name in ("items", "batch", "width", "threads", "load", "swaps", "seconds", "gap"):
        if not getattr(options, name) > 0:
            asked.error(f"--{name} is {getattr(options, name)}; it must be above 0")
    why = MANY._replace(items=options.items).too_large()
    if why:
        asked.error(why)
    if options.json is not None and not options.json.parent.is_dir():
        asked.error(f"--json: the folder {options.json.parent} does not exist")
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(options, Path(folder))
    except (bs.BeamsieveError, WrongAnswerError) as error:
        complain(str(error))
        return BAD_ARGUMENTS if isinstance(error, bs.BackendError) else FAILED
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(show(found))
    return FAILED if "failed" in found else 0


if __name__ == "__main__":
    sys.exit(main())
