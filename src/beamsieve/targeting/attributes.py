"""Attributes: what a request may say about its viewer, and where each one's bits lie in a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from beamsieve.errors import CatalogError

Value = int | str
EXACT_SETS = ("allow", "exclude")
RESERVED = 1
"""The first bit of an attribute: set where an item has no rule on it."""

_WORD = 64
_LARGEST_BLOOM = 65536


@dataclass(frozen=True)
class Attribute:
    """Something that rules and requests name: ``country``, ``age``, ``place``.

    Args:
        name: how rules and requests call it; neither "allow" nor "exclude".
        values: all its values, strings or integers, where they are few: one bit each. An item must
            accept every value that a request gives.
        bloom: in place of ``values``, where they are many: the bits of a Bloom filter, a multiple
            of 64 up to 65536. An item must accept one of the values that a request gives.

    Raises:
        CatalogError: the declaration cannot be used.
    """

    name: str
    values: Sequence[Value] | None = None
    bloom: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name in EXACT_SETS:
            raise CatalogError(
                f"An attribute cannot be named {self.name!r}; give it a text other than "
                f"{' and '.join(map(repr, EXACT_SETS))}."
            )
        if (self.values is None) == (self.bloom is None):
            raise CatalogError(
                f"Attribute {self.name!r} needs either values= (few, known) or bloom= (many)."
            )
        if self.values is not None:
            self._check_values(self.values)
        elif not _is_bloom_width(self.bloom):
            raise CatalogError(
                f"Attribute {self.name!r} has a Bloom filter of {self.bloom!r} bits; take a "
                f"multiple of 64 from 64 to {_LARGEST_BLOOM}."
            )

    def _check_values(self, values: Any) -> None:
        iterable = isinstance(values, Iterable) and getattr(values, "ndim", 1) == 1
        if isinstance(values, (str, bytes, Mapping)) or not iterable:
            raise CatalogError(f"Attribute {self.name!r}: values must be a list, not {values!r}.")
        values = tuple(values)
        plain = tuple(plain_value(value) for value in values)
        for value, kept in zip(values, plain, strict=True):
            if kept is None:
                raise CatalogError(
                    f"Attribute {self.name!r}: value {value!r} is neither a string nor an integer."
                )
        if len(set(plain)) < len(plain):
            twice = next(value for value in plain if plain.count(value) > 1)
            raise CatalogError(f"Attribute {self.name!r} has the value {twice!r} twice.")
        object.__setattr__(self, "values", plain)

    @property
    def bits(self) -> int:
        """Bits in a row: one per value and the reserved one, or the whole filter."""
        return self.bloom if self.bloom is not None else len(self.values or ()) + 1

    def as_dict(self) -> dict[str, Any]:
        """The declaration as JSON values."""
        if self.bloom is not None:
            return {"name": self.name, "bloom": self.bloom}
        return {"name": self.name, "values": list(self.values or ())}


@dataclass(frozen=True)
class RowLayout:
    """How the attributes share a row (``beamsieve_spec.targeting_bits``).

    A row has one segment for all bit attributes together, if there are any, and one for each Bloom
    attribute.

    Attributes:
        attributes: in declared order.
        offsets: per bit attribute, the place of its reserved bit in the first segment.
        bit_words: 64-bit words of the first segment.
        bit_count: its bits that carry meaning.
        blooms: the Bloom attributes, in declared order.
    """

    attributes: tuple[Attribute, ...]
    offsets: Mapping[str, int]
    bit_words: int
    bit_count: int
    blooms: tuple[Attribute, ...]

    @property
    def row_bits(self) -> int:
        """Bits of a whole row that carry meaning."""
        return self.bit_count + sum(attribute.bits for attribute in self.blooms)

    @property
    def segment_words(self) -> tuple[int, ...]:
        """Words of every segment, the bit attributes' first (0 words if there are none)."""
        return (self.bit_words, *(attribute.bits // _WORD for attribute in self.blooms))


def lay_out(attributes: Sequence[Attribute]) -> RowLayout:
    """Give every attribute its bits.

    Raises:
        CatalogError: something else than an attribute is given, or two have one name.
    """
    if isinstance(attributes, (str, Mapping)) or not isinstance(attributes, Iterable):
        raise CatalogError(
            f"attributes is {attributes!r}; give a list of beamsieve.Attribute objects."
        )
    names = set()
    for attribute in attributes:
        if not isinstance(attribute, Attribute):
            raise CatalogError(f"attributes holds {attribute!r}; give beamsieve.Attribute objects.")
        if attribute.name in names:
            raise CatalogError(f"Two attributes are named {attribute.name!r}; rename one.")
        names.add(attribute.name)
    offsets, end = {}, 0
    for attribute in attributes:
        if attribute.values is not None:
            offsets[attribute.name] = end
            end += attribute.bits
    blooms = tuple(attribute for attribute in attributes if attribute.bloom is not None)
    return RowLayout(tuple(attributes), offsets, -(-end // _WORD), end, blooms)


def read_attributes(source: str | Path | Sequence[Mapping[str, Any]]) -> list[Attribute]:
    """Attributes from their JSON form, or from a file that holds it.

    The form is a list: ``[{"name": "country", "values": ["US", "CA"]}, {"name": "place", "bloom":
    256}]``.

    Raises:
        CatalogError: the file or an entry cannot be read.
    """
    where = "attributes"
    entries: Any = source
    if isinstance(source, (str, Path)):
        where = str(source)
        try:
            entries = json.loads(Path(source).read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise CatalogError(f"{where}: cannot be read as JSON: {error}.") from error
    if not isinstance(entries, Sequence) or isinstance(entries, (str, bytes)):
        raise CatalogError(f'{where}: give a list, [{{"name": "country", "values": ["US"]}}, …].')
    attributes = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not set(entry) <= {"name", "values", "bloom"}:
            raise CatalogError(
                f"{where}, entry {place}: {entry!r} is no attribute; it has a name, and values or "
                "bloom."
            )
        attributes.append(Attribute(entry.get("name", ""), entry.get("values"), entry.get("bloom")))
    lay_out(attributes)
    return attributes


def plain_value(value: Any) -> Value | None:
    """The value as a Python integer or string (one that UTF-8 can write); None if it is neither."""
    if type(value) is str and value.isascii():
        return value
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, str) and (value.isascii() or _has_utf8(value)):
        return str(value)
    return None


def _has_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_bloom_width(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return bool(whole and value % _WORD == 0 and _WORD <= value <= _LARGEST_BLOOM)
