"""Logits, and the three ways in which they become log-probabilities.

The model says how well each token of the level's codebook may follow a beam: its logits, or a
hidden state and an output head whose product they are. A log-softmax turns them into
log-probabilities, and the question is over which tokens it runs. The choice changes the ranking
across beams, so it is always named:

- ``"all"``: over the whole codebook, as the model was trained (score-first);
- ``"catalog"``: over the tokens that may follow the beam's row, targeting not considered
  (filter-first; the default);
- ``"eligible"``: over the tokens that may follow it and that targeting keeps.

Take logits (2, 0) and a beam that only the second token may follow. Under ``"all"`` it pays for the
token that it may not use; under ``"catalog"`` it pays nothing:

>>> log_probabilities(np.array([2.0, 0.0]), over=[0, 1]).round(3).tolist()
[-0.127, -2.127]
>>> log_probabilities(np.array([2.0, 0.0]), over=[1])[1].tolist()
0.0
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Normalize = Literal["all", "catalog", "eligible"]


def project(hidden: Any, head: Any, bias: Any = None) -> NDArray[np.float64]:
    """Logits [B, M, V] = ``hidden[b, m] · head[v] + bias[v]``, in float64.

    ``hidden`` [B, M, d], ``head`` [V, d] and ``bias`` [V] are taken as the numbers that they are: a
    bfloat16 or float16 input is rounded before it comes here, never by this function.

    >>> project([[[1, 2]]], head=[[1, 0], [0, 1], [3, 3]], bias=[0, 0, -1]).tolist()
    [[[1.0, 2.0, 8.0]]]
    """
    head = np.asarray(head, np.float64)
    bias = np.asarray(0.0 if bias is None else bias, np.float64)
    # One product per beam, so that no result depends on what else is in the batch.
    return np.array([[head @ h + bias for h in beams] for beams in np.asarray(hidden, np.float64)])


def log_probabilities(logits: NDArray[np.float64], over: Sequence[int]) -> NDArray[np.float64]:
    """One beam's logits [V] minus the logarithm of the mass of the tokens in ``over``.

    A logit of NaN or +inf is no opinion but an accident: it counts as -inf, so it kills its own
    token and leaves the mass of the others alone. Without any mass every token dies.

    >>> log_probabilities(np.array([0.0, np.nan, 0.0, np.inf]), over=range(4)).round(3).tolist()
    [-0.693, -inf, -0.693, -inf]
    >>> log_probabilities(np.array([-np.inf, 5.0]), over=[0]).tolist()
    [-inf, -inf]
    """
    usable = np.where(np.isnan(logits) | (logits == np.inf), -np.inf, logits)
    mass = usable[list(over)]
    largest = mass.max(initial=-np.inf)
    if largest == -np.inf:
        return np.full(len(logits), -np.inf)
    # Subtracting the largest logit first keeps the exponentials between 0 and 1.
    return np.asarray(usable - largest - np.log(np.exp(mass - largest).sum()))
