"""Real ads, real people: judged ad by ad by the ads' own columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beamsieve import Index
from beamsieve_bench import targeting_ads
from beamsieve_bench.targeting_ads_check import may_be_shown
from beamsieve_bench.targeting_real_rules import eligible_ads, measure

FOLDER = targeting_ads.data_folder()
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(
        not (FOLDER / targeting_ads.ADS).exists() or not (FOLDER / targeting_ads.PEOPLE).exists(),
        reason=f"the ads and the people are not in {FOLDER}",
    ),
]


@pytest.fixture(scope="module")
def ads() -> list[dict[str, str]]:
    return targeting_ads.read_ads(FOLDER)


@pytest.fixture(scope="module")
def index(ads: list[dict[str, str]]) -> Index:
    return Index.build(targeting_ads.ads_catalog(ads))


@pytest.fixture(scope="module")
def viewers(ads: list[dict[str, str]]) -> list[dict[str, Any]]:
    return targeting_ads.read_viewers(FOLDER, ads, 600)


@pytest.fixture(scope="module")
def eligible(ads: Any, viewers: Any) -> list[frozenset[str]]:
    return eligible_ads(ads, viewers)


def test_the_viewers_put_every_kind_of_rule_to_the_test(ads, viewers):
    """Each targeting column is, for some ad and viewer, all that stands between them."""
    columns = [
        "Gender",
        "AgeBracket",
        "CountryCode",
        "Regions (Included)",
        "Radius Targeting (Included)",
        "Radius Targeting (Excluded)",
        "Postal Codes (Included)",
        "Interests",
        "OsType",
        "Language",
        "EndDate",
    ]
    for column in columns:
        filled = [ad for ad in ads if ad[column]]
        assert any(
            may_be_shown({**ad, column: ""}, viewer) and not may_be_shown(ad, viewer)
            for ad in filled
            for viewer in viewers
        ), column


def test_exact_rules_agree_with_the_columns(ads, index, viewers, eligible):
    numbers = np.arange(len(index.items))
    assert len(numbers) == len(ads) == 659
    for viewer, expected in zip(viewers, eligible, strict=True):
        found = index.items.list(np.flatnonzero(index.eligible(viewer, numbers)))
        assert set(found) == expected


@pytest.mark.parametrize("partition", [{}, {"static": (8, 4, 1)}, {"dynamic": (0.5, 8)}])
def test_full_width_gives_every_eligible_ad_and_no_other(ads, viewers, eligible, partition):
    index = Index.build(targeting_ads.ads_catalog(ads), **partition)
    outcome = measure(index, viewers, eligible, index.leaf_count, True, "torch:cpu")
    assert (outcome.lost, outcome.wrong) == (0, 0)
    assert outcome.shown == sum(map(len, eligible)) > 3000


def test_narrow_beams_give_eligible_ads_only(index, viewers, eligible):
    outcome = measure(index, viewers, eligible, 20, True, "torch:cpu")
    assert outcome.wrong == 0
    assert outcome.shown > 0
