"""One step.

Every live beam proposes the tokens that may follow it, each with a score; every finished beam
proposes itself. The best proposals of a request become its next beams. There are two halves,
:func:`candidates` and :func:`select`, for guidance that must see the proposals before the choice;
:func:`step` is both in one. The contract's six numbered rules are marked in the margin.

Guidance may add to a candidate in two ways: a *bonus* joins its score and is carried on; a *nudge*
counts in this step's choice alone. A finished beam is past guidance: neither applies to it.

**The order.** Higher key; then lower parent place; then lower token. No two candidates of a request
agree in all three, so a step has one right answer.

**What dies.** A candidate whose score or key is -inf, NaN or +inf never wins. It takes no place
from another candidate, and it changes no other candidate's score.

Two requests, one step, two places. The first request's model ties tokens 1 and 2, so the lower
token comes first; the second's allows token 1 alone, so one place stays empty:

>>> from beamsieve_spec import begin
>>> trie = Trie([(0,), (1,), (2,)])
>>> logits = [[[0, 1, 1]], [[-np.inf, 7, -np.inf]]]
>>> beams = step(trie, begin(trie, batch=2), width=2, logits=logits)
>>> beams.tokens.tolist(), beams.count.tolist()
([[[1], [2]], [[1], [-1]]], [2, 1])
>>> beams.scores.round(3).tolist(), beams.rows.tolist(), beams.parents.tolist()
([[-0.862, -0.862], [0.0, -inf]], [[1, 2], [1, -1]], [[0, 0], [0, -1]])
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve_spec.beams import Beams, append, padding
from beamsieve_spec.normalize import Normalize, log_probabilities
from beamsieve_spec.trie import SID, InputError, Trie

Permits = Callable[[int, SID], bool]
"""``permits(b, prefix)``: whether targeting lets request b go on to ``prefix``."""


@dataclass(frozen=True)
class Candidates:
    """The proposals of every beam, in padded slots.

    A slot holds a candidate exactly when its row is not -1. Tokens ascend within a beam; which of
    the S slots a candidate takes says nothing more. A finished beam's only candidate has token -1.

    Attributes:
        tokens: int32 [B, M, S]; -1 where empty.
        scores: float64 [B, M, S]; -inf where empty, and where the candidate is dead.
        rows: int64 [B, M, S]; the row of beam + token among prefixes of its length; a finished
            beam's leaf; -1 where empty.
        beams: whose proposals these are; :func:`select` takes no others.
    """

    tokens: NDArray[np.int32]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]
    beams: Beams


def candidates(
    trie: Trie,
    beams: Beams,
    logits: Any,
    normalize: Normalize = "catalog",
    bonus: Any = None,
    permits: Permits | None = None,
) -> Candidates:
    """The first half of a step: which tokens may follow each beam, and with what score.

    ``logits`` and ``bonus`` are [B, M, V]; what they say of padding and of finished beams is not
    looked at. ``permits`` is the requests' targeting, None without any.
    """
    logits = checked(trie, beams, logits)
    bonus = np.zeros_like(logits) if bonus is None else checked(trie, beams, bonus)
    batch, places = beams.scores.shape
    slots = max([1, *(len(trie.children(prefix)) for prefix in trie.prefixes[beams.step])])
    found = Candidates(
        tokens=np.full((batch, places, slots), -1, np.int32),
        scores=np.full((batch, places, slots), -np.inf),
        rows=np.full((batch, places, slots), -1, np.int64),
        beams=beams,
    )
    for b, m in zip(*np.nonzero(beams.rows != -1), strict=True):
        if beams.finished[b, m]:
            found.scores[b, m, 0] = beams.scores[b, m]
            found.rows[b, m, 0] = beams.rows[b, m]
            continue
        prefix = trie.prefixes[beams.step][beams.rows[b, m]]
        valid = trie.children(prefix)
        kept = [v for v in valid if permits is None or permits(b, (*prefix, v))]  # 1: candidates
        codebook = range(trie.codebooks[beams.step])
        over = {"all": codebook, "catalog": valid, "eligible": kept}[normalize]
        log_p = log_probabilities(logits[b, m], over)  # 2 and 3: logits to log-probabilities
        for slot, v in enumerate(kept):
            score = beams.scores[b, m] + log_p[v] + bonus[b, m, v]  # 4: score
            found.tokens[b, m, slot] = v
            found.scores[b, m, slot] = score if np.isfinite(score) else -np.inf
            found.rows[b, m, slot] = trie.row[*prefix, v]
    return found


def add_nudge(found: Candidates, nudge: Any) -> NDArray[np.float64]:
    """Keys [B, M, S]: score plus ``nudge[b, m, token]``; a finished beam's key is its score."""
    keys = found.scores.copy()
    for b, m, slot in np.argwhere(found.tokens != -1):
        keys[b, m, slot] += nudge[b, m, found.tokens[b, m, slot]]  # 5: key
    return keys


def select(trie: Trie, beams: Beams, found: Candidates, width: int, keys: Any = None) -> Beams:
    """The second half: each request's ``width`` best candidates by ``keys`` [B, M, S], in order.

    The keys are the scores when None. A candidate with a dead score stays dead whatever its key.
    With fewer candidates than ``width``, the rest of the places is padding.
    """
    if width < 1:
        raise InputError(f"the width must be at least 1, not {width}")
    if found.beams is not beams:
        raise InputError("these candidates are of other beams")
    keys = found.scores if keys is None else np.asarray(keys, np.float64)
    alive = (found.rows != -1) & np.isfinite(found.scores) & np.isfinite(keys)
    kept = padding(len(beams.count), width, beams.step + 1)
    for b in range(len(beams.count)):
        # Within a beam the slots are in token order.
        ranked = sorted((-keys[b, m, slot], m, slot) for m, slot in np.argwhere(alive[b]))
        for minus_key, m, slot in ranked[:width]:  # 6: the best of all beams
            tokens = (*beams.tokens[b, m].tolist(), int(found.tokens[b, m, slot]))
            append(trie, kept, b, tokens, found.scores[b, m, slot], -minus_key, m)
    return kept


def step(
    trie: Trie,
    beams: Beams,
    width: int,
    logits: Any,
    normalize: Normalize = "catalog",
    bonus: Any = None,
    nudge: Any = None,
    permits: Permits | None = None,
) -> Beams:
    """Both halves: every candidate scored, and the ``width`` best of each request kept."""
    found = candidates(trie, beams, logits, normalize, bonus, permits)
    keys = None if nudge is None else add_nudge(found, checked(trie, beams, nudge))
    return select(trie, beams, found, width, keys)


def checked(trie: Trie, beams: Beams, values: Any) -> NDArray[np.float64]:
    """``values`` in float64; refused unless [B, M, V] of the level to decode."""
    if beams.step >= trie.length:
        raise InputError(f"all {trie.length} levels are decoded: there is no further step")
    expected = (*beams.scores.shape, trie.codebooks[beams.step])
    if np.shape(values) != expected:
        raise InputError(f"expected one number per beam and token, {expected}: {np.shape(values)}")
    return np.asarray(values, np.float64)
