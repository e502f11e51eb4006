"""Where one decode's time goes: microseconds of every kernel, from PyTorch's profiler.

    python -m beamsieve_bench.wide_profile --out FOLDER [--row 7]

The decode runs step by step, so gaps between kernels are not in it: only the kernels' own times.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from beamsieve_bench.wide_free import free_search
from beamsieve_bench.wide_ladder import ROWS, scorer_of
from beamsieve_bench.wide_workload import GRACE, weights


def main(arguments: list[str] | None = None) -> int:
    """Profile two decodes after two others; one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--row", type=int, default=7)
    given = parser.parse_args(arguments)
    row = ROWS[given.row - 1]
    score = scorer_of(GRACE, row, weights(GRACE, "cuda", products=row.products))
    for _ in range(2):
        free_search(score, score.widths)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(2):
            free_search(score, score.widths)
        torch.cuda.synchronize()
    kernels = [
        {"kernel": one.key, "us": one.self_device_time_total / 2, "calls": one.count / 2}
        for one in seen.key_averages()
        if one.self_device_time_total
    ]
    kernels.sort(key=lambda one: -one["us"])
    total = sum(one["us"] for one in kernels)
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"row": row.name, "us": total, "kernels": kernels}, indent=1)
    (given.out / f"wide_profile_{given.row}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{row.name}: {total:.0f} us")
    for one in kernels[:40]:
        print(f"{one['us']:9.1f} {one['calls']:6.1f} {one['kernel'][:110]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
