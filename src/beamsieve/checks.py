"""What the engine checks before it calls a backend, each in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beamsieve.errors import BackendError, InputError, RequestError
from beamsieve.interface import (
    Backend,
    Beams,
    Candidates,
    Normalize,
    RequestFilters,
    StepInputs,
)

if TYPE_CHECKING:
    from beamsieve.index import Index

LARGEST_STEP = 1 << 24
"""The most places, batch times width, of one step: about a gigabyte of beams."""


def dtype_name(array: Any) -> str:
    """The dtype of any library's array as NumPy spells it: "float32", "bfloat16", …"""
    dtype = array.dtype
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def whole_number(value: Any, what: str) -> int:
    """``value`` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{what} must be an integer, not {value!r}.")
    if value < 1:
        raise InputError(f"{what} must be at least 1, not {value}.")
    return int(value)


def cannot_serve(backend: Backend, index: Index, normalize: Normalize) -> str | None:
    """Why this backend cannot decode this index in this way, or None if it can."""
    can = backend.capabilities
    who = f"The backend {backend.name!r} on {backend.device}"
    if normalize not in can.normalizers:
        return f"{who} cannot normalize over {normalize!r}; it offers {_listed(can.normalizers)}."
    widest = max(index.codebooks)
    if can.largest_codebook is not None and widest > can.largest_codebook:
        return (
            f"{who} serves codebooks of {can.largest_codebook} tokens at most, and this index has "
            f"one of {widest}."
        )
    if not can.variable_length and varies_in_length(index):
        return f"{who} cannot decode semantic IDs of several lengths, and this index has such."
    return None


def varies_in_length(index: Index) -> bool:
    """Whether some semantic ID ends above the last level."""
    return index.leaf_count > index.tables[-1].entries


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
            f"The backend {backend.name!r} on {backend.device} cannot decide {_listed(missing)}, "
            f"which these requests ask for; it offers {_listed(can) if can else 'no targeting'}."
        )
    return filters, tuple(None if one is None else _kept(one) for one in requests)


def _kept(request: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a request, so that what its owner does to it later changes no results."""
    return {
        name: list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
        for name, value in request.items()
    }


def step_inputs(
    backend: Backend,
    beams: Beams,
    width: int,
    hidden: Any,
    head: Any,
    bias: Any,
    logits: Any,
    bonus: Any,
    nudge: Any,
) -> StepInputs:
    """One step's arguments on the backend's device, or what is wrong with them.

    Raises:
        InputError: a missing argument, a wrong shape, dtype or device.
        BackendError: the backend cannot do it.
    """
    index = beams.search.index
    if beams.step >= index.length:
        raise InputError(
            f"All {index.length} levels of these beams are decoded; call results, or begin again."
        )
    level = beams.step + 1
    vocabulary = index.codebooks[beams.step]
    places = (beams.search.batch, beams.width)
    if (logits is None) == (hidden is None):
        raise InputError("A step takes either hidden with head, or logits: give exactly one.")
    if hidden is not None and head is None:
        raise InputError("hidden needs head, the output embeddings [V, d] of this level.")
    if logits is not None and (head is not None or bias is not None):
        raise InputError("logits already contain head and bias: give only the logits.")

    def array(value: Any, what: str) -> Any:
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise InputError(
                f"{what} has masked cells; fill them (logits with -inf, where a token is not "
                f"wanted)."
            )
        return None if value is None else backend.asarray(value, what=what)

    hidden, head, bias = array(hidden, "hidden"), array(head, "head"), array(bias, "bias")
    logits, bonus, nudge = array(logits, "logits"), array(bonus, "bonus"), array(nudge, "nudge")
    if hidden is not None:
        _check_dtype(backend, hidden, "hidden")
        if hidden.ndim != 3 or tuple(hidden.shape[:2]) != places or hidden.shape[2] < 1:
            raise InputError(
                f"hidden has the shape {tuple(hidden.shape)}; step {level} of {places[0]} requests "
                f"with {places[1]} beams each needs ({places[0]}, {places[1]}, d)."
            )
        if head.ndim != 2 or head.shape[0] != vocabulary or head.shape[1] != hidden.shape[2]:
            raise InputError(
                f"head has the shape {tuple(head.shape)}; level {level} has a codebook of "
                f"{vocabulary} tokens, so with this hidden it must be "
                f"({vocabulary}, {hidden.shape[2]})."
            )
        if head.dtype != hidden.dtype:
            raise InputError(
                f"hidden is {dtype_name(hidden)} and head is {dtype_name(head)}; give both in one "
                f"dtype."
            )
        if bias is not None:
            _check_dtype(backend, bias, "bias")
            if tuple(bias.shape) != (vocabulary,):
                raise InputError(
                    f"bias has the shape {tuple(bias.shape)}; level {level} needs ({vocabulary},)."
                )
    for value, what in ((logits, "logits"), (bonus, "bonus"), (nudge, "nudge")):
        if value is None:
            continue
        if tuple(value.shape) != (*places, vocabulary):
            raise InputError(
                f"{what} has the shape {tuple(value.shape)}; step {level} of these beams needs "
                f"{(*places, vocabulary)}."
            )
        if what == "logits":
            _check_dtype(backend, value, what)
        else:
            if what not in backend.capabilities.guidance:
                raise BackendError(f"The backend {backend.name!r} offers no {what}.")
            _check_float32(value, what)
    return StepInputs(width, hidden, head, bias, logits, bonus, nudge)


def slot_values(backend: Backend, rows: Any, values: Any, what: str) -> Any:
    """Scores or keys of ``select`` on the backend's device, one per slot of ``rows``."""
    array = backend.asarray(values, what=what)
    if tuple(array.shape) != tuple(rows.shape):
        raise InputError(
            f"{what} has the shape {tuple(array.shape)}; these candidates need {tuple(rows.shape)}."
        )
    _check_float32(array, what)
    return array


def width_for(backend: Backend, width: Any, batch: int) -> int:
    """A step's width, refused where the backend cannot keep so many."""
    wanted = whole_number(width, "width")
    largest = backend.capabilities.largest_width
    if largest is not None and wanted > largest:
        raise BackendError(
            f"The backend {backend.name!r} keeps {largest} beams at most, not {wanted}."
        )
    places_for(batch, wanted)
    return wanted


def places_for(batch: int, width: int) -> int:
    """``batch``, refused where so many requests with so many beams pass what a step may hold."""
    if batch * width > LARGEST_STEP:
        raise InputError(
            f"{batch} requests with {width} beams each are {batch * width} places, and a step "
            f"holds {LARGEST_STEP} at most: take a smaller width or batch."
        )
    return batch


def widths_for(backend: Backend, widths: Any, levels: int, batch: int) -> list[int]:
    """One width per level that is left."""
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Iterable):
        raise InputError(f"widths is {widths!r}; give a list of one width per level.")
    try:
        given = list(widths)
    except TypeError:  # an array without dimensions calls itself iterable
        raise InputError(f"widths is {widths!r}; give a list of one width per level.") from None
    if len(given) != levels:
        raise InputError(
            f"widths has {len(given)} entries, but {levels} levels are left to decode: give one "
            f"per level."
        )
    return [width_for(backend, width, batch) for width in given]


def heads_for(backend: Backend, head: Any, levels: int) -> list[Any]:
    """The head of each level that is left: from a list, one array [L, V, d], or one for all."""
    if isinstance(head, (list, tuple)):
        heads = list(head)
    else:
        array = backend.asarray(head, what="head")
        heads = [array[at] for at in range(array.shape[0])] if array.ndim == 3 else [array] * levels
    if len(heads) != levels:
        raise InputError(
            f"head holds {len(heads)} heads, but {levels} levels are left to decode: give one per "
            f"level."
        )
    return heads


def level_head(backend: Backend, beams: Beams, head: Any) -> Any:
    """The head [V, d] of the level that the beams are about to decode."""
    array = backend.asarray(head, what="head")
    level, vocabulary = beams.step + 1, beams.search.index.codebooks[beams.step]
    if array.ndim != 2 or array.shape[0] != vocabulary or array.shape[1] < 1:
        raise InputError(
            f"head has the shape {tuple(array.shape)}; level {level} has a codebook of "
            f"{vocabulary} tokens, so it must be ({vocabulary}, d)."
        )
    _check_dtype(backend, array, "head")
    return array


def own_beams(backend: Backend, beams: Any) -> None:
    """Refuse what is no beams, and beams that another backend or device began."""
    if not isinstance(beams, Beams):
        raise InputError(
            f"beams is a {type(beams).__name__}; give what begin, step, select or search returned."
        )
    began = beams.search.backend
    if began is None:
        raise InputError("These beams come from no engine: begin their search with engine.begin.")
    if type(began) is not type(backend) or began.device != backend.device:
        raise InputError(
            f"These beams are of the backend {began.name!r} on {began.device}, and this engine "
            f"runs {backend.name!r} on {backend.device}: a search ends where it began."
        )


def own_candidates(beams: Beams, candidates: Any) -> None:
    """Refuse what is no candidates, those of other beams, and those that were put together."""
    if not isinstance(candidates, Candidates):
        raise InputError(
            f"candidates is a {type(candidates).__name__}; give what candidates returned."
        )
    if candidates.beams is not beams:
        raise InputError(
            "These candidates are not of these beams: give select the beams that candidates got."
        )
    tokens, rows = candidates.given or (None, None)
    for what, array, own in (
        ("tokens", candidates.tokens, tokens),
        ("rows", candidates.rows, rows),
    ):
        if array is not own:
            raise InputError(
                f"The {what} of these candidates were replaced, and only their scores may be: give "
                f"a candidate that is not wanted the score -inf."
            )


def an_index(index: Any) -> None:
    """Refuse what is no index."""
    from beamsieve.index import Index

    if not isinstance(index, Index):
        raise InputError(
            f"index is a {type(index).__name__}; give an Index, from Index.build or Index.load."
        )


def a_plan(plan: Any) -> None:
    """Refuse what is no plan."""
    from beamsieve.plan import Plan

    if not isinstance(plan, Plan):
        raise InputError(
            f"plan is a {type(plan).__name__}; give what warm_up returned or Plan.load read."
        )


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


def _check_dtype(backend: Backend, array: Any, what: str) -> None:
    name, can = dtype_name(array), backend.capabilities.dtypes
    if name not in can:
        raise InputError(
            f"{what} is {name}; the backend {backend.name!r} on {backend.device} takes "
            f"{_listed(can)}."
        )


def _check_float32(array: Any, what: str) -> None:
    if dtype_name(array) != "float32":
        raise InputError(f"{what} is {dtype_name(array)}; it must be float32.")


def _listed(names: Sequence[str]) -> str:
    return " or ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} or {names[-1]}"
