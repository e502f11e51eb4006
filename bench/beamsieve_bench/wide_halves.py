"""A trial: the batch in parts, each on a stream of its own, so that one part's attention runs while
another's products do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beamsieve.models.wide.scorer import WideScorer
from beamsieve_bench.wide_free import FreeBeams


class PartsScorer:
    """One scorer for each part of the requests, in order."""

    def __init__(self, parts: Sequence[WideScorer]) -> None:
        self.parts = list(parts)
        self.batch = sum(part.batch for part in parts)
        self.weights, self.widths, self.taken = parts[0].weights, parts[0].widths, parts[0].taken
        self._streams = [torch.cuda.Stream() for _ in parts]  # type: ignore[no-untyped-call]

    def __call__(self, step: int, beams: FreeBeams) -> tuple[Tensor, Tensor]:
        """As one scorer of the whole batch."""
        current = torch.cuda.current_stream()
        said, start = [], 0
        for part, stream in zip(self.parts, self._streams, strict=True):
            end = start + part.batch
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                own = FreeBeams(
                    beams.tokens[start:end], beams.scores[start:end], beams.parents[start:end]
                )
                said.append(part(step, own))
            start = end
        for stream in self._streams:
            current.wait_stream(stream)
        return torch.cat([hidden for hidden, _ in said]), said[0][1]
