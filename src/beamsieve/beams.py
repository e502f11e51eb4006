"""What passes between an engine and a backend: searches, beams, candidates and a step's inputs.

Notation: B requests in the batch, M places for beams per request, V the codebook of the step,
d the hidden size, S candidate slots per beam, t tokens decoded so far, W the width to keep.
Arrays are the backend's own (``torch.Tensor``, ``cupy.ndarray``, ``numpy.ndarray``), on its device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from beamsieve.index import Index
    from beamsieve.interface import Backend
    from beamsieve.plan import Plan

Projection = Literal["full", "selective", "compiled", "fused"]
"""How logits come from hidden states and head: of the whole codebook in one product; of the valid
tokens alone; likewise, in one compiled loop with all that follows, for which a backend may need
a package more; or one of the first two, in one launch with all that follows."""
Array = Any
"""An array of the backend's own library."""


@dataclass(frozen=True)
class Search:
    """What stays the same during one search, so that a swapped index cannot mix with it."""

    index: Index
    tables: Any
    """What the backend's ``load`` returned for this index."""
    batch: int
    requests: RequestFilters | None
    """The requests' targeting on the host; None where no request has any."""
    asked: tuple[Any, ...] | None = None
    """The requests as the caller gave them, for the exact rules at the end; None likewise."""
    device_requests: Any = None
    """The same as the backend keeps it on its device."""
    backend: Backend | None = field(default=None, repr=False)
    """The backend that the engine began the search on."""
    plan: Plan | None = field(default=None, repr=False)
    """The plan that the search follows, whatever the engine follows later."""


@dataclass(frozen=True)
class Beams:
    """The partial semantic IDs of a batch after ``step`` tokens, best first.

    Attributes:
        step: t, how many tokens of each beam are decoded (a prefix counts).
        tokens: int32 [B, M, t]; -1 in places without a beam, and behind the end of a finished one.
        scores: float32 [B, M]; cumulative score, -inf in places without a beam.
        keys: float32 [B, M]; what the last step ranked by: scores plus that step's nudge.
        rows: int64 [B, M]; a live beam's row in table t+1; a finished beam's leaf (the place of its
            semantic ID among all, in lexicographic order); -1 in places without a beam.
        parents: int64 [B, M]; the beam's place in the step before (a finished beam's too); -1
            in places without a beam and in the beams that ``begin`` returns.
        finished: bool [B, M]; True where the semantic ID is complete.
        count: int64 [B]; how many places hold a beam. They are the first ones.
        search: what the whole search shares.
    """

    step: int
    tokens: Array
    scores: Array
    keys: Array
    rows: Array
    parents: Array
    finished: Array
    count: Array
    search: Search = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the index that this search began on, and ends on."""
        return self.search.index.fingerprint

    @property
    def width(self) -> int:
        """M, the number of places per request."""
        return int(self.scores.shape[1])


@dataclass(frozen=True)
class Candidates:
    """Every candidate of every beam, in padded slots: the first half of a step.

    A slot holds a candidate exactly when its row is not -1. A finished beam is its own only
    candidate: slot 0 holds its score and its leaf, with token -1.

    Attributes:
        tokens: int32 [B, M, S]; ascending within a beam, -1 where empty.
        scores: float32 [B, M, S]; cumulative (beam + log-probability + bonus), -inf where empty.
        rows: int64 [B, M, S]; the entry's position, which is its row in the next table; -1 where
            empty.
        beams: whose candidates these are. The engine writes it, a backend leaves it out.
        given: tokens and rows as the backend returned them, likewise: only scores may be replaced.
    """

    tokens: Array
    scores: Array
    rows: Array
    beams: Beams | None = field(default=None, repr=False, compare=False)
    given: tuple[Array, Array] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class StepInputs:
    """What the model says about the next token of each beam. Exactly one of logits, hidden is set.

    Attributes:
        width: W, places to keep per request.
        hidden: [B, M, d], with ``head`` [V, d] and, if any, ``bias`` [V].
        logits: [B, M, V].
        bonus: float32 [B, M, V] or None: joins the score and is carried on.
        nudge: float32 [B, M, V] or None: counts in this step's choice alone.
        projection: which one where a plan says so; None leaves it to the backend.
        prepared: what ``Backend.prepare_head`` made of ``head``, where it was prepared.
    """

    width: int
    hidden: Array | None = None
    head: Array | None = None
    bias: Array | None = None
    logits: Array | None = None
    bonus: Array | None = None
    nudge: Array | None = None
    projection: Projection | None = None
    prepared: Any = None


@dataclass(frozen=True, eq=False)
class PreparedHead:
    """A head whose numbers stay what they are, and what a backend has made of it for its steps.

    Attributes:
        head: [V, d], on the backend's device.
        backend: who prepared it: no other can use it.
        made: the backend's own; None where it needs no more than the head.
        given: both as ``prepare_head`` returned them: neither may be replaced.
    """

    head: Array
    backend: Any = field(repr=False)
    made: Any = field(default=None, repr=False)
    given: tuple[Array, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RequestFilters:
    """The targeting of a batch, encoded once on the host (GRACE, sections 3.2 to 3.4).

    Attributes:
        bits: uint64 [B, W_bits]; the bits that an edge matcher must all contain. Zero asks nothing.
        bloom: per Bloom attribute, uint64 [B, n, W_a]: the signatures of the request's values, of
            which a matcher must contain at least one.
        bloom_count: per Bloom attribute, int32 [B]: how many of the n signatures are real; 0 means
            that the request does not test this attribute.
        leaf_mode: int8 [B]; 0 no exact set, 1 only the listed leaves, 2 all but the listed leaves.
        leaf_starts: int64 [B + 1] into ``leaves``.
        leaves: int64, ascending within a request.
    """

    bits: NDArray[np.uint64]
    bloom: tuple[NDArray[np.uint64], ...]
    bloom_count: tuple[NDArray[np.int32], ...]
    leaf_mode: NDArray[np.int8]
    leaf_starts: NDArray[np.int64]
    leaves: NDArray[np.int64]
