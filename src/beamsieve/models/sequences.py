"""From the users' item ids to what a model reads: item numbers, semantic IDs, sequences."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from beamsieve.errors import InputError
from beamsieve.models.data import Histories

if TYPE_CHECKING:
    from beamsieve.index import Index

Unknown = Literal["skip", "refuse"]

_log = logging.getLogger("beamsieve")


class ItemSids:
    """The semantic IDs of an index's items, spelled as its tables spell them.

    Attributes:
        sids: int64 [leaves, L], -1 behind the end of a shorter one.
        path_starts: int64 [items + 1]; item n is reached by the leaves
            ``path_leaves[path_starts[n]:path_starts[n + 1]]``, in lexicographic order.
        path_leaves: int64 [pairs].
    """

    def __init__(self, index: Index) -> None:
        users = index.sid_of_leaf(np.arange(index.leaf_count)).astype(np.int64)
        self.sids = _with_end_tokens(users, index.codebooks) if index.end_token else users
        starts, numbers = index.leaf_items
        leaves = np.repeat(np.arange(index.leaf_count), np.diff(starts))
        by_item = np.argsort(numbers, kind="stable")
        self.path_leaves = leaves[by_item].astype(np.int64)
        counts = np.bincount(numbers, minlength=len(index.items))
        self.path_starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def first(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 [..., L]: each item's first semantic ID; all -1 for an item number of -1."""
        leaves = self.path_leaves[self.path_starts[np.maximum(numbers, 0)]]
        sids: NDArray[np.int64] = self.sids[leaves]
        sids[numbers < 0] = -1
        return sids

    def drawn(self, numbers: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """int64 [n, L]: one of each item's semantic IDs, each as likely as the others."""
        starts = self.path_starts[numbers]
        counts = self.path_starts[numbers + 1] - starts
        choice = random.integers(counts) if counts.max(initial=1) > 1 else 0
        sids: NDArray[np.int64] = self.sids[self.path_leaves[starts + choice]]
        return sids


def _with_end_tokens(sids: NDArray[np.int64], codebooks: tuple[int, ...]) -> NDArray[np.int64]:
    spelled = np.full((len(sids), len(codebooks)), -1, np.int64)
    spelled[:, :-1] = sids
    lengths = (sids >= 0).sum(axis=1)
    spelled[np.arange(len(sids)), lengths] = np.asarray(codebooks)[lengths] - 1
    return spelled


@dataclass(frozen=True)
class Sequences:
    """Item numbers in time order.

    Attributes:
        items: int64; all sequences one after the other.
        starts: int64 [N + 1].
    """

    items: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, sequences: list[NDArray[np.int64]]) -> Sequences:
        """From one array per sequence."""
        lengths = [len(sequence) for sequence in sequences]
        items = np.concatenate([np.empty(0, np.int64), *sequences])
        return cls(items, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __getitem__(self, place: int) -> NDArray[np.int64]:
        return self.items[self.starts[place] : self.starts[place + 1]]

    def repeats(self) -> int:
        """How many items are the one before in their sequence once more."""
        again = self.items[1:] == self.items[:-1]
        borders = self.starts[(self.starts > 0) & (self.starts < len(self.items))]
        again[borders - 1] = False
        return int(again.sum())


@dataclass(frozen=True)
class Numbered:
    """Histories as item numbers.

    Attributes:
        histories: unknown items left out.
        targets: int64 [N]; -1 where there is none, or where the index does not have it.
        unknown: how many items of histories, and how many targets, the index does not have.
    """

    histories: Sequences
    targets: NDArray[np.int64]
    unknown: int


def number(histories: Histories, index: Index, unknown: Unknown = "skip") -> Numbered:
    """Look up the items of histories in an index.

    An id finds the item that spells the same: 42 in a history finds item "42", and "42" finds 42.

    Raises:
        InputError: ``unknown`` is "refuse" and the index does not have an item (the message names
            the first one), or not a single one is known.
    """
    numbers = _numbers(histories.items, index)
    targets = np.full(len(histories), -1, np.int64)
    absent = np.flatnonzero(numbers < 0)
    missing = len(absent)
    first = None
    if missing:
        row = int(np.searchsorted(histories.starts, absent[0], side="right"))
        first = (row, histories.items[int(absent[0])].as_py())
    if histories.targets is not None:
        targets = _numbers(histories.targets, index)
        given = histories.targets.is_valid().to_numpy(zero_copy_only=False)
        lost = np.flatnonzero((targets < 0) & given)
        missing += len(lost)
        if len(lost) and (first is None or lost[0] + 1 < first[0]):
            first = (int(lost[0]) + 1, histories.targets[int(lost[0])].as_py())
    if first is not None:
        where = f"{histories.source}, data row {first[0]}: the index has no item {first[1]!r}"
        if unknown == "refuse":
            raise InputError(f"{where}; build the index from the catalog that has it.")
        if not (numbers >= 0).any() and not (targets >= 0).any():
            raise InputError(
                f"{where}, nor any other item of these histories; is it the right one?"
            )
        _log.warning(
            "%s: %d items are not in the index and were left out (the first: %r, data row %d)",
            histories.source,
            missing,
            first[1],
            first[0],
        )
    kept = np.concatenate([[0], np.cumsum(numbers >= 0)])
    found = Sequences(numbers[numbers >= 0], kept[histories.starts].astype(np.int64))
    return Numbered(found, targets, missing)


def say_too_long(sequences: Sequences, longest: int, source: str) -> None:
    """Say, once, how many histories have more items than a model reads."""
    too_long = int((np.diff(sequences.starts) > longest).sum())
    if too_long:
        _log.warning(
            "%s: %d histories are longer than the model reads; their most recent %d items count.",
            *(source, too_long, longest),
        )


def _numbers(ids: pa.Array, index: Index) -> NDArray[np.int64]:
    """int64: the item number of each id; -1 for null and for unknown ones."""
    if index.items.are_strings:
        ids = ids.cast(pa.large_string())
    elif not pa.types.is_integer(ids.type):
        ids = _integers(ids)
    known = pc.SetLookupOptions(index.items.values, skip_nulls=True)
    found = pc.call_function("index_in", [ids], known).fill_null(-1)
    numbers: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _integers(texts: pa.Array) -> pa.Array:
    """int64; null where a text does not spell an integer as Python would."""
    pattern = pc.MatchSubstringOptions(r"^(0|-?[1-9]\d{0,17})$")
    spells_one = pc.call_function("match_substring_regex", [texts], pattern)
    nothing = pa.scalar(None, texts.type)
    return pc.call_function("if_else", [spells_one, texts, nothing]).cast(pa.int64())


def join_rows(numbered: Numbered, users: pa.Array | None) -> Sequences:
    """One sequence per stretch of a user's life, so that no transition is learnt twice.

    Files of samples repeat a history, one item further on, in every row of a user (and drop its
    oldest items once it is long). A row whose history is how its user's sequence ends adds its
    target to that sequence; any other row starts a sequence of its own.
    """
    keys = range(len(numbered.targets)) if users is None else users.to_pylist()
    ends: dict[object, list[int]] = {}
    joined: list[list[int]] = []
    for row, key in enumerate(keys):
        history = numbered.histories[row].tolist()
        target = int(numbered.targets[row])
        current = ends.get(key)
        if current is None or not history or current[-len(history) :] != history:
            current = history
            ends[key] = current
            joined.append(current)
        if target >= 0:
            current.append(target)
    return Sequences.of([np.asarray(s, np.int64) for s in joined if s])


def windows(sequences: Sequences, size: int) -> Sequences:
    """Cut sequences of more than ``size`` items into windows, the most recent one full."""
    return Sequences.of(
        [
            sequence[max(0, end - size) : end]
            for sequence in (sequences[place] for place in range(len(sequences)))
            for end in range(len(sequence), 0, -size)
        ]
    )
