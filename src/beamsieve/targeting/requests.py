"""Requests, checked and encoded once on the host for a whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import RequestError
from beamsieve.interface import RequestFilters
from beamsieve.targeting.attributes import (
    EXACT_SETS,
    RESERVED,
    Attribute,
    RowLayout,
    Value,
    plain_value,
)
from beamsieve.targeting.bloom import canonical_form, signatures
from beamsieve.targeting.item_rules import ItemRules

if TYPE_CHECKING:
    from beamsieve.index import Index

_LISTS = (list, tuple, set, frozenset, np.ndarray)
_NO_SET, _ONLY, _ALL_BUT = 0, 1, 2
_NO_LEAVES = np.empty(0, np.int64)


@dataclass(frozen=True)
class CheckedRequest:
    """One request, read.

    Attributes:
        values: per attribute, the distinct values given; none where it is unknown.
        allow: the only items to return, or None.
        exclude: items not to return, or None.
    """

    values: Mapping[str, tuple[Value, ...]]
    allow: Sequence[Any] | None
    exclude: Sequence[Any] | None


def check_request(
    layout: RowLayout, strings: bool, request: Any, place: int
) -> CheckedRequest | None:
    """Read one request; None stays None.

    Args:
        layout: the attributes.
        strings: whether the ids of the index's items are strings; integers if not.
        request: what was given.
        place: its place in the batch.

    Raises:
        RequestError: naming the request by its place in the batch.
    """
    if request is None:
        return None
    if not isinstance(request, Mapping):
        raise RequestError(
            f"Request {place} is {_shown(request)}; give a dict of attributes, or None."
        )
    names = [attribute.name for attribute in layout.attributes]
    for name in request:
        if name not in names and name not in EXACT_SETS:
            declared = ", ".join(map(repr, names)) or "none"
            raise RequestError(
                f"Request {place} names {name!r}, which is no attribute of this index; its "
                f"attributes are {declared}, and allow and exclude may be given, too."
            )
    values = {
        attribute.name: _values(attribute, request.get(attribute.name), place)
        for attribute in layout.attributes
    }
    allow = _items(strings, request, "allow", place)
    return CheckedRequest(values, allow, _items(strings, request, "exclude", place))


def _items(
    strings: bool, request: Mapping[str, Any], name: str, place: int
) -> Sequence[Any] | None:
    """The items of an exact set. Those that no catalog has are kept, those of another type not:
    they could never change anything, so they are never meant.
    """
    given = request.get(name)
    if given is None:
        return None
    if not _is_list(given):
        raise RequestError(
            f"Request {place} gives {_shown(given)} as {name}; give a list of items, or None."
        )
    listed = list(given)
    wanted = (str,) if strings else (int, np.integer)
    wrong = {
        kind for kind in set(map(type, listed)) if kind is bool or not issubclass(kind, wanted)
    }
    if wrong:
        item = next(item for item in listed if type(item) in wrong)
        kinds = "strings" if strings else "integers"
        raise RequestError(
            f"Request {place} gives {_shown(item)} in {name}, but the items of this index are "
            f"{kinds}; give their ids as {kinds}."
        )
    return listed


def _is_list(given: Any) -> bool:
    return isinstance(given, _LISTS) and getattr(given, "ndim", 1) == 1


def _shown(value: Any, limit: int = 120) -> str:
    """``value`` in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[:limit] + "…"


def _values(attribute: Attribute, given: Any, place: int) -> tuple[Value, ...]:
    if given is None:
        return ()
    listed = list(given) if _is_list(given) else [given]
    types = {type(value) for value in attribute.values or ()} or {int, str}
    plain = []
    for raw in listed:
        value = plain_value(raw)
        if type(value) not in types:
            kinds = " or ".join(sorted("an integer" if t is int else "a string" for t in types))
            raise RequestError(
                f"Request {place} gives {_shown(raw)} as {attribute.name!r}, but must give "
                f"{kinds}, or a list of them."
            )
        assert value is not None
        plain.append(value)
    return tuple(dict.fromkeys(plain))


def encode_requests(index: Index, requests: Sequence[Any], batch: int) -> RequestFilters:
    """Encode a batch, one request for each of its rows.

    Args:
        index: whose attributes and items the requests name.
        requests: one dict per row, or None for no targeting.
        batch: the number of rows.

    Raises:
        RequestError: there are more or fewer requests than rows, or one cannot be read.
    """
    if isinstance(requests, (str, bytes, Mapping)) or not isinstance(requests, Sequence):
        raise RequestError(
            f"requests is {_shown(requests)}; give a list with one dict (or None) per row."
        )
    if len(requests) != batch:
        raise RequestError(
            f"There are {len(requests)} requests for a batch of {batch}; give one per row "
            "(None for no targeting)."
        )
    layout = index.row_layout
    strings = index.items.are_strings
    checked = [check_request(layout, strings, one, place) for place, one in enumerate(requests)]
    bits = np.zeros((batch, layout.bit_words), np.uint64)
    for b, request in enumerate(checked):
        bits[b] = _asked_bits(layout, request)
    blooms = [_asked_signatures(attribute, checked) for attribute in layout.blooms]
    sets = [_leaf_set(index, request) for request in checked]
    return RequestFilters(
        bits=bits,
        bloom=tuple(signature for signature, _ in blooms),
        bloom_count=tuple(count for _, count in blooms),
        leaf_mode=np.array([mode for mode, _ in sets], np.int8),
        leaf_starts=np.concatenate([[0], np.cumsum([len(leaves) for _, leaves in sets])]).astype(
            np.int64
        ),
        leaves=np.concatenate([_NO_LEAVES, *(leaves for _, leaves in sets)]),
    )


def eligible_items(
    index: Index, request: Any, numbers: NDArray[np.int64], place: int
) -> NDArray[np.bool_]:
    """bool [n]: whether each of these items may be shown, by the exact rules and sets."""
    checked = check_request(index.row_layout, index.items.are_strings, request, place)
    passed = np.ones(len(numbers), np.bool_)
    if checked is None:
        return passed
    rules = index.item_rules
    if rules is not None:
        passed &= _passes_rules(rules, checked, numbers)
    if checked.allow is not None:
        passed &= np.isin(numbers, index.items.numbers(checked.allow))
    if checked.exclude is not None:
        passed &= ~np.isin(numbers, index.items.numbers(checked.exclude))
    return passed


def _passes_rules(
    rules: ItemRules, request: CheckedRequest, numbers: NDArray[np.int64]
) -> NDArray[np.bool_]:
    asked = _asked_bits(rules.layout, request)
    rows = rules.bits.rows[rules.bits.index[numbers]]
    passed: NDArray[np.bool_] = ((rows & asked) == asked).all(axis=1)
    for attribute, own in zip(rules.layout.blooms, rules.blooms, strict=True):
        forms = {canonical_form(value) for value in request.values[attribute.name]}
        passed &= own.accepts(numbers, forms)
    return passed


def _asked_bits(layout: RowLayout, request: CheckedRequest | None) -> NDArray[np.uint64]:
    """uint64 [words]: the bits of the first segment that a row must all have."""
    bits = 0
    if request is not None:
        for attribute in layout.attributes:
            if attribute.values is None:
                continue
            places = {value: place for place, value in enumerate(attribute.values, 1)}
            given = [places.get(value, 0) for value in request.values[attribute.name]]
            for place in given or [0]:
                bits |= RESERVED << layout.offsets[attribute.name] + place
    return np.array(
        [bits >> 64 * word & (2**64 - 1) for word in range(layout.bit_words)], np.uint64
    )


def _asked_signatures(
    attribute: Attribute, requests: Sequence[CheckedRequest | None]
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """uint64 [B, n, words] and int32 [B]: the signatures of which a row must have at least one."""
    assert attribute.bloom is not None
    given = [() if request is None else request.values[attribute.name] for request in requests]
    forms = [[canonical_form(value) for value in values] for values in given]
    counts = np.array(
        [
            0 if request is None else max(1, len(own))
            for request, own in zip(requests, forms, strict=True)
        ],
        np.int32,
    )
    found = np.zeros(
        (len(requests), max(1, int(counts.max(initial=1))), attribute.bloom // 64), np.uint64
    )
    distinct = list(dict.fromkeys(form for own in forms for form in own))
    table = signatures(distinct, attribute.bloom)
    places = {form: place for place, form in enumerate(distinct)}
    for b, own in enumerate(forms):
        if own:
            found[b, : len(own)] = table[[places[form] for form in own]]
        elif requests[b] is not None:
            found[b, 0, 0] = RESERVED
    return found, counts


def _leaf_set(index: Index, request: CheckedRequest | None) -> tuple[int, NDArray[np.int64]]:
    """The mode and the leaves of a request's exact sets.

    A leaf is permitted when one of its items is, so it is excluded only when all of them are.
    """
    if request is None or (request.allow is None and request.exclude is None):
        return _NO_SET, _NO_LEAVES
    gone = _known(index, request.exclude or ())
    if request.allow is not None:
        kept = np.setdiff1d(_known(index, request.allow), gone, assume_unique=True)
        return _ONLY, np.unique(index.leaves_of_items(kept)[1])
    leaves, excluded = np.unique(index.leaves_of_items(gone)[1], return_counts=True)
    whole = index.items_of_leaves(leaves)[0]
    return _ALL_BUT, leaves[excluded == whole]


def _known(index: Index, items: Sequence[Any]) -> NDArray[np.int64]:
    """The distinct numbers of those items that the index has."""
    numbers = np.unique(index.items.numbers(items))
    return numbers[numbers >= 0]
