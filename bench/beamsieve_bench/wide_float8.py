"""What float8 products change in the answers: a trained Wide model, decoded both ways.

    python -m beamsieve_bench.wide_float8 --out FOLDER --catalog INFO.txt --training VALID.csv.gz
        --judged TEST.csv.gz [--codebooks 256] [--epochs 40] [--device cuda]

Trains on the histories (or takes ``wide_float8.safetensors`` of an earlier run from the folder),
then decodes the judged ones with products in bfloat16, in float32 and in float8, and compares the
returned items. On a CPU, float8 products are those of their law: the same conversions, and float32
sums.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import beamsieve as bs
from beamsieve.models import (
    TrainingSettings,
    Wide,
    WideConfig,
    WideDecoder,
    load_checkpoint,
    read_histories,
    train,
)
from beamsieve.models.batches import pad
from beamsieve.models.sequences import ItemSids, number
from beamsieve.models.wide.products import ProductKind

CONFIG = WideConfig(width=64, layers=2, heads=2, head_width=64, feed=256, dropout=0.2)
WIDTH = 50
WAYS: tuple[tuple[str, torch.dtype, ProductKind], ...] = (
    ("bfloat16", torch.bfloat16, "own"),
    ("float8", torch.bfloat16, "float8"),
    ("float32", torch.float32, "own"),
)


def decoded(
    model: Wide, engine: bs.Engine, histories: Sequence[Any], k: int, way: Any
) -> list[list[Any]]:
    """The k best items of every history, one way."""
    _, dtype, products = way
    sids = ItemSids(engine.index)
    longest = model.config.longest
    attention = "plain" if dtype == torch.float32 else "auto"
    decoder = WideDecoder(
        model, engine, [WIDTH] * model.levels, longest + 1, dtype=dtype, products=products,
        attention=attention, graph=False, sizes=(64,),
    )  # fmt: skip
    found: list[list[Any]] = []
    device = decoder.weights.device
    for start in range(0, len(histories), 64):
        part = [history[-longest:] for history in histories[start : start + 64]]
        with torch.no_grad():
            reading = model.read(
                torch.from_numpy(sids.first(pad(part))).to(device),
                torch.tensor([len(history) for history in part], device=device),
            )
        some = decoder.decode(reading.context, reading.lengths, k)
        found += [[hit.item for hit in hits] for hits in some]
    return found


def overlap(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]], k: int) -> float:
    """The mean share of the k best items that both have."""
    shares = [
        len({*a[:k]} & {*b[:k]}) / max(1, len(a[:k]), len(b[:k]))
        for a, b in zip(one, other, strict=True)
    ]
    return float(np.mean(shares))


def main(arguments: list[str] | None = None) -> int:
    """Train, decode, compare; one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--catalog", required=True)
    parser.add_argument("--training", required=True)
    parser.add_argument("--judged", required=True)
    parser.add_argument("--codebooks", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--rows", type=int, default=2048, help="judged histories")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    catalog = bs.Catalog.read(given.catalog, codebooks=given.codebooks)
    index = bs.Index.build(catalog)
    path = given.out / "wide_float8.safetensors"
    outcome: dict[str, Any] = {"device": given.device, "items": len(index.items)}
    if not path.exists():
        report = train(
            given.training,
            index,
            path,
            config=CONFIG,
            settings=TrainingSettings(
                epochs=given.epochs, minutes=given.minutes, batch=64, learning_rate=3e-3,
                device=given.device,
            ),
            progress=False,
        )  # fmt: skip
        outcome["training"] = report.as_dict()
    model = load_checkpoint(path, index, device=given.device).model
    assert isinstance(model, Wide)
    judged = read_histories(given.judged)
    numbered = number(judged, index)
    rows = range(min(given.rows, len(judged)))
    histories = [numbered.histories[row] for row in rows]
    engine = bs.Engine(index, backend=f"torch:{given.device}")
    found = {way[0]: decoded(model, engine, histories, WIDTH, way) for way in WAYS}
    targets = [judged.target(row) for row in rows]
    outcome["rows"] = len(rows)
    outcome["recall_at_10"] = {
        name: float(np.mean([t in items[:10] for t, items in zip(targets, lists, strict=True)]))
        for name, lists in found.items()
    }
    outcome["overlap"] = {
        f"{one} and {other}, first {k}": overlap(found[one], found[other], k)
        for one, other in (("bfloat16", "float8"), ("bfloat16", "float32"), ("float8", "float32"))
        for k in (1, 10, WIDTH)
    }
    print(json.dumps(outcome))
    text = json.dumps(outcome, indent=1)
    (given.out / "wide_float8.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
