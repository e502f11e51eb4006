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
from beamsieve.models.wide import WideConfig, WideDecoder
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
    yield Shape((64, 500, 64, 32, 16), 128, half, (64, 100, 128, 64, 50), columns=300)
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
    model = random_model(workload, device)
    engine = bs.Engine(index, backend=backend)
    context = torch.randn(batch, columns, config.width, device=device)
    lengths = torch.randint(1, columns + 1, (batch,), device=device)

    def decoder(**how: Any) -> WideDecoder:
        return WideDecoder(model, engine, shape.widths, columns, sizes=(batch,), **how)

    own: dict[str, Any] = {"dtype": shape.dtype, "products": shape.products}
    one, steps = decoder(graph=graphs, **own), decoder(graph=False, **own)
    full, other = one.search(context, lengths), steps.search(context, lengths)
    some = one.search(context[:4], lengths[:4])
    for name in OUTCOME:
        found = host(full, name)
        if not np.array_equal(found, host(other, name)):
            raise GateError(f"{name} of the graph and of the steps differ")
        if not np.array_equal(found[:4], host(some, name)[:4]):
            raise GateError(f"{name} of a filled-up batch differ")
    plain = decoder(graph=False, attention="plain", dtype=torch.float32)
    k = min(20, shape.widths[-1])
    shared = [
        len({hit.item for hit in a} & {hit.item for hit in b}) / max(1, len(b))
        for a, b in zip(
            one.decode(context, lengths, k), plain.decode(context, lengths, k), strict=True
        )
    ]
    least = 0.8 if shape.products == "own" else 0.6
    if not float(np.mean(shared)) > least:
        raise GateError(f"only {np.mean(shared):.2f} of the items are plain float32's")
    check_threads(one, batch, device)
    return {"taken": vars(one.taken), "shared_with_float32": float(np.mean(shared))}


def check_threads(decoder: WideDecoder, batch: int, device: str, turns: int = 4) -> None:
    """Searches of several threads, whose streams share the buffers of a size.

    Raises:
        GateError: one of them differs from the same search by itself.
    """
    width = decoder.weights.config.width
    contexts = [torch.randn(batch, decoder.columns, width, device=device) for _ in range(4 * turns)]
    expected = [host(decoder.search(context), "scores") for context in contexts]

    def part(first: int) -> list[Any]:
        stream = torch.cuda.Stream() if device == "cuda" else None  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream) if stream else nullcontext():
            found = [decoder.search(context) for context in contexts[first::4]]
            if stream:
                stream.synchronize()
        return [host(beams, "scores") for beams in found]

    if device == "cuda":
        torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as threads:
        for first, found in enumerate(threads.map(part, range(4))):
            for scores, wanted in zip(found, expected[first::4], strict=True):
                if not np.array_equal(scores, wanted):
                    raise GateError("threads with streams of their own get other scores")


def host(beams: Any, name: str) -> Any:
    """An array of the beams as NumPy."""
    array = getattr(beams, name)
    return array.get() if hasattr(array, "get") else array.cpu().numpy()


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
