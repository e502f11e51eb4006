"""Histories: what each user has had, in order, and what came next.

One row is one history. Columns (other names may be given with :class:`HistoryColumns`):

=================  ========  ==================================================================
column             needed    what it holds
=================  ========  ==================================================================
``history``        yes       the items, oldest first; may be empty. A list in Parquet and JSONL; in
                             CSV a JSON list or a Python list literal (``[3112, 642]``)
``target``         no        the item that came next
``user``           no        the user's id; rows of one user in time order
=================  ========  ==================================================================

``history_item_id``, ``item_id`` and ``user_id``, the names in MiniOneRec's files, are understood
as well. Formats by ending: ``.parquet``, ``.jsonl``, ``.csv``, each also with ``.gz``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import InputError

Item = str | int


@dataclass(frozen=True)
class HistoryColumns:
    """Names of the columns; None takes the first known name that the file has."""

    history: str | None = None
    target: str | None = None
    user: str | None = None


KNOWN_COLUMNS = {
    "history": ("history", "history_item_id"),
    "target": ("target", "item_id"),
    "user": ("user", "user_id"),
}


@dataclass(frozen=True)
class Histories:
    """Histories as the file gives them: the users' own item ids.

    Attributes:
        items: all histories' items, one after the other, oldest first.
        starts: int64 [N + 1]; history n is ``items[starts[n]:starts[n + 1]]``.
        targets: the item after each history, None where there is none; None without the column.
        users: each row's user, None without the column.
        source: the file, for messages.
    """

    items: Sequence[Item]
    starts: NDArray[np.int64]
    targets: Sequence[Item | None] | None = None
    users: Sequence[Item] | None = None
    source: str = "histories"

    def __len__(self) -> int:
        return len(self.starts) - 1

    def history(self, row: int) -> Sequence[Item]:
        """Items of one row, oldest first."""
        return self.items[self.starts[row] : self.starts[row + 1]]

    @classmethod
    def from_lists(
        cls,
        histories: Iterable[Sequence[Item]],
        targets: Sequence[Item | None] | None = None,
        users: Sequence[Item] | None = None,
        source: str = "histories",
    ) -> Histories:
        """Histories from one sequence of item ids per row.

        Raises:
            InputError: targets or users do not have one entry per history.
        """
        flat: list[Item] = []
        starts = [0]
        for history in histories:
            flat.extend(history)
            starts.append(len(flat))
        for name, column in (("targets", targets), ("users", users)):
            if column is not None and len(column) != len(starts) - 1:
                raise InputError(
                    f"{source}: {len(column)} {name} for {len(starts) - 1} histories; "
                    "give one for each."
                )
        return cls(flat, np.asarray(starts, np.int64), targets, users, source)
