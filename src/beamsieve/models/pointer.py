"""The copy pointer: a learnt share of every prediction is taken from the history itself.

Where people come back to what they had, a generator that must spell everything from its state
alone falls behind. The pointer ("Separating Thinking from Spelling for Efficient Generative
Recommendation") attends from the state behind the history to the items in it, with weights
a_1 … a_T, and a gate g between 0 and 1 comes from the same state:

    p(code | prefix) = g · p_model(code | prefix) + (1 - g) · p_copy(code | prefix)

where p_copy shares out the weights of the items whose semantic ID begins with the prefix among
their next codes. Where no item does, g is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

_SMALLEST = 1e-30
"""A probability that float32 still has; below it a logarithm would be -inf."""


@dataclass(frozen=True)
class Copying:
    """What the pointer says about n items to be spelt, each behind T items.

    Attributes:
        gate: [n]; the model's share g.
        weights: [n, T]; a, 0 behind the end of a history.
        sids: int64 [n, T, L].
    """

    gate: Tensor
    weights: Tensor
    sids: Tensor

    def to(self, device: str | torch.device) -> Copying:
        """The same on another device."""
        return Copying(self.gate.to(device), self.weights.to(device), self.sids.to(device))

    def matches(self, targets: Tensor) -> list[Tensor]:
        """Per level, bool [n, T]: whose items begin with the codes of targets [n, L] before it."""
        found = [torch.ones_like(self.weights, dtype=torch.bool)]
        for level in range(targets.shape[-1] - 1):
            found.append(found[-1] & (self.sids[..., level] == targets[:, level, None]))
        return found

    def mix(self, logits: Tensor, match: Tensor, level: int) -> Tensor:
        """Logarithms of the mixed probabilities [n, V] of level ``level``, from 0."""
        # An item whose semantic ID ended before this level has no code to give.
        weights = (self.weights * (match & (self.sids[..., level] >= 0))).float()
        total = weights.sum(-1, keepdim=True)
        shares = weights / total.clamp(min=_SMALLEST)
        codes = self.sids[..., level].clamp(min=0)
        copied = torch.zeros_like(logits, dtype=torch.float32).scatter_add(-1, codes, shares)
        gate = torch.where(total > 0, self.gate.float()[:, None], 1.0)
        return mixed(logits, gate, copied)


def mixed(logits: Tensor, gate: Tensor, copied: Tensor) -> Tensor:
    """log(g · softmax(logits) + (1 - g) · copied), [..., V] in float32."""
    probabilities = torch.softmax(logits.float(), -1)
    return (gate * probabilities + (1 - gate) * copied).clamp(min=_SMALLEST).log()


class Pointer(nn.Module):
    """Attention of a state over the items before it, and the gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.gate = nn.Linear(width, 1)

    def forward(self, states: Tensor, histories: Tensor, rows: Tensor, places: Tensor) -> Copying:
        """What it says of n places.

        Args:
            states: [B, T + 1, d]; entry t stands behind the first t items.
            histories: int64 [B, T, L].
            rows, places: int64 [n]; the history, and how many of its items count.
        """
        asked = states[rows, places]
        keys = self.key(states[:, 1:])[rows]
        scores = (self.query(asked)[:, None] * keys).sum(-1).float() * states.shape[-1] ** -0.5
        behind = torch.arange(histories.shape[1], device=places.device) >= places[:, None]
        # Not -inf: an empty history has no item at all, and no softmax.
        weights = scores.masked_fill(behind, -1e4).softmax(-1).masked_fill(behind, 0.0)
        gate = torch.sigmoid(self.gate(asked)[:, 0].float())
        return Copying(gate, weights, histories[rows])
