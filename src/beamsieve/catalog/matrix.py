"""Semantic IDs given as arrays or nested lists, read into a matrix of tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import CatalogError

_LARGEST = np.iinfo(np.int64).max


@dataclass
class Matrix:
    """Token rows, and which of them could not be read.

    Attributes:
        tokens: integers [n, w], -1 behind the end; -1 throughout where a row could not be read.
        unreadable: per row that could not be read, a short name for the reason and the clause.
        values: the rows as they were given, where they are no matrix.
    """

    tokens: NDArray[np.integer]
    unreadable: dict[int, tuple[str, str]] = field(default_factory=dict)
    values: Sequence[Any] | None = None


def read_rows(sids: Any, source: str) -> Matrix:
    """Read an array [N, L] of integers, or N lists of integers of any lengths.

    Raises:
        CatalogError: this is no list of rows, or an array of other values.
    """
    refuse_masked(sids, source)
    if isinstance(sids, (list, tuple)) and _holds_bools(sids):
        return _row_by_row(sids)
    try:
        matrix = np.asarray(sids)
    except ValueError:  # the rows are of unequal lengths
        return _row_by_row(list(sids))
    except (TypeError, RuntimeError) as error:
        raise CatalogError(f"{source} cannot be read as an array: {error}.") from error
    if matrix.ndim == 2 and matrix.shape[1] == 0 and len(matrix):
        return Matrix(np.empty(matrix.shape, np.int64))
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        if matrix.size == 0:
            raise CatalogError(f"{source}: there are no rows; a catalog needs at least one item.")
        raise CatalogError(
            f"{source} has shape {matrix.shape}; give one row of tokens per semantic ID, [N, L]."
        )
    if matrix.dtype.kind not in "iu":
        raise CatalogError(f"{source} has dtype {matrix.dtype}; tokens must be integers.")
    return Matrix(matrix)


def refuse_masked(values: Any, what: str) -> None:
    """Refuse an array with masked cells, which NumPy would read as what lies under the mask."""
    if is_masked(values):
        place = np.argwhere(np.ma.getmaskarray(values))[0].tolist()
        raise CatalogError(
            f"{what}: cell {place} is masked; fill masked cells (tokens behind the end are -1) or "
            "leave their rows out."
        )


def is_masked(values: Any) -> bool:
    """Whether an array has masked cells. Who made it has imported the module of such arrays, which
    takes a twentieth of a second that nobody else should wait for.
    """
    return "numpy.ma" in sys.modules and bool(np.ma.is_masked(values))


def _holds_bools(rows: Sequence[Any]) -> bool:
    """Whether a row holds True or False, which NumPy would read as 1 and 0."""
    lists = (row for row in rows if isinstance(row, (list, tuple)))
    arrays = (row for row in rows if isinstance(row, np.ndarray))
    kinds = set(map(type, chain.from_iterable(lists)))
    return bool(kinds & {bool, np.bool_}) or any(row.dtype.kind == "b" for row in arrays)


def _row_by_row(rows: Sequence[Any]) -> Matrix:
    """Rows of unequal lengths, with -1 behind the end of the shorter ones."""
    read = [_tokens(row) for row in rows]
    width = max(1, *(len(tokens) for tokens in read if tokens is not None), 0)
    matrix = np.full((len(rows), width), -1, np.int64)
    unreadable = {}
    for number, tokens in enumerate(read):
        if tokens is None:
            unreadable[number] = (
                "unreadable semantic ID",
                "the semantic ID is no list of integers",
            )
        else:
            matrix[number, : len(tokens)] = tokens
    return Matrix(matrix, unreadable, rows)


def _tokens(row: Any) -> Sequence[int] | NDArray[np.integer] | None:
    """The tokens of one row; None where it holds anything but integers."""
    if isinstance(row, (str, bytes)) or not isinstance(row, Iterable) or is_masked(row):
        return None
    if hasattr(row, "__array__"):
        array = np.asarray(row)
        fits = array.ndim == 1 and array.dtype.kind in "iu" and array.max(initial=0) <= _LARGEST
        return array if fits else None
    tokens = list(row)
    whole = all(
        isinstance(token, (int, np.integer))
        and not isinstance(token, bool)
        and -_LARGEST <= token <= _LARGEST
        for token in tokens
    )
    return tokens if whole else None
