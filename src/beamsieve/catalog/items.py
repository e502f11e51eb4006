"""Columns of item ids, integers or strings, kept compactly and looked up both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import ArrayLike, NDArray

from beamsieve.catalog.matrix import refuse_masked
from beamsieve.errors import CatalogError

ItemId = int | str

pc: Any = pyarrow.compute
"""Arrow's functions; they are made at its import, so type checkers cannot see them."""

_INT64 = np.iinfo(np.int64)


class ItemIds(Sequence[ItemId]):
    """The users' own item ids; an item's *number* is its position here.

    All ids are 64-bit integers, or all are strings. ``values`` is an Arrow array (int64 or
    large_string), so strings of a saved index are read in place from the file.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._numbers: dict[ItemId, int] | None = None
        self._sorted: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @classmethod
    def of(cls, ids: Any) -> ItemIds:
        """From a list, a NumPy or Arrow array, or a pandas Series, of integers or strings.

        Raises:
            CatalogError: an id is missing, or neither an integer of 64 bits nor a string, or
                integers and strings are mixed.
        """
        return cls(as_ids(ids))

    @classmethod
    def numbered(cls, ids: NDArray[np.int64]) -> ItemIds:
        """Of contiguous integers, without a copy."""
        # pa.array would import pandas first, if that is installed.
        buffers = [None, pa.py_buffer(ids)]
        return cls(pa.Array.from_buffers(pa.int64(), len(ids), buffers))

    @property
    def are_strings(self) -> bool:
        """Whether the ids are strings."""
        return bool(pa.types.is_large_string(self.values.type))

    def numpy(self) -> NDArray[np.int64]:
        """The ids as int64, without a copy; integers only."""
        held = np.frombuffer(self.values.buffers()[1], np.int64)
        return held[self.values.offset :][: len(self.values)]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[ItemId]:
        return iter(self.values.to_pylist())

    @overload
    def __getitem__(self, index: int) -> ItemId: ...
    @overload
    def __getitem__(self, index: slice) -> ItemIds: ...
    def __getitem__(self, index: int | slice) -> ItemId | ItemIds:
        if isinstance(index, slice):
            return ItemIds(self.values.take(pa.array(range(*index.indices(len(self))), pa.int64())))
        value: ItemId = self.values[int(index)].as_py()
        return value

    def take(self, numbers: ArrayLike) -> ItemIds:
        """The ids of these item numbers, as another column."""
        places = np.ascontiguousarray(numbers, np.int64)
        return ItemIds(self.values.take(ItemIds.numbered(places).values))

    def list(self, numbers: ArrayLike) -> list[ItemId]:
        """The ids of these item numbers."""
        ids: list[ItemId] = self.take(numbers).values.to_pylist()
        return ids

    def numbers(self, ids: Iterable[Any]) -> NDArray[np.int64]:
        """int64: the item number of each id, -1 where no item has that id."""
        if self.are_strings:
            if self._numbers is None:
                self._numbers = {item: number for number, item in enumerate(self)}
            known = self._numbers
            return np.fromiter(
                (known.get(item, -1) if isinstance(item, str) else -1 for item in ids), np.int64
            )
        if self._sorted is None:
            order = np.argsort(self.numpy(), kind="stable")
            self._sorted = self.numpy()[order], order
        ordered, order = self._sorted
        listed = list(ids)
        usable = np.fromiter((is_id(item) for item in listed), np.bool_, len(listed))
        wanted = np.fromiter((item if is_id(item) else -1 for item in listed), np.int64)
        if not len(ordered):
            return np.full(len(wanted), -1, np.int64)
        place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(usable & (ordered[place] == wanted), order[place], -1)

    def find(
        self, columns: Sequence[Any], threads: int | None = None, compiled: bool = False
    ) -> Sequence[NDArray[np.int64]]:
        """Per column of ids, int64: the item number of each id, -1 where no item has that id.

        As :meth:`numbers`, but for many ids asked for once: no table of all items is made and kept.

        Args:
            columns: of integers or strings, as lists, NumPy or Arrow arrays.
            threads: how many to use.
            compiled: whether integers are looked for in compiled loops.
        """
        from beamsieve.catalog.lookup import find_numbers

        return find_numbers(self, columns, threads, compiled)


def distinct(values: pa.Array) -> tuple[pa.Array, NDArray[np.int64] | None]:
    """Distinct values in order of first appearance, and each row's place among them.

    The second is None when all values are distinct already.
    """
    if pa.types.is_int64(values.type):
        ordered = np.sort(values.to_numpy())
        if not (ordered[1:] == ordered[:-1]).any():
            return values, None
    encoded = values.dictionary_encode()
    if len(encoded.dictionary) == len(values):
        return values, None
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def is_id(item: Any) -> bool:
    """Whether this is an integer of 64 bits."""
    whole = isinstance(item, (int, np.integer)) and not isinstance(item, bool)
    return bool(whole and _INT64.min <= item <= _INT64.max)


def as_ids(ids: Any, allow_missing: bool = False) -> pa.Array:
    """Item ids as an Arrow array of int64 or large_string.

    Args:
        ids: what :meth:`ItemIds.of` takes.
        allow_missing: keep null (and empty text, as null) instead of refusing it.

    Raises:
        CatalogError: as :meth:`ItemIds.of`.
    """
    array = _unified(_as_arrow(ids))
    if pa.types.is_large_string(array.type) and pc.min(pc.binary_length(array)).as_py() == 0:
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.large_string()), array)
    if array.null_count and not allow_missing:
        row = int(np.flatnonzero(np.asarray(array.is_null()))[0])
        raise CatalogError(f"Row {row} has no item id; give every row one (rows count from 0).")
    return array


def read_ids(ids: pa.Array) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
    """A file's ids as :func:`as_ids` gives them, null where one cannot be used; and why.

    Raises:
        CatalogError: the column's type can hold no ids.
    """
    kind = ids.type
    wrong = np.zeros(len(ids), np.bool_)
    if pa.types.is_floating(kind):
        reals = ids.to_numpy(zero_copy_only=False).astype(np.float64)
        whole = np.isfinite(reals) & (np.trunc(reals) == reals) & (np.abs(reals) <= 2**53)
        wrong = ~whole & np.asarray(ids.is_valid())
    elif pa.types.is_uint64(kind):
        wrong = ids.fill_null(0).to_numpy(zero_copy_only=False) > _INT64.max
    bad = {
        row: (
            "unreadable item id",
            f"the item id {ids[row].as_py()!r} is neither a 64-bit integer nor a string",
        )
        for row in np.flatnonzero(wrong).tolist()
    }
    if bad:
        ids = pc.if_else(pa.array(wrong), pa.scalar(None, kind), ids)
    return as_ids(ids, allow_missing=True), bad


NO_TEXT = "holds a lone surrogate, which is no text"


def no_text(values: Iterable[Any]) -> list[int]:
    """The places of strings that UTF-8 cannot write."""
    return [
        place
        for place, value in enumerate(values)
        if isinstance(value, str) and not value.isascii() and not has_utf8(value)
    ]


def as_text(values: Iterable[str | None]) -> tuple[pa.Array, list[int]]:
    """large_string, null where a string is no text; and the places of those."""
    listed = list(values)
    try:
        return pa.array(listed, pa.large_string()), []
    except UnicodeEncodeError:
        bad = no_text(listed)
        for place in bad:
            listed[place] = None
        return pa.array(listed, pa.large_string()), bad


def as_titles(titles: Any, what: str) -> pa.Array:
    """Titles as large_string.

    Raises:
        CatalogError: they are no texts.
    """
    refuse_masked(titles, what)
    if isinstance(titles, (bytes, Mapping)) or not isinstance(titles, Iterable):
        raise CatalogError(f"{what}: {titles!r} is no list of texts; give a text or None per row.")
    listed: Any = titles if hasattr(titles, "__getitem__") else list(titles)
    try:
        array: Any = listed if isinstance(listed, (pa.Array, pa.ChunkedArray)) else pa.array(listed)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        return array.cast(pa.large_string())
    except UnicodeEncodeError as error:
        row = no_text(listed)[0]
        raise CatalogError(
            f"{what}, row {row}: {listed[row]!r} {NO_TEXT} (rows count from 0)."
        ) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise CatalogError(f"{what}: these are no texts: {error}.") from error


def has_utf8(text: str) -> bool:
    """Whether UTF-8 can write it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _as_arrow(ids: Any) -> Any:
    if isinstance(ids, ItemIds):
        return ids.values
    if isinstance(ids, range):
        ids = np.arange(ids.start, ids.stop, ids.step)
    refuse_masked(ids, "Item ids")
    if isinstance(ids, np.ndarray) and ids.dtype.kind not in "iu":
        ids = ids.tolist()
    if isinstance(ids, (bytes, Mapping)) or not isinstance(ids, Iterable):
        raise CatalogError(f"Item ids are {ids!r}; give a list of integers or strings.")
    if isinstance(ids, str) or not hasattr(ids, "__len__"):
        ids = list(ids)
    listed: Any = ids
    try:
        array: Any = listed if isinstance(listed, (pa.Array, pa.ChunkedArray)) else pa.array(listed)
    except UnicodeEncodeError as error:
        row = no_text(listed)[0]
        raise CatalogError(
            f"Row {row}: the item id {listed[row]!r} {NO_TEXT} (rows count from 0)."
        ) from error
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CatalogError(
            f"Item ids must be all 64-bit integers or all strings: {error}."
        ) from error
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _unified(array: pa.Array) -> pa.Array:
    """The array as int64 or large_string."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    try:
        if pa.types.is_null(kind) or pa.types.is_integer(kind):
            return array.cast(pa.int64())
        if pa.types.is_floating(kind):
            return array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise CatalogError(f"Item ids must be 64-bit integers or strings: {error}.") from error
    if is_text(kind):
        return array.cast(pa.large_string())
    raise CatalogError(f"Item ids must be 64-bit integers or strings, not {kind}.")


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the string types."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
