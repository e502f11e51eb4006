"""The score-first decode as it was published, operation by operation.

:class:`PublishedTrie` follows the PyTorch decode of STATIC (arXiv 2602.22647; its repository at
c24f9dc, README "How it works" and ``sparse_transition_torch``). :class:`ScoreFirstTrie` computes
the same beams with less: it masks in place, and looks up states of chosen tokens only. Each comment
names what it follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beamsieve_bench.baselines import (
    Decoded,
    Mark,
    ScoreFirstTrie,
    begun,
    best,
    extended,
    log_probabilities,
    unmarked,
)


class PublishedTrie:
    """The tables of a :class:`ScoreFirstTrie`, read as the published decode reads them.

    Args:
        tables: with a ``tokens_per_beam``: the published decode has no form without it.

    Raises:
        ValueError: without one.
    """

    def __init__(self, tables: ScoreFirstTrie) -> None:
        if tables.tokens_per_beam is None:
            raise ValueError("The published decode needs tokens_per_beam; give at least the width.")
        self.tables, self.tokens_per_beam = tables, tables.tokens_per_beam

    @torch.inference_mode()
    def decode(
        self,
        hidden: Sequence[Tensor],
        heads: Sequence[Tensor],
        widths: Sequence[int],
        mark: Mark = unmarked,
    ) -> Decoded:
        """One search; ``hidden[t]`` is [B, M_t, d], ``heads[t]`` [V_t, d]."""
        tokens, scores, state = begun(hidden)
        for step, (states, head, width) in enumerate(zip(hidden, heads, widths, strict=True)):
            # "The model's predicted log-probabilities are masked" (README, online masking): the
            # log-softmax of the whole codebook, whatever the constraint.
            scored = log_probabilities(states, head)
            mark("project")
            if step < 2:
                offered, token, following = self._dense_lookup(step, scored, state)
            else:
                offered, token, following = self._sparse_lookup(step, scored, state)
            mark("filter")
            # "Score and beam update": every candidate's sum, one top-k over the beams' candidates.
            slots = offered.shape[2]
            scores, flat = best(offered, scores, width)
            # The chosen ones' tokens and states, and their parents' histories, are gathered.
            token = token.flatten(1).gather(1, flat)
            state = following.flatten(1).gather(1, flat)
            tokens = extended(tokens, flat // slots, token)
            mark("select")
        return Decoded(tokens, scores)

    def _dense_lookup(self, step: int, scored: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        """The first two levels: "valid next tokens are retrieved from the dense tables". The mask
        is applied by a selection into a new tensor ("where"), not in place.

        Returns:
            log-probabilities, tokens and next states of all candidates, [B, M, slots].
        """
        mask = self.tables.start if step == 0 else self.tables.mask[state]
        masked = torch.where(mask, scored, -torch.inf)
        if step == 0:
            token = torch.arange(scored.shape[2], device=scored.device).expand_as(masked)
            return masked, token, token
        # "Number of candidate tokens to consider per beam" (tokens_per_beam): a top-k per beam, and
        # the dense table read for each of its tokens.
        each = min(self.tokens_per_beam, scored.shape[2])
        offered, token = masked.topk(each)
        return offered, token, self.tables.states[state[:, :, None], token]

    def _sparse_lookup(self, step: int, scored: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        """Deeper levels: "a vectorized burst-read from the CSR matrix to fetch all valid
        continuations for all beams": as many slots for each beam as the level's widest state has;
        those behind a state's own are masked after their log-probabilities were gathered.

        Returns:
            as ``_dense_lookup``.
        """
        begin = self.tables.starts[state]
        count = self.tables.starts[state + 1] - begin
        offset = self.tables.slots[: self.tables.widest[step - 2]]
        found = self.tables.entries[begin[:, :, None] + offset]
        token, following = found[..., 0].to(torch.int64), found[..., 1]
        gathered = scored.gather(2, token)
        valid = offset < count[:, :, None]
        return torch.where(valid, gathered, -torch.inf), token, following.to(torch.int64)
