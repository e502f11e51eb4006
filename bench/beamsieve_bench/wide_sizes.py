"""The decoder in service: batches from 1 to 64 through captured sizes, on an engine.

    python -m beamsieve_bench.wide_sizes --out FOLDER [--backend triton] [--replays 100]

GRACE's decoder with random weights over a million skewed semantic IDs. First the gate, on a small
decoder: a captured search must give, bit for bit, what it gives step by step; a filled-up batch
must give, bit for bit, what the full one gives; and the kernels' items must be plain float32's, but
for those that rounding may turn. Then each size's time, from contexts on the device to beams.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import beamsieve as bs
from beamsieve.models.wide import WideConfig, WideDecoder
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.wide_check import GateError
from beamsieve_bench.wide_engine import OUTCOME, open_backend
from beamsieve_bench.wide_timing import times_of
from beamsieve_bench.wide_workload import GRACE, WideWorkload, random_model

SIZES = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (*SIZES, 11, 48)
"""Requests of the batches that are timed; 11 and 48 are filled up."""
MODEST = WideWorkload(
    batch=8,
    config=WideConfig(width=256, layers=2, heads=4, head_width=64, feed=512, longest=31),
    codebooks=(512,) * 4,
    columns=32,
    fixed=(64, 64, 64, 64),
    dynamic=(32, 64, 64, 48),
)


def host(engine: bs.Engine, beams: Any, name: str, count: int) -> Any:
    """An array of the first requests' beams."""
    array = getattr(beams, name)
    array = array.get() if hasattr(array, "get") else array.cpu().numpy()
    return array[:count]


def check(index: bs.Index, backend: Any) -> dict[str, float]:
    """The gate.

    Raises:
        GateError: a captured search, a filled batch or the kernels' items differ.
    """
    model = random_model(MODEST, "cuda")
    engine = bs.Engine(index, backend=backend)
    context = torch.randn(8, MODEST.columns, MODEST.config.width, device="cuda")
    lengths = torch.randint(1, MODEST.columns + 1, (8,), device="cuda")

    def decoder(**how: Any) -> WideDecoder:
        return WideDecoder(model, engine, MODEST.dynamic, MODEST.columns, sizes=(8,), **how)

    captured, steps = decoder(graph=True), decoder(graph=False)
    for turn in range(3):
        context.normal_()
        one, other = captured.search(context, lengths), steps.search(context, lengths)
        some = captured.search(context[:5], lengths[:5])
        for name in OUTCOME:
            full = host(engine, one, name, 8)
            if not np.array_equal(full, host(engine, other, name, 8)):
                raise GateError(f"turn {turn}: {name} of the graph and of the steps differ")
            if not np.array_equal(full[:5], host(engine, some, name, 5)):
                raise GateError(f"turn {turn}: {name} of a filled-up batch differ")
    plain = decoder(graph=False, attention="plain", dtype=torch.float32)
    found = captured.decode(context, lengths, 20)
    expected = plain.decode(context, lengths, 20)
    shared = [
        len({hit.item for hit in a} & {hit.item for hit in b}) / 20
        for a, b in zip(found, expected, strict=True)
    ]
    if not float(np.mean(shared)) > 0.8:
        raise GateError(f"only {np.mean(shared):.2f} of the items are plain float32's")
    return {"shared_with_float32": float(np.mean(shared))}


def main(arguments: list[str] | None = None) -> int:
    """Check, time, write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--backend", default="triton", choices=("triton", "cupy"))
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--check", action="store_true", help="the gate alone")
    given = parser.parse_args(arguments)
    index = bs.Index.build(
        bs.Catalog.from_arrays(skewed_sids(Workload(1_000_000, 512, 4)), codebooks=512)
    )
    given.out.mkdir(parents=True, exist_ok=True)
    backend = open_backend(given.backend)
    outcome: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "backend": given.backend,
        "gate": check(index, backend),
        "sizes": {},
    }
    print(json.dumps(outcome["gate"]), flush=True)

    def keep() -> None:
        text = json.dumps(outcome, indent=1)
        (given.out / f"wide_sizes_{given.backend}.json").write_text(text + "\n", encoding="utf-8")

    keep()
    if not given.check:
        engine = bs.Engine(index, backend=backend)
        decoder = WideDecoder(
            random_model(GRACE, "cuda"), engine, GRACE.dynamic, GRACE.columns, sizes=SIZES
        )
        outcome["taken"] = vars(decoder.taken)
        for batch in BATCHES:
            context = torch.randn(batch, GRACE.columns, GRACE.config.width, device="cuda")
            decoder.search(context)
            times = times_of(partial(decoder.search, context), given.replays, 3)
            outcome["sizes"][batch] = times.as_dict()
            print(batch, times, flush=True)
            keep()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
