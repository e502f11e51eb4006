"""What a beam carries, and where a search begins.

A beam is one partial SID of one request. Each request has M places, filled from the front, best
beam first; ``count`` says how many are filled. The empty places behind them are padding: score and
key -inf, token, row and parent -1. Padding is never expanded and never shown.

A beam whose SID is complete is *finished*: its row is its leaf, and it stays in the competition
unchanged while others go on.

A search begins with one beam per request: the root, or the prefix that the request gives. A prefix
that no SID begins with gives a request without beams, hence without results.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamsieve_spec.trie import SID, InputError, Trie


@dataclass(frozen=True)
class Beams:
    """The partial SIDs of a batch after ``step`` tokens, best first.

    Attributes:
        step: t, how many tokens are decoded; a given prefix counts.
        tokens: int32 [B, M, t]; -1 behind the end of a finished SID, and in padding.
        scores: float64 [B, M]; the sum of the log-probabilities and bonuses so far.
        keys: float64 [B, M]; what the last step ranked by.
        rows: int64 [B, M]; a live beam's row in table t + 1, a finished beam's leaf.
        parents: int64 [B, M]; the beam's place one step earlier; -1 where there was none.
        finished: bool [B, M].
        count: int64 [B]; how many places are filled.
    """

    step: int
    tokens: NDArray[np.int32]
    scores: NDArray[np.float64]
    keys: NDArray[np.float64]
    rows: NDArray[np.int64]
    parents: NDArray[np.int64]
    finished: NDArray[np.bool_]
    count: NDArray[np.int64]


def padding(batch: int, width: int, step: int) -> Beams:
    """Places for ``width`` beams per request, all empty."""
    return Beams(
        step=step,
        tokens=np.full((batch, width, step), -1, np.int32),
        scores=np.full((batch, width), -np.inf),
        keys=np.full((batch, width), -np.inf),
        rows=np.full((batch, width), -1, np.int64),
        parents=np.full((batch, width), -1, np.int64),
        finished=np.full((batch, width), False),
        count=np.zeros(batch, np.int64),
    )


def append(
    trie: Trie, beams: Beams, b: int, tokens: SID, score: float, key: float, parent: int
) -> None:
    """Fill request b's next place with the beam that spells ``tokens``."""
    m = beams.count[b]
    prefix = tuple(token for token in tokens if token != -1)
    beams.tokens[b, m] = tokens
    beams.scores[b, m] = score
    beams.keys[b, m] = key
    beams.parents[b, m] = parent
    beams.finished[b, m] = prefix in trie.leaf
    beams.rows[b, m] = trie.leaf[prefix] if prefix in trie.leaf else trie.row[prefix]
    beams.count[b] += 1


def begin(trie: Trie, batch: int, prefixes: Sequence[Sequence[int]] | None = None) -> Beams:
    """One beam per request, its score and key 0, at the root or at the request's own prefix.

    Raises:
        InputError: a batch below 1; prefixes not ``batch`` many, not of one length, or too long.

    >>> trie = Trie([(1, 2, 3), (1, 4, 5)])
    >>> begin(trie, batch=2, prefixes=[(1, 4), (7, 7)]).rows.tolist()
    [[1], [-1]]
    """
    starts = [()] * batch if prefixes is None else [tuple(map(int, prefix)) for prefix in prefixes]
    if batch < 1 or len(starts) != batch:
        raise InputError(f"a batch of {batch} with {len(starts)} prefixes")
    if len({len(prefix) for prefix in starts}) > 1 or len(starts[0]) > trie.length:
        raise InputError(f"prefixes must have one length, {trie.length} at most")
    beams = padding(batch, 1, step=len(starts[0]))
    for b, prefix in enumerate(starts):
        if prefix in trie.row:
            append(trie, beams, b, prefix, score=0.0, key=0.0, parent=-1)
    return beams
