"""Rules as people write them, read row by row into a few numbered sets per attribute.

A rule on one attribute is a dict with any of these parts; it accepts a value when every part does:

- ``{"accepts": [...]}``: these values alone;
- ``{"refuses": [...]}``: all values but these;
- ``{"from": 25, "to": 34}``: the declared integers from 25 to 34, both included; one may be left
  out.

An attribute that is left out, or has ``{}`` or ``{"refuses": []}``, has no rule: everyone is
accepted. In a file, a column ``rules`` holds the dict of all attributes as JSON text::

    {"country": {"accepts": ["US", "CA"]}, "age": {"from": 25}, "place": {"refuses": ["x"]}}
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamsieve.targeting.attributes import RESERVED, Attribute, RowLayout, plain_value
from beamsieve.targeting.bloom import canonical_form

_PARTS = ("accepts", "refuses", "from", "to")
_LISTS = (list, tuple, set, frozenset, np.ndarray)
_KIND = "unreadable rules"

NO_RULE, ACCEPTS, REFUSES = 0, 1, 2
"""Kinds of a set on a Bloom attribute."""


class UnreachableItemWarning(UserWarning):
    """Some items have a rule that accepts nothing, so no targeted request can find them."""


class _UnusableError(Exception):
    """A rule that cannot be used; its text is a clause."""


class BitSet(NamedTuple):
    """What a rule accepts of a bit attribute: bit 0 for "no rule", bit i for its i-th value."""

    mask: int

    @property
    def accepts_nothing(self) -> bool:
        """Whether no value is accepted."""
        return self.mask == 0


class ValueSet(NamedTuple):
    """What a rule says about a Bloom attribute: nothing, or the values it accepts or refuses."""

    kind: int
    forms: tuple[str, ...]

    @property
    def accepts_nothing(self) -> bool:
        """Whether no value is accepted."""
        return self.kind == ACCEPTS and not self.forms


class RuleSets:
    """The distinct sets of one attribute, numbered as they come; 0 is "no rule"."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self._places = {value: place for place, value in enumerate(attribute.values or (), 1)}
        self._integers = all(isinstance(value, int) for value in attribute.values or ())
        everything = BitSet((1 << attribute.bits) - 1)
        self.sets: list[BitSet | ValueSet] = [
            everything if attribute.bloom is None else ValueSet(NO_RULE, ())
        ]
        self._numbers: dict[BitSet | ValueSet, int] = {self.sets[0]: 0}
        self._seen: dict[bytes | str | None, int | str] = {None: 0}

    def numbers(self, rules: Sequence[Any]) -> list[int | str]:
        """For each rule, the number of its set; or, as a clause, why it cannot be used."""
        keys = _keys(rules)
        seen = self._seen
        for key, rule in dict(zip(keys, rules, strict=True)).items():
            if key not in seen:
                try:
                    seen[key] = self._add(self._read(rule))
                except _UnusableError as error:
                    seen[key] = f"the rule on {self.attribute.name!r} {error}"
        return [seen[key] for key in keys]

    def _add(self, meant: BitSet | ValueSet) -> int:
        number = self._numbers.setdefault(meant, len(self.sets))
        if number == len(self.sets):
            self.sets.append(meant)
        return number

    def _read(self, rule: Any) -> BitSet | ValueSet:
        if not isinstance(rule, Mapping):
            raise _UnusableError(f"is {rule!r}, but must be a dict")
        unknown = [part for part in rule if part not in _PARTS]
        if unknown:
            raise _UnusableError(
                f"has the part {unknown[0]!r}, but its parts are {', '.join(_PARTS)}"
            )
        accepted = self._listed(rule, "accepts")
        refused = self._listed(rule, "refuses")
        low, high = self._bound(rule, "from"), self._bound(rule, "to")
        has_rule = accepted is not None or bool(refused) or low is not None or high is not None
        if not has_rule:
            return self.sets[0]
        if self.attribute.bloom is not None:
            gone = {canonical_form(value) for value in refused or ()}
            if accepted is None:
                return ValueSet(REFUSES, tuple(sorted(gone)))
            forms = {canonical_form(value) for value in accepted} - gone
            return ValueSet(ACCEPTS, tuple(sorted(forms)))
        values = self._places if accepted is None else accepted
        mask = 0
        for value in set(values) - set(refused or ()):
            above = low is None or value >= low  # type: ignore[operator]  # bounds need integers
            below = high is None or value <= high  # type: ignore[operator]
            if above and below:
                mask |= RESERVED << self._places[value]
        return BitSet(mask)

    def _listed(self, rule: Mapping[str, Any], part: str) -> list[int | str] | None:
        if part not in rule:
            return None
        values = rule[part]
        if not isinstance(values, _LISTS):
            raise _UnusableError(f"gives {values!r} as {part!r}, but must give a list")
        plain = [plain_value(value) for value in values]
        if None in plain:
            wrong = list(values)[plain.index(None)]
            raise _UnusableError(f"names {wrong!r}, which is neither a string nor an integer")
        if self.attribute.bloom is None:
            for value in plain:
                if value not in self._places:
                    raise _UnusableError(f"names {value!r}, which is not among its declared values")
        return cast("list[int | str]", plain)

    def _bound(self, rule: Mapping[str, Any], part: str) -> int | None:
        if part not in rule:
            return None
        bound = plain_value(rule[part])
        if not isinstance(bound, int):
            raise _UnusableError(f"gives {rule[part]!r} as {part!r}, but must give an integer")
        if self.attribute.bloom is not None:
            raise _UnusableError("is an interval, which a Bloom attribute cannot have")
        if not self._integers:
            raise _UnusableError("is an interval, but its declared values are not integers")
        return bound


def _keys(rules: Sequence[Any]) -> list[bytes | str | None]:
    """A key per rule that keeps 1, 1.0 and True apart; it never leaves this process."""
    dumps = marshal.dumps
    try:
        return [None if rule is None else dumps(rule, 0) for rule in rules]
    except ValueError:  # NumPy numbers and other objects, which marshal does not know
        return [None if rule is None else repr(rule) for rule in rules]


class RuleReader:
    """Reads the rules of rows, batch by batch."""

    def __init__(self, layout: RowLayout) -> None:
        self.layout = layout
        self.sets = [RuleSets(attribute) for attribute in layout.attributes]
        self._names = {attribute.name for attribute in layout.attributes}

    def read(
        self, rules: Sequence[Any] | pa.Array
    ) -> tuple[NDArray[np.int32], dict[int, tuple[str, str]]]:
        """The set of every row and attribute; and, for rows with other rules, what is wrong.

        Args:
            rules: one dict (or None) per row, or Arrow strings that hold such dicts as JSON.

        Returns:
            int32 [rows, attributes], and for each bad row a short name for the reason and a clause.
        """
        if isinstance(rules, pa.Array):
            texts: Any = rules
            encoded = texts.dictionary_encode()
            sets, bad = self._read_texts(encoded.dictionary.to_pylist())
            codes = encoded.indices.fill_null(len(sets) - 1).to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(np.isin(codes, list(bad))).tolist() if bad else []
            return sets[codes], {row: bad[int(codes[row])] for row in rows}
        return self._read_dicts(list(rules))

    def _read_texts(self, texts: list[str]) -> tuple[NDArray[np.int32], dict[int, tuple[str, str]]]:
        """As ``read``, with one more row at the end for "no rules"."""
        rules: list[Any] = []
        broken = {}
        for place, text in enumerate(texts):
            try:
                rules.append(json.loads(text) if text.strip() else None)
            except (ValueError, RecursionError):
                broken[place] = (_KIND, "the rules are no JSON")
                rules.append(None)
        sets, bad = self._read_dicts([*rules, None])
        return sets, {**bad, **broken}

    def _read_dicts(self, rules: list[Any]) -> tuple[NDArray[np.int32], dict[int, tuple[str, str]]]:
        bad = {}
        for row, rule in enumerate(rules):
            if rule is None:
                rules[row] = {}
            elif type(rule) is not dict and not isinstance(rule, Mapping):
                bad[row] = (_KIND, f"the rules are {rule!r}, but must be a dict of attributes")
                rules[row] = {}
            elif not rule.keys() <= self._names:
                name = next(name for name in rule if name not in self._names)
                declared = ", ".join(map(repr, sorted(self._names))) or "none"
                bad[row] = (
                    _KIND,
                    f"the rules name {name!r}, which is no declared attribute (attributes= "
                    f"declares {declared}; it belongs there)",
                )
        found = np.zeros((len(rules), len(self.sets)), np.int32)
        for column, sets in enumerate(self.sets):
            name = sets.attribute.name
            numbers = sets.numbers([rule.get(name) for rule in rules])
            try:
                found[:, column] = numbers
            except ValueError:
                for row, number in enumerate(numbers):
                    if isinstance(number, str):
                        bad.setdefault(row, (_KIND, number))
                    else:
                        found[row, column] = number
        return found, bad


@dataclass(frozen=True)
class CatalogRules:
    """The rules of a catalog's items.

    Attributes:
        layout: the attributes and their bits.
        item_sets: int32 [items, attributes]; the number of each item's set.
        sets: per attribute, the numbered sets.
    """

    layout: RowLayout
    item_sets: NDArray[np.int32]
    sets: tuple[Sequence[BitSet | ValueSet], ...]

    def unreachable(self) -> NDArray[np.int64]:
        """The items with a rule that accepts nothing."""
        found = np.zeros(len(self.item_sets), np.bool_)
        for column, sets in enumerate(self.sets):
            empty = np.array([one.accepts_nothing for one in sets])
            if empty.any():
                found |= empty[self.item_sets[:, column]]
        return np.flatnonzero(found)
