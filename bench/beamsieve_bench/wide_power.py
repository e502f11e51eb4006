"""What a decode's time varies with: clock and power, back to back and at a pace.

    python -m beamsieve_bench.wide_power --out FOLDER [--every 0,12.5,13,15,30] [--replays 300]

One graph, the decoder without a catalog, is replayed in a queue (0) and with a start every so many
milliseconds. Beside each series stand the clock and the power that the driver names every 10 ms,
and the energy of one decode by the board's own counter. Needs NVIDIA's ``pynvml`` (the package
nvidia-ml-py).
"""

from __future__ import annotations

import argparse
import importlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve_bench.gpu_timing import captured
from beamsieve_bench.wide_free import free_search
from beamsieve_bench.wide_ladder import ROWS, scorer_of
from beamsieve_bench.wide_timing import series_of
from beamsieve_bench.wide_workload import GRACE, SMALL, weights

SAMPLE = 0.01
"""Seconds between two readings."""
KEPT = 12
"""Of so many readings one is written down."""
_SM_CLOCK = 1  # nvmlClockType_t


class Watch:
    """Reads a GPU's clock, power and energy in a thread of its own, while it is entered.

    Attributes:
        seen: seconds, clock in MHz, power in W (which the driver averages over about a second), and
            millijoules since the driver was loaded.
    """

    def __init__(self) -> None:
        self._nvml = importlib.import_module("pynvml")
        own = str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-")
        try:
            self._nvml.nvmlInit()
            self._gpu = self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{own}")
        except self._nvml.NVMLError as error:
            raise RuntimeError(str(error)) from error
        self.seen: list[tuple[float, int, float, int]] = []

    def __enter__(self) -> Watch:
        self.seen = [self._reading()]  # so that the shortest series has one
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._over.wait(SAMPLE):
            self.seen.append(self._reading())

    def _reading(self) -> tuple[float, int, float, int]:
        nvml, gpu = self._nvml, self._gpu
        return (
            time.monotonic(), nvml.nvmlDeviceGetClockInfo(gpu, _SM_CLOCK),
            nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3, nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),
        )  # fmt: skip

    def watts(self) -> float | None:
        """Between the first and the last change of the energy counter; None without two."""
        changed = [
            now for before, now in zip(self.seen, self.seen[1:], strict=False) if now[3] > before[3]
        ]
        if len(changed) < 2:
            return None
        first, last = changed[0], changed[-1]
        return (last[3] - first[3]) / 1e3 / (last[0] - first[0])


def measured(watch: Watch, graph: torch.cuda.CUDAGraph, replays: int, every: float) -> Any:
    """One series, as plain values."""
    with watch:
        series = series_of(graph.replay, replays, every=every)
    taken = series[:, 1] - series[:, 0]
    period = float(np.diff(series[:, 0]).mean()) if replays > 1 else float(taken[0])
    p50, p90, p99 = (float(value) for value in np.percentile(taken, [50, 90, 99]))
    clocks = sorted(reading[1] for reading in watch.seen)
    watts = watch.watts()
    began = watch.seen[0][0]
    return {
        "every_ms": every,
        "replays": replays,
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "mean": float(taken.mean()),
        "period_ms": period,
        "watts": watts,
        "joules_per_decode": None if watts is None else watts * period / 1e3,
        "clock_mhz": [clocks[0], clocks[len(clocks) // 2], clocks[-1]],
        "ms": [round(float(value), 2) for value in taken],
        "readings": [
            [round((at - began) * 1e3), clock, round(power)]
            for at, clock, power, _ in watch.seen[::KEPT]
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Series by series; one JSON file, rewritten after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="folder for wide_power.json")
    parser.add_argument("--every", default="0,12.5,13,15,30", help="milliseconds; 0 for a queue")
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--small", action="store_true", help="a tiny size, to try the script")
    given = parser.parse_args(arguments)
    try:
        watch = Watch()
    except (ImportError, RuntimeError) as error:
        parser.error(f"clock and power cannot be read ({error}); install nvidia-ml-py.")
    workload = SMALL if given.small else GRACE
    row = next(row for row in ROWS if row.name == "+ by two tokens")
    given.out.mkdir(parents=True, exist_ok=True)
    outcome: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "row": row.name,
        "readings": "every 120 ms: ms, clock in MHz, power in W",
        "series": [],
    }
    with torch.no_grad():
        score = scorer_of(workload, row, weights(workload, "cuda"))
        graph = captured(lambda: free_search(score, score.widths), 2)
        for every in given.every.split(","):
            found = measured(watch, graph, given.replays, float(every))
            outcome["series"].append(found)
            shown = {name: value for name, value in found.items() if name not in ("ms", "readings")}
            print(json.dumps(shown), flush=True)
            text = json.dumps(outcome, indent=None)
            (given.out / "wide_power.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
