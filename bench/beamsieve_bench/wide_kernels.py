"""The wide-beam decoder's parts one by one at GRACE's size, on a GPU.

    python -m beamsieve_bench.wide_kernels --out FOLDER [--tune] [--dtype bfloat16]

First the gate (``wide_check``). Then, as medians of CUDA-graph replays: cross-attention of one
layer by every kernel; self-attention of one layer at every token by every kernel; norms; all
products of one decode. ``--tune`` also times other tiles.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from beamsieve.models.wide import calls
from beamsieve.models.wide.context import CONTEXT_KINDS, context_attention
from beamsieve.models.wide.weights import WideWeights
from beamsieve_bench.wide_check import check_all, random_ids
from beamsieve_bench.wide_ladder import with_kept_copies
from beamsieve_bench.wide_timing import graph_times
from beamsieve_bench.wide_workload import GRACE, SMALL, WideWorkload, weights

OWN_TILES = (
    (1, 16, 4), (4, 4, 4), (16, 1, 4), (2, 4, 2), (1, 4, 1), (1, 8, 1), (1, 8, 2), (1, 2, 1),
)  # fmt: skip
CONTEXT_TILES = (
    (128, 1, 8, 2), (128, 2, 8, 2), (128, 8, 8, 2), (64, 1, 4, 2), (64, 2, 4, 2), (64, 4, 4, 3),
    (64, 16, 4, 2), (128, 1, 8, 1), (64, 1, 4, 1), (64, 2, 4, 1), (128, 4, 8, 1),
)  # fmt: skip


def own_times(
    workload: WideWorkload, device: str, dtype: torch.dtype, replays: int
) -> dict[str, dict[str, float]]:
    """P50 of self-attention of one layer, by kernel and token."""
    heads, width = workload.config.heads, workload.config.head_width
    length = len(workload.codebooks)
    products = torch.randn(workload.rows(workload.dynamic), 3, heads, width, device=device).to(
        dtype
    )
    found: dict[str, dict[str, float]] = {}
    for t in range(1, length + 1):
        ids = random_ids(workload, t, device)
        rows = len(ids)
        product = products[-rows:]
        queries = product[:, 0].contiguous()
        pool = products[:, 1:].contiguous()
        caches = torch.randn(2, length, rows, heads, width, device=device).to(dtype)
        order = ids[:, max(0, t - 2)].argsort(stable=True).int()
        table = torch.randn(1 + sum(workload.codebooks[:-1]), 3, heads, width, device=device)
        table = table.to(dtype)
        tokens = ids % len(table)
        ways: dict[str, Callable[[], Any]] = {
            "generic SDPA": _generic(product, caches, t),
            "coalesced": partial(calls.coalesced, queries, caches[0], caches[1], t),
            "fused": partial(calls.fused, product, caches[0], caches[1], t),
            "paged": partial(calls.paged, product, pool[:, 0], pool[:, 1], ids, t),
            "in place": partial(calls.in_place, products, ids, t),
            "in place, by parent": partial(calls.in_place, products, ids, t, order=order),
            "first layer's table": partial(calls.in_place, table, tokens, t),
        }  # fmt: skip
        for name, way in ways.items():
            fewer = min(replays, 10) if name.startswith("generic") else replays
            found.setdefault(name, {})[f"t={t}"] = graph_times(way, fewer).p50
    return found


def _generic(product: torch.Tensor, caches: torch.Tensor, t: int) -> Callable[[], Any]:
    keys, values = (cache[:t].permute(1, 2, 0, 3) for cache in caches)
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        product[:, 0, :, None], keys, values
    )


def context_times(
    workload: WideWorkload, device: str, dtype: torch.dtype, replays: int
) -> dict[str, float]:
    """P50 of cross-attention of one layer, by kernel."""
    heads, width = workload.config.heads, workload.config.head_width
    queries = torch.randn(workload.batch, workload.dynamic[-2], heads, width, device=device)
    queries = queries.to(dtype)
    kept = torch.randn(workload.batch, workload.columns, 2, heads, width, device=device).to(dtype)
    found: dict[str, float] = {}
    for kind in CONTEXT_KINDS:
        attend = with_kept_copies() if kind == "per_beam" else context_attention(kind)
        try:
            found[kind] = graph_times(
                partial(attend, queries, kept[:, :, 0], kept[:, :, 1], None),
                10 if kind == "per_beam" else replays,
            ).p50
        except RuntimeError as error:
            found[kind] = float("nan")
            print(kind, str(error).splitlines()[0])
    return found


def tuned(workload: WideWorkload, device: str, dtype: torch.dtype) -> dict[str, dict[str, float]]:
    """P50 of other tiles: self-attention at the last token, and cross-attention."""
    heads, width = workload.config.heads, workload.config.head_width
    length = len(workload.codebooks)
    products = torch.randn(workload.rows(workload.dynamic), 3, heads, width, device=device)
    products = products.to(dtype)
    ids = random_ids(workload, length, device)
    order = ids[:, length - 2].argsort(stable=True).int()
    found: dict[str, dict[str, float]] = {"own": {}, "own, by parent": {}, "context": {}}
    for rows, each, warps in OWN_TILES:
        tile = {"ROWS": rows, "VALUES": each * width, "warps": warps, "stages": 2}
        name = f"{rows} rows, {each} heads, {warps} warps"
        found["own"][name] = graph_times(
            partial(calls.in_place, products, ids, length, shape=tile), 30
        ).p50
        if rows > 2:
            found["own, by parent"][name] = graph_times(
                partial(calls.in_place, products, ids, length, shape=tile, order=order), 30
            ).p50
    for g in (16, 32, 64):
        queries = products[-len(ids) :, 0].contiguous()
        caches = torch.randn(2, length, len(ids), heads, width, device=device).to(dtype)
        tile = {"G": g, "warps": 4, "stages": 2}
        found.setdefault("coalesced", {})[f"G={g}"] = graph_times(
            partial(calls.coalesced, queries, caches[0], caches[1], length, tile), 30
        ).p50
    queries = torch.randn(workload.batch, workload.dynamic[-2], heads, width, device=device)
    queries = queries.to(dtype)
    kept = torch.randn(workload.batch, workload.columns, 2, heads, width, device=device).to(dtype)
    for rows, tiles, warps, stages in CONTEXT_TILES:
        tile = {"ROWS": rows, "TILES": tiles, "warps": warps, "stages": stages}
        name = f"{rows} rows, {tiles} tiles, {warps} warps, {stages} stages"
        found["context"][name] = graph_times(
            partial(calls.context, queries, kept[:, :, 0], kept[:, :, 1], None, tile), 30
        ).p50
    return found


def product_times(
    workload: WideWorkload, made: WideWeights, device: str, replays: int
) -> dict[str, Any]:
    """P50 of each product of one layer at the last step's rows, and TFLOP/s; and of a norm."""
    how, layer, config = made.products, made.layers[0], workload.config
    rows = workload.batch * workload.dynamic[-2]
    x = torch.randn(rows, config.width, device=device).to(made.dtype)
    inner = torch.randn(rows, config.inner, device=device).to(made.dtype)
    fed = torch.randn(rows, config.feed, device=device).to(made.dtype).relu()
    normed, wide, cut = how.normed(x, None), how.activation(inner), how.activation(fed)
    d, w, f = config.width, config.inner, config.feed
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "queries, keys, values": (3 * d * w, lambda: how.product(normed, layer.own_in)),
        "self-attention out": (d * w, lambda: how.add(x, wide, layer.own_out)),
        "cross-attention query": (d * w, lambda: how.product(normed, layer.query)),
        "feed in": (d * f, lambda: how.relu(normed, layer.feed_in, layer.feed_bias)),
        "feed out": (d * f, lambda: how.add(x, cut, layer.feed_out)),
        "norm": (0, lambda: how.normed(x, None)),
        "activation of attention": (0, lambda: how.activation(inner)),
    }
    found = {}
    for name, (per_row, way) in ways.items():
        taken = graph_times(way, replays).p50
        found[name] = {"ms": taken, "tflops": 2 * rows * per_row / taken / 1e9}
        x.normal_()
    return found


def layout_times(workload: WideWorkload, device: str, dtype: torch.dtype) -> dict[str, float]:
    """P50 of one layer's products by library, and by how the weight lies in memory."""
    config = workload.config
    rows = workload.batch * workload.dynamic[-2]
    shapes = {
        "queries, keys, values": (config.width, 3 * config.inner),
        "feed in": (config.width, config.feed),
        "feed out": (config.feed, config.width),
        "attention out": (config.inner, config.width),
    }
    found: dict[str, float] = {}
    for library in ("cublas", "cublaslt"):
        torch.backends.cuda.preferred_blas_library(library)
        for name, (inner, outer) in shapes.items():
            a = torch.randn(rows, inner, device=device).to(dtype)
            x = torch.randn(rows, outer, device=device).to(dtype)
            weight = (torch.randn(outer, inner, device=device) * inner**-0.5).to(dtype)
            for layout, given in (
                ("[out, in]", weight.t()),
                ("[in, out]", weight.t().contiguous()),
            ):
                place = f"{name}, {library}, {layout}"
                found[place] = graph_times(partial(torch.mm, a, given, out=x), 20).p50
                if outer < inner:
                    found[f"{place}, added"] = graph_times(partial(x.addmm_, a, given), 20).p50
    torch.backends.cuda.preferred_blas_library("default")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Check, time, write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="folder for wide_kernels.json")
    parser.add_argument("--tune", action="store_true", help="time other tiles too")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--replays", type=int, default=50)
    parser.add_argument("--small", action="store_true", help="a tiny size, to try the script")
    given = parser.parse_args(arguments)
    device, dtype = "cuda", getattr(torch, given.dtype)
    workload = SMALL if given.small else GRACE
    given.out.mkdir(parents=True, exist_ok=True)
    outcome: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "dtype": given.dtype,
        "gate": check_all(workload, device, dtype),
    }

    def keep(name: str, value: Any) -> None:
        outcome[name] = value
        print(name, json.dumps(value), flush=True)
        text = json.dumps(outcome, indent=1)
        (given.out / "wide_kernels.json").write_text(text + "\n", encoding="utf-8")

    with torch.no_grad():
        keep("context_ms", context_times(workload, device, dtype, given.replays))
        keep("own_ms", own_times(workload, device, dtype, given.replays))
        made = weights(workload, device, dtype)
        keep("products", product_times(workload, made, device, given.replays))
        try:
            made = weights(workload, device, dtype, products="float8")
            keep("float8_products", product_times(workload, made, device, given.replays))
        except RuntimeError as error:
            keep("float8_products", f"not here: {str(error).splitlines()[0]}")
        if given.tune:
            keep("layouts_ms", layout_times(workload, device, dtype))
            keep("tiles_ms", tuned(workload, device, dtype))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
