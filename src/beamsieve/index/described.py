"""What the header of an index file must say, and the arrays that must be there for it.

Checksums find what was altered since the file was written. This finds what another program, or a
mistaken one, wrote with checksums that fit: fields that are missing or of another kind, and arrays
of another type or shape than the fields ask for. What the arrays hold is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from beamsieve.index.encode import bit_words
from beamsieve.index.starts import BLOCKS, starts_dtype
from beamsieve.index.tables import GROUP, rank_dtype
from beamsieve.index.tokens import packed_words, token_bits, token_dtype
from beamsieve.targeting.attributes import RowLayout
from beamsieve.targeting.partitions import Partitions

_WORD = 64
_LARGEST_CODEBOOK = 2**31
_FINGERPRINT = re.compile("[0-9a-f]{32}")
_PLACES = (np.int32, np.int64)

Arrays = Mapping[str, NDArray[Any]]


def check_fields(about: Any) -> None:
    """Refuse a description without what every index has.

    Raises:
        KeyError, ValueError: what is missing, or not as it must be.
    """
    if not isinstance(about, dict):
        raise ValueError("the description is no object")
    codebooks, tables = about["codebooks"], about["tables"]
    _need(_is_list(codebooks) and all(_is_whole(v, 1, _LARGEST_CODEBOOK) for v in codebooks),
          "codebooks")  # fmt: skip
    ends = len(codebooks) > 1 and codebooks[-1] == 1  # the last end token stands alone
    _need(about["end_token"] is False or (about["end_token"] is True and ends), "end_token")
    for name in ("leaves", "items"):
        _need(_is_whole(about[name], 1), name)
    for name in ("fingerprint", "sid_fingerprint"):
        _need(isinstance(about[name], str) and _FINGERPRINT.fullmatch(about[name]), name)
    _need(_is_list(tables) and len(tables) == len(codebooks), "tables")
    above = 1
    for step, (vocabulary, table) in enumerate(zip(codebooks, tables, strict=True), 1):
        _check_table(f"table {step}", vocabulary, table, above)
        above = table["entries"]
    most = sum(table["entries"] for table in tables)
    _need(above <= about["leaves"] <= most, "leaves")  # not all need to be as deep as the tables


def check_arrays(about: Mapping[str, Any], layout: RowLayout, arrays: Arrays) -> None:
    """Refuse arrays that are not those of a description that ``check_fields`` took.

    Raises:
        KeyError, ValueError: which array.
    """
    leaves, items = about["leaves"], about["items"]
    for step, (vocabulary, table) in enumerate(
        zip(about["codebooks"], about["tables"], strict=True), 1
    ):
        _check_starts(f"table.{step}.", table, arrays)
        _check_tokens(f"table.{step}.", vocabulary, table, arrays)
    pairs = leaves
    if "leaf_items.starts" in arrays:
        _form(arrays, "leaf_items.starts", _PLACES, leaves + 1)
        pairs = int(arrays["leaf_items.starts"][-1])
    if "leaf_items.numbers" in arrays:
        _form(arrays, "leaf_items.numbers", None, pairs)
    else:
        _need(pairs == items, "items")
    if "items" in arrays:
        _form(arrays, "items", np.int64, items)
    else:
        _check_text(arrays, "items", items)
    if "titles.offsets" in arrays:
        _check_text(arrays, "titles", items)
    if layout.attributes:
        _check_rules(layout, items, arrays)
        _check_matchers(about, layout, arrays)


def partitions_of(given: Any, length: int) -> Partitions:
    """Partitions as a description holds them.

    Raises:
        KeyError, ValueError: no partitions of an index of ``length`` levels.
    """
    static, target, most = given["static"], given["target"], given["most"]
    dynamic = None if static is not None else (target, most)
    _need(static is None or _is_list(static), "static partitions")
    _need(type(target) in (int, float) and _is_whole(most, 1), "dynamic partitions")
    return Partitions.of(static, dynamic, length)


def _check_table(name: str, vocabulary: int, table: Any, above: int) -> None:
    _need(isinstance(table, dict), name)
    rows, entries = table["rows"], table["entries"]
    _need(rows == above and _is_whole(rows, 0), f"{name}'s rows")
    _need(_is_whole(entries, 0, rows * vocabulary), f"{name}'s entries")
    _need(_is_whole(table["widest"], 0, vocabulary), f"{name}'s widest")
    _need(table["block"] in (0, *BLOCKS) and _is_whole(table["block"], 0), f"{name}'s block")
    _need(_is_whole(table["gap"], 0, 1), f"{name}'s gap")
    starts = table["starts"]
    _need(isinstance(starts, dict) and starts, f"{name}'s starts")
    _need(all(_is_whole(size, 0) for size in starts.values()), f"{name}'s starts")


def _check_starts(prefix: str, table: Mapping[str, Any], arrays: Arrays) -> None:
    rows, entries, block, gap = (table[name] for name in ("rows", "entries", "block", "gap"))
    if not block:
        if f"{prefix}starts" in arrays:
            _form(arrays, f"{prefix}starts", starts_dtype(entries), rows + 1)
        else:
            _need(rows == entries, f"the array {prefix}starts")
        return
    places = starts_dtype(entries + gap * rows)
    _form(arrays, f"{prefix}start_bits", np.uint64, bit_words(rows, entries, gap))
    _form(arrays, f"{prefix}start_samples", places, -(-(rows + 1) // block))
    _form(arrays, f"{prefix}start_exceptions", places, None)
    _need(len(arrays[f"{prefix}start_exceptions"]) % block == 0, f"{prefix}start_exceptions")


def _check_tokens(prefix: str, vocabulary: int, table: Mapping[str, Any], arrays: Arrays) -> None:
    rows, entries = table["rows"], table["entries"]
    if f"{prefix}bitmap" in arrays:
        words = -(-vocabulary // _WORD)
        _form(arrays, f"{prefix}bitmap", np.uint64, rows, words)
        _form(arrays, f"{prefix}ranks", rank_dtype(vocabulary), rows, -(-words // GROUP))
    elif f"{prefix}packed" in arrays:
        words = packed_words(entries, token_bits(vocabulary))
        _form(arrays, f"{prefix}packed", np.uint32, words)
    else:
        _form(arrays, f"{prefix}tokens", token_dtype(vocabulary), entries)


def _check_rules(layout: RowLayout, items: int, arrays: Arrays) -> None:
    _form(arrays, "rules.bits.rows", np.uint64, None, layout.bit_words)
    _form(arrays, "rules.bits.index", np.int32, items)
    for place in range(len(layout.blooms)):
        prefix = f"rules.bloom.{place}."
        _form(arrays, f"{prefix}set_of_item", np.int32, items)
        _form(arrays, f"{prefix}kinds", np.int8, None)
        _form(arrays, f"{prefix}starts", np.int64, len(arrays[f"{prefix}kinds"]) + 1)
        _form(arrays, f"{prefix}codes", np.int32, None)
        _check_text(arrays, f"{prefix}forms", None)


def _check_matchers(about: Mapping[str, Any], layout: RowLayout, arrays: Arrays) -> None:
    for step, table in enumerate(about["tables"], 1):
        parts = table["entries"]
        starts = f"matcher.{step}.part_starts"
        if starts in arrays:
            _form(arrays, starts, _PLACES, parts + 1)
            parts = int(arrays[starts][-1])
        for place, words in enumerate(layout.segment_words):
            _form(arrays, f"matcher.{step}.{place}.rows", np.uint64, None, words)
            _form(arrays, f"matcher.{step}.{place}.index", np.int32, parts)


def _check_text(arrays: Arrays, name: str, count: int | None) -> None:
    _form(arrays, f"{name}.offsets", np.int64, None if count is None else count + 1)
    _form(arrays, f"{name}.text", np.uint8, None)
    if f"{name}.valid" in arrays:
        rows = len(arrays[f"{name}.offsets"]) - 1
        _form(arrays, f"{name}.valid", np.uint8, -(-rows // 8))


def _form(
    arrays: Arrays, name: str, kinds: DTypeLike | tuple[type, ...] | None, *shape: int | None
) -> None:
    """Refuse an array of another type or shape; None stands for any."""
    array = arrays[name]
    held = kinds if isinstance(kinds, tuple) else (kinds,)
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for found, wanted in zip(array.shape, shape, strict=True)
    )
    fits = fits and (kinds is None or array.dtype in [np.dtype(kind) for kind in held])
    if not fits:
        raise ValueError(f"the array {name} is {array.dtype} {list(array.shape)}")


def _need(fits: Any, what: str) -> None:
    if not fits:
        raise ValueError(f"{what} cannot be what the file says")


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0


def _is_whole(value: Any, least: int, most: int | None = None) -> bool:
    return type(value) is int and least <= value and (most is None or value <= most)
