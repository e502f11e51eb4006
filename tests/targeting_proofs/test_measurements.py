"""What the targeting measurements rest on; and the guide shows the numbers that were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamsieve import Catalog, Engine, Index
from beamsieve_bench import targeting_kway, targeting_real_rules, targeting_sweep
from beamsieve_bench.catalogs import Workload, skewed_sids
from beamsieve_bench.targeting_scorer import LastTokenScorer
from beamsieve_bench.targeting_worlds import KINDS, SHARES, targeted_items

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "targeting"
GUIDE = (ROOT / "docs" / "targeting.md").read_text("utf-8")


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text("utf-8"))
    return found


def test_the_exact_scores_are_those_of_a_search_that_keeps_everything():
    index = Index.build(Catalog.from_arrays(skewed_sids(Workload(500, 16, 3)), codebooks=16))
    draw = np.random.default_rng(1)
    biases = [draw.normal(size=16).astype(np.float32) for _ in range(3)]
    scorer = LastTokenScorer(index, viewers=3, biases=biases)
    beams = Engine(index, "torch:cpu").search(
        scorer.score(slice(1, 3)), [index.leaf_count] * 3, batch=2
    )
    for b, viewer in enumerate((1, 2)):
        exact = scorer.exact(viewer)
        assert np.exp(exact).sum() == pytest.approx(1)
        leaves = beams.rows[b].numpy()
        assert sorted(leaves) == list(range(index.leaf_count))
        np.testing.assert_allclose(beams.scores[b].numpy(), exact[leaves], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_worlds_are_as_selective_as_they_say(kind):
    world = targeted_items(kind, 20_000)
    sids = skewed_sids(Workload(20_000, 64, 3))
    catalog = Catalog.from_arrays(
        sids, np.arange(20_000), 64, attributes=world.attributes, rules=world.rules
    )
    index = Index.build(catalog)
    for share, request, eligible in zip(SHARES, world.requests, world.eligible, strict=True):
        assert index.eligible(request, range(20_000)).tolist() == eligible.tolist()
        deviation = np.sqrt(20_000 * share * (1 - share))
        assert abs(eligible.sum() - 20_000 * share) <= 5 * deviation


def test_filtering_in_the_decode_starves_later():
    """A small sweep; inside, every returned item is compared with who is eligible."""
    outcomes = list(
        targeting_sweep.measure(
            skewed_sids(Workload(20_000, 128, 4)), [128] * 4, ["three"], 2, 128, "torch:cpu", 0
        )
    )
    by = {(one.share, one.method): one for one in outcomes}
    for share in SHARES:
        decode, after = by[share, "in the decode"], by[share, "after"]
        assert decode.filled >= after.filled
        assert decode.pass_rate >= after.pass_rate or np.isnan(decode.pass_rate)
    assert by[0.01, "in the decode"].filled > 5 * by[0.01, "after"].filled
    assert by[0.01, "allow list"].filled == 1


def test_parts_thin_the_matchers_out():
    records = {one["mode"]: one for one in targeting_kway.measure(1500, 4, "torch:cpu", 0)}
    assert records["one matcher"]["pass"] > records["none"]["pass"]
    whole, parts = (records[mode]["steps"][0]["fill"]["all"] for mode in ("one matcher", "static"))
    assert parts < whole


def test_the_guide_shows_what_was_measured():
    sweep = recorded("sweep.json")
    outcomes = [targeting_sweep.Outcome(**one) for one in sweep["outcomes"]]
    for kind in KINDS:
        assert targeting_sweep.as_table(outcomes, kind) in GUIDE
    for table in targeting_kway.as_tables(recorded("kway.json")["records"]).split("\n\n"):
        assert table in GUIDE
    real = [targeting_real_rules.Outcome(**one) for one in recorded("real_rules.json")["outcomes"]]
    assert targeting_real_rules.as_table(real) in GUIDE
