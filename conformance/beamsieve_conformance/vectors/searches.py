"""Golden vectors of catalogs and searches, from the specification."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import beamsieve_spec as spec

Case = dict[str, Any]
SID = tuple[int, ...]

CLEAR = 1e-4
"""How far apart two keys lie that are not equal: more than float32 can mistake."""


class Draw:
    """Reproducible choices, from ``random()`` alone: Python promises that its sequence stays.

    Numbers are multiples of 1/32 below 8 (hidden states and heads: of 1/8 below 2), which float32,
    bfloat16 and float16 all hold exactly.
    """

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1."""
        return int(self._source.random() * n)

    def numbers(self, shape: Sequence[int], limit: int = 8, parts: int = 32) -> Any:
        """An array of multiples of 1/parts between -limit and limit."""
        count = int(np.prod(shape))
        flat = [self.below(2 * limit * parts - 1) - limit * parts + 1 for _ in range(count)]
        return np.array(flat, np.float64).reshape(shape) / parts

    def some(self, values: Sequence[Any], count: int) -> list[Any]:
        """Up to ``count`` of ``values``, in their order."""
        picked = {self.below(len(values)) for _ in range(count)}
        return [values[i] for i in sorted(picked)]

    def sids(self, codebooks: Sequence[int], count: int) -> list[SID]:
        """``count`` random SIDs, repetitions among them."""
        return [tuple(self.below(size) for size in codebooks) for _ in range(count)]


# Catalogs


def catalogs() -> Iterable[Case]:
    """Tables, leaves and items; and rows that are no catalog."""
    draw = Draw(1)
    yield catalog("one item", [(0,)])
    yield catalog("unsorted, with repeated rows", [(5, 6, 7), (1, 2, 3), (5, 6, 8), (1, 2, 3)])
    yield catalog("first and last token", [(0, 64), (64, 0)], codebooks=[65, 65])
    yield catalog("tokens past 16 bits", [(65536, 1), (32767, 65535), (65535, 32768)], [70000] * 2)
    yield catalog("a codebook of its own per level", draw.sids([3, 40, 5, 2], 30), [3, 40, 5, 2])
    yield catalog("a hub and chains", [(0, v, v, 0) for v in range(20)] + [(1, 0, 0, 0)])
    yield catalog("several lengths", [(0,), (1, 0), (1, 2, 2), (2, 1, 0), (2, 1, 1)])
    yield catalog("end tokens", [(1, 2), (1, 2, 3), (4, 5, 6), (1,)], [10] * 3, end_token=True)
    rows = draw.sids([2, 2, 2], 14)
    names = [f"item-{draw.below(9)}" for _ in rows]
    yield catalog("collisions and items on several SIDs", rows, items=names)
    yield refused("no rows", [])
    yield refused("a token at its codebook's size", [(1, 2, 10)], codebooks=[10] * 3)
    yield refused("a negative token", [(0, 1), (1, -2)], codebooks=[4, 4])
    yield refused("padding inside", [(0, -1, 1)], codebooks=[4] * 3)
    yield refused("an empty SID", [(0, 1), ()], codebooks=[4, 4])
    yield refused("more tokens than levels", [(0, 1, 1)], codebooks=[4, 4])
    yield refused("a proper prefix", [(1, 2), (1, 2, 3)], codebooks=[4] * 3)


def catalog_input(
    sids: Sequence[SID],
    codebooks: Sequence[int] | None = None,
    items: Sequence[Any] | None = None,
    end_token: bool = False,
) -> Case:
    """A catalog as it is given; codebooks are always written out."""
    if codebooks is None:
        codebooks = spec.Trie(sids).codebooks
    items = list(range(len(sids))) if items is None else items
    return {"sids": sids, "items": items, "codebooks": codebooks, "end_token": end_token}


def trie_of(given: Case) -> spec.Trie:
    """The trie of a catalog as it is given."""
    return spec.Trie(given["sids"], given["items"], given["codebooks"], given["end_token"])


def catalog(about: str, sids: Sequence[SID], *arguments: Any, **options: Any) -> Case:
    """One catalog that is accepted."""
    given = catalog_input(sids, *arguments, **options)
    trie = trie_of(given)
    tables = [trie.table(step) for step in range(1, trie.length + 1)]
    return {
        "about": about,
        "catalog": given,
        "expected": {
            "codebooks": trie.codebooks,
            "row_starts": [row_starts for row_starts, _ in tables],
            "tokens": [tokens for _, tokens in tables],
            "leaves": trie.leaves,
            "items": [trie.items[sid] for sid in trie.leaves],
            "children": [[p, trie.children(p)] for p in asked_prefixes(trie)],
            "items_of": [[sid, trie.items_of(sid)] for sid in asked_sids(trie)],
        },
    }


def asked_prefixes(trie: spec.Trie) -> list[SID]:
    """Up to three known prefixes of each length, and one that is none."""
    known = [prefix for prefixes in trie.prefixes for prefix in prefixes[:3]]
    return [*known, (trie.codebooks[0] - 1,) * trie.length]


def asked_sids(trie: spec.Trie) -> list[SID]:
    """Three semantic IDs with their end token and without it, padded, and such as are none."""
    known = trie.leaves[:: max(1, len(trie.leaves) // 3)][:3]
    shorter = [sid[:-1] for sid in known]
    return [*known, *shorter, *[(*sid, -1) for sid in shorter], (trie.codebooks[0] - 1,)]


def refused(about: str, sids: Sequence[SID], codebooks: Sequence[int] = ()) -> Case:
    """One catalog that is refused."""
    given = catalog_input(sids, codebooks)
    try:
        trie_of(given)
    except spec.CatalogError as error:
        return {"about": about, "catalog": given, "error": type(error).__name__}
    raise AssertionError(f"the specification accepts {sids}")


# Searches

Model = Callable[[Draw, spec.Trie, spec.Beams], Case]
"""What a step is given, apart from its width: logits, or hidden, head and bias; bonus; nudge."""


def searches() -> Iterable[Case]:
    """Whole searches, step by step."""
    fixed = catalog_input(Draw(2).sids([5, 6, 4], 40), [5, 6, 4])
    several = catalog_input([(0,), (1, 0), (1, 2, 2), (2, 1, 0), (2, 1, 1), (3,), (4, 4)])
    for normalize in ("all", "catalog", "eligible"):
        about = f"normalize={normalize}"
        yield searched(about, fixed, [4, 6, 3], normalize=normalize, batch=2)
        yield searched(f"{about}, several lengths", several, [5, 5, 7], normalize=normalize)
    yield searched("products of hidden states and a head", fixed, [3, 5, 5], product, batch=2)
    yield searched("products, bias, all", fixed, [3, 5, 5], product_bias, normalize="all")
    # Where ties are meant, rows have equally many entries, so that they are ties in any arithmetic.
    full = catalog_input([(a, 2 * b, c) for a in range(4) for b in range(3) for c in range(3)])
    yield searched("every logit equal", full, [3, 7, 20], equal)
    twigs = catalog_input([(0,), (2,), (3, 0), (3, 1), (1, 0), (1, 1)])
    yield searched("every logit equal, several lengths", twigs, [4, 5], equal)
    yield searched("logits of NaN and infinity", fixed, [4, 8, 8], accidents, batch=3)
    yield searched("accidents, all", fixed, [4, 8, 8], accidents, normalize="all", batch=2)
    yield searched("a bonus", fixed, [3, 4, 4], guided("bonus"), batch=2)
    yield searched("a nudge", fixed, [3, 4, 4], guided("nudge"), batch=2)
    yield searched("bonus and nudge", several, [3, 4, 4], guided("bonus", "nudge"), batch=2)
    yield searched("width 1", fixed, [1, 1, 1], batch=2)
    yield searched("widths above what exists", fixed, [9, 50, 60])
    yield searched("a prefix each", fixed, [4, 4], batch=3, prefix=[(3,), (0,), (3,)])
    known = trie_of(fixed).prefixes[2]
    unknown = next((a, b) for a in range(5) for b in range(6) if (a, b) not in known)
    prefixes = [known[3], unknown, known[-1]]
    yield searched("an unknown prefix among others", fixed, [4], batch=3, prefix=prefixes)
    yield searched("a whole SID as prefix", several, [4, 4], batch=2, prefix=[(3,), (1,)])
    ends = catalog_input([(1, 2), (1, 2, 3), (4, 5, 6), (1,)], [10] * 3, end_token=True)
    yield searched("end tokens", ends, [4, 4, 4, 4])
    yield searched("one level", catalog_input([(0,), (64,), (31,)], [65]), [2])
    yield searched("one item", catalog_input([(2, 0)], [3, 1]), [2, 2])
    names = [f"item-{v}" for v in (3, 1, 3, 2, 1, 0, 4, 2)]
    rows = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 1), (1, 0), (1, 0), (0, 0)]
    collisions = catalog_input(rows, items=names)
    yield searched("collisions and items on several SIDs", collisions, [4, 4], k=3)
    yield searched("collisions, all equal", collisions, [4, 4], equal)


def logits(draw: Draw, trie: spec.Trie, beams: spec.Beams) -> Case:
    """Random logits; NaN where no one may look."""
    values = draw.numbers(shape_of(trie, beams))
    values[(beams.rows == -1) | beams.finished] = np.nan
    return {"logits": values}


def equal(draw: Draw, trie: spec.Trie, beams: spec.Beams) -> Case:
    """No opinion at all."""
    return {"logits": np.zeros(shape_of(trie, beams))}


def accidents(draw: Draw, trie: spec.Trie, beams: spec.Beams) -> Case:
    """Random logits, a third of them unusable; the last request's all, from step 2 on."""
    values = draw.numbers(shape_of(trie, beams))
    for place in np.ndindex(values.shape):
        if draw.below(3) == 0:
            values[place] = (np.nan, np.inf, -np.inf)[draw.below(3)]
    if beams.step > 0:
        values[-1] = -np.inf
    return {"logits": values}


def product(draw: Draw, trie: spec.Trie, beams: spec.Beams) -> Case:
    """Hidden states and a head."""
    batch, places, size = shape_of(trie, beams)
    hidden = draw.numbers((batch, places, 4), limit=2, parts=8)
    return {"hidden": hidden, "head": draw.numbers((size, 4), limit=2, parts=8)}


def product_bias(draw: Draw, trie: spec.Trie, beams: spec.Beams) -> Case:
    """Hidden states, a head and a bias."""
    bias = draw.numbers((trie.codebooks[beams.step],), limit=2, parts=8)
    return {**product(draw, trie, beams), "bias": bias}


def guided(*names: str) -> Model:
    """Random logits and guidance, some of which kills."""

    def model(draw: Draw, trie: spec.Trie, beams: spec.Beams) -> Case:
        given = logits(draw, trie, beams)
        for name in names:
            given[name] = draw.numbers(shape_of(trie, beams), limit=4)
            given[name][..., draw.below(given[name].shape[-1])] = (np.nan, -np.inf)[draw.below(2)]
        return given

    return model


def shape_of(trie: spec.Trie, beams: spec.Beams) -> tuple[int, int, int]:
    """[B, M, V] of the step that follows."""
    batch, places = beams.rows.shape
    return batch, places, trie.codebooks[beams.step]


def searched(
    about: str,
    given: Case,
    widths: Sequence[int],
    model: Model = logits,
    normalize: Any = "catalog",
    batch: int = 1,
    prefix: Sequence[SID] | None = None,
    k: int = 5,
    permits: Any = None,
    eligible: Any = None,
) -> Case:
    """One search: what each step is given and gives, and the items in the end."""
    trie, draw = trie_of(given), Draw(zlib.crc32(about.encode()))
    beams = spec.begin(trie, batch, prefix)
    case = {
        "about": about,
        "catalog": given,
        "normalize": normalize,
        "batch": batch,
        "prefix": prefix,
        "begin": plain(beams),
        "steps": list[Case](),
    }
    for width in widths:
        said = model(draw, trie, beams)
        values = said["logits"] if "logits" in said else spec.project(**said)
        found = spec.candidates(trie, beams, values, normalize, said.get("bonus"), permits)
        keys = spec.add_nudge(found, said["nudge"]) if "nudge" in said else found.scores
        check_order_is_clear(keys, width)
        beams = spec.select(trie, beams, found, width, keys)
        case["steps"].append(
            {
                "width": width,
                "inputs": {name: array.tolist() for name, array in said.items()},
                "candidates": plain(found),
                "beams": plain(beams),
            }
        )
    hits = spec.results(trie, beams, k, eligible)
    return {**case, "k": k, "results": [[list(hit) for hit in request] for request in hits]}


def check_order_is_clear(keys: NDArray[np.float64], width: int) -> None:
    """Refuse to write down an order that hangs on the last bits of a number."""
    for row in keys.reshape(len(keys), -1):
        ranked = np.sort(row[np.isfinite(row)])[::-1][: width + 1]
        gaps = -np.diff(ranked)
        assert ((gaps == 0) | (gaps > CLEAR)).all(), f"two keys lie {gaps[gaps > 0].min()} apart"


def plain(arrays: Any) -> Case:
    """A dataclass of arrays as lists; of candidates, not whose they are."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(arrays).items()
        if not isinstance(value, spec.Beams)
    }
