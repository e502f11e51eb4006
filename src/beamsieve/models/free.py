"""Beam search without a filter: what a model spells when nothing stops it.

It is what beamsieve replaces, and is here to be measured: which share of freely spelt semantic
IDs no item has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve.index.leaves import rows_of_entries, tokens_of_entries
from beamsieve.models.model import Model, Read

if TYPE_CHECKING:
    from beamsieve.index import Index


@dataclass(frozen=True)
class FreeBeams:
    """The best sequences of tokens, whatever the catalog.

    Attributes:
        tokens: int64 [B, W, t].
        scores: float32 [B, W]; log-probabilities over whole codebooks, best first.
        parents: int64 [B, W]; places in the step before.
    """

    tokens: Tensor
    scores: Tensor
    parents: Tensor


def search_freely(model: Model, reading: Read, width: int) -> FreeBeams:
    """Beam search over whole codebooks, ``width`` beams at every level.

    Args:
        model: in evaluation mode.
        reading: of B histories, from ``model.read``.
        width: W; a level where fewer sequences exist keeps them all.
    """
    batch, device = len(reading), reading.tensors()[0].device
    widths: list[int] = []
    for size in model.codebooks:
        widths.append(min(width, size * (widths[-1] if widths else 1)))
    score = model.scorer(reading, widths)
    beams = FreeBeams(
        torch.empty((batch, 1, 0), dtype=torch.int64, device=device),
        torch.zeros((batch, 1), device=device),
        torch.zeros((batch, 1), dtype=torch.int64, device=device),
    )
    for step, kept in enumerate(widths, 1):
        said = score(step, beams)
        if isinstance(said, tuple):
            hidden, head, *bias = said
            said = hidden @ head.T + (bias[0] if bias else 0)
        logits = torch.log_softmax(said.float(), -1)
        scores = (beams.scores[..., None] + logits).flatten(1)
        best, places = scores.topk(kept)
        vocabulary = said.shape[-1]
        parents, tokens = places // vocabulary, places % vocabulary
        before = beams.tokens.gather(1, parents[..., None].expand(-1, -1, step - 1))
        beams = FreeBeams(torch.cat([before, tokens[..., None]], -1), best, parents)
    return beams


class LegalSids:
    """Tells, for many token sequences at once, which are semantic IDs of an index."""

    def __init__(self, index: Index) -> None:
        # Per table, row * V + token of every entry: ascending, because entries are in order.
        self._vocabularies = [table.vocabulary for table in index.tables]
        self._keys = [
            rows_of_entries(table) * table.vocabulary + tokens_of_entries(table)
            for table in index.tables
        ]
        self._rows = [table.rows for table in index.tables]
        self._childless = [np.diff(table.plain_starts()) == 0 for table in index.tables]

    def __call__(self, tokens: NDArray[np.integer]) -> NDArray[np.bool_]:
        """bool [...] of tokens [..., L] as the index's tables spell them.

        A shorter semantic ID counts when the tokens begin with it.
        """
        flat = tokens.reshape(-1, tokens.shape[-1]).astype(np.int64)
        rows = np.zeros(len(flat), np.int64)
        alive = np.ones(len(flat), np.bool_)
        done = np.zeros(len(flat), np.bool_)
        for level, keys in enumerate(self._keys):
            if self._rows[level]:
                done |= alive & self._childless[level][np.where(alive, rows, 0)]
            token = flat[:, level]
            wanted = rows * self._vocabularies[level] + token
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            in_range = (token >= 0) & (token < self._vocabularies[level])
            alive &= ~done & in_range & (keys[place] == wanted)
            rows = np.where(alive, place, 0)
        legal: NDArray[np.bool_] = (alive | done).reshape(tokens.shape[:-1])
        return legal
