"""Leaves spelled as their semantic IDs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamsieve.errors import InputError
from beamsieve.index.leaves import LeafBounds, spelled_by_lookup, tokens_of_entries
from beamsieve.index.tables import StepTable

_FEW_LEAVES = 1 << 14
"""So many are spelled by look-ups, with nothing beside the tables; more, by expanding them."""


class Speller:
    """The semantic IDs of leaves.

    Args:
        tables: one per step.
        codebooks: their sizes, end tokens included.
        end_token: whether semantic IDs end with an end token.
        leaves: how many there are.
        one_length: whether all semantic IDs have a token in every table.
        bounds: the leaves below each prefix; asked for where many are to be spelled.
    """

    def __init__(
        self,
        tables: Sequence[StepTable],
        codebooks: Sequence[int],
        end_token: bool,
        leaves: int,
        one_length: bool,
        bounds: LeafBounds,
    ) -> None:
        self._tables, self._codebooks, self._end_token = tables, codebooks, end_token
        self._leaves, self._one_length, self._bounds = leaves, one_length, bounds

    def sid_of_leaf(self, leaf: ArrayLike) -> NDArray[np.int32]:
        """int32 [..., L]: the semantic IDs of leaves, as users spell them: without an end token,
        -1 behind the end of a shorter one.

        Raises:
            InputError: no integers, or no leaves of this index.
        """
        leaves = _leaves(leaf)
        flat = leaves.ravel()
        if len(flat) and not 0 <= flat.min() <= flat.max() < self._leaves:
            raise InputError(
                f"There is no leaf {flat.min() if flat.min() < 0 else flat.max()}; "
                f"leaves go from 0 to {self._leaves - 1}."
            )
        if self._one_length and len(flat) <= _FEW_LEAVES:
            sids = spelled_by_lookup(self._tables, flat)
            if self._end_token:
                sids[sids == np.asarray(self._codebooks) - 1] = -1
        else:
            sids = self._spelled(flat)
        users = sids[:, : len(self._tables) - 1] if self._end_token else sids
        return users.reshape(*leaves.shape, users.shape[1])

    def _spelled(self, flat: NDArray[np.int64]) -> NDArray[np.int32]:
        sids = np.full((len(flat), len(self._tables)), -1, np.int32)
        reached = np.ones(len(flat), np.bool_)
        bounds = self._bounds.by_depth
        for depth in range(1, len(self._tables) + 1):
            starts, ends = bounds[depth]
            if not len(ends):
                break
            entry = np.maximum(np.searchsorted(starts[:-1], flat, side="right") - 1, 0)
            reached &= (starts[entry] <= flat) & (flat < ends[entry])
            tokens = self._entry_tokens[depth - 1][entry].astype(np.int32)
            if self._end_token:
                is_end = tokens == self._codebooks[depth - 1] - 1
                tokens[is_end] = -1
            sids[:, depth - 1] = np.where(reached, tokens, -1)
        return sids

    @cached_property
    def _entry_tokens(self) -> list[NDArray[np.unsignedinteger]]:
        return [tokens_of_entries(table) for table in self._tables]


def _leaves(leaf: ArrayLike) -> NDArray[np.int64]:
    try:
        leaves = np.asarray(leaf)
    except (TypeError, ValueError):
        leaves = np.empty(1, object)
    if leaves.size and leaves.dtype.kind not in "iu":
        raise InputError(f"{leaf!r} names no leaf; give an integer, or integers.")
    return leaves.astype(np.int64)
