"""What the model says of a step: arrays of the right device, shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from beamsieve.checks.values import dtype_name, listed
from beamsieve.errors import BackendError, InputError
from beamsieve.interface import Backend, Beams, PreparedHead, StepInputs


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
        return None if value is None else _on_device(backend, value, what)

    head, prepared = unprepared(backend, head)
    hidden, head, bias = array(hidden, "hidden"), array(head, "head"), array(bias, "bias")
    logits, bonus, nudge = array(logits, "logits"), array(bonus, "bonus"), array(nudge, "nudge")
    if hidden is not None:
        _known_dtype(backend, hidden, "hidden")
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
            _known_dtype(backend, bias, "bias")
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
            _known_dtype(backend, value, what)
        else:
            if what not in backend.capabilities.guidance:
                raise BackendError(f"The backend {backend.name!r} offers no {what}.")
            _float32(value, what)
    return StepInputs(width, hidden, head, bias, logits, bonus, nudge, None, prepared)


def slot_values(backend: Backend, rows: Any, values: Any, what: str) -> Any:
    """Scores or keys of ``select`` on the backend's device, one per slot of ``rows``."""
    array = _on_device(backend, values, what)
    if tuple(array.shape) != tuple(rows.shape):
        raise InputError(
            f"{what} has the shape {tuple(array.shape)}; these candidates need {tuple(rows.shape)}."
        )
    _float32(array, what)
    return array


def heads_for(backend: Backend, head: Any, levels: int) -> list[Any]:
    """The head of each level that is left: from a list, one array [L, V, d], or one for all."""
    if isinstance(head, (list, tuple)):
        heads = list(head)
    elif isinstance(head, PreparedHead):
        heads = [head] * levels
    else:
        array = _on_device(backend, head, "head")
        heads = [array[at] for at in range(array.shape[0])] if array.ndim == 3 else [array] * levels
    if len(heads) != levels:
        raise InputError(
            f"head holds {len(heads)} heads, but {levels} levels are left to decode: give one per "
            f"level."
        )
    return heads


def level_head(backend: Backend, beams: Beams, head: Any) -> Any:
    """The head [V, d] of the level that the beams are about to decode, be it prepared or not."""
    array = _on_device(backend, unprepared(backend, head)[0], "head")
    level, vocabulary = beams.step + 1, beams.search.index.codebooks[beams.step]
    if array.ndim != 2 or array.shape[0] != vocabulary or array.shape[1] < 1:
        raise InputError(
            f"head has the shape {tuple(array.shape)}; level {level} has a codebook of "
            f"{vocabulary} tokens, so it must be ({vocabulary}, d)."
        )
    _known_dtype(backend, array, "head")
    return array


def unprepared(backend: Backend, head: Any) -> tuple[Any, Any]:
    """The head itself, and what the backend has made of it, None where it was not prepared."""
    if not isinstance(head, PreparedHead):
        return head, None
    if head.backend is not backend:
        raise InputError(
            "head was prepared by another engine; prepare it with the engine that decodes."
        )
    own, made = head.given or (None, None)
    if own is None or head.head is not own or head.made is not made:
        raise InputError(
            "The parts of this prepared head were replaced; prepare the new head with "
            "engine.prepare_head."
        )
    return own, made


def prepared_heads(said: Any) -> list[PreparedHead]:
    """Those in what a scorer returned: a graph that was captured with them reads their parts."""
    return [one for one in said if isinstance(one, PreparedHead)] if isinstance(said, tuple) else []


def any_head(backend: Backend, head: Any) -> Any:
    """A head [V, d] to prepare, of whatever level."""
    if isinstance(head, PreparedHead):
        raise InputError("head is prepared already; give the head itself.")
    array = _on_device(backend, head, "head")
    if array.ndim != 2 or 0 in tuple(array.shape):
        raise InputError(f"head has the shape {tuple(array.shape)}; it must be (V, d).")
    _known_dtype(backend, array, "head")
    return array


def _on_device(backend: Backend, value: Any, what: str) -> Any:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(
            f"{what} has masked cells; fill them (logits with -inf, where a token is not wanted)."
        )
    return backend.asarray(value, what=what)


def _known_dtype(backend: Backend, array: Any, what: str) -> None:
    name, can = dtype_name(array), backend.capabilities.dtypes
    if name not in can:
        raise InputError(
            f"{what} is {name}; the backend {backend.name!r} on {backend.device} takes "
            f"{listed(can)}."
        )


def _float32(array: Any, what: str) -> None:
    if dtype_name(array) != "float32":
        raise InputError(f"{what} is {dtype_name(array)}; it must be float32.")
