"""What belongs together: a backend and its index, a search and its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamsieve.checks.values import listed
from beamsieve.errors import InputError
from beamsieve.interface import Backend, Beams, Candidates, Normalize

if TYPE_CHECKING:
    from beamsieve.index import Index


def cannot_serve(backend: Backend, index: Index, normalize: Normalize) -> str | None:
    """Why this backend cannot decode this index in this way, or None if it can."""
    can = backend.capabilities
    who = f"The backend {backend.name!r} on {backend.device}"
    if normalize not in can.normalizers:
        return f"{who} cannot normalize over {normalize!r}; it offers {listed(can.normalizers)}."
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
