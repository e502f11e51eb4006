"""What a search begins with: its requests and their prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.checks.values import listed
from beamsieve.errors import BackendError, InputError, RequestError
from beamsieve.interface import Backend, RequestFilters

if TYPE_CHECKING:
    from beamsieve.index import Index


def a_request_list(requests: Any) -> None:
    """Refuse what is no list of requests."""
    if isinstance(requests, (str, bytes, Mapping)) or not (
        hasattr(requests, "__len__") and hasattr(requests, "__getitem__")
    ):
        raise RequestError(
            f"requests is a {type(requests).__name__}; give a list of one request (or None) each."
        )


def prefix_lists(prefix: Any) -> list[list[Any]]:
    """The prefixes as a list of lists, one for each request.

    Raises:
        InputError: neither an array [B, p] nor a sequence of sequences.
    """
    given = _as_list(prefix)
    if given is None:
        raise InputError(
            f"prefix is a {type(prefix).__name__}; give [B, p] tokens, one prefix per request."
        )
    prefixes = []
    for b, one in enumerate(given):
        tokens = _as_list(one)
        if tokens is None:
            raise InputError(
                f"The prefix of request {b} is {one!r}; give [B, p] tokens, one prefix per request."
            )
        prefixes.append(tokens)
    return prefixes


def _as_list(values: Any) -> list[Any] | None:
    """A list of a sequence's or an array's entries; None where it has none."""
    if isinstance(values, Sequence):
        return None if isinstance(values, (str, bytes)) else list(values)
    try:
        listed = values.tolist()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None
    return listed if isinstance(listed, list) else None


def given_prefixes(
    index: Index, prefix: Sequence[Sequence[Any]] | None, batch: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
    """The requests' prefixes as arrays: tokens [B, p], rows [B] (-1 where unknown), finished [B].

    Raises:
        InputError: not one prefix per request, of several lengths, too long, or no integers.
    """
    if prefix is None:
        return np.empty((batch, 0), np.int32), np.zeros(batch, np.int64), np.zeros(batch, np.bool_)
    prefixes = [list(given) for given in prefix]
    if len(prefixes) != batch:
        raise InputError(f"prefix holds {len(prefixes)} prefixes for a batch of {batch} requests.")
    length = len(prefixes[0])
    for b, given in enumerate(prefixes):
        if len(given) != length:
            raise InputError(
                f"The prefix of request {b} has {len(given)} tokens and that of request 0 has "
                f"{length}; the prefixes of one batch must be equally long."
            )
    if length > index.length:
        raise InputError(f"A prefix has {length} tokens, but a semantic ID has {index.length}.")
    tokens = np.full((batch, length), -1, np.int32)
    rows = np.full(batch, -1, np.int64)
    finished = np.zeros(batch, np.bool_)
    for b, given in enumerate(prefixes):
        place = index.row_of(given)
        if place is not None:
            tokens[b] = given
            rows[b], finished[b] = place
    return tokens, rows, finished


def request_filters(
    backend: Backend, index: Index, requests: Any, batch: int
) -> tuple[RequestFilters, tuple[Any, ...]] | None:
    """The requests' targeting, encoded and as given; None where no request has any.

    Raises:
        RequestError: a request cannot be read; names it by its place.
        BackendError: the backend cannot test what is asked for.
    """
    if requests is None:
        return None
    filters = index.encode_requests(requests, batch)
    if all(request is None for request in requests):
        return None
    asked = {
        "bits": bool(filters.bits.any()),
        "bloom": any(bool(count.any()) for count in filters.bloom_count),
        "allow": bool((filters.leaf_mode == 1).any()),
        "exclude": bool((filters.leaf_mode == 2).any()),
    }
    can = backend.capabilities.targeting
    missing = [feature for feature, wanted in asked.items() if wanted and feature not in can]
    if missing:
        raise BackendError(
            f"The backend {backend.name!r} on {backend.device} cannot decide {listed(missing)}, "
            f"which these requests ask for; it offers {listed(can) if can else 'no targeting'}."
        )
    return filters, tuple(None if one is None else _kept(one) for one in requests)


def _kept(request: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a request, so that what its owner does to it later changes no results."""
    return {
        name: list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
        for name, value in request.items()
    }
