"""Going over to a new index beside a decode: the upload, what it costs the decode, and the memory.

    python -m beamsieve_bench.upload --device cuda --array /tmp/rows.npy
    python -m beamsieve_bench.upload --device cuda --items 10000000 --backend torch:cuda

``upload``: seconds to bring a file that is mapped into memory onto the device through two pinned
buffers; of filling the buffers alone; of copying them alone; and the first over the larger of the
others. ``decode``: whole searches per second without an upload and with one that begins again and
again beside them, in turns. ``swap``: bytes on the device before and after replacements under eight
decoding threads (``device``: all that the driver has given out; ``bytes``: what the backend's
arrays take of it), and what a replacement says that the device has no room for, while the old index
serves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.engine import Engine
from beamsieve_backends.two_buffers import CHUNK_BYTES, FILLERS, send
from beamsieve_backends.upload import Uploader
from beamsieve_bench.decoder import Decoder
from beamsieve_bench.swaps import an_index, measure_swaps

LARGE = 6_000_000
"""Items of an index whose tables are more than what a filled card has left."""


def measure_upload(
    array: NDArray[Any], device: torch.device, chunk_bytes: int, fillers: int, rounds: int = 4
) -> dict[str, Any]:
    """Median seconds of an upload, and of its two halves alone."""
    uploader = Uploader(device, chunk_bytes, fillers)
    octets = array.reshape(-1).view(np.uint8)
    buffers = uploader.buffers
    target = torch.empty(len(octets), dtype=torch.uint8, device=device)
    parts = [
        (first, min(len(octets), first + chunk_bytes))
        for first in range(0, len(octets), chunk_bytes)
    ]

    def fill_alone() -> None:
        held = [buffer.numpy() for buffer in buffers]
        send(octets, held, lambda number, place, first, count: lambda: None, fillers)

    def copy_alone() -> None:
        for number, (first, last) in enumerate(parts):
            target[first:last].copy_(buffers[number % 2][: last - first], non_blocking=True)

    def seconds(work: Callable[[], object]) -> float:
        laps = []
        for _ in range(rounds + 1):
            torch.cuda.synchronize(device)
            began = time.perf_counter()
            work()
            torch.cuda.synchronize(device)
            laps.append(time.perf_counter() - began)
        return statistics.median(laps[1:])

    total = seconds(lambda: uploader.upload(array))
    filling, copying = seconds(fill_alone), seconds(copy_alone)
    return {
        "what": "upload",
        "bytes": len(octets),
        "chunk_bytes": chunk_bytes,
        "fillers": fillers,
        "seconds": total,
        "fill_alone": filling,
        "copy_alone": copying,
        "over_the_larger": total / max(filling, copying),
        "gigabytes_per_second": len(octets) / total / 1e9,
    }


Way = tuple[int, int]
"""Threads that fill, and MiB of a buffer."""


def measure_decode(
    decoder: Decoder,
    array: NDArray[Any],
    device: torch.device,
    graph: bool,
    way: Way | None,
    turns: int = 6,
    seconds: float = 1.0,
) -> dict[str, Any]:
    """Searches per second without and with an upload beside them, in turns.

    Uploads go ``way``; None leaves them to the driver, which has buffers of its own.
    """
    for _ in range(3):
        decoder.search(graph)
    uploader = None if way is None else Uploader(device, way[1] << 20, way[0])
    held = np.require(array, requirements="W")  # torch warns of what it cannot write
    alone, beside = [], []
    uploaded, lasted = 0, 0.0

    def upload(stop: threading.Event) -> int:
        torch.cuda.set_device(device)
        stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        done = 0
        with torch.cuda.stream(stream):
            while not stop.is_set():
                if uploader is None:
                    torch.from_numpy(held).to(device)
                else:
                    uploader.upload(array)
                done += array.nbytes
        return done

    for _ in range(turns):
        alone.append(decoder.per_second(seconds, graph))
        stop, began = threading.Event(), time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(upload, stop)
            beside.append(decoder.per_second(seconds, graph))
            stop.set()
            uploaded += running.result()
        lasted += time.perf_counter() - began
    alone.append(decoder.per_second(seconds, graph))
    # Each beside the two that were measured next to it: what else the host does changes slowly.
    shares = [one / ((alone[i] + alone[i + 1]) / 2) for i, one in enumerate(beside)]
    return {
        "what": "decode",
        "graph": graph,
        "fillers": None if way is None else way[0],
        "chunk_mib": None if way is None else way[1],
        "alone": alone,
        "beside": beside,
        "loss": 1 - statistics.median(shares),
        "uploaded_gigabytes_per_second": uploaded / lasted / 1e9,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m beamsieve_bench.upload",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--array", required=True, help="a .npy file to upload, mapped into memory")
    parser.add_argument(
        "--chunks", type=_count, nargs="*", default=[CHUNK_BYTES >> 20], help="MiB of a buffer"
    )
    parser.add_argument(
        "--fillers", type=_count, nargs="*", default=[FILLERS], help="threads that fill"
    )
    parser.add_argument("--backend", action="append", help="to decode with; may be repeated")
    parser.add_argument("--graph", action="store_true", help="decode in CUDA graphs where possible")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument(
        "--ways",
        nargs="*",
        type=_way,
        default=[(FILLERS, CHUNK_BYTES >> 20)],
        help="of the uploads beside a decode: threads x MiB of a buffer; driver: the driver's own",
    )
    parser.add_argument("--swaps", type=int, default=0)
    parser.add_argument("--turns", type=int, default=6, help="without and with an upload")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    torch.cuda.set_device(device)
    array = np.load(options.array, mmap_mode="r")

    def show(found: dict[str, Any]) -> None:
        print(json.dumps({"device": torch.cuda.get_device_name(device)} | found), flush=True)

    for chunk in options.chunks:
        for fillers in options.fillers:
            show(measure_upload(array, device, chunk << 20, fillers))
    backends = options.backend or []
    if backends:
        index = an_index(options.items, 0)
        for backend in backends:
            engine = Engine(index, backend=backend)
            decoder = Decoder(engine, options.batch, options.width, device)
            graph = options.graph and engine.capabilities.graph
            for way in options.ways:
                found = measure_decode(
                    decoder, array, device, graph, way, options.turns, options.seconds
                )
                show({"backend": backend} | found)
            if options.swaps:
                other, large = an_index(options.items // 2, 1), an_index(LARGE, 2)
                show(measure_swaps((index, other), large, backend, device, options.swaps))
    return 0


def _count(text: str) -> int:
    """A whole number from 1.

    Raises:
        argparse.ArgumentTypeError: no such number.
    """
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _way(text: str) -> Way | None:
    """None for the driver's own way.

    Raises:
        argparse.ArgumentTypeError: neither that, nor two whole numbers from 1.
    """
    if text == "driver":
        return None
    fillers, times, mib = text.partition("x")
    if not (times and fillers.isdecimal() and mib.isdecimal() and int(fillers) and int(mib)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no way to upload; name threads and MiB of a buffer, as 1x64, or driver"
        )
    return int(fillers), int(mib)


if __name__ == "__main__":
    sys.exit(main())
