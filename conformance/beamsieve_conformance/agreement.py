"""What a backend may differ in, and what it may not: the law that the suite judges by.

The specification computes in float64. A backend computes in float32, and declares a *tolerance*
for every dtype that it takes: how far a score of one step may lie from the one written here, times
the score's size where that is above 1. A step of a backend is right when scores that lie so near to
the candidates' make :func:`~beamsieve_spec.step.select` answer exactly what it answered, but that a
candidate may also be left out whose key is above the lowest kept one's by no more than that. So
counts, parents, tokens and rows are exact, and the order is that of the backend's own keys. A step
is judged from the beams that the backend itself held before it: no rounding counts twice.

Two beams whose keys lie 1e-7 apart may change places, with a tolerance of 1e-6 and not with 1e-9:

>>> from beamsieve_spec import begin, candidates, step
>>> trie = Trie([(0,), (1,)])
>>> root = begin(trie, batch=1)
>>> found = candidates(trie, root, [[[1e-7, 0.0]]])
>>> swapped = step(trie, root, 2, [[[0.0, 1e-7]]])
>>> [agrees(trie, found, found.scores, swapped, tolerance) for tolerance in (1e-6, 1e-9)]
[True, False]

**Requests are alone.** What a request gets depends on nothing else in the batch: not on how many
requests there are, which they are, or where among them it stands. Of one backend, device and shape
class that holds bit for bit. (A shape class is a step's sizes apart from the batch, its dtypes, its
normalizer and its plan.)

>>> both = step(trie, begin(trie, batch=2), 2, [[[0.0, 1.0]], [[np.nan, 7.0]]])
>>> alone(both, 0).scores.tolist() == step(trie, root, 2, [[[0.0, 1.0]]]).scores.tolist()
True
"""

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from beamsieve_spec.beams import Beams
from beamsieve_spec.step import Candidates, select
from beamsieve_spec.trie import Trie

ARRAYS = [field.name for field in fields(Beams) if field.name != "step"]


def alone(beams: Beams, b: int) -> Beams:
    """Request b's beams, as a batch of one."""
    return replace(beams, **{name: getattr(beams, name)[b : b + 1] for name in ARRAYS})


def agrees(
    trie: Trie, found: Candidates, keys: NDArray[np.float64], after: Beams, tolerance: float
) -> bool:
    """Whether ``after`` is what one step may make of these candidates and their keys [B, M, S]."""
    alive = (found.rows != -1) & np.isfinite(found.scores) & np.isfinite(keys)
    keys = np.where(alive, keys, -np.inf)
    size = np.where(alive, np.maximum(1, np.abs(found.scores)), 0)
    bound = tolerance * np.where(alive, np.maximum(size, np.abs(keys)), 0)  # of the keys
    scores, ranked, kept = found.scores.copy(), keys.copy(), np.zeros_like(alive)
    for b, m in np.argwhere(after.rows != -1):
        parent, token = after.parents[b, m], after.tokens[b, m, -1]
        slot = np.argmax((found.tokens[b, parent] == token) & (found.rows[b, parent] != -1))
        scores[b, parent, slot], ranked[b, parent, slot] = after.scores[b, m], after.keys[b, m]
        kept[b, parent, slot] = True
    pairs = ((scores, found.scores, tolerance * size), (ranked, keys, bound))
    near = all(np.isclose(one, true, rtol=0, atol=off).all() for one, true, off in pairs)
    width = after.scores.shape[1]
    for b in np.flatnonzero(after.count == width):  # the cut: who came this near may be left out
        nearly = keys[b] <= keys[b][kept[b]].min(initial=np.inf) + bound[b]
        ranked[b][nearly & ~kept[b]] = -np.inf
    expected = select(trie, found.beams, replace(found, scores=scores), width, ranked)
    return near and all(
        np.array_equal(getattr(after, name), getattr(expected, name)) for name in ARRAYS
    )
