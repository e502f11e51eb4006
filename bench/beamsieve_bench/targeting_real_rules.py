"""Real ads and real people: every ad that comes back may be shown, and at full width none is lost.

``python -m beamsieve_bench.targeting_real_rules --json real_rules.json`` decodes Snap's political
ads of 2018 for people of the UCI Adult data (:mod:`beamsieve_bench.targeting_ads`), judges each ad
by its own columns (:mod:`beamsieve_bench.targeting_ads_check`), and prints what targeting changes
at some widths.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from beamsieve import Engine, Index
from beamsieve_bench.targeting_ads import ads_catalog, data_folder, read_ads, read_viewers
from beamsieve_bench.targeting_ads_check import may_be_shown
from beamsieve_bench.targeting_scorer import LastTokenScorer

_BATCH = 100


class Outcome(NamedTuple):
    """All viewers at one width."""

    width: int
    in_the_decode: bool
    generated: int
    """Ads generated, over all viewers."""
    shown: int
    """Of those, ads that may be shown."""
    lost: int
    """Ads that may be shown to a viewer, and did not come back."""
    wrong: int
    """Ads that came back and may not be shown; always 0, or something is broken."""


def eligible_ads(ads: list[dict[str, str]], viewers: list[dict[str, Any]]) -> list[frozenset[str]]:
    """For each viewer, the ads whose columns allow it."""
    return [frozenset(ad["ADID"] for ad in ads if may_be_shown(ad, viewer)) for viewer in viewers]


def measure(
    index: Index,
    viewers: list[dict[str, Any]],
    eligible: list[frozenset[str]],
    width: int,
    in_the_decode: bool,
    backend: str,
) -> Outcome:
    """Decode for all viewers and compare with who is eligible."""
    engine = Engine(index, backend)
    scorer = LastTokenScorer(index, len(viewers))
    generated = shown = lost = wrong = 0
    for start in range(0, len(viewers), _BATCH):
        own = viewers[start : start + _BATCH]
        beams = engine.search(
            scorer.score(slice(start, start + len(own))),
            widths=[width] * index.length,
            batch=len(own),
            requests=own if in_the_decode else None,
        )
        for hits, expected in zip(
            engine.results(beams, k=len(index.items)), eligible[start:], strict=False
        ):
            found = {str(item) for item in hits.items}
            generated += hits.generated_items
            shown += len(found & expected)
            lost += len(expected - found)
            if in_the_decode:
                wrong += len(found - expected)
    return Outcome(width, in_the_decode, generated, shown, lost, wrong)


def as_table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table."""
    lines = [
        "| width | filter | ads generated | of those, may be shown | eligible ads that came back |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one.width} | {'in the decode' if one.in_the_decode else 'after'} | "
        f"{one.generated} | {100 * one.shown / max(1, one.generated):.1f} % | "
        f"{100 * one.shown / max(1, one.shown + one.lost):.1f} % |"
        for one in outcomes
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(prog="beamsieve_bench.targeting_real_rules")
    parser.add_argument("--viewers", type=int, default=3000)
    parser.add_argument("--backend", default="torch:cpu")
    parser.add_argument("--json", type=Path, help="also write the outcomes to this file")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    ads = read_ads(data_folder())
    viewers = read_viewers(data_folder(), ads, given.viewers)
    index = Index.build(ads_catalog(ads))
    eligible = eligible_ads(ads, viewers)
    print(
        f"{len(ads)} ads, {index.leaf_count} semantic IDs, {len(viewers)} viewers, "
        f"{np.mean([len(own) for own in eligible]):.1f} eligible ads per viewer, none for "
        f"{np.mean([not own for own in eligible]):.0%} of them\n"
    )
    outcomes = [
        measure(index, viewers, eligible, width, in_the_decode, given.backend)
        for width in (25, 50, 100, index.leaf_count)
        for in_the_decode in (False, True)
    ]
    print(as_table(outcomes))
    if any(one.wrong for one in outcomes) or outcomes[-1].lost:
        raise SystemExit("an ad that may not be shown came back, or an eligible one was lost")
    if given.json:
        record = {
            "viewers": len(viewers),
            "ads": len(ads),
            "sids": index.leaf_count,
            "eligible": sum(map(len, eligible)),
            "viewers_without_any": sum(not own for own in eligible),
            "outcomes": [one._asdict() for one in outcomes],
        }
        given.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
