"""The whole search, and the items that its beams stand for.

A search takes a step for every level; its width may differ from step to step. What comes out are
SIDs; users want items. A SID stands for all of its items (a collision), in the catalog's order and
under one score; an item that several SIDs reach counts once, at its best.

The narrow search below keeps (0,) alone, for it looks better at first; the wide one finds that
(1, 1) is better in the end:

>>> trie = Trie([(0, 0), (0, 1), (1, 1)], items=["a", "b", "c"])
>>> def score(step, beams):
...     return [[[0.1, 0.0]] if step == 1 else [[0.0, 0.0]] * beams.scores.shape[1]]
>>> [hit.item for hit in results(trie, search(trie, score, widths=[1, 2]), k=2)[0]]
['a', 'b']
>>> [hit.item for hit in results(trie, search(trie, score, widths=[2, 2]), k=2)[0]]
['c', 'a']
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from beamsieve_spec.beams import Beams, begin
from beamsieve_spec.normalize import Normalize, project
from beamsieve_spec.step import Permits, step
from beamsieve_spec.trie import SID, InputError, Trie

Score = Callable[[int, Beams], Any]
"""``score(step, beams)``: the logits of the step about to be taken (the first is 1), or the tuple
(hidden, head) or (hidden, head, bias) whose product they are."""

EligibleItem = Callable[[int, Hashable], bool]
"""``eligible(b, item)``: whether the exact rules let request b see ``item``."""


def search(
    trie: Trie,
    score: Score,
    widths: Sequence[int],
    batch: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
    normalize: Normalize = "catalog",
    permits: Permits | None = None,
) -> Beams:
    """Decode every level that the prefixes leave: one width per step."""
    beams = begin(trie, batch, prefixes)
    if len(widths) != trie.length - beams.step:
        raise InputError(f"{len(widths)} widths for {trie.length - beams.step} levels")
    for width in widths:
        said = score(beams.step + 1, beams)
        logits = project(*said) if isinstance(said, tuple) else said
        beams = step(trie, beams, width, logits, normalize, permits=permits)
    return beams


class Hit(NamedTuple):
    """One recommended item: the SID that spells it, as its user wrote it, and that SID's score."""

    item: Hashable
    sid: SID
    score: float


def results(
    trie: Trie, beams: Beams, k: int | None = None, eligible: EligibleItem | None = None
) -> list[list[Hit]]:
    """Per request, the ``k`` best items, or as many as there are: highest score first.

    Equal scores keep the order of the beams, then the input order of the items under one SID. Only
    items that the exact rules permit are among them.
    """
    if k is not None and k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    if (~beams.finished & (beams.rows != -1)).any():
        raise InputError("some beams are not finished: decode the remaining levels first")
    hits = []
    for b, count in enumerate(beams.count):
        best: dict[Hashable, Hit] = {}
        for m in sorted(range(count), key=lambda m: -beams.scores[b, m]):
            sid = trie.leaves[beams.rows[b, m]]
            shown = sid[:-1] if trie.end_token else sid
            for item in trie.items[sid]:
                if item not in best and (eligible is None or eligible(b, item)):
                    best[item] = Hit(item, shown, float(beams.scores[b, m]))
        hits.append(list(best.values())[:k])
    return hits
