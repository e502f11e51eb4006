"""One row of the quality tables: train a model on a data set, judge it, write a JSON of the run.

    python -m beamsieve_bench.quality --data letter-beauty --model deco-kd --seeds 3 --device cuda

``deco-kd`` needs its teacher, a ``fused-gr`` of the same seed: it is trained first where the work
folder does not hold it. Every model of a data set is trained with the same settings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.models.checkpoint import load_checkpoint
from beamsieve.models.config import ModelConfig
from beamsieve.models.training import TrainingSettings, train
from beamsieve_bench.quality_data import NAMES, QualityData, load
from beamsieve_bench.quality_measure import measure

MODELS: dict[str, dict[str, Any]] = {
    "flat-gr": {"architecture": "flat-gr"},
    "fused-gr": {"architecture": "fused-gr"},
    "deco-ce": {},
    "deco-kd": {},
    "fused-gr-pointer": {"architecture": "fused-gr", "pointer": True},
    "deco-ce-pointer": {"pointer": True},
}
TEACHERS = {"deco-kd": "fused-gr"}

_SIZES = ModelConfig(
    width=128, layers=4, heads=4, decoder_width=128, decoder_layers=2, longest=50, dropout=0.3
)
_SETTINGS = TrainingSettings(
    epochs=80, batch=256, learning_rate=1.5e-3, warm_up_steps=200, drop_history=0.2, average=0.995,
    weight_decay=0.05, patience=8, threads=1,
)  # fmt: skip
SIZES: dict[str, ModelConfig] = {
    "letter-beauty": _SIZES,
    "minionerec-industrial": replace(_SIZES, width=64, layers=2, decoder_width=64),
    "eshop-clothing": replace(_SIZES, width=64, layers=2, decoder_width=64, dropout=0.2),
    "movietweetings": replace(_SIZES, width=96, layers=2, decoder_width=96),
}
SETTINGS: dict[str, TrainingSettings] = {
    "letter-beauty": _SETTINGS,
    "minionerec-industrial": replace(_SETTINGS, batch=64, drop_history=0.5, patience=15),
    "eshop-clothing": replace(_SETTINGS, drop_history=0.0),
    "movietweetings": replace(_SETTINGS, batch=64, drop_history=0.2),
}


def run(
    data: QualityData,
    model: str,
    seed: int,
    work: Path,
    *,
    sizes: ModelConfig,
    settings: TrainingSettings,
    backend: str,
    rows: int | None = None,
) -> dict[str, Any]:
    """Train and judge one model of one seed; plain values."""
    index = data.index()
    checkpoint = work / f"{data.name}-{model}-{seed}.safetensors"
    settings = replace(settings, seed=seed, validation_share=data.validation_share)
    teacher = None
    if model in TEACHERS:
        teacher = work / f"{data.name}-{TEACHERS[model]}-{seed}.safetensors"
        if not teacher.exists():
            _train(data, TEACHERS[model], index, teacher, sizes, settings, None)
    report = _train(data, model, index, checkpoint, sizes, settings, teacher)
    began = time.monotonic()
    judged = measure(
        load_checkpoint(checkpoint, index, device=settings.device),
        index,
        data.judged_histories(rows),
        backend=backend,
    )
    return {
        "data": data.name,
        "model": model,
        "seed": seed,
        "config": {**asdict(sizes), **MODELS[model]},
        "settings": asdict(settings),
        "training": {name: value for name, value in report.items() if name != "checkpoint"},
        "backend": backend,
        "device": torch.cuda.get_device_name() if "cuda" in settings.device else "cpu",
        "torch": torch.__version__,
        "seconds_of_measuring": time.monotonic() - began,
        **judged,
    }


def _train(
    data: QualityData,
    model: str,
    index: Any,
    checkpoint: Path,
    sizes: ModelConfig,
    settings: TrainingSettings,
    teacher: Path | None,
) -> dict[str, Any]:
    return train(
        data.training_histories(),
        index,
        checkpoint,
        config=replace(sizes, **MODELS[model]),
        settings=settings,
        teacher=teacher,
        progress=False,
    ).as_dict()


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of what the tables show."""
    found: dict[str, Any] = {key: results[0][key] for key in ("data", "model", "rows")}
    found["seeds"] = [result["seed"] for result in results]

    def spread(values: list[float]) -> dict[str, float]:
        return {"mean": float(np.mean(values)), "spread": float(np.std(values))}

    for way in ("filter_first", "score_first", "popularity"):
        for name in results[0][way]:
            found[f"{way}.{name}"] = spread([result[way][name] for result in results])
    for name in ("overlap_at_10", "overlap_at_50", "illegal_free_share", "work_saved_in_all"):
        found[name] = spread([result[name] for result in results])
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", required=True, help=f"{', '.join(NAMES)}, or a packed .npz")
    parser.add_argument("--folder", type=Path, help="of the published files")
    parser.add_argument("--model", required=True, help=f"of {', '.join(MODELS)}; or some, by comma")
    parser.add_argument("--seeds", type=int, default=3, help="0 up to this many")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", help="config string of the engine; torch on --device if not")
    parser.add_argument("--rows", type=int, help="judge so many rows, evenly spread; all if not")
    parser.add_argument("--work", type=Path, help="keep checkpoints here; nowhere if not")
    parser.add_argument("--out", type=Path, help="folder for a JSON of each run")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting or a size"
    )
    asked = parser.parse_args(arguments)
    data = load(asked.data, asked.folder)
    sizes, settings = SIZES[data.name], replace(SETTINGS[data.name], device=asked.device)
    for text in asked.set:
        name, _, value = text.partition("=")
        value = value if name == "precision" else json.loads(value)
        if hasattr(sizes, name):
            sizes = replace(sizes, **{name: value})
        else:
            settings = replace(settings, **{name: value})
    seeds = range(asked.seeds) if asked.seed is None else [asked.seed]
    with tempfile.TemporaryDirectory() as temporary:
        work = asked.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for model in asked.model.split(","):
            results = []
            for seed in seeds:
                results.append(
                    run(
                        data,
                        model,
                        seed,
                        work,
                        sizes=sizes,
                        settings=settings,
                        backend=asked.backend or f"torch:{asked.device}",
                        rows=asked.rows,
                    )
                )
                if asked.out:
                    asked.out.mkdir(parents=True, exist_ok=True)
                    target = asked.out / f"{data.name}-{model}-{seed}.json"
                    target.write_text(json.dumps(results[-1], indent=1) + "\n")
            print(json.dumps(summary(results)), flush=True)


if __name__ == "__main__":
    main()
