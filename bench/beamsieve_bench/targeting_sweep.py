"""Filtering inside the decode against filtering its results, as ever fewer items are eligible.

``python -m beamsieve_bench.targeting_sweep --json sweep.json`` decodes a catalog of a million
skewed semantic IDs for some viewers, with rules that leave from all items down to one in 10 000
eligible (:mod:`beamsieve_bench.targeting_worlds`), and counts for each way of filtering

- how many of the 100 places hold an eligible item (as a share of what could be there),
- Recall@100 against the exact 100 best eligible items
  (:mod:`beamsieve_bench.targeting_scorer`), and
- the pass rate: which share of the generated items the exact rules leave.

The numbers are of quality, and do not depend on the speed or load of the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve import Catalog, Engine, Index, RequestHits
from beamsieve_bench.catalogs import WORKLOADS, skewed_sids
from beamsieve_bench.targeting_scorer import LastTokenScorer
from beamsieve_bench.targeting_worlds import KINDS, SHARES, TargetedItems, targeted_items

K = 100
STATIC = (64, 64, 32, 8)
"""The static partition of GRACE, section 5."""

Request = dict[str, Any] | None

_BATCH = 4
_LARGEST_ALLOWED = 0.01
"""Above this share a list of allowed items is no list any more."""


class Outcome(NamedTuple):
    """One way of filtering, at one share of eligible items."""

    rules: str
    share: float
    eligible: int
    method: str
    filled: float
    """Of the places that eligible items could fill (100, or fewer where fewer exist), how many do;
    mean over requests."""
    recall: float
    """Recall@100 against the exact best eligible items; mean over requests."""
    pass_rate: float
    """Generated items that the exact rules leave; over all requests. NaN where none was
    generated."""
    generated: float
    """Generated items; mean over requests."""


def measure(
    sids: NDArray[np.int32],
    codebooks: Sequence[int],
    kinds: Sequence[str],
    viewers: int,
    width: int,
    backend: str,
    seed: int,
) -> Iterator[Outcome]:
    """Every outcome, kind by kind and share by share."""
    for kind in kinds:
        world = targeted_items(kind, len(sids), seed)
        index = _index(sids, codebooks, world)
        engine = Engine(index, backend)
        scorer = LastTokenScorer(index, viewers, seed=seed)
        best = _best_eligible(scorer, world, viewers)
        parted = None
        if kind != "bit":  # where a union of single bits is exact already
            parted = Engine(_index(sids, codebooks, world, STATIC), backend)

        same, wide = [width] * index.length, [4 * width] * index.length
        whole_first = [codebooks[0], *same[1:]]

        def decode(by: Engine, widths: list[int], request: Request = None) -> list[RequestHits]:
            k = K if request else widths[-1]
            return _decode(by, scorer, viewers, widths, request, k)  # noqa: B023

        after = {"after": decode(engine, same), "after, 4 × width": decode(engine, wide)}
        for place, share in enumerate(SHARES):
            request, eligible = world.requests[place], world.eligible[place]
            ways = {
                "in the decode": decode(engine, same, request),
                "in the decode, 4 × width": decode(engine, wide, request),
                "in the decode, whole first step": decode(engine, whole_first, request),
            }
            if parted is not None:
                ways["in the decode, k-way"] = decode(parted, same, request)
            if share <= _LARGEST_ALLOWED:
                allowed = {**request, "allow": np.flatnonzero(eligible)}
                ways["allow list"] = decode(engine, same, allowed)
            for method, hits in {**ways, **after}.items():
                yield _outcome(kind, share, method, hits, eligible, best[place])


def _index(
    sids: NDArray[np.int32],
    codebooks: Sequence[int],
    world: TargetedItems,
    static: Sequence[int] | None = None,
) -> Index:
    catalog = Catalog.from_arrays(
        sids,
        np.arange(len(sids)),
        codebooks,
        attributes=world.attributes,
        rules=world.rules,
    )
    return Index.build(catalog, static=static)


def _best_eligible(
    scorer: LastTokenScorer, world: TargetedItems, viewers: int
) -> list[list[set[int]]]:
    """Per share and viewer, the exact 100 best eligible items.

    The semantic IDs are sorted and distinct, so item, row and leaf are one number.
    """
    best: list[list[set[int]]] = [[] for _ in SHARES]
    for viewer in range(viewers):
        scores = scorer.exact(viewer)
        for place, eligible in enumerate(world.eligible):
            items = np.flatnonzero(eligible)
            if len(items) > K:
                items = items[np.argpartition(-scores[items], K)[:K]]
            best[place].append(set(items.tolist()))
    return best


def _decode(
    engine: Engine,
    scorer: LastTokenScorer,
    viewers: int,
    widths: list[int],
    request: Request,
    k: int,
) -> list[RequestHits]:
    found: list[RequestHits] = []
    for start in range(0, viewers, _BATCH):
        chosen = slice(start, min(start + _BATCH, viewers))
        batch = chosen.stop - start
        beams = engine.search(
            scorer.score(chosen),
            widths=widths,
            batch=batch,
            requests=None if request is None else [request] * batch,
        )
        found.extend(engine.results(beams, k=k))
    return found


def _outcome(
    kind: str,
    share: float,
    method: str,
    hits: list[RequestHits],
    eligible: NDArray[np.bool_],
    best: list[set[int]],
) -> Outcome:
    filled, recall, generated, passed = 0.0, 0.0, 0, 0
    for own, exact in zip(hits, best, strict=True):
        items = [int(item) for item in own.items]
        generated += own.generated_items
        if method.startswith("after"):
            items = [item for item in items if eligible[item]]
            passed += len(items)
        else:
            passed += own.generated_items - own.removed_items
            if not eligible[items].all():
                raise AssertionError(f"{kind}, {share}: an item came back that is not eligible")
        shown = set(items[:K])
        filled += len(shown) / max(1, len(exact))
        recall += len(shown & exact) / max(1, len(exact))
    return Outcome(
        kind,
        share,
        int(eligible.sum()),
        method,
        filled / len(hits),
        recall / len(hits),
        passed / generated if generated else float("nan"),
        generated / len(hits),
    )


def as_table(outcomes: Sequence[Outcome], kind: str) -> str:
    """A Markdown table of one kind of rules: filled places · Recall@100 · pass rate, in percent."""
    methods = list(dict.fromkeys(one.method for one in outcomes if one.rules == kind))
    lines = [
        f"| eligible | items | {' | '.join(methods)} |",
        "| ---: | ---: |" + " ---: |" * len(methods),
    ]
    for share in dict.fromkeys(one.share for one in outcomes):
        row = {one.method: one for one in outcomes if (one.rules, one.share) == (kind, share)}
        some = next(iter(row.values()))
        cells = [_cell(row.get(method)) for method in methods]
        lines.append(f"| {100 * share:g} % | {some.eligible} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    parts = (outcome.filled, outcome.recall, outcome.pass_rate)
    return " · ".join("–" if np.isnan(part) else _percent(100 * part) for part in parts)


def _percent(value: float) -> str:
    """Whole numbers, tenths below ten; 100 only where it is."""
    if value == 100 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if value < 10 or value > 99 else f"{value:.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep and print its tables."""
    parser = argparse.ArgumentParser(prog="beamsieve_bench.targeting_sweep", description=__doc__)
    parser.add_argument("--items", type=int, default=WORKLOADS["S1"].items)
    parser.add_argument("--viewers", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rules", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--backend", default="torch:cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the outcomes to this file")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    workload = WORKLOADS["S1"]._replace(items=given.items)
    sids = skewed_sids(workload, given.seed)
    codebooks = [workload.vocabulary] * workload.length
    outcomes = []
    for outcome in measure(
        sids, codebooks, given.rules, given.viewers, given.width, given.backend, given.seed
    ):
        outcomes.append(outcome)
        print(outcome, flush=True)
    for kind in given.rules:
        print(f"\n{kind}\n\n{as_table(outcomes, kind)}")
    if given.json:
        settings = {name: str(value) for name, value in vars(given).items() if name != "json"}
        record = {"settings": settings, "outcomes": [one._asdict() for one in outcomes]}
        given.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
