"""Prefixes, as callers give them, and where they lead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from beamsieve.errors import InputError
from beamsieve.index.leaves import child_of
from beamsieve.index.tables import StepTable


def walk(tables: Sequence[StepTable], tokens: Sequence[int]) -> tuple[int, bool] | None:
    """The row that a prefix leads to, from the root down; and whether nothing follows it there.

    None when no semantic ID begins with it.
    """
    if len(tokens) > len(tables):
        return None
    row = 0
    for table, token in zip(tables, tokens, strict=False):
        row = child_of(table, row, token)
        if row < 0:
            return None
    if len(tokens) == len(tables):
        return row, True
    start, end = tables[len(tokens)].starts.bounds(row)
    return row, start >= end


def as_tokens(prefix: Iterable[int]) -> list[int]:
    """A prefix as a list.

    Raises:
        InputError: it holds anything but integers.
    """
    if not isinstance(prefix, Iterable):
        raise InputError(f"{prefix!r} is no prefix; give a sequence of integers.")
    tokens = []
    for token in prefix:
        if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
            raise InputError(f"Token {token!r} is no integer; a prefix is a sequence of integers.")
        tokens.append(int(token))
    return tokens
