"""What a step is compared with: decodes that score first, and mask afterwards.

Both multiply every beam with the whole head and take the log-softmax of the whole codebook.
:class:`Unconstrained` then keeps the best of all tokens, valid or not: a yardstick, no competitor.
:class:`ScoreFirstTrie` is written from the published description of STATIC (arXiv 2602.22647,
section 4), in plain PyTorch, with the shortest way to each result (``published_trie`` has every
operation of the published one): the first two levels are dense tables of V and V × V cells, deeper
levels a CSR matrix of (token, next state) pairs, read with as many slots per beam as the level's
widest state has. It is exact, so its results can be held against ours.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Mark = Callable[[str], None]
"""Told the name of what was just done, "filter", "project" or "select", as its clock is read."""


def unmarked(name: str) -> None:
    """The clock of a decode that nobody takes apart."""


@dataclass(frozen=True)
class Decoded:
    """Semantic IDs [B, M, L] and their scores [B, M], best first."""

    tokens: Tensor
    scores: Tensor


def log_probabilities(hidden: Tensor, head: Tensor) -> Tensor:
    """float32 [B, M, V]: the log-softmax over the whole codebook."""
    return torch.log_softmax((hidden @ head.t()).float(), -1)


class Unconstrained:
    """Beam search over the whole codebook of every level."""

    def masked(self, scored: Tensor, tokens: Tensor, mark: Mark) -> Tensor:
        """Log-probabilities [B, M, V], at -inf what may not follow ``tokens``: here, nothing is."""
        return scored

    @torch.inference_mode()
    def decode(
        self,
        hidden: Sequence[Tensor],
        heads: Sequence[Tensor],
        widths: Sequence[int],
        mark: Mark = unmarked,
    ) -> Decoded:
        """One search; ``hidden[t]`` is [B, M_t, d], ``heads[t]`` [V_t, d]."""
        tokens, scores, _ = begun(hidden)
        for states, head, width in zip(hidden, heads, widths, strict=True):
            scored = log_probabilities(states, head)
            mark("project")
            scores, flat = best(self.masked(scored, tokens, mark), scores, width)
            tokens = extended(tokens, flat // len(head), flat % len(head))
            mark("select")
        return Decoded(tokens, scores)


class ScoreFirstTrie:
    """Beam search that masks the scored codebook with a trie in dense and CSR tables.

    Args:
        sids: int32 [N, L], sorted and distinct, L at least 2.
        vocabulary: V, the same at every level, or one per level.
        device: where the tables go.
        tokens_per_beam: how many candidates each beam may offer in the dense second step, as the
            published decode does; None takes the best of all beams' candidates in one go. At least
            the width, so that nothing is lost.

    Raises:
        ValueError: the semantic IDs have less than two levels.
    """

    def __init__(
        self,
        sids: NDArray[np.int32],
        vocabulary: int | Sequence[int],
        device: torch.device | str,
        tokens_per_beam: int | None = None,
    ) -> None:
        count, length = sids.shape
        if length < 2:
            raise ValueError(f"The trie's tables begin with a pair of levels; here is {length}.")
        self.tokens_per_beam = tokens_per_beam
        first, second = [vocabulary] * 2 if isinstance(vocabulary, int) else vocabulary[:2]
        new = np.zeros((count, length), np.bool_)  # whether a row opens a prefix of each length
        new[0] = True
        for level in range(length):
            new[1:, level] = sids[1:, level] != sids[:-1, level]
            if level:
                new[:, level] |= new[:, level - 1]
        start = np.zeros(first, np.bool_)
        start[sids[:, 0]] = True
        pairs = np.flatnonzero(new[:, 1])
        mask = np.zeros((first, second), np.bool_)
        mask[sids[pairs, 0], sids[pairs, 1]] = True
        states = np.zeros((first, second), np.int32)
        states[sids[pairs, 0], sids[pairs, 1]] = np.arange(len(pairs))

        starts, entries, self.widest = [np.zeros(1, np.int64)], [], []
        below = len(pairs)
        for level in range(2, length):
            opens = np.flatnonzero(new[:, level])
            parent = np.cumsum(new[:, level - 1])[opens] - 1
            children = np.bincount(parent)
            self.widest.append(int(children.max()))
            starts.append(starts[-1][-1] + np.cumsum(children))
            following = below + np.arange(len(opens))
            entries.append(np.stack([sids[opens, level], following], 1).astype(np.int32))
            below += len(opens)
        spare = np.zeros((max(self.widest, default=0), 2), np.int32)  # slots behind the last state
        self.start = torch.from_numpy(start).to(device)
        self.mask = torch.from_numpy(mask).to(device)
        self.states = torch.from_numpy(states).to(device)
        self.starts = torch.from_numpy(np.concatenate(starts)).to(device)
        self.entries = torch.from_numpy(np.concatenate([*entries, spare])).to(device)
        self.slots = torch.arange(len(spare), device=device)

    def without_limit(self) -> ScoreFirstTrie:
        """The same tables, decoded without a limit of candidates per beam."""
        other = copy.copy(self)
        other.tokens_per_beam = None
        return other

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        tables = (self.start, self.mask, self.states, self.starts, self.entries)
        return sum(table.nbytes for table in tables)

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
            scored = log_probabilities(states, head)
            mark("project")
            if step == 0:
                scored.masked_fill_(~self.start, -torch.inf)
                mark("filter")
                scores, flat = best(scored, scores, width)
                parent, token = flat // len(head), flat % len(head)
                state = token
            elif step == 1:
                scored.masked_fill_(~self.mask[state], -torch.inf)
                mark("filter")
                scores, parent, token = self._dense(scored, scores, width)
                state = self.states[state.gather(1, parent), token].to(torch.int64)
            else:
                first, behind = self.starts[state], self.starts[state + 1]
                slot = first[:, :, None] + self.slots[: self.widest[step - 2]]
                found = self.entries[slot]
                offered = scored.gather(2, found[..., 0].to(torch.int64))
                offered.masked_fill_(slot >= behind[:, :, None], -torch.inf)
                mark("filter")
                scores, flat = best(offered, scores, width)
                parent = flat // slot.shape[2]
                chosen = found.flatten(1, 2).gather(1, flat[:, :, None].expand(-1, -1, 2))
                token, state = chosen.to(torch.int64).unbind(2)
            tokens = extended(tokens, parent, token)
            mark("select")
        return Decoded(tokens, scores)

    def _dense(self, scored: Tensor, scores: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
        size = scored.shape[2]
        if self.tokens_per_beam is None:
            scores, flat = best(scored, scores, width)
            return scores, flat // size, flat % size
        each = min(self.tokens_per_beam, size)
        offered, token = scored.topk(each)
        scores, flat = best(offered, scores, width)
        return scores, flat // each, token.flatten(1).gather(1, flat)


def begun(hidden: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """What every decode begins with: no tokens, int64 [B, 1, 0], scores of 0, float32 [B, 1], and
    the root's state, int64 [B, 1].
    """
    batch, device = len(hidden[0]), hidden[0].device
    tokens = torch.empty((batch, 1, 0), dtype=torch.int64, device=device)
    state = torch.zeros((batch, 1), dtype=torch.int64, device=device)
    return tokens, torch.zeros((batch, 1), device=device), state


def best(offered: Tensor, scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` best of ``offered + scores`` (``offered`` [B, M, S] is overwritten), each with
    its flat place ``m * S + s``; -inf, at some place, where there are fewer.
    """
    total = offered.add_(scores[:, :, None]).flatten(1)
    size = total.shape[1]
    if size < width:  # the rest of the places names some candidate, with a score of -inf
        total = torch.nn.functional.pad(total, (0, width - size), value=-torch.inf)
    kept = total.topk(width)
    return kept.values, kept.indices.clamp_(max=size - 1)


def extended(tokens: Tensor, parent: Tensor, token: Tensor) -> Tensor:
    """int64 [B, W, t + 1]: the parents' tokens [B, M, t], and one more."""
    before = tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2]))
    return torch.cat([before, token[:, :, None]], 2)
