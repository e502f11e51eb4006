"""Three more ways to decode a catalog, written from their published descriptions.

* :class:`NaiveSelective`: filter first, as one compact list of all beams' valid tokens, with their
  head rows gathered into a matrix.
* :class:`PrefixFunction`: the way of Hugging Face's ``prefix_allowed_tokens_fn``: a Python call per
  beam, whose tokens are set in a mask over the whole codebook.
* :class:`FlashrecTrie`: the trie of the package ``flashrec``, where it is installed: of each beam
  the tokens with the best scores, twice the width, then those of them that the trie knows. What
  lies below that cut is lost (its published design), so its results are not compared with ours.

The other two are in :mod:`beamsieve_bench.baselines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamsieve_bench.baselines import (
    Decoded,
    Mark,
    Unconstrained,
    begun,
    best,
    extended,
    log_probabilities,
    unmarked,
)


class NaiveSelective:
    """Filter first with a count, a list and a gathered matrix: what padded slots avoid.

    Log-probabilities are taken over the valid tokens.

    Args:
        sids: int32 [N, L], sorted and distinct.
        device: where the tables go.
    """

    def __init__(self, sids: NDArray[np.int32], device: torch.device | str) -> None:
        self.levels = [
            (torch.from_numpy(starts).to(device), torch.from_numpy(tokens).to(device))
            for starts, tokens in _levels(sids)
        ]
        self.widest = [int(starts.diff().max()) for starts, _ in self.levels]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(starts.nbytes + tokens.nbytes for starts, tokens in self.levels)

    @torch.inference_mode()
    def decode(
        self,
        hidden: Sequence[Tensor],
        heads: Sequence[Tensor],
        widths: Sequence[int],
        mark: Mark = unmarked,
    ) -> Decoded:
        """One search; ``hidden[t]`` is [B, M_t, d], ``heads[t]`` [V_t, d]."""
        tokens, scores, rows = begun(hidden)
        for step, (states, head, width) in enumerate(zip(hidden, heads, widths, strict=True)):
            starts, children = self.levels[step]
            slots = torch.arange(self.widest[step], device=rows.device)
            first = starts[rows.flatten()]
            degrees = starts[rows.flatten() + 1] - first
            beam, rank = torch.nonzero(slots < degrees[:, None], as_tuple=True)
            token = children[first[beam] + rank].to(torch.int64)
            mark("filter")
            products = states.flatten(0, 1)[beam] * head[token]
            logits = products.sum(-1, dtype=torch.float32)
            mark("project")
            padded = logits.new_full((len(degrees), len(slots)), -torch.inf)
            padded[beam, rank] = logits
            offered = torch.log_softmax(padded, 1).view(len(scores), -1, len(slots))
            scores, flat = best(offered, scores, width)
            parent = flat // len(slots)
            entry = first.view(len(scores), -1).gather(1, parent) + flat % len(slots)
            rows = entry.clamp_(max=len(children) - 1)
            tokens = extended(tokens, parent, children[rows].to(torch.int64))
            mark("select")
        return Decoded(tokens, scores)


class PrefixFunction(Unconstrained):
    """A Python function from a prefix to its allowed tokens, called for every beam of every step.

    Its answers are kept in a dict: from the second search on each call is a look-up, as in a dict
    of all prefixes, without the memory of one.

    Args:
        children: the allowed tokens of a prefix.
    """

    nbytes = 0

    def __init__(self, children: Callable[[Sequence[int]], Iterable[int]]) -> None:
        self._children = children
        self._known: dict[tuple[int, ...], list[int]] = {}

    def allowed(self, request: int, prefix: list[int]) -> list[int]:
        """The tokens that may follow; the signature is that of the library that asks."""
        key = tuple(prefix)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = [int(token) for token in self._children(prefix)]
        return found

    def masked(self, scored: Tensor, tokens: Tensor, mark: Mark) -> Tensor:
        """A call per beam."""
        mask = torch.full_like(scored, -torch.inf)
        for request, prefixes in enumerate(tokens.tolist()):
            for beam, prefix in enumerate(prefixes):
                mask[request, beam, self.allowed(request, prefix)] = 0
        mark("filter")
        return scored + mask


class FlashrecTrie:
    """The package's own trie behind a top-k of each beam; tokens of level l are offset by the
    codebooks before it, as it expects them.

    Args:
        sids: int32 [N, L], distinct.
        codebooks: V_1 … V_L.
        device: where the tables go.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(
        self, sids: NDArray[np.int32], codebooks: Sequence[int], device: torch.device | str
    ) -> None:
        from flashrec.search.trie import build_trie_from_sequences

        self.offsets = np.concatenate([[0], np.cumsum(codebooks)[:-1]]).astype(np.int64)
        self.trie: Any = build_trie_from_sequences((sids + self.offsets).tolist())
        self.trie.finalize_index(token_base=0, vocab_size=int(sum(codebooks)))
        self.trie.bootstrap_node_ids(None, 1, 0, torch.device(device))

    @property
    def nbytes(self) -> int:
        """Bytes of its tables on the device."""
        tables = (
            getattr(self.trie, name)
            for name in ("_allow_table", "_next_node", "_csr_keys", "_csr_child")
        )
        return sum(table.nbytes for table in tables if table is not None)

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
        batch, nodes = len(state), state[:, 0]
        for step, (states, head, width) in enumerate(zip(hidden, heads, widths, strict=True)):
            scored = log_probabilities(states, head)
            mark("project")
            each = min(2 * width, len(head))
            offered, token = scored.topk(each)
            mark("select")
            named = (token + int(self.offsets[step])).flatten(0, 1)
            kept = self.trie.mask_candidates(None, named, offered.flatten(0, 1), step, nodes)
            mark("filter")
            scores, flat = best(kept.view_as(offered).clone(), scores, width)
            parent = flat // each
            chosen = token.flatten(1).gather(1, flat)
            above = parent + torch.arange(batch, device=nodes.device)[:, None] * states.shape[1]
            nodes = self.trie.advance_node_ids(
                nodes, above.flatten(), (chosen + int(self.offsets[step])).flatten()
            )
            tokens = extended(tokens, parent, chosen)
            mark("select")
        return Decoded(tokens, scores)


def _levels(sids: NDArray[np.int32]) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Per level, where each prefix's entries begin (int64 [rows + 1]) and their tokens."""
    new = np.zeros(len(sids), np.bool_)
    new[:1] = True
    parents = np.zeros(1, np.int64)
    levels = []
    for level in range(sids.shape[1]):
        new[1:] |= sids[1:, level] != sids[:-1, level]
        places = np.flatnonzero(new)
        starts = np.append(np.searchsorted(places, parents), len(places))
        levels.append((starts.astype(np.int64), sids[places, level]))
        parents = places
    return levels
