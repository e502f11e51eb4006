"""What generation costs: reading histories and the beam search, for each model of the family.

    python -m beamsieve_bench.generation_time --out bench/results/models/generation

Random weights: the time does not depend on what was learnt. Per model and dtype: reading a batch of
histories; the beam search (the spelling layers and the engine's step at every level) started kernel
by kernel, and as one CUDA graph, waited for each time or back to back; and the largest batch whose
reading and search stay within 50 ms at the 95th percentile. On a CPU (``--backend torch:cpu``) the
times are CPU time of one thread. A search is timed only after its scores were found the same as the
torch backend's, to rounding, and the graph's beams the same as without it, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beamsieve.engine import Engine
from beamsieve.errors import BackendError, InputError
from beamsieve.models.config import ARCHITECTURES, Architecture, ModelConfig
from beamsieve.models.family import make_model
from beamsieve.models.generator import Generator, Reading
from beamsieve.models.scorer import BeamScorer, as_tensor
from beamsieve.models.sequences import ItemSids
from beamsieve_bench.quality_data import QualityData, load

SIZES = {
    # A backbone as in production, and the published light decoder: 2 layers of width 256.
    "large": ModelConfig(
        width=768, layers=8, heads=8, decoder_width=256, decoder_layers=2, concepts=4
    ),
    # As letter-beauty is trained.
    "small": ModelConfig(
        width=256, layers=2, heads=4, decoder_width=256, decoder_layers=2, concepts=4
    ),
}
BUDGET_MS = 50.0
KERNELS = "deco-kernels"
"""Deco with the Triton kernels of its search."""


class Timed:
    """One model on one engine."""

    def __init__(self, data: QualityData, config: ModelConfig, dtype: str, backend: str) -> None:
        torch.manual_seed(0)
        self.index = data.index()
        self.engine = Engine(self.index, backend)
        self.device = self.engine.device
        self.dtype = getattr(torch, dtype)
        model = make_model(config, self.index.codebooks).eval().requires_grad_(False)
        assert isinstance(model, Generator)
        for head in model.heads:
            head.weight.mul_(20)  # as sharp as a trained model's, so that beams spread as there
        self.model: Generator = model.to(self.device, self.dtype)
        self.sids = torch.from_numpy(ItemSids(self.index).sids).to(self.device)

    def histories(self, batch: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Histories as long as the model reads."""
        random = np.random.default_rng(seed)
        longest = self.model.config.longest
        leaves = torch.from_numpy(random.integers(0, len(self.sids), (batch, longest)))
        lengths = torch.full((batch,), longest, device=self.device)
        return self.sids[leaves.to(self.device)], lengths

    def read(self, batch: int, seed: int = 0) -> Reading:
        """Read a batch."""
        with torch.no_grad():
            return self.model.read(*self.histories(batch, seed))

    def search(self, score: BeamScorer, width: int, graph: bool) -> Any:
        """One beam search."""
        widths = [width] * self.model.levels
        return self.engine.search(score, widths, len(score.reading), graph=graph)


def measure(
    data: QualityData,
    size: str,
    architecture: Architecture,
    dtype: str,
    batch: int,
    width: int,
    backend: str,
    kernel: bool = False,
    rounds: int = 30,
) -> dict[str, Any]:
    """One row of the table; milliseconds. ``kernel``: Deco's spelling kernel."""
    config = replace(SIZES[size], architecture=architecture)
    timed = Timed(data, config, dtype, backend)
    score = BeamScorer(timed.model, timed.read(batch), kernel)
    graph = timed.engine.capabilities.graph
    _check(timed, score, width, graph, backend)
    read = timed.histories(batch)
    row: dict[str, Any] = {
        "size": size,
        "model": architecture,
        "parameters": sum(p.numel() for p in timed.model.parameters()),
        "dtype": dtype,
        "batch": batch,
        "beams": width,
        "levels": timed.model.levels,
        "codebook": max(timed.index.codebooks),
        "history": config.longest,
        "spelling_kernel": kernel,
        "threads": torch.get_num_threads(),
        "backend": timed.engine.backend,
        "device": torch.cuda.get_device_name() if timed.device != "cpu" else "cpu",
    }
    with torch.no_grad():
        row["read_ms"] = _median(timed, lambda: timed.model.read(*read), rounds)
        row["search_ms"] = _median(timed, lambda: timed.search(score, width, False), rounds)
        if graph:
            row["search_graph_ms"] = _median(
                timed, lambda: timed.search(score, width, True), rounds
            )
            if timed.device != "cpu":
                row["search_back_to_back_ms"] = _back_to_back(timed, score, width)
                row["users_within_50_ms"] = _most_users(timed, width, kernel)
    return row


def _check(timed: Timed, score: BeamScorer, width: int, graph: bool, backend: str) -> None:
    """Refuse to time a search that does not say what another way of it says."""
    own = timed.search(score, width, False)
    if graph:
        again = timed.search(score, width, True)
        for name in ("tokens", "scores", "rows", "count"):
            one, two = (as_tensor(getattr(b, name), torch.device("cpu")) for b in (own, again))
            if not torch.equal(one, two):
                raise BackendError(f"{backend}: the captured search's {name} differ; not timed.")
    other = Engine(timed.index, f"torch:{timed.device}")
    widths = [width] * timed.model.levels
    wanted = other.search(BeamScorer(timed.model, score.reading), widths, len(score.reading))
    one, two = (as_tensor(b.scores, torch.device("cpu")).float() for b in (own, wanted))
    far = (one - two).abs().amax().item()
    if not far <= (0.05 if timed.dtype == torch.float32 else 0.5):
        raise BackendError(
            f"{backend}: scores differ from the torch backend's by {far}; not timed."
        )


def _median(timed: Timed, work: Callable[[], Any], rounds: int) -> float:
    return float(np.median(_times(timed, work, rounds)))


def _times(timed: Timed, work: Callable[[], Any], rounds: int) -> list[float]:
    """Milliseconds of each round, behind three that do not count; on a CPU, of its one thread."""
    clock = time.process_time if timed.device == "cpu" else time.perf_counter
    found = []
    for turn in range(rounds + 3):
        _wait(timed)
        began = clock()
        work()
        _wait(timed)
        if turn >= 3:
            found.append(1e3 * (clock() - began))
    return found


def _wait(timed: Timed) -> None:
    if timed.device != "cpu":
        torch.cuda.synchronize()


def _back_to_back(timed: Timed, score: BeamScorer, width: int) -> float:
    """Milliseconds of one captured search among many that are not waited for one by one."""
    many = 20

    def searches() -> None:
        for _ in range(many):
            timed.search(score, width, True)

    return float(np.median(_times(timed, searches, 3))) / many


def _most_users(timed: Timed, width: int, kernel: bool) -> dict[str, float]:
    """The largest of some batches within the budget."""
    best = {"users": 0.0, "p95_ms": 0.0}
    for batch in (64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192):
        histories = timed.histories(batch)
        score = BeamScorer(timed.model, timed.read(batch), kernel)

        def serve(histories: Any = histories, score: BeamScorer = score) -> None:
            score.reading.overwrite(timed.model.read(*histories))
            timed.search(score, width, True)

        p95 = float(np.percentile(_times(timed, serve, 10), 95))
        if p95 > BUDGET_MS:
            break
        best = {"users": batch, "p95_ms": p95}
        torch.cuda.empty_cache()
    return best


def _models(text: str) -> list[tuple[Architecture, bool]]:
    """What is timed: architectures, and whether with the kernels of Deco's search."""
    known: dict[str, tuple[Architecture, bool]] = {name: (name, False) for name in ARCHITECTURES}
    known[KERNELS] = ("deco", True)
    names = text.split(",")
    for name in names:
        if name not in known:
            raise InputError(f"There is no model {name!r}; there are {', '.join(known)}.")
    return [known[name] for name in names]


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="letter-beauty", help="a data set, or a packed .npz")
    parser.add_argument("--folder", type=Path, help="of the published files")
    parser.add_argument("--backend", default="triton:cuda")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--beams", type=int, default=50)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--rounds", type=int, default=30, help="behind each median")
    parser.add_argument(
        "--models", default=",".join(ARCHITECTURES), help=f"also {KERNELS}, on a GPU"
    )
    parser.add_argument("--out", type=Path, help="folder for generation.json")
    asked = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(1)
    data = load(asked.data, asked.folder)
    rows = []
    for size in asked.sizes.split(","):
        for dtype in asked.dtypes.split(","):
            for name, kernel in _models(asked.models):
                shape = (asked.batch, asked.beams)
                row = measure(data, size, name, dtype, *shape, asked.backend, kernel, asked.rounds)
                rows.append(row)
                print(json.dumps(row), flush=True)
                if asked.out:  # after every row: a run that is cut short leaves what it has
                    asked.out.mkdir(parents=True, exist_ok=True)
                    (asked.out / "generation.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
