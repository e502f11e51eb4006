"""A decode that goes on for as long as one likes: whole searches of one shape."""

from __future__ import annotations

import time
from typing import Any

import torch

from beamsieve.engine import Engine

HIDDEN = 64


class Decoder:
    """Whole searches of one shape, with hidden states that are drawn once."""

    def __init__(self, engine: Engine, batch: int, width: int, device: torch.device) -> None:
        draw = torch.Generator("cpu").manual_seed(0)
        sizes = engine.index.codebooks
        self._heads = [torch.randn(size, HIDDEN, generator=draw).to(device) for size in sizes]
        self._hidden = [
            torch.randn(batch, 1 if step == 0 else width, HIDDEN, generator=draw).to(device)
            for step in range(len(sizes))
        ]
        self._engine, self._batch, self._widths = engine, batch, [width] * len(sizes)

    def score(self, step: int, beams: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``Engine.search`` asks for it."""
        return self._hidden[step - 1], self._heads[step - 1]

    def search(self, graph: bool = False) -> Any:
        """One search."""
        return self._engine.search(self.score, self._widths, self._batch, graph=graph)

    def per_second(self, seconds: float, graph: bool) -> float:
        """Searches per second, over so many seconds."""
        beams = self.search(graph)
        beams.count.tolist()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            beams = self.search(graph)
            count += 1
            if count % 8 == 0:  # no long queue, in which an upload would not be felt
                beams.count.tolist()  # waits for the search's own stream, and not for the upload
        beams.count.tolist()
        return count / (time.perf_counter() - began)
