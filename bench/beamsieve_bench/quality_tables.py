"""The tables of ``docs/quality.md``, from the JSON files of runs.

python -m beamsieve_bench.quality_tables bench/results/quality bench/results/generation
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beamsieve_bench.quality import MODELS, TEACHERS
from beamsieve_bench.quality_data import NAMES

Runs = dict[tuple[str, str], list[dict[str, Any]]]


def read(folder: Path) -> Runs:
    """Runs by data set and model, in the order of the tables; seeds in order."""
    found: Runs = {}
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        found.setdefault((run["data"], run["model"]), []).append(run)
    order = [(data, model) for data in NAMES for model in MODELS]
    for runs in found.values():
        runs.sort(key=lambda run: run["seed"])
    return {key: found[key] for key in order if key in found}


def quality(runs: Runs) -> list[str]:
    """Recall and NDCG, popularity beside them: mean ± standard deviation over seeds."""
    names = ("recall_at_5", "ndcg_at_5", "recall_at_10", "ndcg_at_10")
    rows = []
    before = ""
    for (data, model), own in runs.items():
        if data != before:
            popular = [f"{own[0]['popularity'][name]:.4f}" for name in names]
            rows.append([data, "popularity", "", *popular, "", ""])
        before = data
        cells = [_mean([run["filter_first"][name] for run in own]) for name in names]
        epochs = ", ".join(str(_epochs(run["training"])) for run in own)
        beside = _beside(own, runs.get((data, TEACHERS.get(model, "")), []))
        rows.append(["", model, str(len(own)), *cells, beside, epochs])
    head = ["data", "model", "seeds", "Recall@5", "NDCG@5", "Recall@10", "NDCG@10"]
    return _table([*head, "beside its teacher's", "epochs"], rows)


def _epochs(training: dict[str, Any]) -> int:
    """Behind how many epochs the weights that are judged stood."""
    return int(training["epochs" if training.get("kept") == "last" else "best_epoch"])


def _beside(own: list[dict[str, Any]], teachers: list[dict[str, Any]]) -> str:
    """How far a model's NDCG@10 is from its teacher's, in percent; "" without one."""
    if not teachers:
        return ""
    ours, theirs = (
        np.mean([run["filter_first"]["ndcg_at_10"] for run in runs]) for runs in (own, teachers)
    )
    return f"{100 * (ours / theirs - 1):+.1f} %"


def orders(runs: Runs) -> list[str]:
    """Filter-first against score-first."""
    rows = []
    for (data, model), own in runs.items():
        overlaps = [[100 * run[f"overlap_at_{cut}"] for run in own] for cut in (10, 50)]
        gains = [[_gain(run, cut) for run in own] for cut in (10, 50)]
        saved = 100 * np.mean([run["work_saved"] for run in own], axis=0)
        illegal = [100 * run["illegal_free_share"] for run in own]
        rows.append(
            [
                data,
                model,
                *(_mean(values, 2) for values in overlaps),
                *(_mean(values, 5) for values in gains),
                " / ".join(f"{share:.1f}" for share in saved),
                _mean(illegal, 2),
            ]
        )
    head = ["data", "model", "overlap@10, %", "overlap@50, %", "ΔRecall@10", "ΔRecall@50"]
    return _table([*head, "work saved per step, %", "illegal free beams, %"], rows)


def times(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Milliseconds per batch, and users within 50 ms."""
    found = []
    for row in rows:
        users = row.get("users_within_50_ms", {})
        found.append(
            [
                row["size"],
                row["model"] + (", its kernels" if row.get("spelling_kernel") else ""),
                row["backend"].partition(":")[0],
                f"{row['parameters'] / 1e6:.1f} M",
                row["dtype"],
                f"{row['batch']} × {row['beams']}",
                f"{row['read_ms']:.2f}",
                f"{row['search_ms']:.2f}",
                f"{row['search_graph_ms']:.3f}" if "search_graph_ms" in row else "",
                f"{row['search_back_to_back_ms']:.3f}" if "search_back_to_back_ms" in row else "",
                f"{users['users']:.0f}" if users else "",
            ]
        )
    head = ["size", "model", "backend", "parameters", "dtype", "batch × beams", "reading, ms"]
    head.append("search, ms")
    return _table(
        [*head, "search as one graph, ms", "back to back, ms", "users within 50 ms p95"], found
    )


def _gain(run: dict[str, Any], cut: int) -> float:
    name = f"recall_at_{cut}"
    return float(run["filter_first"][name] - run["score_first"][name])


def _mean(values: Sequence[float], digits: int = 4) -> str:
    spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("quality", type=Path, help="folder of the runs' JSON files")
    parser.add_argument("generation", type=Path, nargs="?", help="folder of generation.json")
    asked = parser.parse_args(arguments)
    runs = read(asked.quality)
    parts = [quality(runs), orders(runs)]
    if asked.generation:
        parts.append(times(json.loads((asked.generation / "generation.json").read_text())))
    print("\n\n".join("\n".join(part) for part in parts))


if __name__ == "__main__":
    main()
