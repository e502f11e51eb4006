"""The spellings of a semantic ID that people's files hold, read into a matrix of tokens.

A semantic ID may be a list of integers, a list of strings ``["<a_236>", "<b_231>"]``, one string
``"<a_236><b_231>"``, or one string of integers between commas, semicolons or spaces, with or
without brackets. The letter (of either case) names the level: a is the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.catalog.items import as_text, is_text, pc
from beamsieve.errors import CatalogError

LONGEST_SID = 64
"""A row with more levels than this cannot be a semantic ID."""

_BRACKETED = r"^\s*(<[A-Za-z]_\d{1,10}>\s*)+$"
_NUMBERS = r"^\s*[\[(]?\s*-?\d{1,10}(\s*[,; ]\s*-?\d{1,10})*\s*[\])]?\s*$"
_ONE_TOKEN = r"^\s*(<[A-Za-z]_\d{1,10}>|-?\d{1,10})\s*$"
_LARGEST = np.iinfo(np.int64).max


@dataclass
class Spelled:
    """Token rows, and which of them could not be read.

    Attributes:
        tokens: integers [n, w], -1 behind the end; -1 throughout where there is none.
        unreadable: per row that could not be read, a short name for the reason and the clause.
    """

    tokens: NDArray[np.integer]
    unreadable: dict[int, tuple[str, str]] = field(default_factory=dict)


def read_column(column: pa.Array, name: str, most: int | None) -> Spelled:
    """Read a column of whole semantic IDs.

    Args:
        column: lists of integers or strings, or strings.
        name: what the column is called.
        most: how many levels there are, if that is known.

    Raises:
        CatalogError: the column's type can hold no semantic IDs.
    """
    kind = column.type
    if is_text(kind):
        return _from_text(column, most)
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_type))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise CatalogError(
            f"Column {name!r} has type {kind}; a semantic ID is a list of integers, a list of "
            'strings such as "<a_1>", or one string.'
        )
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    values = column.flatten()
    flat: NDArray[np.integer]
    if is_text(values.type):
        level = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        flat, bad = _one_token_each(values, level)
    else:
        flat, bad = _whole_numbers(values, name)
    result = _as_rows(flat, lengths, most)
    for row in np.unique(np.repeat(np.arange(len(lengths)), lengths)[bad]).tolist():
        result.unreadable.setdefault(row, _unreadable())
    return result


def read_levels(columns: list[pa.Array], names: list[str]) -> Spelled:
    """Read one column per level: integers, or one token as text; null is no token."""
    parts = []
    tokens: NDArray[np.integer]
    unreadable: dict[int, tuple[str, str]] = {}
    for level, (column, name) in enumerate(zip(columns, names, strict=True)):
        if is_text(column.type):
            empty = np.asarray(pc.equal(pc.utf8_trim_whitespace(column), "").fill_null(True))
            levels = np.full(len(column), level)
            tokens, bad = _one_token_each(column, levels)
            tokens, bad = np.where(empty, -1, tokens), bad & ~empty
        else:
            tokens, bad = _whole_numbers(column, name, nan_is_null=True)
        parts.append(tokens)
        for row in np.flatnonzero(bad).tolist():
            unreadable.setdefault(row, _unreadable(f" in column {name!r}"))
    return Spelled(np.stack(parts, axis=1), unreadable)


def _unreadable(where: str = "") -> tuple[str, str]:
    return "unreadable semantic ID", f"the semantic ID cannot be read{where}"


def _as_rows(flat: NDArray[np.integer], lengths: NDArray[np.int64], most: int | None) -> Spelled:
    """Cut a run of tokens into rows."""
    count = len(lengths)
    limit = most or LONGEST_SID
    widest = int(lengths.max(initial=0))
    if count and widest <= limit and lengths.min() == widest:
        return Spelled(flat.reshape(count, widest))
    long = np.flatnonzero(lengths > limit)
    kept = np.where(lengths > limit, 0, lengths)
    width = int(kept.max(initial=0))
    tokens = np.full((count, width), -1, flat.dtype)
    if len(long):
        flat = flat[np.repeat(lengths <= limit, lengths)]
    tokens[np.arange(width) < kept[:, None]] = flat
    why = {
        row: (
            "over-long semantic ID",
            f"the semantic ID has {lengths[row]} levels, but at most {limit} are possible",
        )
        for row in long.tolist()
    }
    return Spelled(tokens, why)


def _whole_numbers(
    values: pa.Array, name: str, nan_is_null: bool = False
) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
    """Integers, -1 for null; and which values were none.

    A column of numbers with gaps often has NaN where it has no token; a list has no gaps to fill.
    """
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), -1, np.int64), np.zeros(len(values), np.bool_)
    if pa.types.is_floating(kind):
        reals = values.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.float64)
        if nan_is_null:
            reals = np.where(np.isnan(reals), -1.0, reals)
        bad = (np.trunc(reals) != reals) | (np.abs(reals) > 2**53)
        return np.where(bad, -1, reals).astype(np.int64), bad
    if not pa.types.is_integer(kind):
        raise CatalogError(f"Column {name!r} holds values of type {kind}; tokens are integers.")
    unsigned = pa.types.is_unsigned_integer(kind)
    numbers = values.fill_null(0 if unsigned else -1) if values.null_count else values
    array = numbers.to_numpy(zero_copy_only=False)
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(_LARGEST)).astype(np.int64)
    elif array.dtype.kind == "u":
        array = array.astype(np.int64)
    if unsigned and values.null_count:
        array[np.asarray(values.is_null())] = -1
    return array, np.zeros(len(array), np.bool_)


def _from_text(column: pa.Array, most: int | None) -> Spelled:
    """One string per semantic ID."""
    column = column.cast(pa.large_string())
    missing = np.asarray(pc.equal(pc.utf8_trim_whitespace(column), "").fill_null(True))
    bracketed = _matches(column, _BRACKETED)
    readable = bracketed | _matches(column, _NUMBERS)
    readable &= ~missing
    rows = np.flatnonzero(readable)
    numbers, counts, levels_fit = _numbers_in(column.take(pa.array(rows)))
    lengths = np.zeros(len(column), np.int64)
    lengths[rows] = counts
    result = _as_rows(numbers, lengths, most)
    for row in np.flatnonzero(~readable & ~missing).tolist():
        result.unreadable[row] = _unreadable()
    for row in rows[bracketed[rows] & ~levels_fit].tolist():
        result.unreadable.setdefault(row, _wrong_letter())
    return result


def _one_token_each(
    values: pa.Array, levels: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One token per string: "<a_5>" (its letter must be the level's) or "5"; and the bad ones."""
    values = values.cast(pa.large_string())
    good = _matches(values, _ONE_TOKEN)
    places = np.flatnonzero(good)
    tokens = np.full(len(values), -1, np.int64)
    numbers, _, letters_fit = _numbers_in(values.take(pa.array(places)), levels[places])
    tokens[places] = numbers
    good[places[~letters_fit]] = False
    return tokens, ~good


def _wrong_letter() -> tuple[str, str]:
    return "letters out of order", "the letters of its tokens are not a, b, c … in this order"


def _matches(column: pa.Array, pattern: str) -> NDArray[np.bool_]:
    found = pc.match_substring_regex(column, pattern).fill_null(False)
    return np.array(found.to_numpy(zero_copy_only=False), np.bool_)


def _numbers_in(
    strings: pa.Array, first_levels: NDArray[np.integer] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """All decimal numbers in well-formed strings.

    Args:
        strings: large_string without nulls.
        first_levels: the level of each string's first number, from 0 (0 when None).

    Returns:
        The numbers in turn; how many each string holds; and, for each string, whether every letter
        before a number names that number's level (true where there are no letters).
    """
    count = len(strings)
    offsets = np.frombuffer(strings.buffers()[1], np.int64)[strings.offset :][: count + 1]
    if not count or strings.buffers()[2] is None:
        return np.empty(0, np.int64), np.zeros(count, np.int64), np.ones(count, np.bool_)
    text = np.frombuffer(strings.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    digit = (text - np.uint8(ord("0"))) < 10
    begins = digit.copy()
    begins[1:] &= ~digit[:-1]
    begins[offsets[:-1][offsets[:-1] < offsets[1:]]] |= digit[
        offsets[:-1][offsets[:-1] < offsets[1:]]
    ]
    starts = np.flatnonzero(begins)
    row = np.searchsorted(offsets, starts, side="right") - 1
    counts = np.bincount(row, minlength=count).astype(np.int64)

    numbers = np.zeros(len(starts), np.int64)
    place, open_ = starts.copy(), np.arange(len(starts))
    ends = offsets[row + 1]
    while len(open_):
        numbers[open_] = numbers[open_] * 10 + (text[place] - np.uint8(ord("0")))
        place = place + 1
        goes_on = place < ends[open_]
        goes_on[goes_on] = digit[place[goes_on]]
        place, open_ = place[goes_on], open_[goes_on]

    before = np.where(starts > offsets[row], text[np.maximum(starts - 1, 0)], 0)
    numbers[before == ord("-")] *= -1
    fits = np.ones(count, np.bool_)
    spelled = before == ord("_")
    letters = (text[np.maximum(starts - 2, 0)] | 0x20).astype(np.int64) - ord("a")
    level = np.arange(len(starts)) - (np.cumsum(counts) - counts)[row]
    if first_levels is not None:
        level = level + first_levels[row]
    fits[row[spelled & (letters != level)]] = False
    return numbers, counts, fits


def read_objects(values: list[Any], most: int | None) -> Spelled:
    """Read semantic IDs out of JSON values: lists of integers or of strings, or strings."""
    lists = [row for row, value in enumerate(values) if _is_int_list(value)]
    texts: list[str | None] = []
    places: list[int] = []
    unreadable: dict[int, tuple[str, str]] = {}
    is_list = set(lists)
    for row, value in enumerate(values):
        if row in is_list:
            continue
        if value is None or isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list) and all(isinstance(token, str) for token in value):
            texts.append(" ".join(value))
        else:
            texts.append(None)
            unreadable[row] = _unreadable()
        places.append(row)
    column, bad = as_text(texts)
    for place in bad:
        unreadable[places[place]] = _unreadable()
    lengths = np.array([len(values[row]) for row in lists], np.int64)
    flat = np.fromiter((token for row in lists for token in values[row]), np.int64)
    parts = [
        (np.array(lists, np.int64), _as_rows(flat, lengths, most)),
        (np.array(places, np.int64), _from_text(column, most)),
    ]
    width = max(part.tokens.shape[1] for _, part in parts)
    tokens = np.full((len(values), width), -1, np.int64)
    for rows, part in parts:
        tokens[rows, : part.tokens.shape[1]] = part.tokens
        for row, why in part.unreadable.items():
            unreadable.setdefault(int(rows[row]), why)
    return Spelled(tokens, unreadable)


def _is_int_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(token) is int and -_LARGEST <= token <= _LARGEST for token in value
    )
