"""The k-way experiment of GRACE (arXiv 2608.00938, section 6.1 and 6.2) on a made-up catalog.

``python -m beamsieve_bench.targeting_kway --json kway.json`` measures what dividing a prefix's
matcher into parts changes: the fill of the matchers per step, their bytes, and the share of the
generated ads that the exact rules leave, for

- no targeting in the decode,
- one matcher per prefix,
- static parts, k = (64, 64, 32, 8), and
- dynamic parts, k at most 32, until the fill is 0.25.

The catalog follows the paper where it says something: four levels of 512 tokens, half of all
semantic IDs with a single ad and some with hundreds, 64 random places per viewer, a Bloom filter of
256 bits that is nearly full one level below the root and nearly empty two levels below it. The
rules are such that without targeting about as many ads pass as in the paper: 57.8 % on bits, and
40.7 % of those on places. It has fewer semantic IDs, and independent rules.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from beamsieve import Catalog, Engine, Index
from beamsieve.targeting import Attribute
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.targeting_scorer import LastTokenScorer

WIDTHS = (512, 1024, 1024, 1024)
MODES: dict[str, dict[str, Any]] = {
    "none": {},
    "one matcher": {},
    "static": {"static": (64, 64, 32, 8)},
    "dynamic": {"dynamic": (0.25, 32)},
}
COUNTRIES = 40
AGES = (13, 18, 21, 25, 30, 35, 45, 55, 65)
PLACES = 256
PLACES_OF_A_VIEWER = 64
PLACES_OF_A_SID = 4
PLACES_OF_AN_AD = 3

_BATCH = 4


@dataclass(frozen=True)
class Ads:
    """Ads by number.

    Attributes:
        sids: int32 [ads, 4].
        countries: bool [ads, COUNTRIES]; whom each ad accepts, everyone where it has no rule.
        ages: int [ads, 2]; from and to, both included; the whole range where it has no rule.
        places: int [ads, PLACES_OF_AN_AD]; -1 behind the last one.
    """

    sids: NDArray[np.int32]
    countries: NDArray[np.bool_]
    ages: NDArray[np.int64]
    places: NDArray[np.int64]

    def rules(self) -> list[dict[str, Any]]:
        """One dict per ad."""
        found = []
        for countries, (low, high), places in zip(
            self.countries, self.ages.tolist(), self.places.tolist(), strict=True
        ):
            rule: dict[str, Any] = {"place": {"accepts": [place for place in places if place >= 0]}}
            if not countries.all():
                rule["country"] = {"accepts": np.flatnonzero(countries).tolist()}
            if (low, high) != (AGES[0], AGES[-1]):
                rule["age"] = {"from": low, "to": high}
            found.append(rule)
        return found

    def accepts_bits(self, viewer: dict[str, Any]) -> NDArray[np.bool_]:
        """bool [ads]: country and age."""
        in_age = (self.ages[:, 0] <= viewer["age"]) & (viewer["age"] <= self.ages[:, 1])
        return np.asarray(self.countries[:, viewer["country"]] & in_age)

    def accepts_places(self, viewer: dict[str, Any]) -> NDArray[np.bool_]:
        """bool [ads]: one of the viewer's places at least."""
        return np.asarray(np.isin(self.places, viewer["place"]).any(axis=1))


def attributes() -> list[Attribute]:
    """What an ad's rules may name."""
    return [
        Attribute("country", range(COUNTRIES)),
        Attribute("age", AGES),
        Attribute("place", bloom=256),
    ]


def popular(draw: np.random.Generator, size: Any) -> NDArray[np.int64]:
    """Countries, the first ones the more popular."""
    return np.asarray((draw.random(size) ** 3 * COUNTRIES).astype(np.int64))


def make_ads(sids: int, draw: np.random.Generator) -> Ads:
    """Ads on this many semantic IDs. Those on one semantic ID share a few places."""
    distinct = skewed_sids(Workload(sids, 512, 4))
    # Half of the semantic IDs have one ad, and k or more of them one in k to the power of 1.1.
    counts = np.minimum((1 - draw.random(len(distinct))) ** (-1 / 1.1), 500).astype(np.int64)
    owner = np.repeat(np.arange(len(distinct)), counts)
    ads = len(owner)
    countries = np.zeros((ads, COUNTRIES), np.bool_)
    countries[np.arange(ads)[:, None], popular(draw, (ads, 12))] = True
    countries[draw.random(ads) < 0.5] = True
    ages = np.sort(draw.integers(0, len(AGES), (ads, 2)), axis=1)
    ages[draw.random(ads) < 0.65] = 0, len(AGES) - 1
    shared = draw.integers(0, PLACES, (len(distinct), PLACES_OF_A_SID))
    place = np.arange(PLACES_OF_AN_AD)
    turn = draw.integers(0, PLACES_OF_A_SID, (ads, 1))
    own = shared[owner[:, None], (turn + place) % PLACES_OF_A_SID]
    own[place >= draw.integers(1, PLACES_OF_AN_AD + 1, (ads, 1))] = -1
    return Ads(distinct[owner], countries, np.array(AGES)[ages], own)


def make_viewers(count: int, draw: np.random.Generator) -> list[dict[str, Any]]:
    """Requests: one country, one age, 64 places."""
    return [
        {
            "country": int(popular(draw, ())),
            "age": int(draw.choice(AGES)),
            "place": draw.choice(PLACES, PLACES_OF_A_VIEWER, replace=False).tolist(),
        }
        for _ in range(count)
    ]


def measure(sids: int, viewers: int, backend: str, seed: int) -> list[dict[str, Any]]:
    """One record per mode."""
    draw = np.random.default_rng(seed)
    ads = make_ads(sids, draw)
    requests = make_viewers(viewers, draw)
    catalog = Catalog.from_arrays(
        ads.sids,
        np.arange(len(ads.sids)),
        [512] * 4,
        attributes=attributes(),
        rules=ads.rules(),
    )
    records = []
    for mode, partition in MODES.items():
        index = Index.build(catalog, **partition)
        generated = _generated(index, requests, backend, targeted=mode != "none", seed=seed)
        on_bits = [
            ads.accepts_bits(one)[items] for one, items in zip(requests, generated, strict=True)
        ]
        on_all = [
            bits & ads.accepts_places(one)[items]
            for one, items, bits in zip(requests, generated, on_bits, strict=True)
        ]
        total = sum(map(len, generated))
        passed_bits, passed = (int(sum(map(np.sum, parts))) for parts in (on_bits, on_all))
        assert index.matchers is not None
        records.append(
            {
                "mode": mode,
                "sids": index.leaf_count,
                "ads": len(index.items),
                "steps": [] if mode == "none" else index.matchers.stats(),
                "matcher_bytes": 0 if mode == "none" else index.matchers.nbytes,
                "generated_ads": total / len(requests),
                "eligible_ads": passed / len(requests),
                "pass_bits": passed_bits / total,
                "pass_places": passed / max(1, passed_bits),
                "pass": passed / total,
            }
        )
        print(records[-1], flush=True)
    return records


def _generated(
    index: Index, requests: list[dict[str, Any]], backend: str, targeted: bool, seed: int
) -> list[NDArray[np.int64]]:
    """The ads of all semantic IDs that each request's search ends with."""
    engine = Engine(index, backend)
    scorer = LastTokenScorer(index, len(requests), seed=seed)
    found = []
    for start in range(0, len(requests), _BATCH):
        own = requests[start : start + _BATCH]
        beams = engine.search(
            scorer.score(slice(start, start + len(own))),
            widths=WIDTHS,
            batch=len(own),
            requests=own if targeted else None,
        )
        rows, counts = beams.rows.cpu().numpy(), beams.count.cpu().numpy()
        for leaves, count in zip(rows, counts, strict=True):
            numbers = index.items_of_leaves(leaves[:count])[1]
            found.append(np.array(index.items.list(numbers), np.int64))
    return found


def as_tables(records: Sequence[dict[str, Any]]) -> str:
    """Two Markdown tables: the matchers, and what is generated with them."""
    lines = [
        "| matchers | fill of bits, steps 1–4 | fill of the Bloom filter, steps 1–4 | parts | MB |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for one in records:
        if one["steps"]:
            fills = [
                " / ".join(f"{step['fill'][name]:.3f}" for step in one["steps"])
                for name in ("bits", "place")
            ]
            parts = sum(step["parts"] for step in one["steps"])
            size = one["matcher_bytes"] / 1e6
            lines.append(f"| {one['mode']} | {fills[0]} | {fills[1]} | {parts} | {size:.1f} |")
    lines += [
        "",
        "| matchers | generated ads | eligible ads | pass: bits | then places | all |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one['mode']} | {one['generated_ads']:.0f} | {one['eligible_ads']:.0f} | "
        + " | ".join(f"{100 * one[part]:.1f} %" for part in ("pass_bits", "pass_places", "pass"))
        + " |"
        for one in records
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment and print its tables."""
    parser = argparse.ArgumentParser(prog="beamsieve_bench.targeting_kway", description=__doc__)
    parser.add_argument("--sids", type=int, default=200_000)
    parser.add_argument("--viewers", type=int, default=32)
    parser.add_argument("--backend", default="torch:cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the records to this file")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    records = measure(given.sids, given.viewers, given.backend, given.seed)
    print(f"\n{as_tables(records)}")
    if given.json:
        settings = {name: value for name, value in vars(given).items() if name != "json"}
        given.json.write_text(
            json.dumps({"settings": settings, "records": records}, indent=1) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
