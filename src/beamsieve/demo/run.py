"""The demo: make a world, train a model in it, decode held-out users, report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from beamsieve.catalog import Catalog
from beamsieve.demo.measure import Comparison
from beamsieve.demo.report import show
from beamsieve.demo.world import QUICK, Size, World, make_world
from beamsieve.index import Index
from beamsieve.models.checkpoint import Checkpoint, load_checkpoint
from beamsieve.models.config import ModelConfig
from beamsieve.models.progress import progress_bar
from beamsieve.models.training import TrainingReport, TrainingSettings, train

_CONFIG = ModelConfig(
    width=64, layers=2, heads=2, decoder_width=64, decoder_layers=1, longest=12, dropout=0.0
)
_SETTINGS = TrainingSettings(
    epochs=12,
    batch=64,
    learning_rate=6e-3,
    warm_up_steps=50,
    drop_history=0.0,
    validation_share=0.05,
)
_QUICK_SETTINGS = replace(_SETTINGS, epochs=8, batch=16, learning_rate=3e-3, warm_up_steps=20)


def run_demo(
    *,
    json: bool = False,
    seed: int = 0,
    quick: bool = False,
    backend: str = "torch:cpu",
    progress: bool | None = None,
) -> dict[str, Any]:
    """Make a world, train a small model in it, decode held-out users, and report.

    All of it runs on one CPU thread (a GPU backend's part aside): the model is too small to gain
    from more, and a seed then gives the same figures every time, but for the times.

    Args:
        json: print nothing; the caller prints the result.
        seed: of the world and of the training.
        quick: a small world: seconds in place of a minute.
        backend: config string of the engine.
        progress: whether to draw a bar on stderr; None draws one where stderr is a terminal.

    Returns:
        Plain values:

        - ``recall_at_10`` and ``ndcg_at_10`` of the held-out users' next items, and the same of
          recommending the most popular items to everyone (``popularity_…``);
        - ``legal_share``: the share of finished beams that are some item's semantic ID,
          ``with_filter`` and ``without_filter``;
        - ``overlap``: the mean share of their ten items that filter-first and score-first agree on;
        - ``ms_per_request``: a whole decode, the model's decoder included, for ``filter_first``,
          ``score_first`` and ``without_filter``; ``stage_ms_per_request``: the engine's part of it;
        - ``index_bytes`` on the device, and ``index_bytes_on_host`` for items and titles;
        - ``world``, ``training``, ``users`` (three of them), ``seconds`` (of each part),
          ``backend`` and ``seed``.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        result = _measured(seed, quick, backend, progress)
    finally:
        torch.set_num_threads(threads)
    if not json:
        show(result)
    return result


def _measured(seed: int, quick: bool, backend: str, progress: bool | None) -> dict[str, Any]:
    size = QUICK if quick else Size()
    seconds: dict[str, float] = {}
    with progress_bar(progress) as bar:
        clock = _Clock(seconds, bar.begin)
        world = make_world(size, seed, clock.begin)
        clock.begin("index")
        index = Index.build(
            Catalog.from_arrays(world.sids, codebooks=world.codebooks, titles=list(world.names))
        )
        clock.end()
    clock.begin("training")
    checkpoint, trained = _train(world, index, replace(_of(quick), seed=seed), progress)
    clock.end()
    with progress_bar(progress) as bar:
        clock = _Clock(seconds, bar.begin)
        clock.begin("decoding")
        compared = Comparison(checkpoint, index, world.held_out, backend)
        quality = compared.quality(bar)
        clock.begin("timing")
        times = compared.times()
        clock.end()
    training = trained.as_dict()
    del training["checkpoint"]  # it was in a temporary folder
    return {
        "world": {**asdict(size), "semantic_ids": index.leaf_count},
        "training": training,
        **quality,
        **times,
        "index_bytes": index.device_bytes,
        "index_bytes_on_host": index.host_bytes,
        "backend": compared.filter_first.engine.backend,
        "seed": seed,
        "seconds": {name: round(spent, 2) for name, spent in seconds.items()},
    }


def _of(quick: bool) -> TrainingSettings:
    return _QUICK_SETTINGS if quick else _SETTINGS


def _train(
    world: World, index: Index, settings: TrainingSettings, progress: bool | None
) -> tuple[Checkpoint, TrainingReport]:
    with tempfile.TemporaryDirectory(prefix="beamsieve-demo-") as folder:
        path = Path(folder, "demo.safetensors")
        report = train(
            world.training, index, path, config=_CONFIG, settings=settings, progress=progress
        )
        return load_checkpoint(path, index), report


class _Clock:
    """Wall time of one part after the other."""

    def __init__(self, seconds: dict[str, float], say: Callable[[str, int | None], None]) -> None:
        self._seconds = seconds
        self._say = say
        self._part = ""
        self._began = 0.0

    def begin(self, part: str) -> None:
        self.end()
        self._part, self._began = part, time.perf_counter()
        self._say(part, None)

    def end(self) -> None:
        if self._part:
            self._seconds[self._part] = time.perf_counter() - self._began
        self._part = ""
