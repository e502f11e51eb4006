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

import torch

import beamsieve as bs
from beamsieve.models.wide import WideConfig, WideDecoder
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.wide_engine import open_backend
from beamsieve_bench.wide_shapes import check_decoder
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
    _, shared = check_decoder(random_model(MODEST, "cuda"), index, backend, MODEST)
    outcome: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "backend": given.backend,
        "gate": {"shared_with_float32": shared},
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
