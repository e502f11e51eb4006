"""The decoder over the shapes that it says it serves, on an engine: a gate, nothing is timed.

    python -m beamsieve_bench.wide_shapes --out FOLDER [--backends triton,cupy] [--device cuda]

Levels from 2 to 8, codebooks up to 16 384, heads of 64 and 128, bfloat16, float16 and float8
products. For each: a captured search gives, bit for bit, what it gives step by step; a batch that
is filled up with dead requests gives, bit for bit, what the full one gives; four threads with
streams of their own get what one after the other gets; and the items are plain float32's but for
what rounding may turn.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import beamsieve as bs
from beamsieve.models.wide import Wide, WideConfig, WideDecoder
from beamsieve.models.wide.products import ProductKind
from beamsieve_bench.wide_check import GateError
from beamsieve_bench.wide_engine import OUTCOME, open_backend
from beamsieve_bench.wide_workload import WideWorkload, random_model


@dataclass(frozen=True)
class Shape:
    """One model, its catalog and its search."""

    codebooks: tuple[int, ...]
    head_width: int
    dtype: torch.dtype
    widths: tuple[int, ...]
    products: ProductKind = "own"
    columns: int = 17
    """Context tokens; above 128, cross-attention takes them in blocks."""

    def __str__(self) -> str:
        books, widths = (", ".join(map(str, some)) for some in (self.codebooks, self.widths))
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"codebooks {books}; heads of {self.head_width}; {dtype}; widths {widths}; "
            f"{self.products} products; {self.columns} context tokens"
        )


def shapes() -> Iterator[Shape]:
    """All of them."""
    half, other = torch.bfloat16, torch.float16
    yield Shape((16_384, 16_384), 64, half, (100, 50))
    yield Shape((40, 30, 20), 128, other, (40, 64, 64))
    yield Shape((16, 12, 8, 12, 8, 6, 8, 9), 64, half, (16, 64, 64, 64, 64, 64, 64, 32))
    # More rows than go through the layers together, in pieces of four requests and of two.
    yield Shape((64, 500, 64, 32, 16), 128, half, (64, 1000, 900, 64, 50), columns=300)
    yield Shape((512, 512, 512, 512), 64, other, (512, 300, 128, 77))
    yield Shape((64, 48, 32), 128, half, (64, 64, 64), "float8")


def check(shape: Shape, backend: Any, device: str, *, graphs: bool) -> dict[str, Any]:
    """The gate of one shape.

    Raises:
        GateError: what should be equal is not.
    """
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, size, 30_000) for size in shape.codebooks], 1)
    index = bs.Index.build(
        bs.Catalog.from_arrays(np.unique(codes, axis=0), codebooks=list(shape.codebooks))
    )
    config = WideConfig(
        width=128, layers=3, heads=3, head_width=shape.head_width, feed=256, longest=16
    )
    columns, batch = shape.columns, 6
    workload = WideWorkload(batch, config, shape.codebooks, columns, shape.widths, shape.widths)
    decoder, shared = check_decoder(
        random_model(workload, device),
        index,
        backend,
        workload,
        graph=graphs,
        least=0.8 if shape.products == "own" else 0.6,
        dtype=shape.dtype,
        products=shape.products,
    )
    check_threads(decoder, backend, batch, device)
    return {"taken": vars(decoder.taken), "shared_with_float32": shared}


def check_decoder(
    model: Wide,
    index: bs.Index,
    backend: Any,
    workload: WideWorkload,
    *,
    graph: bool = True,
    least: float = 0.8,
    **own: Any,
) -> tuple[WideDecoder, float]:
    """The decoder that passed, and the share of items that it has in common with plain float32's.

    Args:
        model: to decode, on its device.
        index: of its codebooks.
        backend: to search on.
        workload: batch, context and, as ``dynamic``, widths.
        graph: whether searches are captured, and held to those step by step.
        least: share of items to have in common.
        own: dtype and products of the decoder; its defaults if not.

    Raises:
        GateError: a captured search, a filled-up batch or the items differ.
    """
    batch, columns, widths = workload.batch, workload.columns, workload.dynamic
    part = batch // 2 + 1
    engine = bs.Engine(index, backend=backend)
    device = engine.device
    context = torch.empty(batch, columns, workload.config.width, device=device)
    lengths = torch.randint(1, columns + 1, (batch,), device=device)

    def decoder(**how: Any) -> WideDecoder:
        return WideDecoder(model, engine, widths, columns, sizes=(batch,), **how)

    one, steps = decoder(graph=graph, **own), decoder(graph=False, **own)
    for turn in range(3):  # contexts one after the other, in the same buffers
        context.normal_()
        full, other = one.search(context, lengths), steps.search(context, lengths)
        some = one.search(context[:part], lengths[:part])
        for name in OUTCOME:
            found = host(backend, full, name)
            if not np.array_equal(found, host(backend, other, name)):
                raise GateError(f"turn {turn}: {name} of the graph and of the steps differ")
            if not np.array_equal(found[:part], host(backend, some, name)[:part]):
                raise GateError(f"turn {turn}: {name} of a filled-up batch differ")
    plain = decoder(graph=False, attention="plain", dtype=torch.float32)
    k = min(20, widths[-1])
    pairs = zip(one.decode(context, lengths, k), plain.decode(context, lengths, k), strict=True)
    shared = float(np.mean([len({h.item for h in a} & {h.item for h in b}) / k for a, b in pairs]))
    if not shared > least:
        raise GateError(f"only {shared:.2f} of the items are plain float32's")
    return one, shared


def check_threads(
    decoder: WideDecoder, backend: Any, batch: int, device: str, turns: int = 4
) -> None:
    """Searches of several threads, whose streams share the buffers of a size.

    Raises:
        GateError: one of them differs from the same search by itself.
    """
    width = decoder.weights.config.width
    contexts = [torch.randn(batch, decoder.columns, width, device=device) for _ in range(4 * turns)]
    expected = [host(backend, decoder.search(context), "scores") for context in contexts]

    def part(first: int) -> list[Any]:
        stream = torch.cuda.Stream() if device == "cuda" else None  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream) if stream else nullcontext():
            found = [decoder.search(context) for context in contexts[first::4]]
            if stream:
                stream.synchronize()
        return [host(backend, beams, "scores") for beams in found]

    if device == "cuda":
        torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as threads:
        for first, found in enumerate(threads.map(part, range(4))):
            for scores, wanted in zip(found, expected[first::4], strict=True):
                if not np.array_equal(scores, wanted):
                    raise GateError("threads with streams of their own get other scores")


def host(backend: Any, beams: Any, name: str) -> Any:
    """An array of the beams as NumPy."""
    return backend.to_host(getattr(beams, name))


def main(arguments: list[str] | None = None) -> int:
    """Shape by shape; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--backends", default="triton,cupy")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in given.backends.split(","):
        backend = open_backend(name, given.device)
        graphs = backend.capabilities.graph
        for shape in shapes():
            row: dict[str, Any] = {"backend": name, "shape": str(shape), "graph": graphs}
            try:
                row |= check(shape, backend, given.device, graphs=graphs)
            except Exception as error:  # the shapes behind it are still wanted
                traceback.print_exc()
                row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
            rows.append(row)
            print(json.dumps(row), flush=True)
            text = json.dumps(rows, indent=1)
            (given.out / "wide_shapes.json").write_text(text + "\n", encoding="utf-8")
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
