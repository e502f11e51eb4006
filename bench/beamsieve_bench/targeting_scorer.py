"""A model whose best semantic IDs are known exactly.

A generator's scores depend on the whole prefix, so the true top of a large catalog cannot be
computed, and a measurement of search quality has nothing to compare with. Here the hidden state of
a beam is the viewer's vector plus a vector of the last token alone. The logit of every entry of
every table then takes one gather, and the exact score of every semantic ID one pass per level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve.index import Index
from beamsieve.index.leaves import tokens_of_entries
from beamsieve.interface import Beams


class LastTokenScorer:
    """Logits ``(viewer + previous[last token]) · head[token] + bias[token]``.

    Args:
        index: a catalog whose semantic IDs are all of one length.
        viewers: how many viewers to draw.
        spread: standard deviation of a level's logits over its tokens: how sure the model is.
        size: d, the length of a hidden state.
        biases: per level float32 [V], what the model gives a token whatever the viewer; zero when
            None.
        seed: of the draw.
    """

    def __init__(
        self,
        index: Index,
        viewers: int,
        spread: float = 2.0,
        size: int = 32,
        biases: list[NDArray[np.float32]] | None = None,
        seed: int = 0,
    ) -> None:
        draw = np.random.default_rng(seed)
        # Half of a logit's variance is the viewer's, half the last token's.
        scale = np.float32(spread / np.sqrt(2 * size))

        def vectors(count: int) -> NDArray[np.float32]:
            drawn = draw.standard_normal((count, size), dtype=np.float32)
            return np.asarray(drawn * scale, np.float32)

        self.index = index
        self.viewers = vectors(viewers)
        self.heads = [
            draw.standard_normal((vocabulary, size), dtype=np.float32)
            for vocabulary in index.codebooks
        ]
        self.previous = [vectors(1), *(vectors(size_) for size_ in index.codebooks[:-1])]
        self.biases = biases or [np.zeros(size_, np.float32) for size_ in index.codebooks]
        self._tokens = [tokens_of_entries(table).astype(np.int64) for table in index.tables]
        self._shared = [self._shared_logits(level) for level in range(index.length)]

    def _shared_logits(self, level: int) -> NDArray[np.float32]:
        """float32 [entries]: the part of an entry's logit that all viewers have in common."""
        tokens = self._tokens[level]
        last = np.zeros(1, np.int64) if level == 0 else self._tokens[level - 1]
        parent = np.repeat(last, np.diff(self.index.tables[level].plain_starts()))
        found = self.biases[level][tokens]
        for start in range(0, len(tokens), 1 << 18):
            part = slice(start, start + (1 << 18))
            vectors = self.previous[level][parent[part]]
            found[part] += np.einsum("nd,nd->n", vectors, self.heads[level][tokens[part]])
        return found

    def exact(self, viewer: int) -> NDArray[np.float64]:
        """float64 [leaves]: the score of every semantic ID, normalised over the catalog."""
        scores = np.zeros(1)
        for level, table in enumerate(self.index.tables):
            own = self.heads[level] @ self.viewers[viewer]
            logits = own[self._tokens[level]].astype(np.float64) + self._shared[level]
            starts = table.plain_starts()[:-1]
            counts = np.diff(table.plain_starts())
            best = np.repeat(np.maximum.reduceat(logits, starts), counts)
            total = np.add.reduceat(np.exp(logits - best), starts)
            scores = np.repeat(scores - np.log(total), counts) + logits - best
        return scores

    def score(self, chosen: slice) -> Callable[[int, Beams], Any]:
        """What ``engine.search`` asks, for a batch of these viewers."""
        viewers = torch.from_numpy(self.viewers[chosen])[:, None, :]
        heads = [torch.from_numpy(head) for head in self.heads]
        biases = [torch.from_numpy(bias) for bias in self.biases]
        previous = [torch.from_numpy(vectors) for vectors in self.previous]

        def score(step: int, beams: Beams) -> Any:
            level = step - 1
            if level == 0:
                hidden = viewers + previous[0]
            else:
                hidden = viewers + previous[level][beams.tokens[:, :, -1].clamp(min=0).long()]
            return hidden, heads[level], biases[level]

        return score
