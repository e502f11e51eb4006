"""What training charges for probability that no item can have.

A search that filters before it scores gives a beam's valid tokens all of the probability; one that
scores first leaves with the others what the model gave them. The two return the same items as far
as a model keeps to its catalog, and histories alone teach it that only under the prefixes of items
that people had. So prefixes are drawn from the whole catalog, and the cost is -log of the
probability of all tokens that may follow them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from beamsieve.models.batches import Batch
from beamsieve.models.model import Model
from beamsieve.models.sequences import ItemSids

_EVERY = 4
"""One in so many of a batch's places is asked."""
_NEVER = -1e9
"""A logit of no weight; not -inf, whose gradient is no number where a row has no token at all."""


class ValidTokens:
    """The tokens that may follow every prefix of a catalog.

    Args:
        sids: of the index's items.
        device: where the model is.
    """

    def __init__(self, sids: ItemSids, device: str | torch.device) -> None:
        spelled = sids.sids
        self._sids = torch.from_numpy(spelled).to(device)
        # Leaves are in lexicographic order: those of one prefix stand together, of none all.
        same = np.ones(len(spelled) - 1, np.bool_)
        rows: list[np.ndarray] = []
        self._children: list[Tensor] = []
        for level in range(spelled.shape[1]):
            row = np.cumsum(np.concatenate([[True], ~same])) - 1
            rows.append(row)
            token = spelled[:, level]
            same = (spelled[1:, : level + 1] == spelled[:-1, : level + 1]).all(1)
            first = np.concatenate([[True], ~same]) & (token >= 0)
            parents, tokens = row[first], token[first]
            counts = np.bincount(parents, minlength=row[-1] + 1)
            rank = np.arange(len(parents)) - (np.cumsum(counts) - counts)[parents]
            table = np.full((len(counts), counts.max()), -1)
            table[parents, rank] = tokens
            self._children.append(torch.from_numpy(table).to(device))
        self._rows = torch.from_numpy(np.stack(rows, 1)).to(device)

    def cost(self, model: Model, batch: Batch) -> Tensor:
        """Mean over some places of ``batch``, in nats, all levels together; scalar.

        Each place gets the semantic ID of a leaf drawn anew in place of its target.
        """
        rows, places = batch.rows[::_EVERY], batch.places[::_EVERY]
        leaves = torch.randint(len(self._sids), (len(rows),), device=self._sids.device)
        drawn = Batch(batch.histories, self._sids[leaves], rows, places)
        return self.of_logits(model.logits(drawn), leaves)

    def of_logits(self, logits: Sequence[Tensor], leaves: Tensor) -> Tensor:
        """The same of logits, per level [N, V_l], under the prefixes of leaves int64 [N]."""
        total = logits[0].new_zeros((), dtype=torch.float32)
        for level, said in enumerate(logits):
            tokens = self._children[level][self._rows[leaves, level]]
            real = tokens >= 0
            valid = said.float().gather(1, tokens.clamp(min=0)).masked_fill(~real, _NEVER)
            cost = said.float().logsumexp(-1) - valid.logsumexp(-1)
            # Behind the end of a shorter semantic ID nothing follows, and nothing is charged.
            total = total + torch.where(real.any(-1), cost, 0.0).sum()
        return total / max(1, len(leaves))
