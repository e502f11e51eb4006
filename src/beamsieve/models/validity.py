"""What training charges for probability that no item can have.

A search that filters before it scores gives a beam's valid tokens all of the probability; one that
scores first leaves with the others what the model gave them. The two return the same items as far
as a model keeps to its catalog, and histories alone teach it that only under the prefixes of items
that people had. So some histories of every batch are read once more, each with the prefixes of
items drawn from the whole catalog in place of those that came, and every prefix is charged for

    log(1 + odds / floor),    odds = (1 - p) / p,

where p is the probability of all tokens that may follow it. With a floor of 1 this is -log p, whose
pull on an invalid token is as weak as the token is unlikely; with a small one the pull is the same
until the odds are down at the floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation names it

from beamsieve.models.batches import Batch
from beamsieve.models.sequences import ItemSids

if TYPE_CHECKING:
    from beamsieve.models.model import Model
    from beamsieve.models.settings import TrainingSettings

_EVERY = 4
"""One in so many of a batch's histories is read again."""
_KEPT = 0.5
"""Where targets are read, the share of the repeated ones that stays as it came."""
_LEAST = 1e-30
"""Nats that stand for none: they have a logarithm."""
_NEVER = -1e9
"""A logit of no weight; not -inf, whose gradient is no number where a row has no token at all."""


class ValidTokens:
    """The tokens that may follow every prefix of a catalog.

    Args:
        sids: of the index's items.
        device: where the model is.
        floor: odds of what no item can have at which the charge fades out.
        targets_are_read: whether a target is read by what comes after it (FlatGR). Then half of
            those that are drawn anew stay as they came, or nothing real would be left to read, and
            all histories are read again.

    Attributes:
        every: one in so many of a batch's histories is read again.
    """

    def __init__(
        self,
        sids: ItemSids,
        device: str | torch.device,
        floor: float = 1.0,
        *,
        targets_are_read: bool = False,
    ) -> None:
        spelled = sids.sids
        self.floor = floor
        self.every = 1 if targets_are_read else _EVERY
        self._kept = _KEPT if targets_are_read else 0.0
        self._sids = torch.from_numpy(spelled)
        # Leaves are in lexicographic order: those of one prefix stand together, of none all.
        same = np.ones(len(spelled) - 1, np.bool_)
        self._children: list[Tensor] = []
        self._edges: list[Tensor] = []
        self._spans: list[int] = []
        for level in range(spelled.shape[1]):
            row = np.cumsum(np.concatenate([[True], ~same])) - 1
            token = spelled[:, level]
            same = (spelled[1:, : level + 1] == spelled[:-1, : level + 1]).all(1)
            first = np.concatenate([[True], ~same])
            span = int(token.max()) + 2  # tokens from -1 on, the end of a shorter semantic ID
            self._spans.append(span)
            self._edges.append(torch.from_numpy(row[first] * span + token[first] + 1).to(device))
            first &= token >= 0
            parents, tokens = row[first], token[first]
            counts = np.bincount(parents, minlength=row[-1] + 1)
            rank = np.arange(len(parents)) - (np.cumsum(counts) - counts)[parents]
            table = np.full((len(counts), counts.max()), -1)
            table[parents, rank] = tokens
            self._children.append(torch.from_numpy(table).to(device))

    def repeated_places(self, rows: Tensor) -> Tensor:
        """int64; the places of a batch, by their histories ``rows`` [N], that are spelt again."""
        return torch.nonzero(rows % self.every == 0)[:, 0]

    def with_drawn(self, batch: Batch, chosen: Tensor) -> Batch:
        """``batch``, and behind its own targets those of some histories once more.

        There each real target is the semantic ID of a leaf drawn anew.

        Args:
            batch: on any device.
            chosen: int64 [n], as ``repeated_places`` gives them.
        """
        device = batch.targets.device
        if self._sids.device != device:
            self._sids = self._sids.to(device)
        own = batch.targets[chosen]
        leaves = torch.randint(len(self._sids), (len(chosen),), device=device)
        anew = own[:, :1] >= 0
        if self._kept:
            anew = anew & (torch.rand(anew.shape, device=device) >= self._kept)
        rows = batch.rows[chosen].div(self.every, rounding_mode="floor") + len(batch.histories)
        return Batch(
            torch.cat([batch.histories, batch.histories[:: self.every]]),
            torch.cat([batch.targets, torch.where(anew, self._sids[leaves], own)]),
            torch.cat([batch.rows, rows]),
            torch.cat([batch.places, batch.places[chosen]]),
            len(chosen),
        )

    def cost(self, logits: Sequence[Tensor], sids: Tensor) -> Tensor:
        """The charge under every prefix of some semantic IDs, all levels together, in nats.

        Args:
            logits: per level [N, V_l].
            sids: int64 [N, L], of items; all -1 where there is none, which costs nothing.

        Returns:
            the sum over the N; scalar.
        """
        total = logits[0].new_zeros((), dtype=torch.float32)
        for share in self.log_shares(logits, sids):
            lost = (-share).clamp(min=_LEAST)
            log_odds = lost + torch.log(-torch.expm1(-lost))  # odds of e^89 are no float32
            charge = F.softplus(log_odds - math.log(self.floor))
            total = total + torch.where(share < 0, charge, 0.0).sum()
        return total

    def log_shares(self, logits: Sequence[Tensor], sids: Tensor) -> list[Tensor]:
        """Per level, [N]: log of the probability of all tokens that may stand there.

        Behind the end of a shorter semantic ID nothing may, and nothing is lost: 0. Arguments are
        those of ``cost``.
        """
        found = []
        row = torch.zeros_like(sids[:, 0])
        for level, said in enumerate(logits):
            token = sids[:, level]
            tokens = self._children[level][row]
            real = tokens >= 0
            likely = torch.log_softmax(said.float(), -1).gather(1, tokens.clamp(min=0))
            share = likely.masked_fill(~real, _NEVER).logsumexp(-1)
            found.append(torch.where(token >= 0, share, 0.0))
            edge = row * self._spans[level] + token + 1
            row = torch.searchsorted(self._edges[level], edge)
            row = row.clamp(max=len(self._edges[level]) - 1)  # of no item, whose share is 1
        return found


def charged_by(model: Model, sids: ItemSids, settings: TrainingSettings) -> ValidTokens | None:
    """What a training of ``model`` is charged by; None where ``settings`` charge nothing."""
    if not settings.validity:
        return None
    return ValidTokens(
        sids, settings.device, settings.validity_floor, targets_are_read=model.reads_targets
    )
