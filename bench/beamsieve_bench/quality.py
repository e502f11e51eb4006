"""Rows of the quality tables: train models on data sets, judge them, write a JSON of each run.

    python -m beamsieve_bench.quality --data letter-beauty --model deco-kd --seeds 3 --device cuda

``--data`` and ``--model`` take several, by commas. ``deco-kd`` needs its teacher, a ``fused-gr`` of
the same seed, which is trained first. On a GPU all trainings of a command run side by side
(``beamsieve_bench.fleet``) within ``--seconds``; elsewhere one after the other, each to its own end
(:func:`beamsieve.models.train`). All models of a data set share their settings but for what
``TRAINED_WITH`` and ``TRAINED_ON`` say.
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

from beamsieve.index import Index
from beamsieve.models.checkpoint import Checkpoint, load_checkpoint
from beamsieve.models.config import ModelConfig
from beamsieve.models.family import make_model
from beamsieve.models.sequences import ItemSids, join_rows, number
from beamsieve.models.settings import TrainingSettings
from beamsieve.models.training import train
from beamsieve_bench.fleet import Trainee
from beamsieve_bench.fleet_run import train_all
from beamsieve_bench.quality_data import NAMES, QualityData, load
from beamsieve_bench.quality_measure import measure

MODELS: dict[str, dict[str, Any]] = {
    "flat-gr": {"architecture": "flat-gr"},
    "fused-gr": {"architecture": "fused-gr"},
    "fused-gr-uncharged": {"architecture": "fused-gr"},
    "deco-ce": {},
    "deco-kd": {},
    "fused-gr-pointer": {"architecture": "fused-gr", "pointer": True},
    "deco-ce-pointer": {"pointer": True},
    "deco-kd-pointer": {"pointer": True},
}
TEACHERS = {
    "deco-kd": "fused-gr",
    "deco-kd-pointer": "fused-gr-pointer",
}
TRAINED_WITH: dict[str, dict[str, Any]] = {
    "fused-gr-uncharged": {"validity": 0.0},
    "deco-kd": {"from_teacher": True},
    "deco-kd-pointer": {"from_teacher": True},
}
"""Settings of one model that are not its data set's."""
TRAINED_ON: dict[tuple[str, str], dict[str, Any]] = {
    ("letter-beauty", "flat-gr"): {"epochs": 40, "validity": 0.1}
}
"""Settings of one model on one data set."""

_SIZES = ModelConfig(
    width=128, layers=2, heads=4, decoder_width=128, decoder_layers=2, concepts=4, longest=50,
    dropout=0.3,
)  # fmt: skip
_SETTINGS = TrainingSettings(
    epochs=30, batch=256, learning_rate=3e-3, warm_up_steps=100, decay=0.7, drop_history=0.2,
    average=0.995, weight_decay=0.05, teacher_share=0.5, validity=0.3, threads=1,
)  # fmt: skip
SIZES: dict[str, ModelConfig] = {
    "letter-beauty": replace(_SIZES, width=256, decoder_width=256),
    "minionerec-industrial": replace(_SIZES, longest=20, dropout=0.2),
    "eshop-clothing": replace(_SIZES, dropout=0.1),
    "movietweetings": _SIZES,
}
SETTINGS: dict[str, TrainingSettings] = {
    "letter-beauty": replace(_SETTINGS, validity=0.15),
    "minionerec-industrial": replace(_SETTINGS, epochs=50, batch=64, drop_history=0.5),
    "eshop-clothing": replace(_SETTINGS, epochs=18, drop_history=0.0, validity=0.2),
    "movietweetings": replace(_SETTINGS, epochs=40, batch=64, validity=0.1),
}


class Work:
    """What a command is to do with one data set: its sizes, settings and index."""

    def __init__(self, data: QualityData, device: str, changes: dict[str, Any]) -> None:
        self.data = data
        sizes = {name: value for name, value in changes.items() if hasattr(_SIZES, name)}
        rest = {name: value for name, value in changes.items() if name not in sizes}
        self.sizes = replace(SIZES[data.name], **sizes)
        share = data.validation_share
        precision = "bfloat16" if torch.device(device).type == "cuda" else "float32"
        own: dict[str, Any] = {
            "validation_share": share,
            "device": device,
            "precision": precision,
        }
        self.settings = replace(SETTINGS[data.name], **own | rest)
        self._asked = rest
        self.index: Index = data.index()
        numbered = number(data.training_histories(), self.index)
        self.sequences = join_rows(numbered, None)
        counts = np.bincount(self.sequences.items, minlength=len(self.index.items))
        most = np.argsort(-counts, kind="stable")[:100]
        self.popular = tuple(self.index.items.list(most[counts[most] > 0]))
        self.sids = ItemSids(self.index)

    def config(self, model: str) -> ModelConfig:
        """Sizes of a model."""
        return replace(self.sizes, **MODELS[model])

    def settings_of(self, model: str, seed: int) -> TrainingSettings:
        """How a model is trained; what was asked for goes before what is the model's own."""
        own = TRAINED_WITH.get(model, {}) | TRAINED_ON.get((self.data.name, model), {})
        return replace(self.settings, **own | self._asked | {"seed": seed})

    def trainee(self, model: str, seed: int, teacher: Trainee | None) -> Trainee:
        """A training on the device."""
        torch.manual_seed(seed)
        made = make_model(self.config(model), self.index.codebooks).to(self.settings.device)
        settings = self.settings_of(model, seed)
        name = f"{self.data.name}-{model}-{seed}"
        taught = None if teacher is None else teacher.result
        return Trainee(name, made, self.sids, self.sequences, settings, taught)

    def row(self, model: str, seed: int, **rest: Any) -> dict[str, Any]:
        """What every JSON of a run says first."""
        return {
            "data": self.data.name,
            "model": model,
            "seed": seed,
            "config": asdict(self.config(model)),
            "settings": asdict(self.settings_of(model, seed)),
            "device": torch.cuda.get_device_name() if "cuda" in self.settings.device else "cpu",
            "torch": torch.__version__,
            **rest,
        }


def side_by_side(
    works: list[Work], models: list[str], seeds: list[int], seconds: float
) -> list[tuple[Work, str, int, Checkpoint, dict[str, Any]]]:
    """Train everything on the GPU: first what needs no teacher, then what does."""
    torch.set_float32_matmul_precision("high")
    teachers = {TEACHERS[model] for model in models if model in TEACHERS}
    first = [m for m in MODELS if m not in TEACHERS and (m in models or m in teachers)]
    second = [model for model in models if model in TEACHERS]
    trained: dict[tuple[int, str, int], Trainee] = {}
    share = len(first) / (len(first) + 1.3 * len(second))  # a teacher's forward costs as well
    began = time.monotonic()
    for wanted, part in ((first, share), (second, 1.0)):
        stage = {
            (place, model, seed): work.trainee(
                model, seed, trained.get((place, TEACHERS.get(model, ""), seed))
            )
            for place, work in enumerate(works)
            for model in wanted
            for seed in seeds
        }
        left = seconds - (time.monotonic() - began)
        train_all([*stage.values()], part * left, lambda line: print(line, flush=True))
        trained |= stage
    return [
        (
            works[place],
            model,
            seed,
            Checkpoint(trainee.result.eval(), works[place].index.fingerprint, works[place].popular),
            trainee.report(),
        )
        for (place, model, seed), trainee in sorted(
            trained.items(), key=lambda entry: [*models, entry[0][1]].index(entry[0][1])
        )
        if model in models
    ]


def one_by_one(
    works: list[Work], models: list[str], seeds: list[int], folder: Path
) -> list[tuple[Work, str, int, Checkpoint, dict[str, Any]]]:
    """Train everything with the library's own loop."""
    found = []
    for work in works:
        for model in [*dict.fromkeys([*(TEACHERS.get(m, m) for m in models), *models])]:
            for seed in seeds:
                path = folder / f"{work.data.name}-{model}-{seed}.safetensors"
                teacher = TEACHERS.get(model)
                report = train(
                    work.data.training_histories(),
                    work.index,
                    path,
                    config=work.config(model),
                    settings=work.settings_of(model, seed),
                    teacher=teacher and folder / f"{work.data.name}-{teacher}-{seed}.safetensors",
                    progress=False,
                ).as_dict()
                del report["checkpoint"]
                if model in models:
                    found.append((work, model, seed, load_checkpoint(path, work.index), report))
    return found


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
    parser.add_argument("--data", required=True, help=f"of {', '.join(NAMES)}, or packed .npz")
    parser.add_argument("--folder", type=Path, help="of the published files")
    parser.add_argument("--model", required=True, help=f"of {', '.join(MODELS)}")
    parser.add_argument("--seeds", type=int, default=3, help="0 up to this many")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=600.0, help="of training, on a GPU")
    parser.add_argument("--backend", help="config string of the engine; torch on --device if not")
    parser.add_argument("--rows", type=int, help="judge so many rows, evenly spread; all if not")
    parser.add_argument("--out", type=Path, help="folder for a JSON of each run")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting or a size"
    )
    asked = parser.parse_args(arguments)
    changes = dict(text.split("=", 1) for text in asked.set)
    changes = {n: v if n == "precision" else json.loads(v) for n, v in changes.items()}
    works = [Work(load(n, asked.folder), asked.device, changes) for n in asked.data.split(",")]
    models = asked.model.split(",")
    seeds = [*range(asked.seeds)] if asked.seed is None else [asked.seed]
    with tempfile.TemporaryDirectory() as folder:
        if torch.device(asked.device).type == "cuda":
            trained = side_by_side(works, models, seeds, asked.seconds)
        else:
            trained = one_by_one(works, models, seeds, Path(folder))
    backend = asked.backend or f"torch:{asked.device}"
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for work, model, seed, checkpoint, training in trained:
        began = time.monotonic()
        histories = work.data.judged_histories(asked.rows)
        judged = measure(checkpoint, work.index, histories, backend=backend)
        spent = time.monotonic() - began
        if torch.device(asked.device).type == "cuda":
            training = {**training, "seconds_side_by_side": asked.seconds}
        row = work.row(
            model, seed, training=training, backend=backend, seconds_of_measuring=spent, **judged
        )
        results.setdefault((work.data.name, model), []).append(row)
        if asked.out:
            asked.out.mkdir(parents=True, exist_ok=True)
            target = asked.out / f"{work.data.name}-{model}-{seed}.json"
            target.write_text(json.dumps(row, indent=1) + "\n")
    for rows in results.values():
        print(json.dumps(summary(rows)), flush=True)


if __name__ == "__main__":
    main()
